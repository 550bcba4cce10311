"""Counts a run's load: acknowledged changes that the system promises to keep, and queries answered under load.

Invariant: a change counts only if a checker would report its loss as an anomaly. For logs these are the appends that
all in-sync replicas acknowledged (acks = -1; every system that promises to keep what it acknowledges records this); for
registers all acknowledged writes, for workloads of a user's own all acknowledged calls. Appends with a lower acks are
*weak* and counted separately. Commits of consumer groups are counted separately too; `checkers/consumer_groups.py`
demands some for each partition.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.evidence.run_directory import SHARE_DIGITS, RunDescription
from history.reader import History
from history.record.schemas import ACKS_ALL, APPEND, CHANGES, END, INF, OK, PHASE_MAIN, QUERY, READ
from history.record.shapes import LOG

_AFTER_LOAD = "quiesce"
_ACKS = "acks"


@dataclass(frozen=True)
class MeasuredLoad:
    """`changes`, `weak`: acknowledged changes that the system promises to keep, and acknowledged weak appends, in the
    whole run. `changes_under_load`, `weak_under_load`, `queries_under_load`: those invoked before the load ended.
    """

    changes: int
    changes_under_load: int
    queries_under_load: int
    weak: int = 0
    weak_under_load: int = 0

    def __add__(self, other: "MeasuredLoad") -> "MeasuredLoad":
        """The load of two parts of a history together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return MeasuredLoad(*(mine + theirs for mine, theirs in pairs))

    @property
    def weak_words(self) -> str:
        """The weak appends of the whole run, for a sentence; empty without any."""
        return _weak_words(self.weak)

    @property
    def weak_words_under_load(self) -> str:
        """The weak appends under load, for a sentence; empty without any."""
        return _weak_words(self.weak_under_load)


def _weak_words(count: int) -> str:
    return f"; {count:,} more had a lower acks than -1, which no rule protects" if count else ""


def load_of(history: History) -> MeasuredLoad:
    """Count a history. Reads of logs are not queries: they come in bulk and do not bound a log from above."""
    end = _end_of_load(history)
    return sum((_load(part, end) for part in _parts(history, "type", "inv", "phase")), MeasuredLoad(0, 0, 0))


def _load(operations: pa.Table, end: int) -> MeasuredLoad:
    under_load = _under_load(operations, end)
    changes, changes_under_load = (_count(_kept(rows), CHANGES) for rows in (operations, under_load))
    return MeasuredLoad(
        changes=changes,
        changes_under_load=changes_under_load,
        queries_under_load=_count(under_load, (END,) if _ACKS in operations.column_names else (READ, QUERY)),
        weak=_count(operations, CHANGES) - changes,
        weak_under_load=_count(under_load, CHANGES) - changes_under_load,
    )


def goes_on(history: History, moment: int) -> bool:
    """Whether an operation that counts was in progress at `moment`, or was invoked later, under load. An operation that
    never returned counts as in progress; a weak append does not count."""
    end = _end_of_load(history)
    return any(_goes_on(_under_load(_kept(part), end), moment) for part in _parts(history, "inv", "ret", "phase"))


def _parts(history: History, *columns: str) -> Iterator[pa.Table]:
    """The operations part by part: these columns, `f`, and the acks of operations on logs."""
    for operations in history.recorded:
        yield from operations.parts(*columns, "f", *([_ACKS] if operations.shape is LOG else []))


def _goes_on(load: pa.Table, moment: int) -> bool:
    ends = pc.fill_null(load["ret"], INF)
    return bool(pc.any(pc.or_(pc.greater(ends, moment), pc.greater_equal(load["inv"], moment))).as_py())


def load_statistics(description: RunDescription, load: MeasuredLoad) -> dict[str, Any]:
    """The statistics of a verdict about planned and achieved load; shares are None if nothing was planned."""
    planned = description.plan.changes
    return {
        "acknowledged": load.changes,
        "acknowledged_weak": load.weak,
        "planned_changes": planned,
        "planned_queries": description.plan.queries,
        "queries_under_load": load.queries_under_load,
        "achieved_share": round(load.changes_under_load / planned, SHARE_DIGITS) if planned else None,
    }


def _end_of_load(history: History) -> int:
    ended = [phase.start for phase in history.phases if phase.name == _AFTER_LOAD]
    return min(ended, default=INF)


def _under_load(table: pa.Table, end: int) -> pa.Table:
    """The operations of the main phase that were invoked before the load ended. Later writes of probes show that the
    cluster has recovered; they have the same phase but are not load."""
    in_time = pc.less(table["inv"], end)
    return table.filter(pc.and_(pc.equal(table["phase"].cast(pa.string()), PHASE_MAIN), in_time))


def _kept(operations: pa.Table) -> pa.Table:
    """The operations without weak appends."""
    if _ACKS not in operations.column_names:
        return operations
    return operations.filter(pc.or_(pc.not_equal(operations["f"], APPEND), pc.equal(operations[_ACKS], ACKS_ALL)))


def _count(table: pa.Table, kinds: tuple[int, ...]) -> int:
    mask = pc.and_(pc.is_in(table["f"], pa.array(kinds, pa.int8())), pc.equal(table["type"], OK))
    return int(pc.sum(mask).as_py() or 0)
