"""`brownout test`: runs the project's own tests, and ends every process that they started.

Theory of operation. On Linux this process adopts the orphans of everything below it (`PR_SET_CHILD_SUBREAPER`) and
waits for pytest with `waitpid(-1)`, which also reaps adopted processes as they end. An interrupt is passed on to
pytest as SIGINT, so that fixtures are torn down. When pytest has ended (normally, interrupted or killed), every
remaining process below this one is a child of it: it gets SIGTERM, and SIGKILL after a grace period, until no child
is left.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

from installation.files import PROJECT_ROOT, is_installed
from orchestrator.command.shared.declaration import Command
from orchestrator.errors import STOPPING, UsageError
from orchestrator.machine import syscalls

WAITING: Final = 2
"""Workers beyond the number of cores. Tests of real clusters wait for most of their time; others run meanwhile."""
SLOWEST: Final = 10
"""How many of the slowest tests are listed at the end."""
TEARDOWN_S: Final = 30.0
"""How long pytest may take to end after an interrupt."""
QUICK_TEST_S: Final = 300
"""How long a test of the quick tier may take. The longest take a minute and a half; a test that hangs fails sooner."""
GRACE_S: Final = 5.0
"""How long processes that pytest left behind may take to end after SIGTERM."""


def main(options: argparse.Namespace) -> int:
    """Run pytest on the project; its exit code becomes 0 or 1, and 130 after an interrupt.

    Without arguments for pytest, runs a tier (`tests/tiers.py`) on all cores: quick, all or rest. Raises `UsageError`
    in an installed package, which has no tests.
    """
    if is_installed():
        raise UsageError("the tests are in the checkout, not in the installed package: run ./brownout test there")
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    if arguments and options.tier != "quick":
        raise UsageError(f"test: --{options.tier} takes no arguments for pytest; leave one of the two out")
    return _TestSession(pytest_command(arguments, options.tier), shares_terminal=bool(arguments)).run()


def pytest_command(arguments: list[str], tier: str) -> list[str]:
    """pytest with the given arguments; without any, the suite of a tier on all cores.

    The tests of a file stay together, in its order, since they share expensive fixtures; `tests/conftest.py` starts the
    longest files first.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = ["-n", str(cores + WAITING), "--dist", "loadfile", "--no-loadscope-reorder"]
    progress = ["-o", "console_output_style=count", f"--durations={SLOWEST}", "--durations-min=1"]
    limit = ["--timeout", str(QUICK_TEST_S)] if tier == "quick" else []
    return [sys.executable, "-m", "pytest", *(arguments or ["--tier", tier, *workers, *progress, *limit])]


class _TestSession:
    """One pytest process and everything below it.

    `shares_terminal`: pytest stays in this process's group, so that a debugger can read the terminal; the terminal then
    sends Ctrl-C to both. Otherwise only this process gets it and passes it on.
    """

    def __init__(self, command: list[str], *, shares_terminal: bool) -> None:
        self._command = command
        self._shares_terminal = shares_terminal
        self._pytest: subprocess.Popen[bytes] | None = None
        self._interrupted = False

    def run(self) -> int:
        """Exit code: 0 passed, 1 failed, 130 interrupted."""
        if sys.platform == "linux":
            syscalls.adopt_orphans()
        handlers = {number: signal.signal(number, self._interrupt) for number in STOPPING}
        try:
            self._pytest = self._start()
            code = _wait_for(self._pytest)
        finally:
            _end_children()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return 130 if self._interrupted else min(abs(code), 1)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
        group = None if self._shares_terminal else 0
        return subprocess.Popen(self._command, cwd=PROJECT_ROOT, env=environment, process_group=group)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """The first interrupt asks pytest to end, and SIGALRM bounds its teardown. A second interrupt kills it."""
        if self._interrupted or number == signal.SIGALRM:
            self._kill()
            return
        self._interrupted = True
        signal.signal(signal.SIGALRM, self._interrupt)
        signal.setitimer(signal.ITIMER_REAL, TEARDOWN_S)
        from_terminal = self._shares_terminal and number == signal.SIGINT
        if self._pytest is not None and not from_terminal:
            self._pytest.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        if self._pytest is not None:
            self._pytest.kill()


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a child; adopted processes that end meanwhile are reaped."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            signal.setitimer(signal.ITIMER_REAL, 0)
            return process.returncode


def _end_children() -> None:
    """End all children. When a child ends, its children become children of this process, so none is missed."""
    deadline = time.monotonic() + GRACE_S
    signalled: set[int] = set()
    while children := _children():
        overdue = time.monotonic() > deadline
        for pid in children:
            if overdue or pid not in signalled:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if overdue else signal.SIGTERM)
        signalled.update(children)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def _children() -> list[int]:
    threads = Path("/proc/self/task")
    children: list[int] = []
    for task in threads.iterdir() if threads.is_dir() else ():
        with contextlib.suppress(OSError):
            children += [int(pid) for pid in (task / "children").read_text(encoding="ascii").split()]
    return children


def _options(command: argparse.ArgumentParser) -> None:
    tier = command.add_mutually_exclusive_group()
    tier.add_argument("--all", dest="tier", action="store_const", const="all", help="run every test")
    tier.add_argument(
        "--rest", dest="tier", action="store_const", const="rest", help="run what the quick tier leaves out"
    )
    command.set_defaults(tier="quick")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- PYTEST ARGUMENTS", help="passed to pytest")


COMMAND: Final = Command(
    name="test",
    place=160,
    summary="run the tests",
    description="""\
Runs the tests with pytest on all cores. The quick tier runs each test once; of groups of similar tests
(breaks, mutated runs, seeds) it runs the changed ones and a part that rotates with the commit. Ctrl-C ends
pytest and every process that the tests started.

  brownout test                          the quick tier
  brownout test --all                    every test, as CI does
  brownout test -- -k quorum             the tests that pytest selects with these arguments, on one core
  brownout test -- -n 2 tests/broker     the same on two cores
""",
    options=_options,
    main=main,
)
