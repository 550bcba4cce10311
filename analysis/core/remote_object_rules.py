"""Checks the objects of complete remote segments against the metadata, their records, each other and the replicas.

- R9 the store has all objects of a complete segment, and each can be read;
- R10 size and largest timestamp in the metadata are those of the records, and the indexes point to batches of the
  segment;
- R11 the leader epochs in the metadata are those of the segment's records from the start of the log on; the object with
  the leader epochs has them and, below them, those of the log: its entries are in the epoch file of each replica whose
  lineage has the segment, and the reverse (K1023-11);
- R12 the object with the producers has the last batch of each producer in the segment, and otherwise exactly what the
  segment before has (K1023-11).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.core.remote_rules import INCOMPLETE, segment_name, segment_row
from analysis.replicafiles import batches
from analysis.replicafiles.log import ReplicaLog
from analysis.replicafiles.remote_objects import EPOCHS, LOG, SNAPSHOT, ProducerBatch, SegmentObjects
from analysis.replicafiles.remote_segments import lineage
from history.record.schemas import INF

OBJECT_DIFFERS = "remote-object-differs"

Entries = Sequence[tuple[int, int]]


def wrong_objects(
    objects: Sequence[SegmentObjects], logs: Sequence[ReplicaLog], *, forgets_producers: bool, deleted_to: int = 0
) -> Iterator[Anomaly]:
    """R9 to R12, for the complete segments of a partition. `logs`: its replicas. `forgets_producers`: the service may
    forget a producer that still has records. `deleted_to`: records of lower offsets may have been deleted, INF without
    a bound."""
    whole_logs = [log for log in logs if log.is_whole and log.epochs]
    for segment_objects in objects:
        lacks = [
            f"the store has no object {suffix}" for suffix in segment_objects.missing if suffix != LOG
        ]  # R1 has the records
        yield from _anomaly(
            INCOMPLETE, segment_objects, "the metadata declare it complete, but ", [*lacks, *segment_objects.damaged]
        )
        latest_start = max([0 if deleted_to == INF else deleted_to, *(log.start for log in logs)])
        contradictions = [*segment_objects.contradicting, *_unlike_records(segment_objects, latest_start)]
        contradictions += _wrong_epochs(segment_objects, whole_logs, deleted_to)
        contradictions += _wrong_producers(segment_objects, objects, forgets_producers)
        yield from _anomaly(OBJECT_DIFFERS, segment_objects, "", contradictions)


def _anomaly(kind: str, objects: SegmentObjects, start: str, differences: Sequence[str]) -> Iterator[Anomaly]:
    if differences:
        segment = objects.segment
        sentence = f"{segment_name(segment)}: {start}{differences[0]}"
        yield Anomaly(kind, segment.topic, segment.partition, sentence, (segment_row(segment),), len(differences))


def _unlike_records(objects: SegmentObjects, latest_start: int) -> Iterator[str]:
    """R11 for the metadata. A log forgets the epochs below its start: if that is in the segment, the metadata begin
    there. `latest_start`: the log may have started at lower offsets."""
    segment, led = objects.segment, objects.led()
    if led and segment.epochs and segment.start < segment.epochs[0][1] <= min(latest_start, segment.end):
        led = entries_from(led, segment.epochs[0][1])
    if led not in ((), segment.epochs):
        yield f"{LOG} has {_told(led)}, the metadata {_told(segment.epochs)}"


def _wrong_epochs(objects: SegmentObjects, logs: Sequence[ReplicaLog], deleted_to: int) -> Iterator[str]:
    """R11. A deletion that was not answered may have moved the start of the leader that uploaded, and not that of its
    successor: the object then starts above the log, below the highest request."""
    segment, entries = objects.segment, objects.epochs
    name = EPOCHS[segment.encoding]
    if entries is None:
        return
    if list(entries) != sorted(set(entries)) or [at for _, at in entries] != sorted(at for _, at in entries):
        yield f"{name} has entries that do not rise: {_told(entries)}"
        return
    own_epochs = entries_from(entries, segment.start)
    if own_epochs != segment.epochs:
        yield f"{name} has {_told(own_epochs)} for its offsets, the metadata {_told(segment.epochs)}"
        return
    # Nodes write the start of the log with a delay: the latest one counts.
    requested_start = 0 if deleted_to == INF else deleted_to
    oldest = max([entries[0][1], requested_start, *(log.start for log in logs)])
    for log in logs:
        epochs = log.epochs or ()
        if segment.start < epochs[0][1] > oldest <= segment.end:
            yield f"{name} has {_told(entries)}, but the epoch file of {log.node} starts at {epochs[0][1]}"
            return
        first = max(entries[0][1], epochs[0][1])  # the oldest epoch moves with the start of the log
        if not _is_of_lineage(segment.epochs, segment.end, epochs):
            continue
        theirs = [entry for entry in epochs if first < entry[1] <= segment.end]
        ours = [entry for entry in entries if entry[1] > first]
        if ours != theirs:
            yield f"{name} has {_told(ours)}, but the epoch file of {log.node} {_told(theirs)}"
            return
        start = max(_first_present(log), requested_start)
        if entries[0][1] > start:
            yield f"{name} starts at {entries[0][1]}, but the log of {log.node} at {start}"
            return


def _first_present(log: ReplicaLog) -> int:
    """The first offset of a log that a file or a remote segment has. A replica that lost its disk may state an older
    start than it knows records of; that is of R4."""
    start = max(log.start, 0)
    for first, end in sorted(log.absent):
        if first <= start < end:
            start = end
    return start


def entries_from(entries: Entries, start: int) -> tuple[tuple[int, int], ...]:
    """The entries for the offsets from `start` on; the first one is moved to it if it is below."""
    preceding = [(epoch, start) for epoch, at in entries if at <= start][-1:]
    return (*preceding, *(entry for entry in entries if entry[1] > start))


def _is_of_lineage(epochs: Entries, end: int, log_epochs: Entries) -> bool:
    """Whether a log with `log_epochs` has the records of a segment with `epochs`, as far as it is known."""
    bounds = [at for _, at in epochs] + [end + 1]
    edges = [(epoch, at) for (epoch, first), stop in zip(epochs, bounds[1:], strict=True) for at in (first, stop - 1)]
    offsets = np.array([at for _, at in edges], np.int64)
    theirs = lineage(log_epochs, offsets)
    is_known = offsets >= log_epochs[0][1]
    return bool(is_known.any() and (theirs == np.array([epoch for epoch, _ in edges]))[is_known].all())


def _wrong_producers(objects: SegmentObjects, other_objects: Iterable[SegmentObjects], forgets: bool) -> Iterator[str]:
    """R12."""
    if objects.producers is None:
        return
    segment, written, latest = objects.segment, objects.written(), objects.producers.latest()
    for producer, batch in sorted(written.items()):
        if latest.get(producer) != batch:
            yield f"{SNAPSHOT} has {_batch(latest.get(producer))} of producer {producer}, the records {_batch(batch)}"
            return
    ends = set((objects.batches[:, batches.NEXT] - 1).tolist())
    for entry in objects.producers.batches:
        if entry.offset > segment.end or (entry.offset >= segment.start and entry.offset not in ends):
            yield f"{SNAPSHOT} has {_batch(entry)} of producer {entry.producer}, which the segment does not have"
            return
    carried = {producer: batch for producer, batch in latest.items() if producer not in written}
    earlier_batches = _before(objects, other_objects)
    if earlier_batches is None:
        return
    for producer in sorted({*carried, *earlier_batches} - written.keys()):
        mine, due = carried.get(producer), earlier_batches.get(producer)
        may_lack = forgets or producer <= objects.producers.forgotten_to
        if mine != due and not (mine is None and may_lack):
            yield f"{SNAPSHOT} has {_batch(mine)} of producer {producer}, the segment before {_batch(due)}"
            return


def _before(objects: SegmentObjects, other_objects: Iterable[SegmentObjects]) -> dict[int, ProducerBatch] | None:
    """The last batch of each producer below a segment, by the segment before; None if it is not known."""
    start = objects.segment.start
    if start == 0:
        return {}
    epoch = int(lineage(objects.epochs or (), np.array([start - 1], np.int64))[0])
    for other in other_objects:
        is_next = other.segment.end + 1 == start and other.segment.epochs[-1][0] == epoch
        if is_next and other.producers is not None:
            # A producer that the segment before may have forgotten may be known where the log was replayed.
            return other.producers.latest() if other.producers.forgotten_to < 0 else None
    return None


def _batch(batch: ProducerBatch | None) -> str:
    if batch is None:
        return "no batch"
    return f"the batch up to offset {batch.offset} (epoch {batch.epoch}, sequence {batch.sequence})"


def _told(entries: Entries) -> str:
    return ", ".join(f"epoch {epoch} from {start}" for epoch, start in entries) or "no epoch"
