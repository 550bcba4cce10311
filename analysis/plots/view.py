"""The data of plots: a run in seconds since its start, thinned to a size that can be drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from history.journal.timeline import FaultSpan, RunClock

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
