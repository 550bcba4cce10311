"""Runs tests on a copy of the project with one broken rule, and reports whether they failed.

Only a test failure kills a break. A copy that cannot be imported, a test that does not end or that timed out (it may
only have been slow), and an error of the kind that a typing mistake makes (an unknown name) show nothing about a rule:
*did not run*.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

from tests.conformance import forking_pytest
from tests.conformance.breaks import ROOT, Break

NOT_COPIED = shutil.ignore_patterns(".*", "*.egg-info")
RUNS = "store"
"""The directory of runs beside the rooms. `orchestrator/store` is a room."""
SLIPS = ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "UnboundLocalError")
WAITED = ("TimeoutError", "subprocess.TimeoutExpired")
LEFT_OUT = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest")
"""Plugins that take longer to import than most of these tests take to run."""
LIMIT_S = 300.0  # for tests that take a second or two: only what hangs meets it


class Outcome(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    DID_NOT_RUN = "did not run"


@dataclass(frozen=True)
class Trial:
    """What came of running tests; `said`: the message of the failure, or why they did not run."""

    outcome: Outcome
    said: str


def _not_copied(root: Path) -> Callable[[str, list[str]], set[str]]:
    """What `shutil.copytree` leaves out."""
    return lambda directory, names: NOT_COPIED(directory, names) | ({RUNS} if Path(directory) == root else set())


class BrokenTree:
    """A copy of the project below `directory`, made at once, for one process at a time. Used in a `with` statement: a
    process that waits for trials ends with it."""

    def __init__(self, directory: Path, root: Path = ROOT) -> None:
        self._root = root
        self._copy = directory / "project"
        shutil.copytree(root, self._copy, ignore=_not_copied(root))
        self._forking = subprocess.Popen(
            # without the directory of the program in the path: only the copy is imported
            [sys.executable, "-P", forking_pytest.__file__],
            cwd=self._copy,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forking.communicate()

    def trial(self, one: Break) -> Trial:
        """What the break's tests say of it. ValueError when it does not fit the source."""
        with self._broken(one):
            return self.run(one.tests)

    def run(self, tests: Sequence[str], limit_s: float = LIMIT_S) -> Trial:
        """What these tests say of the copy as it is: *survived* when all pass."""
        with tempfile.TemporaryDirectory() as scratch:
            report, output = Path(scratch) / "report.xml", Path(scratch) / "output"
            options = ["-x", "-q", *LEFT_OUT, f"--junitxml={report}", f"--basetemp={scratch}/tests"]
            status = self._pytest([*options, *tests], output, limit_s)
            if status is None:
                return Trial(Outcome.DID_NOT_RUN, f"no end within {limit_s:.0f} s")
            return judged(status, output.read_text(encoding="utf-8", errors="replace"), report)

    def _pytest(self, arguments: Sequence[str], output: Path, limit_s: float) -> int | None:
        """Its exit status; None when it was ended, for it took too long."""
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        self._forking.stdin.write(json.dumps({"arguments": arguments, "output": str(output)}) + "\n")
        self._forking.stdin.flush()
        pid = int(self._forking.stdout.readline())
        ended, _, _ = select.select([self._forking.stdout], [], [], limit_s)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        status = int(self._forking.stdout.readline())
        return status if ended else None

    @contextmanager
    def _broken(self, one: Break) -> Iterator[None]:
        """The copy, broken for a while. Bytecode goes with its source: two sources of a size within one second look
        alike to the interpreter."""
        path, true = self._copy / one.file, self._root / one.file
        broken = one.broken(true.read_text(encoding="utf-8"))
        _forget_bytecode(path)
        path.write_text(broken, encoding="utf-8")
        try:
            yield
        finally:
            _forget_bytecode(path)
            shutil.copy2(true, path)

    def _environment(self) -> dict[str, str]:
        """Nothing of a pytest around this one, no other place to import the project from, and bytecode that is kept:
        all that is not broken is the same in every trial."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
            kept.pop(name, None)
        return kept | {"PYTHONPATH": str(self._copy)}


def _forget_bytecode(source: Path) -> None:
    """Also what pytest has compiled, under names of its own."""
    for bytecode in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        bytecode.unlink()


def judged(status: int, output: str, report: Path) -> Trial:
    """By pytest's exit status (0 passed, 1 some failed, else it did not come so far), what it said, and its report."""
    if status not in (0, 1) or not report.is_file():
        return Trial(Outcome.DID_NOT_RUN, f"pytest ended with {status}: {output[-2000:]}")
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    if status == 0:
        if all(case.find("skipped") is not None for case in cases):
            return Trial(Outcome.DID_NOT_RUN, "all tests were skipped")
        return Trial(Outcome.SURVIVED, "all tests passed")
    for case in cases:
        if (error := case.find("error")) is not None:
            return Trial(Outcome.DID_NOT_RUN, f"{case.get('name')}: {error.get('message')}: {error.text or ''}"[:2000])
    for case in cases:
        if (failure := case.find("failure")) is not None:
            message = failure.get("message") or ""
            tells_nothing = message.startswith(SLIPS + WAITED)
            return Trial(Outcome.DID_NOT_RUN if tells_nothing else Outcome.KILLED, f"{case.get('name')}: {message}")
    return Trial(Outcome.DID_NOT_RUN, f"pytest ended with 1 and no failure: {output[-2000:]}")
