"""Compares logs: D1 and D2 between two replicas, D7 between two dumps of one replica."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import anomaly_of, epoch_name, record_name
from analysis.core.rows import Bools
from analysis.replicafiles.log import NO_EPOCH, ReplicaLog

NO_RECORD_VALUE: Final = -1
"""The size of an absent value: a tombstone."""


def divergence(a: ReplicaLog, b: ReplicaLog, quiet: bool) -> Iterator[Anomaly]:
    """D1 and D2."""
    i, j = _common(a, b)
    same_epoch, same_record = a.epoch[i] == b.epoch[j], a.digest[i] == b.digest[j]
    if a.opaque or b.opaque:
        same_record |= _incomparable(a, b, i, j)
    same = same_epoch & same_record
    if not (a.has_epochs and b.has_epochs):
        both = (a.epoch[i] != NO_EPOCH) & (b.epoch[j] != NO_EPOCH)
        same_epoch &= both
        same = same_record & (same_epoch | ~both)
    offset = a.offset[i]
    committed = offset < (np.iinfo(np.int64).max if quiet else min(a.high_watermark, b.high_watermark))
    # The last offset at which both hold a record of the same epoch: up to it they had one leader's log.
    agreed = np.flatnonzero(same_epoch)
    shared = np.arange(len(offset)) <= (agreed[-1] if len(agreed) else -1)
    wrong = np.flatnonzero(~same & (committed | shared))
    if not len(wrong):
        return
    at = int(offset[wrong[0]])
    one, other = a.at(at), b.at(at)
    assert one is not None
    assert other is not None
    kind = "records of the same epoch" if NO_EPOCH != one["epoch"] == other["epoch"] else "records"
    why = "below both high watermarks" if committed[wrong[0]] else "before a record that they share"
    if quiet:
        why = "after the cluster was at rest"
    sentence = (
        f"{a.node} and {b.node} hold different {kind} at offset {at}, {why}: "
        f"{record_name(one)}{epoch_name(one)} and {record_name(other)}{epoch_name(other)}"
    )
    yield anomaly_of("replica-divergence", a, sentence, [one, other], len(wrong))


def unreplaced(a: ReplicaLog, b: ReplicaLog) -> Iterator[Anomaly]:
    """D1 in a compacted log: a record below both HWs that only one replica has is replaced by a later record."""
    inside = (a.offset >= max(a.start, b.start)) & (a.offset < min(a.high_watermark, b.high_watermark, b.end))
    lacking = inside & ~np.isin(a.offset, b.offset) & ~b.is_unknown(a.offset)
    wrong = np.flatnonzero(lacking & ~_replaced(a, b))
    if not len(wrong):
        return
    record = a.at(int(a.offset[wrong[0]]))
    assert record is not None
    sentence = (
        f"{b.node} lacks what {a.node} holds at offset {record['offset']}, {record_name(record)}, and neither "
        "replica holds a later record of its key"
    )
    yield anomaly_of("replica-divergence", a, sentence, [record], len(wrong))


def _replaced(a: ReplicaLog, b: ReplicaLog) -> Bools:
    """Which records of log `a` compaction may have removed from `b`: those that a later one of their key on either
    replica replaces, tombstones, and those without a key."""
    latest: dict[int, int] = {}
    for log in (a, b):
        for key, offset in zip(log.key.tolist(), log.offset.tolist(), strict=True):
            latest[key] = max(latest.get(key, -1), offset)
    last = np.array([latest[key] for key in a.key.tolist()], np.int64)
    return np.asarray((last > a.offset) | (a.size == NO_RECORD_VALUE) | (a.key == 0))


def prefix_changes(
    earlier: ReplicaLog, later: ReplicaLog, *, deletes: bool = False, compacts: bool = False
) -> Iterator[Anomaly]:
    """D7: two dumps of one replica's files; records below the earlier HW are still there, as far as the later dump
    could be read. `deletes`: the start of the log may have been deleted."""
    i, j = _common(earlier, later)
    committed = earlier.offset[i] < earlier.high_watermark
    i, j = i[committed], j[committed]
    same = (earlier.epoch[i] == later.epoch[j]) & (earlier.digest[i] == later.digest[j])
    changed = i[~same & ~_incomparable(earlier, later, i, j)]
    expected = (earlier.offset < earlier.high_watermark) & (earlier.offset >= (later.start if deletes else 0))
    if compacts:
        expected &= ~_replaced(earlier, later)
    if not later.is_whole:
        expected &= earlier.offset < later.end
    gone = np.setdiff1d(earlier.offset[expected], later.offset[j])
    wrong = np.union1d(earlier.offset[changed], gone)
    if not len(wrong):
        return
    offset = int(wrong[0])
    sentence = (
        f"offset {offset} of {earlier.node} was below its high watermark {earlier.high_watermark}, "
        f"but a later dump of its log {'lacks it' if offset in gone else 'holds another record there'}"
    )
    yield anomaly_of("prefix-changed", earlier, sentence, [earlier.at(offset), later.at(offset)], len(wrong))


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
