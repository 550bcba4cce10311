"""Computes what a run's plots show (`PlotData`), from its history and its nodes' events."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analysis.evidence.run_directory import NodeEvents, fits, moment
from history.grouped import grouped
from history.journal.timeline import HEALED, INVOKED, NS, FaultSpan, RunClock
from history.reader import History
from history.record.schemas import CAS, INF, MISMATCH, REGISTERS

# ---- The data of plots: a run in seconds since its start, thinned to a size that can be drawn.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

OUTCOMES = ("ok", "fail", "info")
OPERATIONS = ("append", "read", "end", "write", "cas", "call", "query")
CHANGES = ("append", "write", "cas", "call")
PLURALS = {"append": "appends", "read": "reads", "end": "queries of log ends", "write": "writes",
           "cas": "compare-and-sets", "call": "calls", "query": "queries"}  # fmt: skip
"""Each operation's name in titles and labels."""
_RATES = pa.schema([(name, pa.int64()) for name in ("f", "type", "second", "operations")])


@dataclass(frozen=True)
class PlottedOperations:
    """Operations as columns of equal length: times in seconds, `f` an index of OPERATIONS, `type` of OUTCOMES.
    `mismatched`: compare-and-sets that were answered because the key did not hold the expected value. Only every
    `stride`th operation of the run is there."""

    invoked: Floats
    returned: Floats
    f: Ints
    type: Ints
    mismatched: npt.NDArray[np.bool_]
    stride: int = 1

    def of(self, operation: str, outcome: str | None = None) -> npt.NDArray[np.bool_]:
        """The mask of the rows of one operation, and of one outcome if given."""
        mask: npt.NDArray[np.bool_] = self.f == OPERATIONS.index(operation)
        return mask if outcome is None else mask & (self.type == OUTCOMES.index(outcome))

    def served(self) -> npt.NDArray[np.bool_]:
        """The mask of the changes that the system served: those that happened, and compare-and-sets that it answered
        with a mismatch. A log refuses an append only when it is not available."""
        mask: npt.NDArray[np.bool_] = self.changes() & ((self.type == OUTCOMES.index("ok")) | self.mismatched)
        return mask

    def changes(self, outcome: str | None = None) -> npt.NDArray[np.bool_]:
        """The mask of the rows of the operations that change something, and of one outcome if given."""
        mask: npt.NDArray[np.bool_] = np.isin(self.f, [OPERATIONS.index(name) for name in CHANGES])
        return mask if outcome is None else mask & (self.type == OUTCOMES.index(outcome))

    def noun(self) -> str:
        """The plural of the operations that change something in this run, for labels."""
        present = [PLURALS[name] for name in CHANGES if self.of(name).any()]
        return " and ".join(present) or "changes"


@dataclass(frozen=True)
class Lane:
    """One replica over time: the offsets (records) and leader epoch that it reported."""

    node: str
    time: Floats
    log_end_offset: Ints
    high_watermark: Ints
    leader_epoch: Ints


@dataclass(frozen=True)
class StartsLane:
    """The starts of one replica's log over time, as it reported them: of the whole log, of its own files, and the last
    offset in remote storage (-1: none)."""

    node: str
    time: Floats
    log_start: Ints
    local_start: Ints
    last_tiered: Ints


@dataclass(frozen=True)
class PlotData:
    """All plotted data of one run. `bands`: its faults, those without a heal until the end of the run. `lanes` and
    `starts` by (topic, partition), the latter only for logs in remote storage; `end` is the length of the run in
    seconds.

    `rates`: the number of `operations` by `f`, `type` and `second`: of their returns, or invocations if they never
    returned. `first_served`: for the start and the end of each band the earliest return, in seconds, of a served change
    that was invoked then or later. Both are of all operations."""

    operations: PlottedOperations
    bands: tuple[FaultSpan, ...]
    lanes: dict[tuple[str, int], tuple[Lane, ...]]
    starts: dict[tuple[str, int], tuple[StartsLane, ...]] = field(default_factory=dict)
    end: float = 0.0
    clock: RunClock = field(default_factory=RunClock)
    rates: pa.Table = field(default_factory=_RATES.empty_table)
    first_served: Mapping[float, float] = field(default_factory=dict)

    def rate(self, operation: str, outcome: str) -> pa.Table:
        """The rows of `rates` of one operation and outcome."""
        is_operation = pc.field("f") == OPERATIONS.index(operation)
        return self.rates.filter(is_operation & (pc.field("type") == OUTCOMES.index(outcome)))

    def count(self, outcome: str) -> int:
        """The number of operations that change something, of this outcome."""
        return sum(int(self.rate(name, outcome)["operations"].to_numpy().sum()) for name in CHANGES)


_Lane = TypeVar("_Lane", Lane, StartsLane)
MOST_OPERATIONS = 1 << 19
"""A run of more operations is thinned evenly before plots are drawn: every second one from twice as many on."""


def view_of(history: History, events: NodeEvents) -> PlotData:
    """All times in seconds since the first event of the journal (without one: since the first operation)."""
    clock, origin = history.clock, history.clock.origin_ns
    plotted = _Plotted(origin, max(1, history.size // MOST_OPERATIONS), origin)
    rates = grouped(map(plotted.add, _shared(history)), ("f", "type", "second"), operations="sum")
    times = [plotted.last, *(line["t"] for line in history.journal if "t" in line)]
    end = clock.of_monotonic(max(times))
    faults = (replace(fault, end_s=fault.end_s if HEALED in fault.lines else end) for fault in history.faults)
    bands = tuple(sorted(faults, key=lambda fault: fault.start_s))
    return PlotData(
        operations=plotted.operations(),
        bands=bands,
        lanes=_lanes(events, clock),
        starts=_starts(events, clock),
        end=end,
        clock=clock,
        rates=rates,
        first_served=_first_served(history, origin, (time for band in bands for time in (band.start_s, band.end_s))),
    )


def _shared(history: History) -> Iterator[pa.Table]:
    """The columns that operations of all shapes share, part by part. The first part is empty, so there is a part
    without operations, too."""
    names = ("f", "type", "inv", "ret", "error")
    yield REGISTERS.empty_table().select(names)
    yield from history.parts(*names)


@dataclass
class _Plotted:
    """What plots show of the operations. `kept`: invocation, return, kind, outcome and mismatch of every `stride`th;
    `last`: the last time."""

    origin: int
    stride: int
    last: int
    count: int = 0
    kept: list[tuple[np.ndarray[Any, Any], ...]] = field(default_factory=list)

    def add(self, part: pa.Table) -> pa.Table:
        """Add operations. Returns their rows of `PlotData.rates`, one for each operation."""
        inv, ret, f, kind = (part[name].to_numpy().astype(np.int64, copy=False) for name in ("inv", "ret", "f", "type"))
        self.last = max(self.last, int(inv.max(initial=self.last)), int(ret[ret < INF].max(initial=self.last)))
        chosen = slice(-self.count % self.stride, None, self.stride)
        # A slice would keep the whole column in memory.
        self.kept.append(tuple(column[chosen].copy() for column in (inv, ret, f, kind, _mismatched(part))))
        self.count += part.num_rows
        second = np.maximum(np.where(ret < INF, ret, inv) - self.origin, 0) // int(NS)
        return pa.table({"f": f, "type": kind, "second": second, "operations": np.ones_like(second)})

    def operations(self) -> PlottedOperations:
        columns = [np.concatenate(column) for column in zip(*self.kept, strict=True)]
        return _in_seconds(columns, self.origin, self.last, self.stride)


def _in_seconds(columns: Sequence[np.ndarray[Any, Any]], origin: int, last: int, stride: int) -> PlottedOperations:
    inv, ret, f, kind, mismatched = columns
    return PlottedOperations(
        invoked=(inv - origin) / NS,
        # An operation that never completed is drawn up to the end of the record.
        returned=(np.where(ret >= INF, last, ret) - origin) / NS,
        f=f,
        type=kind,
        mismatched=mismatched,
        stride=stride,
    )


def _first_served(history: History, origin: int, moments: Iterable[float]) -> dict[float, float]:
    """For each moment the earliest return of a served change that was invoked then or later, if there is one."""
    ordered = np.array(sorted(set(moments)), np.float64)
    earliest = np.full(len(ordered), np.inf)
    for part in _shared(history) if len(ordered) else ():
        columns = [part[name].to_numpy() for name in ("inv", "ret", "f", "type")]
        chosen = _in_seconds([*columns, _mismatched(part)], origin, INF, 1)
        served = chosen.served()
        at = np.searchsorted(ordered, chosen.invoked[served], side="right") - 1
        np.minimum.at(earliest, at[at >= 0], chosen.returned[served][at >= 0])
    earliest = np.minimum.accumulate(earliest[::-1])[::-1]
    return {moment: first for moment, first in zip(ordered.tolist(), earliest.tolist(), strict=True) if first < np.inf}


def _mismatched(table: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Compare-and-sets that failed with the answer that the key did not hold the expected value."""
    mismatched = pa.compute.equal(table["error"].cast(pa.string()), MISMATCH).to_numpy()
    mask: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(mismatched, np.bool_) & (table["f"].to_numpy() == CAS)
    return mask


def fault_rows(history: History) -> list[dict[str, Any]]:
    """The faults as the verdict lists them: times in seconds since the start, evidence as recorded."""
    return [
        {
            "id": fault.id,
            "kind": fault.kind,
            "targets": list(fault.targets),
            "sentence": fault.sentence,
            "status": fault.status,
            "start_s": round(fault.start_s, 3),
            "end_s": round(fault.end_s, 3) if HEALED in fault.lines else None,
            "evidence": fault.evidence,
            "proof": fault.proof,
            "parameters": fault.line(INVOKED).get("parameters", {}),
        }
        for fault in history.faults
    ]


def _lanes(events: NodeEvents, clock: RunClock) -> dict[tuple[str, int], tuple[Lane, ...]]:
    """The replicas' reports of their progress, by partition; one lane for each node that reported."""
    return _reports(events, clock, "replica_progress", ("log_end_offset", "high_watermark", "leader_epoch"), Lane)


def _starts(events: NodeEvents, clock: RunClock) -> dict[tuple[str, int], tuple[StartsLane, ...]]:
    """The starts of logs that replicas reported, by partition, for partitions with records in remote storage."""
    numbers = ("log_start_offset", "local_start_offset", "last_tiered_offset")
    starts = _reports(events, clock, "replica_starts", numbers, StartsLane)
    return {key: lanes for key, lanes in starts.items() if any((lane.last_tiered >= 0).any() for lane in lanes)}


def _reports(
    events: NodeEvents, clock: RunClock, name: str, numbers: Sequence[str], lane: Callable[..., _Lane]
) -> dict[tuple[str, int], tuple[_Lane, ...]]:
    """By partition, a lane for each node with whole reports of this name: its node, times and numbers."""
    rows: dict[tuple[str, int], dict[str, list[Mapping[str, Any]]]] = {}
    for node, of_node in events.items():
        for event in of_node:
            is_whole = isinstance(event.get("topic"), str) and all(map(fits, map(event.get, ("partition", *numbers))))
            if event["event"] == name and is_whole:
                rows.setdefault((event["topic"], event["partition"]), {}).setdefault(node, []).append(event)
    return {
        key: tuple(
            lane(
                node,
                np.array([clock.of_wall(moment(report)) for report in reports], np.float64),
                *(np.array([report[number] for report in reports], np.int64) for number in numbers),
            )
            for node, reports in of_nodes.items()
        )
        for key, of_nodes in sorted(rows.items())
    }
