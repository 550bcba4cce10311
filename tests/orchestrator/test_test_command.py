"""`brownout test` runs the project's tests, and ends with every process that they started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.command.line import main
from orchestrator.command.test import QUICK_TEST_S, WAITING, pytest_command

HANGING = """
import os, pathlib, subprocess, time, pytest

@pytest.mark.parametrize("number", [1, 2])
def test_hangs(number):
    orphan = subprocess.check_output(["sh", "-c", "setsid sleep 1000 > /dev/null & echo $!"], text=True).strip()
    child = subprocess.Popen(["sleep", "1000"])
    pids = pathlib.Path(__file__).with_name(f"pids-{number}")
    pids.with_suffix(".draft").write_text(f"{os.getpid()} {child.pid} {orphan}")
    pids.with_suffix(".draft").rename(pids)
    time.sleep(1000)
"""
"""Each test has a worker, a child, and an orphan in a session of its own."""


def test_the_quick_tier_has_workers_that_wait_while_others_work() -> None:
    command = pytest_command([], "quick")
    assert command[:5] == [sys.executable, "-m", "pytest", "--tier", "quick"]
    assert command[5:7] == ["-n", str(len(os.sched_getaffinity(0)) + WAITING)]


def test_a_test_that_hangs_fails_sooner_in_the_quick_tier() -> None:
    assert pytest_command([], "quick")[-2:] == ["--timeout", str(QUICK_TEST_S)]
    assert "--timeout" not in pytest_command([], "rest")


def test_arguments_are_passed_to_pytest_unchanged() -> None:
    assert pytest_command(["-k", "torn"], "quick")[3:] == ["-k", "torn"]


def test_the_whole_suite_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--all", "--", "-k", "torn"]) == 64
    assert "leave one of the two out" in capsys.readouterr().err


def test_a_failed_session_ends_with_one(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): assert False\n")
    assert session(tmp_path).wait() == 1


@pytest.mark.rotating(4, among="ends of test sessions")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_ends_pytest_its_workers_and_all_that_they_started(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    running = session(tmp_path, "-n", "2", "-p", "tests.conftest")
    pids = pids_of_both_tests(tmp_path)
    running.send_signal(number)
    assert running.wait() == 130
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.rotating(4, among="ends of test sessions")
def test_a_killed_pytest_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    running = session(tmp_path, "-n", "2", "-p", "tests.conftest")
    pids = pids_of_both_tests(tmp_path)
    os.kill(parent(pids[0]), signal.SIGKILL)
    assert running.wait() == 1
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.rotating(4, among="ends of test sessions")
def test_sigterm_to_pytest_alone_ends_its_workers(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    arguments = pytest_command(["-n", "2", "-p", "tests.conftest", "-c", os.devnull, str(tmp_path)], "all")
    running = subprocess.Popen(arguments, cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL)
    pids = pids_of_both_tests(tmp_path)
    running.terminate()
    assert running.wait() == 2  # interrupted
    workers, left = pids[::3], [pid for index, pid in enumerate(pids) if index % 3]
    assert [pid for pid in workers if is_running(pid)] == []
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def session(directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """`brownout test` on the tests of a directory that has no settings of its own."""
    command = [sys.executable, "-m", "orchestrator", "test", "--", "-c", os.devnull, *arguments, str(directory)]
    return subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL)


def pids_of_both_tests(directory: Path) -> list[int]:
    """Worker, child and orphan of the first test, then of the second one, once both are running."""
    found = [directory / "pids-1", directory / "pids-2"]
    deadline = time.monotonic() + 300
    while not all(file.exists() for file in found):
        assert time.monotonic() < deadline, "the tests did not start"
        time.sleep(0.05)
    return [int(pid) for file in found for pid in file.read_text().split()]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def is_running(pid: int) -> bool:
    """False for a process that has ended, also while its parent has not asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
