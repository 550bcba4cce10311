"""`brownout test` runs the project's tests: all of them, or what it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.command import own_tests
from orchestrator.command.line import main


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """What would have been started; it fails with pytest's 5."""
    made: list[tuple[list[str], dict[str, Any]]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        made.append((command, options))
        return subprocess.CompletedProcess(command, 5)

    monkeypatch.setattr(subprocess, "run", run)
    return made


def test_all_of_them_have_workers_that_wait_while_others_work(calls: list[tuple[list[str], dict[str, Any]]]) -> None:
    assert main(["test"]) == 1
    ((command, options),) = calls
    workers = len(os.sched_getaffinity(0)) + own_tests.WAITING
    assert command[:3] == [sys.executable, "-m", "pytest"]
    assert command[3:] == ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    assert (options["cwd"], options["env"]["PYTHONPATH"]) == (PROJECT_ROOT, str(PROJECT_ROOT))


def test_what_is_given_is_handed_on(calls: list[tuple[list[str], dict[str, Any]]]) -> None:
    assert main(["test", "--", "-k", "torn"]) == 1
    ((command, _),) = calls
    assert command[3:] == ["-k", "torn"]
