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

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from analysis.core import replica_contents as contents
from analysis.core import replica_epochs as epochs
from analysis.core import replica_sequences as sequences
from analysis.core.anomaly import Anomaly
from analysis.core.replica_comparison import both, prefix_changed, replaced, unreplaced
from analysis.core.replica_evidence import Appends, Circumstances, ClientOrder, ReplicaReport, log_name
from analysis.core.replica_ranges import RangeFindings, RangeView, ReducedLogs, examine, held, questions_of, reduced
from analysis.replicafiles.log import NO_MARK, ReplicaLog, no_records
from installation.counted import counted

RUNNING: Final = Circumstances()
"""The circumstances while the system runs."""


def check_partition(
    replicas: Sequence[ReplicaLog],
    order: ClientOrder | None = None,
    appends: Appends | None = None,
    circumstances: Circumstances = RUNNING,
    earlier: Sequence[ReplicaLog] = (),
) -> ReplicaReport:
    """Checks the replicas of one partition.

    `order`: what clients saw; without it D5 is not checked, and of D6 only the logs' ends. `appends`: what clients sent
    to it; without it D8 and the final reads' end are not checked. `earlier`: older dumps of some of the replicas;
    without it D7 is not checked.
    """
    findings = examine(RangeView(replicas, earlier, order), circumstances)
    questions = questions_of(findings)
    held_records = held((*replicas, *earlier), questions)
    return conclude(
        replicas, reduced(replicas, earlier, findings, questions.keys, held_records), findings, appends, circumstances
    )


def conclude(
    replicas: Sequence[ReplicaLog],
    reduced_logs: ReducedLogs,
    findings: RangeFindings,
    appends: Appends | None,
    circumstances: Circumstances,
) -> ReplicaReport:
    """The report on one partition after all its ranges were compared. `replicas`: the logs, without records;
    `reduced_logs`: the logs and the earlier dumps, with the records that the ranges could not decide; `appends`:
    those of these records that clients sent."""
    undecided = [sentence for log in replicas for sentence in _undecided(log, circumstances)]
    anomalies = list(_anomalies(reduced_logs, findings, appends, circumstances, undecided.append))
    anomalies += _changed_prefixes(reduced_logs, findings)
    key = (replicas[0].topic, replicas[0].partition)
    ends = {
        log.node: (log.end, log.high_watermark, int(log.epoch[-1]) if len(log.epoch) else -1)
        for log in reduced_logs.logs
    }
    records = sum(log_findings.records for log_findings in findings.logs)
    return ReplicaReport(
        tuple(_one_each(anomalies)),
        tuple(undecided),
        records,
        {key: ends},
        _without_epochs(replicas),
        len(findings.dumps),
    )


def _anomalies(
    reduced_logs: ReducedLogs,
    findings: RangeFindings,
    appends: Appends | None,
    circumstances: Circumstances,
    doubt: contents.Doubt,
) -> Iterator[Anomaly]:
    replicas = reduced_logs.logs
    for log in replicas:
        yield from epochs.regressions(log)
        yield from sequences.gaps(log, circumstances)
    yield from epochs.start_mismatches([log for log in replicas if log.has_epochs], circumstances.quiet)
    yield from _differences(reduced_logs, findings)
    for log, mine in zip(replicas, findings.logs, strict=True):
        yield from filter(None, (mine.corrupt,))
        for sentence in mine.suspicious:
            doubt(sentence)
        if appends is not None:
            yield from contents.foreign_records(log, appends, circumstances, mine.controls, doubt)
        yield from filter(None, (mine.misplaced,))
    if circumstances.quiet:
        if findings.unheld is not None:
            yield from contents.lost(replicas, findings.unheld, circumstances)
        yield from contents.not_converged(replicas, appends, circumstances)
        if appends is not None:
            yield from contents.final_end(replicas, appends, circumstances, doubt)


def _differences(reduced_logs: ReducedLogs, findings: RangeFindings) -> Iterator[Anomaly]:
    """D1 and D2."""
    numbers = combinations(range(len(reduced_logs.logs)), 2)
    for (one, other), pair in zip(numbers, findings.pairs, strict=True):
        a, b = reduced_logs.logs[one], reduced_logs.logs[other]
        latest = _latest(reduced_logs.latest[one], reduced_logs.latest[other])
        removed = (
            unreplaced(x, y, rows.take(~replaced(rows, latest)))
            for x, y, rows in ((a, b, pair.first_only), (b, a, pair.second_only))
        )
        yield from filter(None, (pair.divergence.proven, *removed))


def _changed_prefixes(reduced_logs: ReducedLogs, findings: RangeFindings) -> Iterator[Anomaly]:
    """D7."""
    later = {log.node: number for number, log in enumerate(reduced_logs.logs)}
    dumps = [
        (number, log) for number, log in enumerate(reduced_logs.earlier, len(reduced_logs.logs)) if log.node in later
    ]
    for (number, dump), changes in zip(dumps, findings.dumps, strict=True):
        later_number = later[dump.node]
        gone = changes.gone.take(
            ~replaced(changes.gone, _latest(reduced_logs.latest[number], reduced_logs.latest[later_number]))
        )
        lacks = prefix_changed(dump.holding(gone), reduced_logs.logs[later_number].holding(no_records()), gone.offset)
        anomalies = sorted(filter(None, (changes.found, lacks)), key=lambda anomaly: int(anomaly.witness[0]["offset"]))
        yield from filter(None, (both(*anomalies) if len(anomalies) == 2 else next(iter(anomalies), None),))


def _latest(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {key: max(one[key], other[key]) for key in one}


def _undecided(log: ReplicaLog, circumstances: Circumstances) -> Iterator[str]:
    name = log_name(log)
    if log.damage:
        yield f"{name} ends early: {log.damage}"
    if log.unread:
        yield f"{name} could not be read to its end: {log.unread}"
    if log.opaque:
        records = sum(end - first for first, end in log.opaque)
        yield f"{name} has {counted(records, 'record')} in compressed sets that are not opened"
    if log.start > circumstances.deleted_to:
        yield f"{name} starts at offset {log.start}, though nothing may delete what was before"
    for first, end in () if circumstances.compacts else log.gaps:
        yield f"{name} has no records at offsets {first} to {end - 1}, between others"
    for first, end in _absent(log, circumstances):
        yield f"{name} has no file with the offsets {first} to {end - 1}"
    if not log.is_whole and log.high_watermark > log.end:
        yield f"{name} was read up to offset {log.end}, but its high watermark is {log.high_watermark}"
    elif log.high_watermark > log.end and not circumstances.quiet:
        yield f"{name} ends at {log.end}, before its high watermark {log.high_watermark}"
    yield from (f"{name} {doubt}" for doubt in log.doubts)


def missing_below(
    log: ReplicaLog, circumstances: Circumstances, *, may_be_short: bool, marked: bool = True
) -> Iterator[str]:
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
    if log.start > circumstances.deleted_to:
        yield f"{name} starts at offset {log.start}, though nothing may delete what was before"
    if records := sum(min(end, mark) - first for first, end in log.opaque if first < mark):
        yield f"{name} has {counted(records, 'record')} in compressed sets that are not opened"
    for first, end in (*(() if circumstances.compacts else log.gaps), *_absent(log, circumstances)):
        if first < mark:
            yield f"{name} has no records at offsets {first} to {end - 1}, between others"
    for doubt in log.doubts:
        if marked or not doubt.startswith(NO_MARK):
            yield f"{name} {doubt}"


def _absent(log: ReplicaLog, circumstances: Circumstances) -> list[tuple[int, int]]:
    """The offsets without a file and without a remote segment, but for those that clients asked to delete from remote
    storage."""
    own_gaps = [(max(first, log.own_start), end) for first, end in log.absent if end > log.own_start]
    return [*log.absent_remotely(circumstances.deleted_to), *own_gaps]


def _without_epochs(replicas: Sequence[ReplicaLog]) -> tuple[tuple[str, int], ...]:
    names = {(f"{log.topic}-{log.partition}", number) for log in replicas for number in log.formats if number < 2}
    return tuple(sorted(names))


def _one_each(anomalies: list[Anomaly]) -> Iterator[Anomaly]:
    """One anomaly per name; the first represents all."""
    joined: dict[str, Anomaly] = {}
    for anomaly in anomalies:
        representative = joined.get(anomaly.name)
        if representative is None:
            joined[anomaly.name] = anomaly
        else:
            count = representative.count + anomaly.count
            joined[anomaly.name] = Anomaly(
                anomaly.name, anomaly.topic, anomaly.partition, representative.sentence, representative.witness, count
            )
    return iter(joined.values())
