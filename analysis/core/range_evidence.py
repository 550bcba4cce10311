"""The evidence of one range of offsets, and the facts of the row groups that its task owns.

Theory of operation. A task adds its row groups, one after another, to dense arrays of the range, 41 bytes for each
offset. Compiled loops do this in one pass over a row group. They give up a range in which anything is irregular:
several values at an offset, a read that is not contiguous, a query that contradicts itself, an impossible number. Then
the array operations of `rows`, `evidence` and `aggregates` find out what is wrong; they give the same result for
regular rows. They are used for small histories too, because loading the compiled loops takes half a second.

An append that is not durable but names its offset is matched when all row groups have been added, by the task that has
this offset (`analysis.core.named_appends`). The facts have only those that found no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.core.aggregates import COUNTS, Facts, FinalReads, LooseAppends, facts_of, finals_of
from analysis.core.evidence import BLOCK, NONE, SPARSE_BLOCK, OffsetEvidence, ReaderSessions, gather, lay_out
from analysis.core.named_appends import NamedAppends, match
from analysis.core.offset_ranges import SPAN, Key, RangeTask, RowGroup
from analysis.core.rows import DAMAGED, I64, Columns, DamagedError, Rows, columns_of, rows_of, within
from analysis.core.scans import NEVER
from analysis.core.summary import Summary, summarise
from history.schemas import INF, PHASE_FINAL

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


def examine(task: RangeTask, read: Reader, *, upper_bound: str, compiled: bool) -> RangeResult:
    """The result of one task. Raises DamagedError for rows that no client can have recorded, and for a row group that
    is not as the plan states."""
    pieces, facts = evidence_of(task, read, upper_bound=upper_bound, compiled=compiled)
    for piece in pieces:
        piece.excuse_deleted(task.deleted_to)
    summaries = [summarise(piece) for piece in pieces]
    whole = summaries[0]
    for each in summaries[1:]:
        whole = whole.merge(each)
    return RangeResult(whole, facts)


def evidence_of(task: RangeTask, read: Reader, *, upper_bound: str, compiled: bool) -> RangeEvidence:
    """The evidence of a task's range. Raises as `examine`."""
    if compiled and task.end - task.start <= SPAN and (found := by_loops(task, read, upper_bound)) is not None:
        return found
    return by_arrays(task, read, upper_bound)


def by_arrays(task: RangeTask, read: Reader, upper_bound: str) -> RangeEvidence:
    """The evidence of the range by array operations, whatever the rows are. Raises as `examine`."""
    pairs = list(zip(task.groups, task.owned, strict=True))
    batches = [(each, True) for each in batches_of(group for group, is_owned in pairs if is_owned)]
    batches += [(each, False) for each in batches_of(group for group, is_owned in pairs if not is_owned)]
    facts = Facts()
    named: list[NamedAppends] = []
    pieces: dict[int, OffsetEvidence] = {}
    for groups, is_owned in batches:
        table = read(groups)
        rows = rows_of(table)
        _require_stated(task.key, groups, table, *reach(rows))
        if is_owned:
            (more,) = facts_of(rows, upper_bound) or (Facts(),)
            facts = facts.merge(more)
        named.append(NamedAppends.within(rows.loose, task.start, task.stop))
        mine = rows if task.start == 0 and task.stop >= INF else within(rows, task.start, task.stop)
        for each in gather(mine, lay_out(mine, _block(task, len(batches))), upper_bound):
            pieces[each.start] = pieces[each.start].merge(each) if each.start in pieces else each
    found = [each.moved(task.start) for _, each in sorted(pieces.items())]
    unmatched = match(found, NamedAppends.concat(named))
    return RangeEvidence(found or [_dense(task.start, 0)], facts.with_loose(unmatched))


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
        if batch and sum(each.rows for each in batch) + group.rows > BATCH_ROWS:
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
    columns = [each for each in (rows.bound.offset, named, queries.item_offset, shown, capped) if len(each)]
    return min((int(each.min()) for each in columns), default=INF), max(
        (int(each.max()) for each in columns), default=-1
    )


def _require_stated(key: Key, groups: Sequence[RowGroup], table: pa.Table, low: int, high: int) -> None:
    """Raises DamagedError unless rows are as the plan states them: what is elsewhere would be overlooked."""
    names = ", ".join(f"row group {each.number} of {each.path}" for each in groups)
    stated = sum(each.rows for each in groups)
    if table.num_rows != stated:
        raise DamagedError(f"{names} has {table.num_rows} rows, {stated} are stated: {DAMAGED}")
    if high >= 0 and not min(each.low for each in groups) <= low <= high <= max(each.high for each in groups):
        raise DamagedError(f"{names} has offsets {low} to {high}, which are not those stated: {DAMAGED}")
    topics, numbers = pc.unique(table["topic"]).to_pylist(), pc.unique(table["partition"]).to_pylist()
    if table.num_rows and (topics, numbers) != ([key[0]], [key[1]]):
        raise DamagedError(f"{names} has operations of other partitions than {key[0]}-{key[1]}: {DAMAGED}")


def _dense(start: int, size: int) -> OffsetEvidence:
    """Evidence of nothing for the offsets start .. start + size - 1."""
    releases, deadlines = np.full((2, size), NEVER, np.int64), np.full((2, size), INF, np.int64)
    value, flags = np.full(size, NONE, np.int64), np.zeros(size, np.uint8)
    return OffsetEvidence(start, value, flags, releases[0], deadlines[0], releases[1], deadlines[1])


def by_loops(task: RangeTask, read: Reader, upper_bound: str) -> RangeEvidence | None:
    """The evidence of the range by compiled loops, None if it is not regular. Its offsets must be SPAN at most."""
    from analysis.core import range_loops

    evidence = _dense(task.start, task.end - task.start)
    counts = np.zeros(len(COUNTS), np.int64)
    last_ack = -1
    loose: list[I64] = [np.empty((5, 0), np.int64)]
    named: list[NamedAppends] = []
    sessions: list[I64] = []
    finals = Facts.finals
    for group, is_owned in zip(task.groups, task.owned, strict=True):
        table = read([group])
        columns = columns_of(table)
        extremes = np.array([last_ack, INF, -1], np.int64)
        unplaced = np.empty((6, table.num_rows), np.int64)
        filled = range_loops.scatter(
            *(task.start, upper_bound == "strict", is_owned, columns.f, columns.type, columns.acks, columns.inv),
            *(
                columns.ret,
                columns.offset,
                columns.value,
                columns.lo,
                columns.hi,
                columns.final,
                columns.again,
                columns.starts,
                columns.item_offset,
                columns.item_value,
            ),
            *(evidence.value, evidence.flags, evidence.append_release, evidence.append_deadline),
            *(evidence.query_release, evidence.query_deadline, unplaced, counts, extremes),
        )
        if filled == range_loops.IRREGULAR:
            return None
        last_ack, low, high = extremes.tolist()
        _require_stated(task.key, [group], table, low, high)
        unplaced = unplaced[:, :filled]
        names = unplaced[5] >= 0
        loose.append(unplaced[:5, ~names])
        named.append(NamedAppends(unplaced[5, names], unplaced[0, names], unplaced[2, names]))
        if is_owned and columns.final.any():
            finals = finals.merge(_finals(table))
        if upper_bound == "session":
            sessions.append(_session_events(task, columns))
    if sessions:
        evidence.sessions = ReaderSessions(*np.concatenate(sessions, axis=1))
    unmatched = [_unmatched(evidence, each) for each in named]
    if any(each is None for each in unmatched):
        return None
    appends = LooseAppends(*np.concatenate(loose, axis=1))
    facts = Facts(appends, finals, last_ack, counts=dict(zip(COUNTS, counts.tolist(), strict=True)))
    return RangeEvidence([evidence], facts.with_loose(NamedAppends.concat(filter(None, unmatched)).as_loose()))


def _unmatched(evidence: OffsetEvidence, named: NamedAppends) -> NamedAppends | None:
    """As `named_appends.match`, by a compiled loop; None if two appends name one record."""
    from analysis.core import range_loops

    left = np.empty(len(named.offset), np.int64)
    known = (evidence.value, evidence.flags, evidence.append_release)
    count = range_loops.match_named(evidence.start, named.offset, named.value, named.inv, *known, left)
    return None if count == range_loops.IRREGULAR else named.take(left[:count])


def _session_events(task: RangeTask, columns: Columns) -> I64:
    from analysis.core import range_loops

    events = np.empty((4, 2 * len(columns.f)), np.int64)
    filled = range_loops.add_sessions(
        *(task.start, task.end - task.start, columns.f, columns.type, columns.acks, columns.process, columns.session),
        *(columns.inv, columns.ret, columns.offset, columns.lo, columns.hi, columns.final, columns.starts, events),
    )
    return events[:, :filled].copy()


def _finals(table: pa.Table) -> FinalReads:
    rows = rows_of(table.filter(pc.field("phase") == PHASE_FINAL))
    return finals_of(rows).get(0, Facts.finals)
