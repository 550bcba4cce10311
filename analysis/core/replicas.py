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
- D10 the batches of one idempotent producer and epoch continue along a log.

Message formats 0 and 1 have no leader epochs. D2 and D3 do not apply to their records, D1 compares them by record
alone, and epoch files (D3, D4) are not checked for logs that hold any. Records in unopened compressed sets are compared
between replicas only. If a log could not be read to its end, its end proves nothing: the unread part is neither lost
nor missing, it is undecided.

Compaction removes records that later ones with the same key replace, and after a while tombstones; these are not lost.
A record that one replica lacks and another (D1), or its own earlier dump (D7), has, needs such a reason. For a record
that all replicas lack the reason is unknown, so D5 and D6 do not apply to it.

Once the cluster is quiet everything counts as below the HW, because the file's HW may be some seconds old.

Theory of operation of D10. A producer numbers its records per partition, from 0 on in each of its epochs; after 2^31-1
it continues with 0 (KIP-98). A leader accepts a batch only if its first number follows the last one that the leader's
log has of that producer and epoch. So in every log the batches of one producer and epoch continue without a gap and
without a repetition. Records that are missing in between are refused for ever, although their producer sends them
again.

The rule claims only what a log proves:
- it does not apply if the service may delete or compact records, or may forget producers that still have records
  (`Circumstances`): then a leader may accept any number;
- offsets that the files leave out end what is known of all producers;
- batches of transactions do not count, and neither do control batches;
- a first number other than 0 is an anomaly only if the system promises to refuse it, and the replica's
  own files have the log from offset 0 on. Apache Kafka accepts any number from a producer that it does not know.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from analysis.core import replica_comparison as contents
from analysis.core.anomaly import Anomaly
from analysis.core.replica_comparison import both, prefix_changed, replaced, unreplaced
from analysis.core.replica_evidence import (
    Appends,
    Circumstances,
    ClientOrder,
    Record,
    ReplicaReport,
    anomaly_of,
    log_name,
)
from analysis.core.replica_ranges import RangeFindings, RangeView, ReducedLogs, examine, held, questions_of, reduced
from analysis.replicafiles import sequences
from analysis.replicafiles.log import NO_EPOCH, NO_MARK, ReplicaLog, SequenceBreaks, no_records
from installation.counted import counted

# ---- Leader epochs: D3 along each log, D4 among the epoch files and the logs' records.


def regressions(log: ReplicaLog) -> Iterator[Anomaly]:
    """D3."""
    has_epoch = slice(None) if log.has_epochs else log.epoch != NO_EPOCH
    offset = log.offset[has_epoch]
    falls = np.flatnonzero(np.diff(log.epoch[has_epoch]) < 0)
    if len(falls):
        before, after = (log.at(int(offset[falls[0] + i])) for i in (0, 1))
        assert before is not None
        assert after is not None
        sentence = (
            f"on {log.node} the leader epoch falls from {before['epoch']} at offset {before['offset']} "
            f"to {after['epoch']} at offset {after['offset']}"
        )
        yield anomaly_of("epoch-regression", log, sentence, [before, after], len(falls))
    for (epoch, start), (later_epoch, later_start) in pairwise(_entries(log)):
        if later_epoch <= epoch or later_start < start:
            sentence = (
                f"in the epoch file of {log.node}, epoch {epoch} from offset {start} is followed by "
                f"epoch {later_epoch} from offset {later_start}"
            )
            entries = [_entry(log, epoch, start), _entry(log, later_epoch, later_start)]
            yield anomaly_of("epoch-regression", log, sentence, entries)


def start_mismatches(replicas: Sequence[ReplicaLog], quiet: bool) -> Iterator[Anomaly]:
    """D4: the epoch files agree with each other and with the logs' records."""
    known_starts: dict[int, tuple[int, Record, ReplicaLog]] = {}
    claims = [
        (epoch, start, _entry(log, epoch, start, source), log)
        for log in replicas
        for source, starts in (("epoch file", dict(_entries(log))), ("log", _first_records(log)))
        for epoch, start in starts.items()
        if start > log.start or start == 0  # deleting old segments moves the entry of the oldest epoch
    ]
    for epoch, start, entry, log in claims:
        other_start, other, other_log = known_starts.setdefault(epoch, (start, entry, log))
        if other_start != start:
            sentence = (
                f"epoch {epoch} starts at offset {other_start} in the {other['source']} of {other_log.node}, "
                f"but at {start} in the {entry['source']} of {log.node}"
            )
            yield anomaly_of("epoch-start-mismatch", log, sentence, [other, entry])
    for log in replicas:
        if log.epochs is not None:
            yield from _not_on_file(log)
            yield from _on_file_only(log, quiet)


def contradictory_epochs(dump: ReplicaLog, deleted_to: int = 0) -> Iterator[str]:
    """Why the epoch file in an earlier dump is not that of the log beside it (D3, D4). The dump was made while the
    service ran; below its high watermark neither file changes, so the order of their copies does not matter.
    `deleted_to`: records of lower offsets may have been deleted meanwhile, with their epochs."""
    if not dump.has_epochs:
        return
    if dump.epochs and dump.start < dump.epochs[0][1] <= deleted_to:
        start = dump.epochs[0][1]
        dump = replace(dump, start=start).holding(dump.columns.take(dump.offset >= start))
    for anomaly in (*regressions(dump), *start_mismatches([dump], quiet=False)):
        if all(row["offset"] < dump.high_watermark for row in anomaly.witness):
            yield f"the earlier dump of {log_name(dump)} contradicts its epoch file: {anomaly.sentence}"


def _entries(log: ReplicaLog) -> tuple[tuple[int, int], ...]:
    """The entries of a log's epoch file; empty if the log has records that no epoch file covers."""
    return log.epochs or () if log.has_epochs else ()


def _entry(log: ReplicaLog, epoch: int, start: int, source: str = "epoch file") -> Record:
    place = {"node": log.node, "topic": log.topic, "partition": log.partition}
    return {"op": "epoch", **place, "epoch": epoch, "offset": start, "source": source}


def _first_records(log: ReplicaLog) -> dict[int, int]:
    """The offset of each epoch's first record; of the log's first epoch only if nothing was deleted before it. Where
    offsets are missing, first records may be among them."""
    if not len(log.epoch) or log.gaps or log.absent:
        return {}
    first = np.flatnonzero(np.concatenate(([log.start == 0], log.epoch[1:] > log.epoch[:-1])))
    starts: dict[int, int] = {}
    for epoch, offset in zip(log.epoch[first].tolist(), log.offset[first].tolist(), strict=True):
        starts.setdefault(epoch, offset)
    return starts


def _not_on_file(log: ReplicaLog) -> Iterator[Anomaly]:
    missing = {e: at for e, at in _first_records(log).items() if e not in dict(_entries(log))}
    for epoch, offset in missing.items():
        sentence = f"the epoch file of {log.node} lacks epoch {epoch}, whose first record is at offset {offset}"
        yield anomaly_of("epoch-start-mismatch", log, sentence, [log.at(offset)])


def _on_file_only(log: ReplicaLog, quiet: bool) -> Iterator[Anomaly]:
    """Entries that the log contradicts: an older epoch's record at an epoch's start; or, at rest, a start after the
    log's end (an epoch is on disk before its first record, and a power cut may come in between)."""
    for epoch, start in _entries(log):
        at = int(np.searchsorted(log.offset, start))
        if at < len(log.offset) and log.epoch[at] < epoch:
            record = log.at(int(log.offset[at]))
            assert record is not None
            sentence = (
                f"in the epoch file of {log.node} epoch {epoch} starts at offset {start}, "
                f"but its record at offset {record['offset']} is of epoch {record['epoch']}"
            )
            yield anomaly_of("epoch-start-mismatch", log, sentence, [_entry(log, epoch, start), record])
        elif quiet and log.is_whole and start > log.end:
            sentence = (
                f"in the epoch file of {log.node} epoch {epoch} starts at offset {start}, but its log ends at {log.end}"
            )
            yield anomaly_of("epoch-start-mismatch", log, sentence, [_entry(log, epoch, start)])


# ---- D10: the batches of an idempotent producer continue in each replica's log.


def gaps(log: ReplicaLog, circumstances: Circumstances) -> Iterator[Anomaly]:
    """The batches of a log that do not continue what their producers wrote before."""
    sequence_breaks = breaks(log, circumstances)
    if sequence_breaks.total:
        witness = [log.at(offset) for offset in offsets_of(sequence_breaks)]
        yield anomaly_of(
            "sequence-gap-on-replica", log, _sentence(log, sequence_breaks), witness, sequence_breaks.total
        )


def breaks(log: ReplicaLog, circumstances: Circumstances) -> SequenceBreaks:
    """The batches of a log that do not continue; those without a batch `before` do not start at 0."""
    if circumstances.deleted_to or circumstances.compacts or circumstances.forgets_producers or not len(log.sequences):
        return SequenceBreaks()
    batches, stretch, continues, due = sequences.in_order(log.sequences, (*log.gaps, *log.absent))
    from_zero = circumstances.from_zero and max(log.start, log.own_start) == 0
    is_break = batches[:, sequences.FIRST] != due
    sequence_breaks = log.breaks.joined(sequences.breaks_at(batches, np.flatnonzero(is_break & continues)))
    if from_zero:
        for row in batches[is_break & ~continues & (stretch == 0)].tolist():
            sequence_breaks = sequence_breaks.joined(SequenceBreaks(1, (), tuple(row)))
    return sequence_breaks


def offsets_of(sequence_breaks: SequenceBreaks) -> list[int]:
    """The first offsets of the batches that show a break, none without one."""
    previous = [sequence_breaks.before[sequences.LAST_OFFSET]] if sequence_breaks.before else []
    return [*previous, sequence_breaks.batch[sequences.OFFSET]] if sequence_breaks.total else []


def _sentence(log: ReplicaLog, sequence_breaks: SequenceBreaks) -> str:
    batch, previous = sequence_breaks.batch, sequence_breaks.before
    at = (
        f"the log of {log.node} has at offset {batch[sequences.OFFSET]} a batch of producer {batch[sequences.PRODUCER]}"
    )
    number = f"{at}, epoch {batch[sequences.EPOCH]}, whose first sequence number is {batch[sequences.FIRST]}"
    if not previous:
        return f"{number}; it is the first one of that producer and epoch, and must have 0"
    due = (previous[sequences.LAST] + 1) % sequences.NUMBERS
    return f"{number}; after its batch at offset {previous[sequences.LAST_OFFSET]}, {due} must follow"


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
        yield from regressions(log)
        yield from gaps(log, circumstances)
    yield from start_mismatches([log for log in replicas if log.has_epochs], circumstances.quiet)
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
