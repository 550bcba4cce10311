"""The state of the invocations that are under way, read from the files that their runs write.

Theory of operation. A run appends to its journal and to its clients' streams as things happen, and holds a lock while
its process lives. A second process can therefore show the run without talking to it, and a run never waits for a
viewer. Each look reads the whole record of a run again; `Live` therefore waits `PAUSE_FACTOR` times the processor time
of the last look before the next, so that viewing costs a run at most that share of one processor. On a busy machine a
look takes longer, but costs the same: the pause must not grow with it, or a viewer would miss short faults.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from analysis.verdict import UNKNOWN, VERDICT_FILE
from history.errors import HistoryError
from history.reader import History, read_run
from history.regular_files import open_regular, read_bytes
from history.schemas import INF, OK
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
    99th percentile (None without an acknowledgement). `lines`: the newest lines of nodes' logs, as (node, line)."""

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
        self._next_s = 0.0

    def look(self) -> list[LiveInvocation]:
        """The newest invocations, those under way first; at most `PAUSE_FACTOR` times its own processor time old."""
        if time.monotonic() >= self._next_s:
            before_s = time.process_time()
            newest_first = sorted(invocations(self._store), key=lambda each: each.stamp, reverse=True)
            self._seen = sorted(newest_first, key=lambda each: each.running is None)
            cost_s = time.process_time() - before_s
            self._next_s = time.monotonic() + min(30.0, max(0.5, PAUSE_FACTOR * cost_s))
        return self._seen


def invocations(store: Path) -> Iterator[LiveInvocation]:
    """The newest invocation of each campaign that has a readable plan."""
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
        running = None if under_way is None else live_run(directory / under_way)
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


def live_run(path: Path) -> LiveRun:
    """What a run has recorded so far. A record that cannot be read yet is empty."""
    try:
        history = read_run(path)
    except (HistoryError, OSError):
        return LiveRun(path.name, 0, "starting", 0, (), (), (), (), _lines(path))
    return _live(path, history)


def _live(path: Path, history: History) -> LiveRun:
    journal = history.journal
    origin = journal[0]["t"] if journal else 0
    inv, ret, ok = _operations(history)
    newest = max([origin, *(line["t"] for line in journal), *([int(ret.max())] if ret.size else [])])
    seconds = max(1, int((newest - origin) / 1e9) + 1)
    first = max(0, seconds - MOST_SECONDS)
    at = ((ret - origin) // 1_000_000_000).astype(np.int64)
    shown = (at >= first) & (at < seconds)
    count = seconds - first
    acknowledged = np.bincount(at[shown & ok] - first, minlength=count)
    failed = np.bincount(at[shown & ~ok] - first, minlength=count)
    phases = [line["name"] for line in journal if line["event"] == "phase"]
    return LiveRun(
        run=path.name,
        seconds=seconds,
        phase=phases[-1] if phases else "starting",
        total=int(ok.sum()),
        acknowledged=tuple(acknowledged.tolist()),
        failed=tuple(failed.tolist()),
        latency_ms=tuple(_latencies(at[shown & ok] - first, (ret - inv)[shown & ok], count)),
        faults=tuple(_faults(history, origin)),
        lines=_lines(path),
        first_second=first,
    )


def _operations(history: History) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Invocation and return in nanoseconds of all completed operations, and whether they were acknowledged."""
    columns = []
    for name in ("inv", "ret", "type"):
        parts = [table[name].combine_chunks().to_numpy() for table in (history.operations, history.registers)]
        columns.append(np.concatenate(parts))
    inv, ret, kind = columns
    done = ret < INF
    return inv[done], ret[done], kind[done] == OK


def _latencies(seconds: np.ndarray[Any, Any], took: np.ndarray[Any, Any], count: int) -> Iterator[float | None]:
    order = np.argsort(seconds, kind="stable")
    bounds = np.searchsorted(seconds[order], np.arange(count + 1))
    for start, stop in pairwise(bounds.tolist()):
        yield round(float(np.percentile(took[order[start:stop]], 99)) / 1e6, 3) if stop > start else None


def _faults(history: History, origin: int) -> Iterator[ShownFault]:
    for row in history.faults.to_pylist():
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
