"""`brownout test`: the project's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from installation.files import PROJECT_ROOT, is_installed
from orchestrator.errors import UsageError

WAITING: Final = 2
"""Workers beyond the number of cores. Tests of real clusters wait for most of their time; others run meanwhile."""


def main(arguments: list[str]) -> int:
    """Run pytest on the project, on all cores unless there are arguments; its exit code becomes 0 or 1.

    Raises `UsageError` where there are no tests.
    """
    if is_installed():
        raise UsageError("the tests come with a checkout, not with the installed package: run ./brownout test there")
    given = (arguments[1:] if arguments[:1] == ["--"] else arguments) or _whole()
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    result = subprocess.run([sys.executable, "-m", "pytest", *given], cwd=PROJECT_ROOT, env=environment, check=False)
    return min(result.returncode, 1)


def _whole() -> list[str]:
    """All tests on all cores. The tests of a file stay together, in its order, since they share what is dear to make;
    the files that take longest begin first, which `tests/conftest.py` sees to."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ["-n", str(cores + WAITING), "--dist", "loadfile", "--no-loadscope-reorder"]
