"""The state of a log's records that a follower does not fetch: epochs and producers, from remote storage (K1023-11).

The remote segment with the record below the follower's start is found by epoch and offset, never by the offset alone
(H28). Its `.epochs` object has the epochs of the log up to its end, and its `.snapshot` the producers there. If the
follower starts inside the segment, because its leader's segments have other borders, the state of producers is that of
the segment before, plus the batches up to the start. Every object is compared with its digest in the metadata first.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

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
from broker.tiered.object_digests import BLOCK_BYTES, ObjectDifferentError
from broker.tiered.object_store import ObjectStore, StoreError
from broker.tiered.remote_index import CorruptIndexError, RemoteIndex
from broker.tiered.segments import EPOCHS, INDEX, LOG, SNAPSHOT, TieredSegment
from broker.tiered.tiered_metadata import TieredMetadata

READ_BYTES: Final = 16 * BLOCK_BYTES


_FAILURES: Final = (
    PublishError, StoreError, CorruptCheckpointError, CorruptSnapshot, CorruptBatch, CorruptIndexError
)  # fmt: skip


class AuxiliaryState:
    """Implements `RemoteState` for the logs that this broker follows."""

    def __init__(
        self,
        store: ObjectStore,
        metadata: TieredMetadata,
        cluster_id: Callable[[], str | None],
        *,
        compares: bool = True,
    ) -> None:
        """`compares`: objects are compared with the metadata."""
        self._store = store
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._compares = compares

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
        except _FAILURES as error:
            raise RemoteStateError(str(error)) from error
        epochs = [entry for entry in entries if entry.start_offset < offset]
        if not epochs:
            raise RemoteStateError(f"{segment.id}{EPOCHS}: the epoch of offset {offset - 1} is unknown")
        return StateBelow(log_start, epochs, producers)

    def _name(self, segment: TieredSegment, suffix: str) -> str:
        cluster_id = self._cluster_id()
        if cluster_id is None:
            raise RemoteStateError("the cluster id is not known yet")
        return segment.object_name(cluster_id, suffix)

    async def _object(self, segment: TieredSegment, suffix: str) -> bytes:
        """A whole object. Raises `StoreError`."""
        name, digest = self._name(segment, suffix), segment.digest(suffix)
        data = await self._store.get(name, 0, digest.size + 1)
        if self._compares:
            digest.check(name, data)
        return data

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
        predecessor = manifest.find(epoch[0], base - 1) if epoch else None
        if predecessor is None or predecessor.next_offset != base:
            return ProducerState(MAX_ID)
        return decode_snapshot(await self._object(predecessor, SNAPSHOT), now)

    async def _batches(self, segment: TieredSegment) -> AsyncIterator[Batch]:
        """The batches of a segment's `.log` object. Raises `StoreError`, `CorruptBatch`, `CorruptIndexError`."""
        name, index = self._name(segment, LOG), RemoteIndex.decode(await self._object(segment, INDEX))
        rest = b""
        for position in range(0, segment.size, READ_BYTES):
            length = min(READ_BYTES, segment.size - position)
            data = await self._store.get(name, position, length)
            if len(data) < length:
                raise ObjectDifferentError(name, f"it ends at byte {position + len(data)}")
            different = index.different_block(position, data) if self._compares else None
            if different is not None:
                raise ObjectDifferentError(name, f"the checksum of the block at {different}")
            rest, read = rest + data, 0
            for at, header in iter_batches(rest):
                yield Batch.of(header)
                read = at + header.size
            rest = rest[read:]
