"""The state of the invocations that are under way, read from the files that their runs write.

Theory of operation. A run appends to its journal and to its clients' streams as things happen, and holds a lock while
its process lives. A second process can therefore show the run without talking to it, and a run never waits for a
viewer. A look reads what the clients recorded since the last one, and keeps counts by second; the journal, which does
not grow with operations, is read whole. `Live` waits `PAUSE_FACTOR` times the processor time of the last look before
the next, so that viewing costs a run at most that share of one processor. On a busy machine a look takes longer, but
costs the same: the pause must not grow with it, or a viewer would miss short faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from analysis.verdict import UNKNOWN, VERDICT_FILE
from history.growing_operations import GrowingOperations
from history.journal import FILE_NAME
from history.journal_reader import read_journal
from history.reader import faults_of
from history.regular_files import open_regular, read_bytes
from installation.sanitize import visible_line
from orchestrator.campaign.plans import PlanError, read_plan, stamps
from orchestrator.campaign.store import LATEST, RunDirectory

PAUSE_FACTOR: Final = 20
MOST_SECONDS: Final = 900
"""Older seconds of a run are not shown."""
_MOST_LINES: Final = 12
_TAIL_BYTES: Final = 8 << 10
_LOGS: Final = ("service.log", "events.jsonl")
RUNNING, PLANNED, UNDECIDED = "running", "planned", "no verdict"


@dataclass(frozen=True)
class ShownFault:
    """A fault; times in seconds since the run's start, `until` None while it is in force."""

    kind: str
    targets: tuple[str, ...]
    since: float
    until: float | None
    status: str


@dataclass(frozen=True)
class MatrixCell:
    """One run of the plan: its verdict, or `RUNNING`, `PLANNED` or `UNDECIDED`."""

    run: str
    cell: str
    seed: int
    state: str
    met: bool | None


@dataclass(frozen=True)
class LiveRun:
    """A run that is under way. By second since its start: `acknowledged` and `failed` operations, and `latency_ms`, the
    99th percentile, within 2.3 % (None without an acknowledgement). `lines`: the newest lines of nodes' logs, as (node,
    line)."""

    run: str
    seconds: int
    phase: str
    total: int
    acknowledged: tuple[int, ...]
    failed: tuple[int, ...]
    latency_ms: tuple[float | None, ...]
    faults: tuple[ShownFault, ...]
    lines: tuple[tuple[str, str], ...]
    first_second: int = 0


@dataclass(frozen=True)
class LiveInvocation:
    """The newest invocation of a campaign: its matrix, and the run that is under way, if any."""

    campaign: str
    stamp: str
    matrix: tuple[MatrixCell, ...]
    running: LiveRun | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Decided(msgspec.Struct):
    """The part of a verdict.json that the matrix shows."""

    verdict: str
    met: bool = False
    finished: bool = False


class Live:
    """Reads the newest invocations of a store's campaigns. `look` is for one thread."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._seen: list[LiveInvocation] = []
        self._runs: dict[Path, RunLook] = {}
        self._next_s = 0.0

    def look(self) -> list[LiveInvocation]:
        """The newest invocations, those under way first; at most `PAUSE_FACTOR` times its own processor time old."""
        if time.monotonic() >= self._next_s:
            before_s = time.process_time()
            before, self._runs = self._runs, {}
            found = invocations(self._store, lambda path: self._look_at(path, before.get(path)))
            newest_first = sorted(found, key=lambda each: each.stamp, reverse=True)
            self._seen = sorted(newest_first, key=lambda each: each.running is None)
            cost_s = time.process_time() - before_s
            self._next_s = time.monotonic() + min(30.0, max(0.5, PAUSE_FACTOR * cost_s))
        return self._seen

    def _look_at(self, path: Path, known: RunLook | None) -> LiveRun:
        self._runs[path] = RunLook(path) if known is None else known
        return self._runs[path].look()


def invocations(store: Path, look: Callable[[Path], LiveRun]) -> Iterator[LiveInvocation]:
    """The newest invocation of each campaign that has a readable plan. `look`: at a run that is under way."""
    try:
        directories = sorted(path for path in store.iterdir() if path.is_dir() and path.name != LATEST)
    except OSError:
        return
    for directory in directories:
        known = () if directory.name.startswith(".") else stamps(directory)
        if not known:
            continue
        try:
            plan = read_plan(directory, known[-1])
        except PlanError:
            continue
        matrix = tuple(_cell(directory / run.id, run.cell.name, run.seed) for run in plan.runs)
        under_way = next((each.run for each in matrix if each.state == RUNNING), None)
        running = None if under_way is None else look(directory / under_way)
        yield LiveInvocation(directory.name, plan.stamp, matrix, running)


def _cell(path: Path, cell: str, seed: int) -> MatrixCell:
    try:
        stored = msgspec.json.decode(read_bytes(path / VERDICT_FILE), type=_Decided)
        if stored.finished:
            return MatrixCell(path.name, cell, seed, stored.verdict, stored.met)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return MatrixCell(path.name, cell, seed, UNKNOWN, None)
    if not path.is_dir():
        return MatrixCell(path.name, cell, seed, PLANNED, None)
    return MatrixCell(path.name, cell, seed, RUNNING if RunDirectory(path).is_held() else UNDECIDED, None)


class RunLook:
    """Looks at a run that is under way, again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._origin = 0
        self._operations = GrowingOperations(self._directory, 0, MOST_SECONDS)

    @property
    def _directory(self) -> Path:
        return self._path / "history" / "operations"

    def look(self) -> LiveRun:
        """What the run has recorded so far. A record that cannot be read yet is empty."""
        try:
            journal = read_journal(self._path / "history" / FILE_NAME).lines
            origin = journal[0]["t"] if journal else 0
            if origin != self._origin or not self._operations.look(journal):
                self._origin = origin
                self._operations = GrowingOperations(self._directory, origin, MOST_SECONDS)
                self._operations.look(journal)
        except OSError:
            return LiveRun(self._path.name, 0, "starting", 0, (), (), (), (), _lines(self._path))
        return self._live(journal)

    def _live(self, journal: Sequence[dict[str, Any]]) -> LiveRun:
        counts = self._operations.counts
        newest = max([self._origin, counts.newest, *(line["t"] for line in journal)])
        seconds = max(1, int((newest - self._origin) / 1e9) + 1)
        shown = range(max(0, seconds - MOST_SECONDS), seconds)
        phases = [line["name"] for line in journal if line["event"] == "phase"]
        return LiveRun(
            run=self._path.name,
            seconds=seconds,
            phase=phases[-1] if phases else "starting",
            total=counts.total,
            acknowledged=tuple(map(counts.acknowledged, shown)),
            failed=tuple(map(counts.failed, shown)),
            latency_ms=tuple(_rounded(counts.latency_ms(second, 0.99)) for second in shown),
            faults=tuple(_faults(journal, self._origin)),
            lines=_lines(self._path),
            first_second=shown.start,
        )


def _rounded(latency_ms: float | None) -> float | None:
    return None if latency_ms is None else round(latency_ms, 3)


def _faults(journal: Sequence[dict[str, Any]], origin: int) -> Iterator[ShownFault]:
    for row in faults_of(journal).to_pylist():
        since = row["injected"] or row["invoked"]
        if since is not None:
            until = None if row["healed"] is None else (row["healed"] - origin) / 1e9
            targets = tuple(row["targets"] or ())
            yield ShownFault(row["kind"], targets, (since - origin) / 1e9, until, row["status"])


def _lines(path: Path) -> tuple[tuple[str, str], ...]:
    """The last lines of each node's log, control characters made visible."""
    found = list[tuple[str, str]]()
    for node in sorted((path / "nodes").glob("*")):
        for name in _LOGS:
            if lines := _tail(node / name):
                found += [(node.name, visible_line(line)) for line in lines]
                break
    return tuple(found)


def _tail(path: Path) -> Sequence[str]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    return text.splitlines()[-_MOST_LINES:]
