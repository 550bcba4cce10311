"""Leader epochs: D3 along each log, D4 among the epoch files and the logs' records."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import Record, anomaly_of, log_name
from analysis.replicafiles.log import NO_EPOCH, ReplicaLog


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
