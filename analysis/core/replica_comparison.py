"""Compares logs: D1 and D2 between two replicas, D7 between two dumps of one replica."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import anomaly_of, epoch_name, record_name
from analysis.core.rows import I64, Bools
from analysis.replicafiles.log import NO_EPOCH, LogColumns, ReplicaLog, no_records

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
