"""What clients' operations say of a partition's replicas, by row groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.core.evidence import ACK, NONE
from analysis.core.explain import Key
from analysis.core.offset_ranges import RangeTask, RowGroup
from analysis.core.range_evidence import evidence_of
from analysis.core.replica_evidence import Appends, ClientOrder
from analysis.core.replica_ranges import AcknowledgedAppends
from analysis.core.rows import I64, sent_again
from analysis.engines.row_groups import read_row_groups
from history.record.schemas import ACKS_ALL, APPEND, END, FAIL, OK, OPERATIONS, PHASE_FINAL

_NOTHING: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class GroupsTask:
    """Row groups of one partition. `before`: only operations that had returned by then count as known, -1 none."""

    groups: tuple[RowGroup, ...]
    before: int

    @property
    def weight(self) -> int:
        return sum(group.rows for group in self.groups)


class Stated(NamedTuple):
    """What some operations state of the whole log: the invocation and the answer of the last end query of the final
    reads, (-1, -1) without one, and the highest offset that all replicas had acknowledged before a time, -1 without
    one."""

    end: tuple[int, int] = (-1, -1)
    acknowledged: int = -1

    def merge(self, other: Stated) -> Stated:
        later = max(self.end, other.end, key=lambda final_end: (final_end[0], -final_end[1]))
        return Stated(later, max(self.acknowledged, other.acknowledged))


NOT_STATED: Final = Stated()


def stated(task: GroupsTask) -> Stated:
    """What the operations of some row groups state of the whole log."""
    statement = Stated()
    for group in task.groups:
        if pc.any(pc.equal(_columns(group, "phase")["phase"], PHASE_FINAL)).as_py():
            statement = statement.merge(Stated(_final_end(_columns(group, "phase", "f", "type", "inv", "lo"))))
        if task.before >= 0:
            rows = _columns(group, "f", "type", "acks", "ret", "offset")
            f, type_, acks, ret, offset = (column.to_numpy() for column in rows.columns)
            mine = (f == APPEND) & (type_ == OK) & (acks == ACKS_ALL) & (ret < task.before)
            statement = statement.merge(Stated(acknowledged=int(offset[mine].max(initial=-1))))
    return statement


def _final_end(rows: pa.Table) -> tuple[int, int]:
    final = rows.filter(pc.equal(rows["phase"], PHASE_FINAL))
    f, type_, inv, lo = (final[name].to_numpy() for name in ("f", "type", "inv", "lo"))
    ends = np.flatnonzero((f == END) & (type_ == OK) & (lo >= 0))
    if not len(ends):
        return -1, -1
    return max(zip(inv[ends].tolist(), lo[ends].tolist(), strict=True), key=lambda query: (query[0], -query[1]))


def _columns(group: RowGroup, *names: str) -> pa.Table:
    return read_row_groups([group], pa.schema([OPERATIONS.field(name) for name in names]))


def shown(key: Key, start: int, stop: int, groups: Sequence[RowGroup]) -> tuple[ClientOrder, AcknowledgedAppends]:
    """What clients were shown at a range of offsets, and the appends that name offsets there. `groups`: the row groups
    that reach into the range. Raises DamagedError."""
    end = max((start, *(min(group.high + 1, stop) for group in groups)))
    task = RangeTask(key, start, stop, end, tuple(groups), (False,) * len(groups))
    pieces = evidence_of(task, read_row_groups, upper_bound="lower-bound-only").pieces
    order = ClientOrder(_NOTHING, _NOTHING, np.empty(0, np.bool_))
    for piece in pieces:
        offsets = np.flatnonzero(piece.value != NONE)
        order = order.joined(
            ClientOrder(offsets + piece.start, piece.value[offsets], (piece.flags[offsets] & ACK) != 0)
        )
    return order, _named(groups, start, stop)


def _named(groups: Iterable[RowGroup], start: int, stop: int) -> AcknowledgedAppends:
    pairs = [np.empty((2, 0), np.int64)]
    for group in groups:
        f, type_, value, offset = (
            column.to_numpy() for column in _columns(group, "f", "type", "value", "offset").columns
        )
        mine = (f == APPEND) & (type_ == OK) & (offset >= start) & (offset < stop)
        pairs.append(np.stack((value[mine], offset[mine])))
    return AcknowledgedAppends.of(*np.concatenate(pairs, axis=1))


class SentValues(NamedTuple):
    """What clients sent of some values; `again`: those that client libraries may have sent more than once."""

    sent: I64 = _NOTHING
    refused: I64 = _NOTHING
    loose: I64 = _NOTHING
    again: I64 = _NOTHING

    def merge(self, other: SentValues) -> SentValues:
        return SentValues(*map(np.concatenate, zip(self, other, strict=True)))

    def appends(self, certain: Sequence[I64], end: int) -> Appends:
        """The same in the form of the rules. `certain`: values that were certainly sent."""
        return Appends(np.concatenate((self.sent, *certain)), self.refused, self.loose, end, again=self.again)


NOT_SENT: Final = SentValues()


@dataclass(frozen=True)
class AskedTask:
    """Row groups of one partition, and the values in question."""

    groups: tuple[RowGroup, ...]
    values: I64

    @property
    def weight(self) -> int:
        return sum(group.rows for group in self.groups)


def sent(task: AskedTask) -> SentValues:
    """What some operations say of the values in question."""
    sent_values = SentValues()
    for group in task.groups:
        rows = _columns(group, "f", "type", "acks", "offset", "value", "error")
        rows = rows.filter(pa.array((rows["f"].to_numpy() == APPEND) & np.isin(rows["value"].to_numpy(), task.values)))
        type_, acks, offset, value = (column.to_numpy() for column in rows.columns[1:-1])
        is_repeat = sent_again(rows)
        loose = is_repeat | ((type_ != FAIL) & ~((type_ == OK) & (acks == ACKS_ALL) & (offset >= 0)))
        sent_values = sent_values.merge(SentValues(value, value[type_ == FAIL], value[loose], value[is_repeat]))
    return sent_values
