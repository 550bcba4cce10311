"""The state of a log's records that a follower does not fetch: epochs and producers, from remote storage (K1023-11).

The remote segment with the record below the follower's start is found by epoch and offset, never by the offset alone
(H28). Its `.epochs` object has the epochs of the log up to its end, and its `.snapshot` the producers there. If the
follower starts inside the segment, because its leader's segments have other borders, the state of producers is that of
the segment before, plus the batches up to the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from broker.log.append_validation import Batch
from broker.log.checkpoint import CorruptCheckpointError, parse_lines
from broker.log.epochs import EpochEntry
from broker.log.remote_start import StateBelow
from broker.producers.producer_state import MAX_ID, NO_ID, ProducerState
from broker.producers.snapshot_format import CorruptSnapshot, decode_snapshot
from broker.protocol.records import CorruptBatch, iter_batches
from broker.replica.partition import Partition
from broker.replica.remote_state import RemoteStateError
from broker.tiered.manifest import Manifest
from broker.tiered.metadata_log import PublishError
from broker.tiered.object_store import ObjectStore, StoreError
from broker.tiered.segments import EPOCHS, LOG, SNAPSHOT, TieredSegment

READ_BYTES: Final = 1 << 20
LARGEST_OBJECT: Final = 64 << 20
"""Bytes of epochs or of a producer snapshot that are read."""


class Metadata(Protocol):
    """The part of the remote metadata that is needed here."""

    def manifest(self, key: tuple[bytes, int]) -> Manifest: ...

    async def caught_up(self, key: tuple[bytes, int]) -> None:
        """Return once all events that were committed before were read. Raises `PublishError`."""
        ...


class AuxiliaryState:
    """Implements `RemoteState` for the logs that this broker follows."""

    def __init__(self, store: ObjectStore, metadata: Metadata, cluster_id: Callable[[], str | None]) -> None:
        self._store = store
        self._metadata = metadata
        self._cluster_id = cluster_id

    async def below(self, partition: Partition, offset: int, epoch: int, log_start: int) -> StateBelow:
        """As `RemoteState.below`."""
        key = (partition.topic_id, partition.index)
        try:
            await self._metadata.caught_up(key)
            manifest = self._metadata.manifest(key)
            segment = manifest.find(epoch, offset - 1)
            if segment is None:
                raise RemoteStateError(f"remote storage has no record of epoch {epoch} at offset {offset - 1}")
            entries = await self._epochs(segment)
            producers = await self._producers(manifest, entries, segment, offset)
        except (PublishError, StoreError, CorruptCheckpointError, CorruptSnapshot, CorruptBatch) as error:
            raise RemoteStateError(str(error)) from error
        epochs = [entry for entry in entries if entry.start_offset < offset]
        if not epochs or epochs[0].start_offset > log_start:
            raise RemoteStateError(f"{segment.id}{EPOCHS}: the epoch of offset {log_start} is unknown")
        return StateBelow(log_start, epochs, producers)

    async def _object(self, segment: TieredSegment, suffix: str) -> bytes:
        cluster_id = self._cluster_id()
        if cluster_id is None:
            raise RemoteStateError("the cluster id is not known yet")
        return await self._store.get(segment.object_name(cluster_id, suffix), 0, LARGEST_OBJECT)

    async def _epochs(self, segment: TieredSegment) -> list[EpochEntry]:
        name = f"{segment.id}{EPOCHS}"
        text = (await self._object(segment, EPOCHS)).decode("utf-8", "replace")
        try:
            return [EpochEntry(int(epoch), int(start)) for epoch, start in parse_lines(name, text, 2, "")]
        except ValueError as error:
            raise RemoteStateError(f"{name}: {error}") from error

    async def _producers(
        self, manifest: Manifest, entries: list[EpochEntry], segment: TieredSegment, offset: int
    ) -> ProducerState:
        now = asyncio.get_running_loop().time()
        if segment.next_offset == offset:
            return decode_snapshot(await self._object(segment, SNAPSHOT), now)
        state = await self._before(manifest, entries, segment, now)
        async for batch in self._batches(segment):
            if batch.offset >= offset:
                break
            if batch.sequenced is not None:
                state.record(batch.sequenced, batch.offset, batch.max_timestamp, now)
        return state

    async def _before(
        self, manifest: Manifest, entries: list[EpochEntry], segment: TieredSegment, now: float
    ) -> ProducerState:
        """The producers before a segment's first record. Any may be forgotten if no segment ends there."""
        base = segment.base_offset
        if base == 0:
            return ProducerState(NO_ID)
        epoch = [entry.epoch for entry in entries if entry.start_offset < base][-1:]
        before = manifest.find(epoch[0], base - 1) if epoch else None
        if before is None or before.next_offset != base:
            return ProducerState(MAX_ID)
        return decode_snapshot(await self._object(before, SNAPSHOT), now)

    async def _batches(self, segment: TieredSegment) -> AsyncIterator[Batch]:
        """The batches of a segment's `.log` object. Raises `CorruptBatch`."""
        cluster_id = self._cluster_id()
        assert cluster_id is not None, "the segment's epochs were read"
        name, position = segment.object_name(cluster_id, LOG), 0
        while position < segment.size:
            data = await self._store.get(name, position, READ_BYTES)
            read = 0
            for at, header in iter_batches(data):
                yield Batch.of(header)
                read = at + header.size
            if not read:
                data = await self._store.get(name, position, segment.size - position)
                _, header = next(iter(iter_batches(data)))
                yield Batch.of(header)
                read = header.size
            position += read
