"""Checks that the replicas of a partition hold the same log, and that it is the log that clients saw.

The evidence is the replicas' own files and, below their start, the remote segments of their lineage. HW is the high
watermark that a replica wrote to disk:

- D1 below both HWs two replicas hold equal (epoch, record) at each offset;
- D2 also beyond: equal (offset, epoch) means the equal record, and so does everything before it (a suffix that
  differs in epoch is lawful until it is truncated);
- D3 epochs do not decrease along a log, nor do epochs and start offsets along its epoch file;
- D4 an epoch has one start offset, in all epoch files and in the logs' records;
- D5 below its HW a log holds what clients were shown there, from offset 0 on unless something deletes old records;
- D6 once the cluster is quiet, all logs start and end at the same offsets with the HW there, which is the end that the
  final reads were given (apart from appends that may have happened), and nothing acknowledged is missing;
- D7 records below the HW of an earlier dump of the files never change;
- D8 below its HW a log holds only what was sent to its partition and not refused, each value once;
- D9 records are made of their values, byte by byte;
- D10 the batches of one idempotent producer and epoch continue along a log (`replica_sequences`).

Message formats 0 and 1 have no leader epochs. D2 and D3 do not apply to their records, D1 compares them by record
alone, and epoch files (D3, D4) are not checked for logs that hold any. Records in unopened compressed sets are compared
between replicas only. If a log could not be read to its end, its end proves nothing: the unread part is neither lost
nor missing, it is undecided.

Compaction removes records that later ones with the same key replace, and after a while tombstones; these are not lost.
A record that one replica lacks and another (D1), or its own earlier dump (D7), has, needs such a reason. For a record
that all replicas lack the reason is unknown, so D5 and D6 do not apply to it.

Once the cluster is quiet everything counts as below the HW, because the file's HW may be some seconds old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from analysis.core import replica_contents as contents
from analysis.core import replica_epochs as epochs
from analysis.core import replica_sequences as sequences
from analysis.core.anomaly import Anomaly
from analysis.core.explain import Key
from analysis.core.replica_comparison import both, prefix_changed, replaced, unreplaced
from analysis.core.replica_evidence import Appends, Circumstances, ClientOrder, ReplicaReport, log_name
from analysis.core.replica_ranges import (
    RangeFindings,
    RangeView,
    ReducedLogs,
    examine,
    held,
    questions_of,
    reduced,
)
from analysis.replicafiles.log import NO_MARK, ReplicaLog, no_records
from installation.counted import counted

RUNNING: Final = Circumstances()
"""The circumstances while the system runs."""


def check_replicas(
    logs: Sequence[ReplicaLog],
    orders: Mapping[Key, ClientOrder] | None = None,
    around: Circumstances = RUNNING,
) -> ReplicaReport:
    """Checks replicas of any partitions.

    `orders`: what clients saw (`client_orders`); without it D5 is not checked, and of D6 only the logs' ends.
    """
    by_partition: dict[Key, list[ReplicaLog]] = {}
    for log in logs:
        by_partition.setdefault((log.topic, log.partition), []).append(log)
    report = ReplicaReport()
    for key, replicas in sorted(by_partition.items()):
        report = report.merge(check_partition(replicas, (orders or {}).get(key), around=around))
    return report


def check_partition(
    replicas: Sequence[ReplicaLog],
    order: ClientOrder | None = None,
    appends: Appends | None = None,
    around: Circumstances = RUNNING,
    earlier: Sequence[ReplicaLog] = (),
) -> ReplicaReport:
    """Checks the replicas of one partition; arguments as of `check_replicas`.

    `appends`: what clients sent to it; without it D8 and the final reads' end are not checked. `earlier`: older dumps
    of some of the replicas; without it D7 is not checked.
    """
    found = examine(RangeView(replicas, earlier, order), around)
    questions = questions_of(found)
    more = held((*replicas, *earlier), questions)
    return conclude(replicas, reduced(replicas, earlier, found, questions.keys, more), found, appends, around)


def conclude(
    replicas: Sequence[ReplicaLog],
    known: ReducedLogs,
    found: RangeFindings,
    appends: Appends | None,
    around: Circumstances,
) -> ReplicaReport:
    """The report on one partition after all its ranges were compared. `replicas`: the logs, without records; `known`:
    the logs and the earlier dumps, with the records that the ranges could not decide; `appends`: those of these
    records that clients sent."""
    undecided = [sentence for log in replicas for sentence in _undecided(log, around)]
    anomalies = list(_anomalies(known, found, appends, around, undecided.append))
    anomalies += _changed_prefixes(known, found)
    key = (replicas[0].topic, replicas[0].partition)
    ends = {log.node: (log.end, log.high_watermark, int(log.epoch[-1]) if len(log.epoch) else -1) for log in known.logs}
    records = sum(each.records for each in found.logs)
    return ReplicaReport(
        tuple(_one_each(anomalies)), tuple(undecided), records, {key: ends}, _without_epochs(replicas), len(found.dumps)
    )


def _anomalies(
    known: ReducedLogs,
    found: RangeFindings,
    appends: Appends | None,
    around: Circumstances,
    doubt: contents.Doubt,
) -> Iterator[Anomaly]:
    replicas = known.logs
    for log in replicas:
        yield from epochs.regressions(log)
        yield from sequences.gaps(log, around)
    yield from epochs.start_mismatches([log for log in replicas if log.has_epochs], around.quiet)
    yield from _differences(known, found)
    for log, mine in zip(replicas, found.logs, strict=True):
        yield from filter(None, (mine.corrupt,))
        for sentence in mine.suspicious:
            doubt(sentence)
        if appends is not None:
            yield from contents.foreign_records(log, appends, around, mine.controls, doubt)
        yield from filter(None, (mine.misplaced,))
    if around.quiet:
        if found.unheld is not None:
            yield from contents.lost(replicas, found.unheld, around)
        yield from contents.not_converged(replicas, appends, around)
        if appends is not None:
            yield from contents.final_end(replicas, appends, around, doubt)


def _differences(known: ReducedLogs, found: RangeFindings) -> Iterator[Anomaly]:
    """D1 and D2."""
    numbers = combinations(range(len(known.logs)), 2)
    for (one, other), pair in zip(numbers, found.pairs, strict=True):
        a, b = known.logs[one], known.logs[other]
        latest = _latest(known.latest[one], known.latest[other])
        removed = (
            unreplaced(x, y, rows.take(~replaced(rows, latest)))
            for x, y, rows in ((a, b, pair.first_only), (b, a, pair.second_only))
        )
        yield from filter(None, (pair.divergence.proven, *removed))


def _changed_prefixes(known: ReducedLogs, found: RangeFindings) -> Iterator[Anomaly]:
    """D7."""
    later = {log.node: number for number, log in enumerate(known.logs)}
    dumps = [(number, log) for number, log in enumerate(known.earlier, len(known.logs)) if log.node in later]
    for (number, dump), changes in zip(dumps, found.dumps, strict=True):
        of = later[dump.node]
        gone = changes.gone.take(~replaced(changes.gone, _latest(known.latest[number], known.latest[of])))
        lacks = prefix_changed(dump.holding(gone), known.logs[of].holding(no_records()), gone.offset)
        first = sorted(filter(None, (changes.found, lacks)), key=lambda each: int(each.witness[0]["offset"]))
        yield from filter(None, (both(*first) if len(first) == 2 else next(iter(first), None),))


def _latest(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {key: max(one[key], other[key]) for key in one}


def _undecided(log: ReplicaLog, around: Circumstances) -> Iterator[str]:
    name = log_name(log)
    if log.damage:
        yield f"{name} ends early: {log.damage}"
    if log.unread:
        yield f"{name} could not be read to its end: {log.unread}"
    if log.opaque:
        records = sum(behind - first for first, behind in log.opaque)
        yield f"{name} has {counted(records, 'record')} in compressed sets that are not opened"
    if log.start > around.deleted_to:
        yield f"{name} starts at offset {log.start}, though nothing may delete what was before"
    for first, behind in () if around.compacts else log.gaps:
        yield f"{name} has no records at offsets {first} to {behind - 1}, between others"
    for first, behind in log.absent:
        yield f"{name} has no file with the offsets {first} to {behind - 1}"
    if not log.is_whole and log.high_watermark > log.end:
        yield f"{name} was read up to offset {log.end}, but its high watermark is {log.high_watermark}"
    elif log.high_watermark > log.end and not around.quiet:
        yield f"{name} ends at {log.end}, before its high watermark {log.high_watermark}"
    yield from (f"{name} {doubt}" for doubt in log.doubts)


def missing_below(log: ReplicaLog, around: Circumstances, *, may_be_short: bool, marked: bool = True) -> Iterator[str]:
    """Why D7 cannot be decided for an earlier dump of a log: everything below its high watermark must be there. Above
    it, a dump that was made while the service ran may be torn. `may_be_short`: the node may have lost the log's end;
    `marked`: the node had written its high watermark by then.
    """
    name = f"the earlier dump of {log_name(log)}"
    mark = log.high_watermark
    if log.unread:
        yield f"{name} could not be read to its end: {log.unread}"
    elif log.end < mark and not may_be_short:
        yield f"{name} ends at {log.end}, before its high watermark {mark}{f': {log.damage}' if log.damage else ''}"
    if log.start > around.deleted_to:
        yield f"{name} starts at offset {log.start}, though nothing may delete what was before"
    if records := sum(min(behind, mark) - first for first, behind in log.opaque if first < mark):
        yield f"{name} has {counted(records, 'record')} in compressed sets that are not opened"
    for first, behind in (*(() if around.compacts else log.gaps), *log.absent):
        if first < mark:
            yield f"{name} has no records at offsets {first} to {behind - 1}, between others"
    for doubt in log.doubts:
        if marked or not doubt.startswith(NO_MARK):
            yield f"{name} {doubt}"


def _without_epochs(replicas: Sequence[ReplicaLog]) -> tuple[tuple[str, int], ...]:
    names = {(f"{log.topic}-{log.partition}", number) for log in replicas for number in log.formats if number < 2}
    return tuple(sorted(names))


def _one_each(anomalies: list[Anomaly]) -> Iterator[Anomaly]:
    """One anomaly per name; the first represents all."""
    joined: dict[str, Anomaly] = {}
    for each in anomalies:
        known = joined.get(each.name)
        if known is None:
            joined[each.name] = each
        else:
            count = known.count + each.count
            joined[each.name] = Anomaly(each.name, each.topic, each.partition, known.sentence, known.witness, count)
    return iter(joined.values())
