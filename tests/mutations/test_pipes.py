"""Files that block at open, or have no end, in place of any file of a run: every command returns without waiting.

A command of this package runs in this process, so that an alarm interrupts one that blocks.
"""

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Final

import pytest

from analysis.pipeline import analyze
from analysis.verdict import PASS
from history.seal import EVIDENCE
from orchestrator.command.line import main
from tests.mutations.bench import Bench, judge, seal_again
from tests.mutations.mutation import Judgement

AT_ONCE_S: Final = 60
"""Far more time than an answer takes on a busy machine; a reader of a pipe without a writer would wait for ever."""
PARTS: Final = 4
"""Of the files of a campaign, so that the quick tier can put something else in the place of some."""
OF_ANOTHER_NODE: Final = ("nodes/n2/", "nodes/n3/")
"""What is of n1 stands for all."""


class BlockedError(Exception):
    """The time is over."""


@contextmanager
def at_once() -> Iterator[None]:
    def over(*_: object) -> None:
        raise BlockedError(f"no answer in {AT_ONCE_S} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(AT_ONCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as each:  # its whole path may be too long
        each.bind(path.name)


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


Make = Callable[[Path], None]
KINDS: Final[tuple[Make, ...]] = (a_pipe, a_socket, a_link_to_a_device)


def evidence(run: Path) -> list[str]:
    """The files of a run's evidence that differ in what they are."""
    files = [path for name in EVIDENCE for path in (run / name, *(run / name).rglob("*")) if path.is_file()]
    names = sorted(path.relative_to(run).as_posix() for path in files)
    has_group = (run / "history" / "groups").is_dir()
    return [name for name in names if not name.startswith(OF_ANOTHER_NODE) and _is_read(name, has_group=has_group)]


def _is_read(name: str, *, has_group: bool) -> bool:
    """Of the offsets topic only the final segments are read, and only for a group."""
    return "/__consumer_offsets" not in name or (has_group and "/data/" in name and name.endswith(".log"))


def put(path: Path, make: Make) -> None:
    path.unlink()
    make(path)


@contextmanager
def copied(source: Path, target: Path) -> Iterator[Path]:
    shutil.copytree(source, target, symlinks=True)
    try:
        yield target
    finally:
        shutil.rmtree(target)


def judged(bench: Bench, base: str, name: str, make: Make, *, sealed: bool) -> Judgement:
    run = bench.bases[base]
    with copied(run, bench.directory / "pipes" / run.name) as mutant:
        put(mutant / name, make)
        if sealed and name != "history/seal.json":
            seal_again(mutant)
        with at_once():
            return judge(mutant)


@pytest.mark.rotating(19, among="pipes")
@pytest.mark.parametrize("base", ["log", "group", "register", "simulated"])
def test_analyze_is_unknown_when_any_file_of_the_evidence_is_a_pipe(bench: Bench, base: str) -> None:
    for number, name in enumerate(evidence(bench.bases[base])):
        found = judged(bench, base, name, KINDS[number % len(KINDS)], sealed=bool(number % 2))
        assert found.verdict in ("unknown", "fail"), (name, found)
        assert found.stored in (None, found.verdict), (name, found)


@pytest.mark.rotating(19, among="pipes")
@pytest.mark.parametrize("make", KINDS)
def test_analyze_passes_when_an_output_file_was_a_pipe(bench: Bench, make: Make) -> None:
    run = bench.bases["log"]
    with copied(run, bench.directory / "pipes" / run.name) as mutant:
        for path in sorted(path for name in ("tables", "certificate") for path in (mutant / name).rglob("*.*")):
            put(path, make)
        for name in ("verdict.json", "verdict.json.tmp", "report.html", "report.html.tmp", "analysis-error.txt"):
            (mutant / name).unlink(missing_ok=True)
            make(mutant / name)
        shutil.rmtree(mutant / "plots", ignore_errors=True)
        make(mutant / "plots")
        with at_once():
            assert analyze(mutant, engine="in-process").verdict == PASS


@pytest.fixture
def campaign(bench: Bench, tmp_path: Path) -> Path:
    """A copy of the campaign of the base "log"; the gate says 0."""
    target = tmp_path / "store" / "log"
    shutil.copytree(bench.bases["log"].parent, target, symlinks=True)
    (run,) = (path.parent for path in target.glob("*/run.toml"))
    judge(run)
    assert main(["gate", str(target)]) == 0
    return target


@pytest.mark.rotating(19, among="pipes")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("make", KINDS)
def test_gate_and_report_return_when_any_file_is_a_pipe(campaign: Path, make: Make, part: int) -> None:
    """Of the run and of its campaign. The gate never passes without the requested evidence."""
    (run,) = (path.parent for path in campaign.glob("*/run.toml"))
    made = {"report.html", "junit.xml", "summary.json", ".lock"}  # by those who answer
    files = sorted(path for path in campaign.rglob("*") if path.is_file() and "tables" not in path.parts)
    inside = {path: path.relative_to(campaign).as_posix().removeprefix(f"{run.name}/") for path in files}
    different = [path for path, name in inside.items() if not name.startswith(OF_ANOTHER_NODE)]
    for path in different[part::PARTS]:
        kept = path.read_bytes()
        put(path, make)
        with at_once():
            code = main(["gate", str(campaign)])
        assert code != 0 or path.name in made, path
        for of in (campaign, run):
            with at_once():
                main(["report", str(of)])
        path.unlink()
        path.write_bytes(kept)


@pytest.mark.parametrize("make", KINDS)
def test_a_segment_that_is_a_pipe_is_not_dumped(bench: Bench, tmp_path: Path, make: Make) -> None:
    target = tmp_path / "log-0"
    shutil.copytree(bench.bases["log"] / "nodes/n1/data/log-0", target)
    segment = next(target.glob("*.log"))
    put(segment, make)
    with at_once():
        assert main(["log", "dump", str(segment)]) == 64
        assert main(["log", "dump", str(target)]) == 64
