"""Do the replicas of a partition hold the same log, and the log that the clients saw?

Judged from the replicas' own files. With HW the high watermark that a replica wrote to disk:

- D1 below both HWs two replicas hold equal (epoch, record) at each offset;
- D2 also beyond: equal (offset, epoch) means the equal record, and so does everything before it (a suffix that
  differs in epoch is lawful until it is truncated);
- D3 epochs do not decrease along a log, nor do epochs and start offsets along its epoch file;
- D4 an epoch has one start offset, in all epoch files and in the logs' records;
- D5 below its HW a log holds what clients were told is there;
- D6 once the cluster is quiet, all logs end at the same offset with the HW there, and nothing acknowledged is missing;
- D7 what lay below the HW of an earlier dump of the files never changes.

Message formats 0 and 1 know no leader epochs. D2 and D3 say nothing of their records, D1 compares them by record alone,
and epoch files (D3, D4) are not judged beside logs that hold any. Records in compressed sets that were not opened are
compared between replicas only. Of a log that could not be read to its end D6 is not judged: where it ends is not known.

Once the cluster is quiet everything counts as below the HW: what the file says may be some seconds old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.core.anomaly import Anomaly
from analysis.core.evidence import ACK, NONE, gather, lay_out
from analysis.core.explain import Key, name_of
from analysis.core.rows import I64, Bools, rows_of
from analysis.replicafiles.log import NO_EPOCH, NO_VALUE, ReplicaLog

Record = dict[str, Any]


@dataclass(frozen=True)
class ClientOrder:
    """What clients were told of one partition: ascending `offset`, the `value` there, and whether as an
    acknowledgement (`acknowledged`) or only by a read."""

    offset: I64
    value: I64
    acknowledged: Bools


@dataclass(frozen=True)
class ReplicaReport:
    """The judgement over some partitions' replicas.

    `records`: how many were compared. `ends`: by partition, each node's (log end offset, high watermark, last epoch).
    `undecided`: what could not be judged, as sentences. `without_epochs`: the logs on which D2-D4 were not judged
    because they hold records without leader epochs, by name and message format.
    """

    anomalies: tuple[Anomaly, ...] = ()
    undecided: tuple[str, ...] = ()
    records: int = 0
    ends: Mapping[Key, Mapping[str, tuple[int, int, int]]] = field(default_factory=dict)
    without_epochs: tuple[tuple[str, int], ...] = ()

    @property
    def ok(self) -> bool:
        return not self.anomalies

    def merge(self, other: ReplicaReport) -> ReplicaReport:
        """The judgement over the partitions of both."""
        return ReplicaReport(
            (*self.anomalies, *other.anomalies),
            (*self.undecided, *other.undecided),
            self.records + other.records,
            {**self.ends, **other.ends},
            (*self.without_epochs, *other.without_epochs),
        )


def client_orders(operations: pa.Table) -> dict[Key, ClientOrder]:
    """What the operations say of each partition's log; where they contradict each other, the log checker's choice."""
    rows = rows_of(operations)
    spans = lay_out(rows, None)
    orders: dict[Key, ClientOrder] = {}
    for part, evidence in zip(spans.part.tolist(), gather(rows, spans, "lower-bound-only"), strict=True):
        known = np.flatnonzero(evidence.value != NONE)
        more = ClientOrder(known + evidence.start, evidence.value[known], (evidence.flags[known] & ACK) != 0)
        key, before = rows.keys[part], orders.get(rows.keys[part])
        orders[key] = more if before is None else _concat(before, more)
    return orders


def _concat(a: ClientOrder, b: ClientOrder) -> ClientOrder:
    return ClientOrder(
        np.concatenate((a.offset, b.offset)),
        np.concatenate((a.value, b.value)),
        np.concatenate((a.acknowledged, b.acknowledged)),
    )


def check_replicas(
    logs: Sequence[ReplicaLog],
    orders: Mapping[Key, ClientOrder] | None = None,
    *,
    quiet: bool = False,
    stopped: bool = False,
) -> ReplicaReport:
    """Judges replicas of any partitions.

    `quiet`: the cluster was healed and idle when the files were collected; `stopped`: and its nodes had then stopped
    cleanly, so that the high watermarks on disk are the last ones.

    `orders`: what clients saw (`client_orders`); without it D5 is not judged, and of D6 only the logs' ends.
    """
    by_partition: dict[Key, list[ReplicaLog]] = {}
    for log in logs:
        by_partition.setdefault((log.topic, log.partition), []).append(log)
    report = ReplicaReport()
    for key, replicas in sorted(by_partition.items()):
        report = report.merge(check_partition(replicas, (orders or {}).get(key), quiet=quiet, stopped=stopped))
    return report


def check_partition(
    replicas: Sequence[ReplicaLog], order: ClientOrder | None = None, *, quiet: bool = False, stopped: bool = False
) -> ReplicaReport:
    """Judges the replicas of one partition; arguments as of `check_replicas`."""
    anomalies: list[Anomaly] = []
    for log in replicas:
        anomalies += _epoch_regressions(log)
    anomalies += _epoch_starts([log for log in replicas if log.has_epochs])
    for a, b in combinations(replicas, 2):
        anomalies += _divergence(a, b, quiet)
    if order is not None:
        for log in replicas:
            anomalies += _order_mismatch(log, order, quiet)
    all_read = not any(log.unread for log in replicas)
    if quiet and all_read and order is not None:
        anomalies += _lost(replicas, order)
    if quiet and all_read:
        anomalies += _not_converged(replicas, stopped)
    key = (replicas[0].topic, replicas[0].partition)
    ends = {log.node: (log.end, log.high_watermark, int(log.epoch[-1]) if len(log.epoch) else -1) for log in replicas}
    undecided = tuple(sentence for log in replicas for sentence in _undecided(log))
    records = sum(len(log.offset) for log in replicas)
    return ReplicaReport(tuple(_one_each(anomalies)), undecided, records, {key: ends}, _without_epochs(replicas))


def _undecided(log: ReplicaLog) -> Iterator[str]:
    name = f"the log of {log.topic}-{log.partition} on {log.node}"
    if log.damage:
        yield f"{name} ends early: {log.damage}"
    if log.unread:
        yield f"{name} could not be read to its end: {log.unread}"
    if log.opaque:
        records = sum(behind - first for first, behind in log.opaque)
        yield f"{name} has {records} records in compressed sets that are not opened"


def _without_epochs(replicas: Sequence[ReplicaLog]) -> tuple[tuple[str, int], ...]:
    names = {(f"{log.topic}-{log.partition}", number) for log in replicas for number in log.formats if number < 2}
    return tuple(sorted(names))


def check_prefix(earlier: ReplicaLog, later: ReplicaLog) -> list[Anomaly]:
    """D7: two dumps of one replica's files; what lay below the earlier one's HW is still there."""
    i, j = _common(earlier, later)
    committed = earlier.offset[i] < earlier.high_watermark
    i, j = i[committed], j[committed]
    changed = i[(earlier.epoch[i] != later.epoch[j]) | (earlier.digest[i] != later.digest[j])]
    below = (earlier.offset < earlier.high_watermark) & (earlier.offset >= later.start)
    gone = np.setdiff1d(earlier.offset[below], later.offset[j])
    wrong = np.union1d(earlier.offset[changed], gone)
    if not len(wrong):
        return []
    offset = int(wrong[0])
    sentence = (
        f"offset {offset} of {earlier.node} lay below its high watermark {earlier.high_watermark}, "
        f"and a later dump of its log {'lacks it' if offset in gone else 'holds another record there'}"
    )
    return [_anomaly("prefix-changed", earlier, sentence, [earlier.at(offset), later.at(offset)], len(wrong))]


def _anomaly(name: str, log: ReplicaLog, sentence: str, witness: Sequence[Record | None], count: int = 1) -> Anomaly:
    return Anomaly(name, log.topic, log.partition, sentence, tuple(each for each in witness if each), count)


def _one_each(anomalies: list[Anomaly]) -> Iterator[Anomaly]:
    """One anomaly per name: the first stands for all."""
    joined: dict[str, Anomaly] = {}
    for each in anomalies:
        known = joined.get(each.name)
        if known is None:
            joined[each.name] = each
        else:
            count = known.count + each.count
            joined[each.name] = Anomaly(each.name, each.topic, each.partition, known.sentence, known.witness, count)
    return iter(joined.values())


def _epoch_regressions(log: ReplicaLog) -> Iterator[Anomaly]:
    """D3."""
    known = slice(None) if log.has_epochs else log.epoch != NO_EPOCH
    offset = log.offset[known]
    falls = np.flatnonzero(np.diff(log.epoch[known]) < 0)
    if len(falls):
        before, after = (log.at(int(offset[falls[0] + i])) for i in (0, 1))
        assert before is not None
        assert after is not None
        sentence = (
            f"on {log.node} the leader epoch falls from {before['epoch']} at offset {before['offset']} "
            f"to {after['epoch']} at offset {after['offset']}"
        )
        yield _anomaly("epoch-regression", log, sentence, [before, after], len(falls))
    for (epoch, start), (later_epoch, later_start) in pairwise(log.epochs if log.has_epochs else ()):
        if later_epoch <= epoch or later_start < start:
            sentence = (
                f"in the epoch file of {log.node}, epoch {epoch} from offset {start} is followed by "
                f"epoch {later_epoch} from offset {later_start}"
            )
            entries = [_entry(log, epoch, start), _entry(log, later_epoch, later_start)]
            yield _anomaly("epoch-regression", log, sentence, entries)


def _entry(log: ReplicaLog, epoch: int, start: int, source: str = "epoch file") -> Record:
    where = {"node": log.node, "topic": log.topic, "partition": log.partition}
    return {"op": "epoch", **where, "epoch": epoch, "offset": start, "source": source}


def _first_records(log: ReplicaLog) -> dict[int, int]:
    """The offset of each epoch's first record; that of the log's first record only if nothing was deleted before it."""
    if not len(log.epoch):
        return {}
    first = np.flatnonzero(np.concatenate(([log.start == 0], log.epoch[1:] > log.epoch[:-1])))
    starts: dict[int, int] = {}
    for epoch, offset in zip(log.epoch[first].tolist(), log.offset[first].tolist(), strict=True):
        starts.setdefault(epoch, offset)
    return starts


def _epoch_starts(replicas: Sequence[ReplicaLog]) -> Iterator[Anomaly]:
    """D4: the epoch files agree with each other and with the logs' records."""
    known: dict[int, tuple[int, Record, ReplicaLog]] = {}
    claims = [
        (epoch, start, _entry(log, epoch, start, source), log)
        for log in replicas
        for source, starts in (("epoch file", dict(log.epochs)), ("log", _first_records(log)))
        for epoch, start in starts.items()
        if start > log.start or start == 0  # deleting old segments moves the entry of the oldest epoch
    ]
    for epoch, start, entry, log in claims:
        other_start, other, where = known.setdefault(epoch, (start, entry, log))
        if other_start != start:
            sentence = (
                f"epoch {epoch} starts at offset {other_start} in the {other['source']} of {where.node}, "
                f"but at {start} in the {entry['source']} of {log.node}"
            )
            yield _anomaly("epoch-start-mismatch", log, sentence, [other, entry])
    for log in replicas:
        missing = {e: at for e, at in _first_records(log).items() if e not in dict(log.epochs)}
        for epoch, offset in missing.items():
            sentence = f"the epoch file of {log.node} lacks epoch {epoch}, whose first record is at offset {offset}"
            yield _anomaly("epoch-start-mismatch", log, sentence, [log.at(offset)])


def _common(a: ReplicaLog, b: ReplicaLog) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of the offsets that both logs hold."""
    lo, hi = max(a.start, b.start), min(a.end, b.end)
    i, j = (np.arange(*np.searchsorted(log.offset, (lo, hi))) for log in (a, b))
    if len(i) == len(j) and np.array_equal(a.offset[i], b.offset[j]):
        return i, j
    _, x, y = np.intersect1d(a.offset[i], b.offset[j], assume_unique=True, return_indices=True)
    return i[x], j[y]


def _divergence(a: ReplicaLog, b: ReplicaLog, quiet: bool) -> Iterator[Anomaly]:
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
    # The last offset at which both hold a record of the same epoch: up to there they had one leader's log.
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
        why = "after the cluster came to rest"
    sentence = (
        f"{a.node} and {b.node} hold different {kind} at offset {at}, {why}: "
        f"{_name(one)}{_epoch_of(one)} and {_name(other)}{_epoch_of(other)}"
    )
    yield _anomaly("replica-divergence", a, sentence, [one, other], len(wrong))


def _incomparable(a: ReplicaLog, b: ReplicaLog, i: npt.NDArray[np.intp], j: npt.NDArray[np.intp]) -> Bools:
    """Where a set that was not opened stands against a record, or against a set of another message format."""
    one, other = a.is_opaque(a.offset[i]), b.is_opaque(b.offset[j])
    formats_differ = (a.epoch[i] == NO_EPOCH) != (b.epoch[j] == NO_EPOCH)
    return np.asarray((one != other) | (one & other & formats_differ))


def _name(record: Record) -> str:
    return name_of(record["value"]) if record["value"] != NO_VALUE else f"the record {record['digest']}"


def _epoch_of(record: Record) -> str:
    return f" of epoch {record['epoch']}" if record["epoch"] != NO_EPOCH else ""


def _order_mismatch(log: ReplicaLog, order: ClientOrder, quiet: bool) -> Iterator[Anomaly]:
    """D5: what clients were told is at an offset, below the HW, is what the log holds there."""
    limit = log.end if quiet else min(log.high_watermark, log.end)
    inside = (order.offset >= log.start) & (order.offset < limit)
    offset, value = order.offset[inside], order.value[inside]
    at = np.minimum(np.searchsorted(log.offset, offset), max(len(log.offset) - 1, 0))
    if not len(offset) or not len(log.offset):
        return
    differs = (log.offset[at] != offset) | (log.value[at] != value)
    wrong = np.flatnonzero(differs & ~log.is_opaque(offset))
    if not len(wrong):
        return
    first = int(wrong[0])
    record = log.at(int(offset[first]))
    told = {"op": "client order", "topic": log.topic, "partition": log.partition}
    told |= {"offset": int(offset[first]), "value": int(value[first])}
    held = _name(record) if record else "nothing"
    where = f"at offset {offset[first]}"
    sentence = f"clients were told of {name_of(int(value[first]))} {where}, but {log.node} holds {held} there"
    yield _anomaly("replica-order-mismatch", log, sentence, [told, record], len(wrong))


def _lost(replicas: Sequence[ReplicaLog], order: ClientOrder) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, each acknowledged value is in some replica's log."""
    start = min(log.start for log in replicas)
    mine = order.acknowledged & (order.offset >= start)
    for log in replicas:
        mine &= ~log.is_opaque(order.offset)
    lost = np.flatnonzero(mine & ~np.isin(order.value, np.concatenate([log.value for log in replicas])))
    if not len(lost):
        return
    offset, value = int(order.offset[lost[0]]), int(order.value[lost[0]])
    ends = ", ".join(f"{log.node} ends at {log.end}" for log in replicas)
    told = {"op": "client order", "topic": replicas[0].topic, "partition": replicas[0].partition}
    told |= {"offset": offset, "value": value}
    sentence = f"{name_of(value)} was acknowledged at offset {offset}, but no replica holds it ({ends})"
    witness = [told, *(log.at(offset) for log in replicas)]
    yield _anomaly("lost-acknowledged-write", replicas[0], sentence, witness, len(lost))


def _not_converged(replicas: Sequence[ReplicaLog], stopped: bool) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, all logs end at the same offset, and the HW is there."""
    ends = {log.end for log in replicas}
    behind = [log for log in replicas if 0 <= log.high_watermark < log.end]
    if len(ends) > 1 or any(log.high_watermark > log.end for log in replicas):
        told = ", ".join(f"{log.node} at {log.end} (high watermark {log.high_watermark})" for log in replicas)
        yield _anomaly("not-converged", replicas[0], f"the logs end at different offsets: {told}", _ends(replicas))
    elif behind and stopped:
        told = ", ".join(f"{log.node} at {log.high_watermark}" for log in behind)
        sentence = f"the logs end at {ends.pop()}, but the high watermark stayed behind on {told}"
        yield _anomaly("not-converged", replicas[0], sentence, _ends(behind))


def _ends(replicas: Sequence[ReplicaLog]) -> list[Record | None]:
    return [
        {
            "op": "log end",
            "node": log.node,
            "topic": log.topic,
            "partition": log.partition,
            "offset": log.end,
            "high_watermark": log.high_watermark,
        }
        for log in replicas
    ]
