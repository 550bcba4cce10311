"""Compares logs: D1 and D2 between two replicas, D7 between two dumps of one replica."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from sys import maxsize
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.core.anomaly import Anomaly
from analysis.core.explain import name_of
from analysis.core.replica_evidence import (
    Appends,
    Circumstances,
    ClientOrder,
    anomaly_of,
    carries_value,
    client_order,
    epoch_name,
    log_end,
    log_name,
    record_name,
)
from analysis.core.rows import I64, Bools
from analysis.replicafiles.log import CONTROL_RECORD, NO_EPOCH, LogColumns, ReplicaLog, no_records
from history.record.values import DERIVED, VALUE_FIRST
from installation.counted import counted

NO_RECORD_VALUE: Final = -1
"""The size of an absent value: a tombstone."""


class Divergence(NamedTuple):
    """D1 and D2 of some consecutive offsets. `proven`: records differ below both high watermarks, or before a record
    that both logs hold in the same epoch; `pending`: the records after these that differ, which a later record that the
    logs share would prove. `shares`: the logs share a record here."""

    proven: Anomaly | None = None
    pending: Anomaly | None = None
    shares: bool = False

    def followed_by(self, later: "Divergence") -> "Divergence":
        """What these offsets and those after them show together."""
        if not later.shares:
            return Divergence(both(self.proven, later.proven), both(self.pending, later.pending), self.shares)
        return Divergence(both(both(self.proven, self.pending), later.proven), later.pending, True)


def both(first: Anomaly | None, second: Anomaly | None) -> Anomaly | None:
    """One anomaly for two with the same name: the witness of the first, and both counts."""
    if first is None or second is None:
        return first or second
    return replace(first, count=first.count + second.count)


def divergence(a: ReplicaLog, b: ReplicaLog, quiet: bool) -> Divergence:
    """D1 and D2."""
    i, j = _common(a, b)
    same_epoch, same_record = a.epoch[i] == b.epoch[j], a.digest[i] == b.digest[j]
    if a.opaque or b.opaque:
        same_record |= _incomparable(a, b, i, j)
    both_have = (a.epoch[i] != NO_EPOCH) & (b.epoch[j] != NO_EPOCH)
    same_epoch &= both_have
    differs = ~(same_record & (same_epoch | ~both_have))
    offset = a.offset[i]
    committed = offset < (np.iinfo(np.int64).max if quiet else min(a.high_watermark, b.high_watermark))
    # The last offset at which both hold a record of the same epoch: up to it they had one leader's log.
    agreed = np.flatnonzero(same_epoch)
    shared = np.arange(len(offset)) <= (agreed[-1] if len(agreed) else -1)
    proven = differs & (committed | shared)
    return Divergence(
        _diverging(a, b, offset[proven], offset[proven & committed], quiet),
        _diverging(a, b, offset[differs & ~proven], offset[:0], quiet),
        bool(len(agreed)),
    )


def _diverging(a: ReplicaLog, b: ReplicaLog, offsets: I64, committed: I64, quiet: bool) -> Anomaly | None:
    """The records at these offsets differ; `committed`: those of them below both high watermarks."""
    if not len(offsets):
        return None
    at = int(offsets[0])
    one, other = a.at(at), b.at(at)
    assert one is not None
    assert other is not None
    kind = "records of the same epoch" if NO_EPOCH != one["epoch"] == other["epoch"] else "records"
    is_committed = bool(len(committed)) and at == committed[0]
    reason = "below both high watermarks" if is_committed else "before a record that they share"
    if quiet:
        reason = "after the cluster was at rest"
    sentence = (
        f"{a.node} and {b.node} hold different {kind} at offset {at}, {reason}: "
        f"{record_name(one)}{epoch_name(one)} and {record_name(other)}{epoch_name(other)}"
    )
    return anomaly_of("replica-divergence", a, sentence, [one, other], len(offsets))


def lacking(a: ReplicaLog, b: ReplicaLog) -> LogColumns:
    """The records below both HWs that only log `a` has, unless compaction may have removed them from `b` by what is
    known here of later records."""
    inside = (a.offset >= max(a.start, b.start)) & (a.offset < min(a.high_watermark, b.high_watermark, b.end))
    absent = inside & ~np.isin(a.offset, b.offset) & ~b.is_unknown(a.offset)
    return a.columns.take(absent & ~replaced(a.columns, latest_of((a, b))))


def unreplaced(a: ReplicaLog, b: ReplicaLog, candidates: LogColumns) -> Anomaly | None:
    """D1 in a compacted log: a record below both HWs that only one replica has is replaced by a later record.
    `candidates`: those that are not."""
    if not len(candidates.offset):
        return None
    record = a.holding(candidates).at(int(candidates.offset[0]))
    assert record is not None
    sentence = (
        f"{b.node} lacks what {a.node} holds at offset {record['offset']}, {record_name(record)}, and neither "
        "replica holds a later record of its key"
    )
    return anomaly_of("replica-divergence", a, sentence, [record], len(candidates.offset))


def latest_of(logs: Sequence[ReplicaLog]) -> dict[int, int]:
    """The offset of the last record of each key in any of the logs."""
    latest: dict[int, int] = {}
    for log in logs:
        for key, offset in zip(log.key.tolist(), log.offset.tolist(), strict=True):
            latest[key] = max(latest.get(key, -1), offset)
    return latest


def replaced(records: LogColumns, latest: Mapping[int, int]) -> Bools:
    """Which records compaction may have removed from another copy of their log: those that a later one of their key
    replaces, tombstones, and those without a key. `latest`: as of `latest_of`."""
    last = np.array([latest.get(key, -1) for key in records.key.tolist()], np.int64)
    return np.asarray((last > records.offset) | (records.size == NO_RECORD_VALUE) | (records.key == 0))


class PrefixChanges(NamedTuple):
    """D7 of some consecutive offsets: the records below the earlier HW that the later dump lacks, or holds others in
    place of. In a compacted log a later record may replace `gone` ones, which are not in `found`."""

    found: Anomaly | None
    gone: LogColumns


def prefix_changes(earlier: ReplicaLog, later: ReplicaLog, *, deleted_to: int, compacts: bool) -> PrefixChanges:
    """D7: two dumps of one replica's files; records below the earlier HW are still there, as far as the later dump
    could be read. `deleted_to`: records of lower offsets may have been deleted."""
    i, j = _common(earlier, later)
    committed = earlier.offset[i] < earlier.high_watermark
    i, j = i[committed], j[committed]
    same = (earlier.epoch[i] == later.epoch[j]) & (earlier.digest[i] == later.digest[j])
    changed = earlier.offset[i[~same & ~_incomparable(earlier, later, i, j)]]
    expected = (earlier.offset < earlier.high_watermark) & (earlier.offset >= min(later.start, deleted_to))
    if not later.is_whole:
        expected &= earlier.offset < later.end
    expected &= ~np.isin(earlier.offset, later.offset[j])
    expected &= ~later.may_be_deleted(earlier.offset, deleted_to)
    if not compacts:
        changed_offsets = np.union1d(changed, earlier.offset[expected])
        return PrefixChanges(prefix_changed(earlier, later, changed_offsets), no_records())
    expected &= ~replaced(earlier.columns, latest_of((earlier, later)))
    return PrefixChanges(prefix_changed(earlier, later, changed), earlier.columns.take(expected))


def prefix_changed(earlier: ReplicaLog, later: ReplicaLog, offsets: I64) -> Anomaly | None:
    """D7 is broken at these offsets."""
    if not len(offsets):
        return None
    offset = int(offsets[0])
    before, after = earlier.at(offset), later.at(offset)
    sentence = (
        f"offset {offset} of {earlier.node} was below its high watermark {earlier.high_watermark}, "
        f"but a later dump of its log {'holds another record there' if after else 'lacks it'}"
    )
    return anomaly_of("prefix-changed", earlier, sentence, [before, after], len(offsets))


def _common(a: ReplicaLog, b: ReplicaLog) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of the offsets that both logs hold."""
    lo, hi = max(a.start, b.start), min(a.end, b.end)
    i, j = (np.arange(*np.searchsorted(log.offset, (lo, hi))) for log in (a, b))
    if len(i) == len(j) and np.array_equal(a.offset[i], b.offset[j]):
        return i, j
    _, x, y = np.intersect1d(a.offset[i], b.offset[j], assume_unique=True, return_indices=True)
    return i[x], j[y]


def _incomparable(a: ReplicaLog, b: ReplicaLog, i: npt.NDArray[np.intp], j: npt.NDArray[np.intp]) -> Bools:
    """Where an unopened compressed set is compared with a record, or with a set of another message format."""
    one, other = a.is_opaque(a.offset[i]), b.is_opaque(b.offset[j])
    formats_differ = (a.epoch[i] == NO_EPOCH) != (b.epoch[j] == NO_EPOCH)
    return np.asarray((one != other) | (one & other & formats_differ))


# ---- Compares a log with what clients sent and read (D5, D6, D8), and its records with their values (D9).

Doubt = Callable[[str], None]


def order_mismatch(log: ReplicaLog, order: ClientOrder, circumstances: Circumstances) -> Iterator[Anomaly]:
    """D5: below the HW, a log holds at each offset what clients were shown to be there."""
    limit = log.end if circumstances.quiet else min(log.high_watermark, log.end)
    inside = (order.offset >= min(log.start, circumstances.deleted_to)) & (order.offset < limit)
    offset, value = order.offset[inside], order.value[inside]
    if not len(offset):
        return
    at = np.searchsorted(log.offset, offset)
    is_held = np.append(log.offset, -1)[at] == offset
    differs = ~is_held | (np.append(log.value, -1)[at] != value)
    if circumstances.compacts:
        differs &= is_held  # a missing record may have been replaced by a later one
    mismatches = np.flatnonzero(differs & ~log.is_unknown(offset))
    if not len(mismatches):
        return
    first = int(mismatches[0])
    record = log.at(int(offset[first]))
    expected = client_order(log, int(offset[first]), int(value[first]))
    holds = record_name(record) if record else "nothing"
    place = f"at offset {offset[first]}"
    sentence = f"clients were shown {name_of(int(value[first]))} {place}, but {log.node} holds {holds} there"
    yield anomaly_of("replica-order-mismatch", log, sentence, [expected, record or log_end(log)], len(mismatches))


def lost(replicas: Sequence[ReplicaLog], order: ClientOrder, circumstances: Circumstances) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, each acknowledged value is in a replica's log. A value that may be in the unread
    part of a log is not lost."""
    missing = unheld(replicas, order, circumstances)
    if not len(missing.offset):
        return
    offset, value = int(missing.offset[0]), int(missing.value[0])
    ends = ", ".join(f"{log.node} ends at {log.end}" for log in replicas)
    sentence = f"{name_of(value)} was acknowledged at offset {offset}, but no replica holds it ({ends})"
    witness = [client_order(replicas[0], offset, value), *(log.at(offset) for log in replicas)]
    yield anomaly_of("lost-acknowledged-write", replicas[0], sentence, witness, len(missing.offset))


def unheld(replicas: Sequence[ReplicaLog], order: ClientOrder, circumstances: Circumstances) -> ClientOrder:
    """What was acknowledged, must be in the logs, and is not at any offset of them that is known here."""
    mine = order.acknowledged.copy()
    for log in replicas:
        mine &= ~log.is_unknown(order.offset)
    mine &= order.offset >= min(circumstances.deleted_to, *(log.start for log in replicas))
    if circumstances.compacts:
        mine &= order.offset >= max(log.end for log in replicas)  # else a later record may have replaced it
    return order.take(mine & ~np.isin(order.value, np.concatenate([log.value for log in replicas])))


def not_converged(
    replicas: Sequence[ReplicaLog], appends: Appends | None, circumstances: Circumstances
) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, all logs start and end at the same offsets, and the HW is there.

    With final reads, up to their end: a late request, which its client has already given up, may arrive after them. Its
    record or its HW may not have reached the other replicas when the nodes stop. A record that its leader has
    acknowledged is not late: the other replicas must have it too."""
    last = maxsize if appends is None or appends.end < 0 else appends.end
    replicas = [log for log in replicas if log.is_whole]
    if not replicas:
        return
    due = last if appends is None else max(last, *(_end_of(log, appends.answered) for log in replicas))
    starts, ends = {log.start for log in replicas}, {min(log.end, due) for log in replicas}
    lagging = [log for log in replicas if 0 <= log.high_watermark < min(log.end, last)]
    ends_text = ", ".join(f"{log.node} at {log.end} (high watermark {log.high_watermark})" for log in replicas)
    if len(ends) > 1:
        sentence = f"the logs end at different offsets: {ends_text}"
    elif any(log.high_watermark > log.end for log in replicas):
        sentence = f"the logs end before their high watermarks: {ends_text}"
    elif len(starts) > 1 and max(starts) > circumstances.deleted_to:
        begin = ", ".join(f"{log.node} at {log.start}" for log in replicas)
        sentence = f"the logs start at different offsets, though nothing may delete from them: {begin}"
    elif lagging and circumstances.stopped:
        ends_text = ", ".join(f"{log.node} at {log.high_watermark}" for log in lagging)
        sentence = f"the logs end at {ends.pop()}, but the high watermark stayed behind on {ends_text}"
        replicas = lagging
    else:
        return
    yield anomaly_of("not-converged", replicas[0], sentence, [log_end(log) for log in replicas])


def _end_of(log: ReplicaLog, values: I64) -> int:
    """The offset after the last record of a log that has one of these values; 0 without one."""
    return int(log.offset[np.isin(log.value, values)].max(initial=-1)) + 1


def final_end(
    replicas: Sequence[ReplicaLog], appends: Appends, circumstances: Circumstances, doubt: Doubt
) -> Iterator[Anomaly]:
    """D6: the logs end at the final reads' end, apart from appends that may have happened after it."""
    whole_logs = [log for log in replicas if log.is_whole]
    if appends.end < 0 or not whole_logs:
        return
    longest = max(whole_logs, key=lambda log: log.end)
    end_text = f"the final reads show that the log of {longest.topic}-{longest.partition} ends at {appends.end}"
    question = {"op": "final end", "topic": longest.topic, "partition": longest.partition, "offset": appends.end}
    if longest.end < appends.end and len(whole_logs) == len(replicas):
        sentence = f"{end_text}, but no replica's does: {longest.node} ends at {longest.end}"
        witness = [question, *(log_end(log) for log in whole_logs)]
        yield anomaly_of("final-end-mismatch", longest, sentence, witness, appends.end - longest.end)
    beyond = (longest.offset >= appends.end) & (longest.value != CONTROL_RECORD) & ~longest.is_opaque(longest.offset)
    unexplained = np.flatnonzero(beyond & ~np.isin(longest.value, appends.loose))
    if len(unexplained):
        record = longest.at(int(longest.offset[unexplained[0]]))
        assert record is not None
        sentence = f"{end_text}, but {longest.node} holds {record_name(record)} at offset {record['offset']}"
        if circumstances.all_sent:
            yield anomaly_of("final-end-mismatch", longest, sentence, [question, record], len(unexplained))
        else:
            doubt(f"{sentence}, and the record of sent operations is incomplete")


def control_records(log: ReplicaLog, circumstances: Circumstances) -> int:
    """The number of committed control records."""
    return int((_committed(log, circumstances) & (log.value == CONTROL_RECORD) & ~log.is_opaque(log.offset)).sum())


def foreign_records(
    log: ReplicaLog, appends: Appends, circumstances: Circumstances, controls: int, doubt: Doubt
) -> Iterator[Anomaly]:
    """D8: each committed record was sent to this partition, was not refused, and is there once, unless its client
    library may have sent it again: then any number of copies may be there. `controls`: the number of committed control
    records."""
    if controls:
        doubt(f"{log_name(log)} has {counted(controls, 'control record')}, though no client used transactions")
    candidates = _committed(log, circumstances) & ~log.is_opaque(log.offset) & (log.value != CONTROL_RECORD)
    for is_wrong, reason in (
        (candidates & ~np.isin(log.value, appends.sent), "which no client sent to this partition"),
        (candidates & np.isin(log.value, appends.refused), "whose append was refused"),
    ):
        wrong_records = np.flatnonzero(is_wrong)
        if not len(wrong_records):
            continue
        record = log.at(int(log.offset[wrong_records[0]]))
        assert record is not None
        sentence = f"{log.node} holds {record_name(record)} at offset {record['offset']}, {reason}"
        if circumstances.all_sent or reason.startswith("whose"):
            yield anomaly_of("phantom-on-replica", log, sentence, [record], len(wrong_records))
        else:
            doubt(f"{sentence}, according to an incomplete record of sent operations")
    yield from _duplicates(log, appends)


def _duplicates(log: ReplicaLog, appends: Appends) -> Iterator[Anomaly]:
    mine = carries_value(log) & ~np.isin(log.value, appends.again)
    offset, value = log.offset[mine], log.value[mine]
    order = np.argsort(value, kind="stable")
    twice = np.flatnonzero(np.diff(value[order]) == 0)
    if not len(twice):
        return
    one, other = (log.at(int(offset[order[twice[0] + i]])) for i in (0, 1))
    assert one is not None
    assert other is not None
    sentence = f"{log.node} holds {record_name(one)} at offset {one['offset']} and at offset {other['offset']}"
    yield anomaly_of("duplicate-on-replica", log, sentence, [one, other], len(twice))


def corrupt_records(log: ReplicaLog, circumstances: Circumstances, doubt: Doubt) -> Iterator[Anomaly]:
    """D9: each committed record consists of its value, byte by byte."""
    if circumstances.records == VALUE_FIRST:
        return
    sized = log.size == circumstances.record_bytes if circumstances.record_bytes else np.ones(len(log.size), np.bool_)
    corrupt = np.flatnonzero(_committed(log, circumstances) & carries_value(log) & ~(log.exact & sized))
    if not len(corrupt):
        return
    record = log.at(int(log.offset[corrupt[0]]))
    assert record is not None
    size = int(log.size[corrupt[0]])
    difference = "a key, headers or a value" if sized[corrupt[0]] else f"a value of {size} bytes"
    sentence = (
        f"{log.node} holds {record_name(record)} at offset {record['offset']} with {difference} that no client wrote"
    )
    if circumstances.records == DERIVED:
        yield anomaly_of("corrupt-record", log, sentence, [record | {"bytes": size}], len(corrupt))
    else:
        doubt(f"{sentence}, if clients made it as usual: the run does not say how")


def _committed(log: ReplicaLog, circumstances: Circumstances) -> Bools:
    limit: int | I64 = np.iinfo(np.int64).max if circumstances.quiet else log.high_watermark
    return np.asarray(log.offset < limit)
