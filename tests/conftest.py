"""Hooks and fixtures of all tests: order, tier, and the end of a test session by a signal."""

import contextlib
import ctypes
import gc
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from analysis.engines.spark import SparkHandle, java_version
from tests import tiers

ROOT: Final = Path(__file__).resolve().parents[1]

ON_SPARK: Final = (
    "tests/mutations/test_mutations_on_spark.py",
    "tests/analysis_pipeline/test_engines.py",
    "tests/orchestrator/test_runs_on_workers.py",
    "tests/orchestrator/test_results_on_spark.py",
)
"""The files whose tests use the fixture `spark`. They run on one worker, one after the other, and share a session."""
LONGEST: Final = (
    *ON_SPARK,
    "tests/conformance/test_breaks.py",
    "tests/mutations/test_mutations.py",
    "tests/playbooks/test_playbooks.py",
    "tests/orchestrator/test_scenarios.py",
    "tests/orchestrator/test_unexpected_broker_exits.py",
    "tests/simulator/test_directed_campaigns.py",
    "tests/search/test_replay.py",
    "tests/simulator/test_leases.py",
)
"""The files whose tests take longest, some at work and some waiting."""
LEFT_OUT = pytest.StashKey[int]()
"""How many tests the tier left out."""
SPARK = pytest.StashKey[SparkHandle]()
"""The session of this process."""
_PR_SET_PDEATHSIG: Final = 1

# Without bytecode every process that a test starts would compile all that it imports, and every worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Collected tests live to the end of the session. While they are made, and later, garbage collection would only traverse
# them: a sixth of the time that a worker takes to collect.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=(tiers.QUICK, tiers.REST, tiers.ALL),
        default=tiers.ALL,
        help="quick: a rotating part of the tests that stand for many alike; rest: the others (tests/tiers.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """SIGTERM ends a session as Ctrl-C does: fixtures are torn down, and their processes with them. A worker gets it,
    too, when the process that started it ends."""
    config.stash[LEFT_OUT] = 0
    signal.signal(signal.SIGTERM, _interrupt)
    if hasattr(config, "workerinput"):
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    elif config.getoption("numprocesses", None):
        config.pluginmanager.register(_InterruptedWorkers())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would break the teardown of fixtures
    raise KeyboardInterrupt


class _InterruptedWorkers:
    """In the main process of pytest-xdist: without it each worker finishes its test, or is killed after 10 s."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        for worker in _children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, with one worker for all files that use Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """The same for tests that run on one worker."""
    file = nodeid.split("::")[0]
    return "spark" if file in ON_SPARK else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return []


class _Module(pytest.Module):
    """A coroutine function is the test that `STORIES` of its module makes of it, a decorator as those of
    `tests/stories.py`."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        for name, function in list(vars(self.obj).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(function):
                setattr(self.obj, name, self.obj.STORIES(function))
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return _Module.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Applies the tier. The longest files start first, so that none of them runs alone at the end; then the files of
    few tests, which often start whole clusters. The tests of a file stay together, in its order."""
    for item in items:
        if any(map(item.get_closest_marker, ("vm", "long"))):
            item.add_marker(pytest.mark.timeout(0))  # these may take longer than any other test
    unnamed = {_file(item) for item in items if "spark" in getattr(item, "fixturenames", ())} - {*ON_SPARK}
    if unnamed:
        raise pytest.UsageError(
            f"{', '.join(sorted(unnamed))}: uses the fixture spark; name it in ON_SPARK of {__file__}"
        )
    tier = config.getoption("--tier")
    if tier != tiers.ALL:
        quick, rest = tiers.selection_of(ROOT).choose(items)
        items[:], left_out = (quick, rest) if tier == tiers.QUICK else (rest, quick)
        config.stash[LEFT_OUT] = len(left_out)
        config.hook.pytest_deselected(items=left_out)
    sizes = Counter(map(_file, items))
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: (places.get(file := _file(item), len(LONGEST)), sizes[file], file))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker reports to the main process how many tests its tier left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects the same tests, so that one report counts."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", node.config.stash[LEFT_OUT])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash[LEFT_OUT]:
        terminalreporter.write_line(
            f"tier {config.getoption('--tier')}: {left_out} tests were left out; ./brownout test --all runs every test"
        )


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The session ends before the first test of another file: tests that start a session of their own would get it, and
    would end it."""
    if _file(item) not in ON_SPARK and SPARK in item.config.stash:
        item.config.stash[SPARK].stop()


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkHandle]:
    """The session for the tests of `ON_SPARK`; a start takes four seconds of processor time, the first one ten."""
    if java_version() is None:
        pytest.skip("no Java runtime: install openjdk-17-jre-headless")
    handle = pytestconfig.stash[SPARK] = SparkHandle.start_in_background()
    yield handle
    handle.stop()
