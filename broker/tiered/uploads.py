"""Uploads: which part of a log is copied next, and how.

Theory of operation. Only the leader uploads, one segment at a time: the first local segment with a record of the
log's lineage that the store lacks (`Manifest.covered_to`, H28). A segment is uploaded when it is closed and
completely below the high watermark, so no record in the store is ever truncated, except by an unclean election. The
part that the store has already is left out. So the segments of one lineage neither overlap nor leave a gap, also if the
new leader's segments have other borders than those of the old one.

An upload is: COPY_STARTED is committed - the objects are put - COPY_FINISHED, with the digest of each object, is
committed. If anything fails, the copy
is given up: DELETE_STARTED (only if COPY_FINISHED is not in the log), the objects are deleted, DELETE_FINISHED. A copy
that a crash interrupted is given up by the next leader.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from broker.log.checkpoint import format_lines
from broker.log.epochs import EpochEntry
from broker.log.log import PartitionLog
from broker.log.segment import Segment
from broker.producers.snapshot_format import encode_snapshot
from broker.protocol.records import NO_TIMESTAMP, CorruptBatch, validate_batch
from broker.tiered.manifest import Lineage, Manifest
from broker.tiered.object_digests import LogDigest, ObjectDigest
from broker.tiered.object_store import ObjectStore, chunks_of
from broker.tiered.remote_index import IndexEntry, RemoteIndex
from broker.tiered.segments import EPOCHS, INDEX, LOG, SNAPSHOT, SUFFIXES, RemotePartition, TieredSegment

CHUNK_BYTES = 1 << 20
BATCHES_PER_TURN = 500


class SourceGoneError(Exception):
    """The local segment was removed or truncated while it was read."""


@dataclass(frozen=True)
class MissingStretch:
    """The part of a local segment from `base_offset` on, which is not in the store."""

    segment: Segment
    base_offset: int


def lineage_of(log: PartitionLog, high_watermark: int) -> Lineage:
    """The committed lineage of a log."""
    return Lineage(log.epochs.entries, min(high_watermark, log.log_end_offset))


def next_stretch(
    segments: Sequence[Segment], manifest: Manifest, lineage: Lineage, log_start: int
) -> MissingStretch | None:
    """The part of a log to upload next; None if the store has all closed, committed segments.

    `segments`: all local ones; the last one grows.
    """
    end = manifest.covered_to(lineage, max(log_start, segments[0].base_offset))
    for segment in segments[:-1]:
        if segment.next_offset > lineage.end_offset:
            return None
        if segment.next_offset > end and segment.size:
            return MissingStretch(segment, max(segment.base_offset, end))
    return None


class Upload:
    """The upload of one stretch, from the batch that contains its first offset."""

    def __init__(self, log: PartitionLog, stretch: MissingStretch) -> None:
        self._log = log
        self._segment = stretch.segment
        self._truncations = log.truncations
        self.base_offset, self._position = stretch.segment.batch_start(stretch.base_offset)
        self.end = stretch.segment.next_offset
        self.size = stretch.segment.size - self._position
        self._entries = _epochs_from(log.epochs.entries, self.base_offset, self.end)
        self._records = LogDigest()
        self._max_timestamp = stretch.segment.max_timestamp
        self._timestamps_before: dict[int, int] = {}

    async def read_timestamps(self) -> None:
        """Find the largest timestamps of a stretch that starts inside its segment, by position: those of the segment
        and of its index include earlier batches. Raises `SourceGoneError`, and `OSError` of the disk."""
        if not self._position:
            return
        self._check()
        indexed_positions = {position for _, position, _ in self._segment.index.entries() if position > self._position}
        largest = NO_TIMESTAMP
        try:
            for number, (position, header) in enumerate(self._segment.walk(self._position), 1):
                if position in indexed_positions:
                    self._timestamps_before[position] = largest
                largest = max(largest, header.max_timestamp)
                if number % BATCHES_PER_TURN == 0:
                    await asyncio.sleep(0)
                    self._check()
        except CorruptBatch as error:
            raise self._segment.damaged(error) from error
        self._max_timestamp = largest

    def remote_segment(self, identifier: str, partition: RemotePartition, broker: int, epoch: int) -> TieredSegment:
        """The metadata. Raises `ValueError` if the log does not know the epochs of its records."""
        return TieredSegment(
            id=identifier,
            partition=partition,
            base_offset=self.base_offset,
            end_offset=self.end - 1,
            epochs=tuple(_epochs_within(self._entries, self.base_offset)),
            max_timestamp=self._max_timestamp,
            size=self.size,
            broker=broker,
            leader_epoch=epoch,
        )

    async def put(
        self, store: ObjectStore, cluster_id: str, segment: TieredSegment, suffixes: Sequence[str] = SUFFIXES
    ) -> TieredSegment:
        """Store the objects with these suffixes; returns the metadata with the digests of all. Raises `StoreError`,
        `SourceGoneError`, and `OSError` of the disk."""
        await store.put(segment.object_name(cluster_id, LOG), self._chunks())
        digests = [self._records.digest(LOG)]
        for suffix, data in (
            (INDEX, self._index().encode()),
            (EPOCHS, format_lines([f"{epoch} {start}" for epoch, start in self._entries]).encode()),
            (SNAPSHOT, await self._producers()),
        ):
            if suffix in suffixes:
                await store.put(segment.object_name(cluster_id, suffix), chunks_of([data]))
            digests.append(ObjectDigest.of(suffix, data))
        return replace(segment, objects=tuple(digests))

    def _check(self) -> None:
        """No await between this and a read of the segment: it exists, and is what it was."""
        if self._log.truncations != self._truncations or self._segment not in self._log.segments:
            raise SourceGoneError(f"{self._segment.path} was removed or truncated")

    async def _chunks(self) -> AsyncIterator[bytes]:
        position, end = self._position, self._position + self.size
        while position < end:
            self._check()
            chunk = self._batches(position, end)
            self._records.add(chunk)
            yield chunk
            position += len(chunk)
            await asyncio.sleep(0)

    def _batches(self, start: int, end: int) -> bytes:
        """The intact batches from a position on, at most `CHUNK_BYTES` but at least one. The other replicas delete
        their copies of uploaded records, so damaged bytes must not be uploaded."""
        try:
            stop = self._segment.boundary(start, min(end, start + CHUNK_BYTES))
            data, within = self._segment.file.read(start, stop - start), 0
            if not data:
                raise SourceGoneError(f"{self._segment.path} is shorter than {end} bytes")
            while within < len(data):
                within += validate_batch(data, within).size
        except CorruptBatch as error:
            raise self._segment.damaged(error) from error
        return data

    def _index(self) -> RemoteIndex:
        self._check()
        start = IndexEntry(self.base_offset, 0, -1)
        inner = [
            IndexEntry(offset, position - self._position, self._timestamps_before.get(position, timestamp))
            for offset, position, timestamp in self._segment.index.entries()
            if position > self._position
        ]
        end = IndexEntry(self.end, self.size, self._max_timestamp)
        return RemoteIndex([start, *inner, end], self._records.block_sums)

    async def _producers(self) -> bytes:
        self._check()
        segments = [segment for segment in self._log.segments if segment.next_offset <= self.end]
        try:
            return encode_snapshot(await self._log.producers_of(segments))
        except OSError:
            self._check()
            raise


def _epochs_from(entries: Sequence[EpochEntry], base: int, end: int) -> list[EpochEntry]:
    """The epochs of a log up to `end`, also of the batch at `base`. The log's start may be inside that batch. Then the
    log's first epoch starts there, and it is the epoch of the whole batch."""
    kept_entries = [entry for entry in entries if entry.start_offset < end]
    return [entry._replace(start_offset=min(entry.start_offset, base)) for entry in kept_entries[:1]] + kept_entries[1:]


def _epochs_within(entries: Sequence[EpochEntry], start: int) -> list[EpochEntry]:
    """The epochs of the records from `start` on, each with its first offset there."""
    chain: list[EpochEntry] = []
    for epoch, first in entries:
        if first <= start:
            chain.clear()
        chain.append(EpochEntry(epoch, max(first, start)))
    return chain
