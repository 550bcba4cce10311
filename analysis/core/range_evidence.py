"""The evidence of one range of offsets, and the facts of the row groups that its task owns.

Theory of operation. A task reads its row groups, small ones together. Array operations sort each batch into operations
(`rows`), lay these out over the offsets of the range (`evidence`), and count what belongs to the row groups that the
task owns (`aggregates`). The pieces of several batches start at the same offsets and are merged.

An append with acks < all may be lost and its offset reused, so the offset that it names binds nothing. But values are
unique: if reads show its value at that offset, then the record is this append. So the task that has the offset finds
the append's place when all row groups have been added, whatever the other tasks know. From then on the append gives its
offset a release, as a durable one does, and no deadline. Only the others are loose for the driver and are among the
facts: their offset holds another value, or was not read. With acks=1 these are few, and the matched ones are nearly all
appends of a history. If several appends name one offset and its value, the one invoked first is matched.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.core.aggregates import Facts, LooseAppends, facts_of
from analysis.core.evidence import ACK, BLOCK, NAMED, NONE, SEEN, SPARSE_BLOCK, OffsetEvidence, gather, lay_out
from analysis.core.offset_ranges import SPAN, Key, RangeTask, RowGroup
from analysis.core.rows import DAMAGED, I64, DamagedError, Ints, Loose, Rows, rows_of, within
from analysis.core.scans import NEVER
from analysis.core.summary import Summary, summarise
from history.record.schemas import INF, INFO


class NamedAppends(NamedTuple):
    """Appends that may have happened, and the offsets that they name."""

    offset: I64
    value: I64
    inv: I64

    @classmethod
    def within(cls, loose: Loose, start: int, stop: int) -> "NamedAppends":
        """Those that name one of the offsets start .. stop - 1; `start` is 0 or more."""
        at = np.flatnonzero((loose.offset >= start) & (loose.offset < stop))
        return cls(loose.offset[at], loose.value[at], loose.inv[at])

    @classmethod
    def concat(cls, pieces: Iterable["NamedAppends"]) -> "NamedAppends":
        nothing = np.empty((3, 0), np.int64)
        return cls(*np.concatenate([nothing, *map(np.stack, pieces)], axis=1))

    def take(self, at: Ints) -> "NamedAppends":
        return NamedAppends(self.offset[at], self.value[at], self.inv[at])

    def as_loose(self) -> LooseAppends:
        size = len(self.offset)
        type_, ret, again = (np.full(size, filler, np.int64) for filler in (INFO, INF, 0))
        return LooseAppends(self.value, type_, self.inv, ret, again)


def _match_named(pieces: Sequence[OffsetEvidence], named: NamedAppends) -> LooseAppends:
    """Adds to the evidence of a range, in `pieces` by ascending offset, the appends that name the offset at which reads
    show them; returns the other appends."""
    named = named.take(np.lexsort((named.inv, named.offset)))
    is_left = np.ones(len(named.offset), np.bool_)
    for piece in pieces:
        first, last = np.searchsorted(named.offset, (piece.start, piece.start + len(piece.value))).tolist()
        offset, value, inv = named.take(np.arange(first, last))
        at = offset - piece.start
        fits = np.flatnonzero((piece.value[at] == value) & (piece.flags[at] & (ACK | SEEN) == SEEN))
        fits = fits[np.diff(offset[fits], prepend=-1) != 0]
        piece.flags[at[fits]] |= NAMED
        piece.append_release[at[fits]] = inv[fits]
        is_left[first + fits] = False
    return named.take(np.flatnonzero(is_left)).as_loose()


BATCH_ROWS: Final = 1 << 20
"""At most this many rows of small row groups are examined together."""

Reader = Callable[[Sequence[RowGroup]], pa.Table]
"""Reads the rows of row groups of one partition, in their order."""


class RangeEvidence(NamedTuple):
    """The evidence of a range, in pieces by ascending offset, and the facts of the row groups that its task owns. Of
    the appends that name an offset, those of the range that no record was found for are among the facts."""

    pieces: list[OffsetEvidence]
    facts: Facts


class RangeResult(NamedTuple):
    """What a task reports: the summary of its range and the facts of the row groups that it owns."""

    summary: Summary
    facts: Facts


def examine(task: RangeTask, read: Reader, *, upper_bound: str) -> RangeResult:
    """The result of one task. Raises DamagedError for rows that no client can have recorded, and for a row group that
    is not as the plan states."""
    pieces, facts = evidence_of(task, read, upper_bound=upper_bound)
    for piece in pieces:
        piece.excuse_deleted(task.deleted_to)
    summaries = [summarise(piece) for piece in pieces]
    summary = summaries[0]
    for later_summary in summaries[1:]:
        summary = summary.merge(later_summary)
    return RangeResult(summary, facts)


def evidence_of(task: RangeTask, read: Reader, *, upper_bound: str) -> RangeEvidence:
    """The evidence of a task's range. Raises as `examine`."""
    pairs = list(zip(task.groups, task.owned, strict=True))
    batches = [(batch, True) for batch in batches_of(group for group, is_owned in pairs if is_owned)]
    batches += [(batch, False) for batch in batches_of(group for group, is_owned in pairs if not is_owned)]
    facts = Facts()
    named: list[NamedAppends] = []
    pieces: dict[int, OffsetEvidence] = {}
    for groups, is_owned in batches:
        table = read(groups)
        rows = rows_of(table)
        _require_stated(task.key, groups, table, *reach(rows))
        if is_owned:
            (batch_facts,) = facts_of(rows, upper_bound) or (Facts(),)
            facts = facts.merge(batch_facts)
        named.append(NamedAppends.within(rows.loose, task.start, task.stop))
        mine = rows if task.start == 0 and task.stop >= INF else within(rows, task.start, task.stop)
        for piece in gather(mine, lay_out(mine, _block(task, len(batches))), upper_bound):
            pieces[piece.start] = pieces[piece.start].merge(piece) if piece.start in pieces else piece
    ordered = [piece.moved(task.start) for _, piece in sorted(pieces.items())]
    unmatched = _match_named(ordered, NamedAppends.concat(named))
    return RangeEvidence(ordered or [_dense(task.start, 0)], facts.with_loose(unmatched))


def _block(task: RangeTask, batches: int) -> int | None:
    """Offsets per piece of evidence. Pieces of several batches are merged, so they must start at the same offsets."""
    if task.end - task.start > SPAN:
        return SPARSE_BLOCK if batches > 1 else None
    if task.stop >= INF and batches <= 1:
        return None
    return min(BLOCK, task.stop - task.start)


def batches_of(groups: Iterable[RowGroup]) -> Iterator[list[RowGroup]]:
    """The row groups in their order, small ones together."""
    batch: list[RowGroup] = []
    for group in groups:
        if batch and sum(member.rows for member in batch) + group.rows > BATCH_ROWS:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def reach(rows: Rows) -> tuple[int, int]:
    """The lowest and the highest offset that the rows show or name, (INF, -1) without any."""
    queries = rows.queries
    shown, capped = queries.lo[queries.lo > 0] - 1, queries.hi[queries.hi >= 0]
    named = rows.loose.offset[rows.loose.offset >= 0]
    columns = [column for column in (rows.bound.offset, named, queries.item_offset, shown, capped) if len(column)]
    return min((int(column.min()) for column in columns), default=INF), max(
        (int(column.max()) for column in columns), default=-1
    )


def _require_stated(key: Key, groups: Sequence[RowGroup], table: pa.Table, low: int, high: int) -> None:
    """Raises DamagedError unless rows are as the plan states them: what is elsewhere would be overlooked."""
    names = ", ".join(f"row group {group.number} of {group.path}" for group in groups)
    stated = sum(group.rows for group in groups)
    if table.num_rows != stated:
        raise DamagedError(f"{names} has {table.num_rows} rows, {stated} are stated: {DAMAGED}")
    if high >= 0 and not min(group.low for group in groups) <= low <= high <= max(group.high for group in groups):
        raise DamagedError(f"{names} has offsets {low} to {high}, which are not those stated: {DAMAGED}")
    topics, numbers = pc.unique(table["topic"]).to_pylist(), pc.unique(table["partition"]).to_pylist()
    if table.num_rows and (topics, numbers) != ([key[0]], [key[1]]):
        raise DamagedError(f"{names} has operations of other partitions than {key[0]}-{key[1]}: {DAMAGED}")


def _dense(start: int, size: int) -> OffsetEvidence:
    """Evidence of nothing for the offsets start .. start + size - 1."""
    releases, deadlines = np.full((2, size), NEVER, np.int64), np.full((2, size), INF, np.int64)
    value, flags = np.full(size, NONE, np.int64), np.zeros(size, np.uint8)
    return OffsetEvidence(start, value, flags, releases[0], deadlines[0], releases[1], deadlines[1])
