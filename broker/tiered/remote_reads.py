"""Reads records that are only in remote storage, through a bounded cache of chunks of remote segments.

Theory of operation. Requests of consumers are answered in turns of the event loop that cannot wait. So a read returns
what the cache has, or nothing; then it starts to load what is missing, and the arrival wakes the fetches that are
parked at the partition. A search by timestamp is refused with OFFSET_NOT_AVAILABLE meanwhile, and clients repeat it.
When a read reaches the last chunk that is loaded, the next chunk is loaded ahead, also that of the next segment.

Bytes from the store are not trusted: of every batch that is served the CRC, the continuity of the offsets and the
leader epoch (by the log's own epoch cache, H28) are checked. A failed load is not repeated for `RETRY_S`; until then
reads of it fail with KAFKA_STORAGE_ERROR, which clients retry, and the rest of the partition is served.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from broker.errors import ErrorCode
from broker.log.timestamps import TimedOffset, times_of
from broker.protocol.records import BATCH_HEADER_SIZE, BatchHeader, CorruptBatch, parse_header, validate_batch
from broker.replica.partition import Partition
from broker.tiered.manifest import Lineage, Manifest
from broker.tiered.object_store import ObjectStore, StoreError
from broker.tiered.remote_index import CorruptIndexError, RemoteIndex
from broker.tiered.segments import INDEX, LOG, TieredSegment

RETRY_S = 1.0
LOADS_AT_ONCE = 8
INDEX_BYTES = 64 << 20
"""More than the index of any segment."""
_INDEX_CHUNK = -1

_Place = tuple[str, int]
"""A segment's id and the number of a chunk; `_INDEX_CHUNK`: its index."""


class _Pending(Exception):  # noqa: N818 - a state of the cache, not an error
    """What is needed is being loaded."""


class _FailedError(Exception):
    """What is needed could not be loaded a short time ago, or is damaged."""


class _Source(NamedTuple):
    """The log that is read: its partition, its committed lineage, and what is remote of it."""

    partition: Partition
    lineage: Lineage
    manifest: Manifest


class RemoteReads:
    """The cache of one broker. `cache_bytes`: for chunks; indexes are as bytes of it."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster_id: Callable[[], str | None],
        cache_bytes: int,
        chunk_bytes: int,
        run: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._cache_bytes = cache_bytes
        self._chunk_bytes = chunk_bytes
        self._run = run
        self._chunks: OrderedDict[_Place, bytes] = OrderedDict()
        self._indexes: dict[str, RemoteIndex] = {}
        self._size = 0
        self._loading: dict[_Place, list[Partition]] = {}
        self._failed: dict[_Place, float] = {}
        self._turn = asyncio.Semaphore(LOADS_AT_ONCE)
        self.failures = 0

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return self._size

    # -- answers ------------------------------------------------------------------------------------------------

    def read(
        self, partition: Partition, lineage: Lineage, manifest: Manifest, offset: int, max_bytes: int, *, min_one: bool
    ) -> bytes | ErrorCode | None:
        """Whole batches from the one that contains `offset`, at most `max_bytes`; with `min_one` also a larger one.
        None: they are being loaded."""
        source = _Source(partition, lineage, manifest)
        segment = manifest.find_in(lineage, offset)
        if segment is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            return self._read(source, segment, offset, max_bytes, min_one)
        except _Pending:
            return None
        except _FailedError:
            return ErrorCode.KAFKA_STORAGE_ERROR

    def first_not_before(
        self, partition: Partition, lineage: Lineage, manifest: Manifest, timestamp: int
    ) -> TimedOffset | ErrorCode | None:
        """The first record that is only remote and not earlier than `timestamp` (ms); None without one."""
        source = _Source(partition, lineage, manifest)
        start, local = partition.log.log_start_offset, partition.log.local_start_offset
        try:
            for segment in manifest.path(lineage, start, local):
                if segment.max_timestamp >= timestamp:
                    found = self._first_of(source, segment, start, timestamp)
                    if found is not None:
                        return found if found.offset < local else None
        except _Pending:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        except _FailedError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _read(self, source: _Source, segment: TieredSegment, offset: int, max_bytes: int, min_one: bool) -> bytes:
        position = self._index(source, segment).position_before(offset)
        found, start, size = bytearray(), -1, 0
        for at, header, batch in self._batches(source, segment, position, max_bytes):
            if header.next_offset <= offset:
                continue
            if source.lineage.epoch_at(header.base_offset) != header.leader_epoch:
                if start < 0:
                    raise self._damaged(source, segment, at, f"offset {header.base_offset} has another leader epoch")
                break
            if size + header.size > max_bytes and (size or not min_one):
                break
            start, size = (at if start < 0 else start), size + header.size
            found += batch
        self._read_ahead(source, segment, position + size)
        return bytes(found)

    def _first_of(self, source: _Source, segment: TieredSegment, start: int, timestamp: int) -> TimedOffset | None:
        position = self._index(source, segment).position_before_timestamp(timestamp)
        for _, header, batch in self._batches(source, segment, position, segment.size):
            if header.max_timestamp < timestamp or header.next_offset <= start:
                continue
            if source.lineage.epoch_at(header.base_offset) != header.leader_epoch:
                return None
            for each in times_of(header, batch):
                if each.timestamp >= timestamp and each.offset >= start:
                    return each
        return None

    # -- batches ------------------------------------------------------------------------------------------------

    def _batches(
        self, source: _Source, segment: TieredSegment, position: int, wanted: int
    ) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Position, header and bytes of the checked batches from a position on, as far as they are in the cache; at
        least one. Raises `_Pending`, `_FailedError`."""
        first, due, end = True, -1, min(segment.size, position + max(wanted, BATCH_HEADER_SIZE) + self._chunk_bytes)
        while position < segment.size:
            try:
                head = self._bytes(source, segment, position, min(BATCH_HEADER_SIZE, segment.size - position))
                header = parse_header(head)
                if header.size < BATCH_HEADER_SIZE or position + header.size > segment.size:
                    raise CorruptBatch(f"a batch of {header.size} bytes")
                batch = self._bytes(source, segment, position, header.size)
                header = validate_batch(batch)
                if due not in (-1, header.base_offset) or not self._fits(segment, header):
                    raise CorruptBatch(f"offset {header.base_offset} does not follow")
            except CorruptBatch as error:
                raise self._damaged(source, segment, position, str(error)) from error
            except _Pending:
                if first:
                    raise
                return
            yield position, header, batch
            first, due, position = False, header.next_offset, position + header.size
            if position >= end:
                return

    def _fits(self, segment: TieredSegment, header: BatchHeader) -> bool:
        return segment.base_offset <= header.base_offset and header.next_offset <= segment.next_offset

    def _bytes(self, source: _Source, segment: TieredSegment, position: int, length: int) -> bytes:
        """Bytes of a segment, which may span chunks."""
        number, within = divmod(position, self._chunk_bytes)
        data = self._chunk(source, segment, number)
        if within + length <= len(data):
            return data[within : within + length]
        last = (position + length - 1) // self._chunk_bytes
        whole = b"".join(self._chunk(source, segment, each) for each in range(number, last + 1))
        if len(whole) < within + length:
            raise CorruptBatch(f"the object ends before byte {position + length}")
        return whole[within : within + length]

    def _damaged(self, source: _Source, segment: TieredSegment, position: int, reason: str) -> _FailedError:
        """Forget the chunk: the next load may bring other bytes."""
        place = (segment.id, position // self._chunk_bytes)
        self._forget(place)
        self._note_failure(source.partition, place, f"{segment.id}: byte {position}: {reason}")
        return _FailedError(reason)

    # -- the cache ----------------------------------------------------------------------------------------------

    def _index(self, source: _Source, segment: TieredSegment) -> RemoteIndex:
        data = self._cached(source, segment, _INDEX_CHUNK)
        index = self._indexes.get(segment.id)
        if index is None:
            try:
                index = RemoteIndex.decode(data)
            except CorruptIndexError as error:
                self._forget((segment.id, _INDEX_CHUNK))
                self._note_failure(source.partition, (segment.id, _INDEX_CHUNK), f"{segment.id}: {error}")
                raise _FailedError(str(error)) from error
            self._indexes[segment.id] = index
        return index

    def _chunk(self, source: _Source, segment: TieredSegment, number: int) -> bytes:
        return self._cached(source, segment, number)

    def _cached(self, source: _Source, segment: TieredSegment, number: int) -> bytes:
        place = (segment.id, number)
        data = self._chunks.get(place)
        if data is not None:
            self._chunks.move_to_end(place)
            return data
        if self._failed.get(place, float("-inf")) > _now() - RETRY_S:
            raise _FailedError
        self._load(source.partition, segment, number)
        raise _Pending

    def _read_ahead(self, source: _Source, segment: TieredSegment, position: int) -> None:
        """Load the chunk after the one at `position`."""
        number = min(position, segment.size - 1) // self._chunk_bytes + 1
        following: TieredSegment | None = segment
        if number * self._chunk_bytes >= segment.size:
            number, following = 0, source.manifest.find_in(source.lineage, segment.next_offset)
            if following is not None and following.base_offset < source.partition.log.local_start_offset:
                self._load(source.partition, following, _INDEX_CHUNK)
            else:
                return
        if following is not None:
            self._load(source.partition, following, number)

    def _load(self, partition: Partition, segment: TieredSegment, number: int) -> None:
        """Start to load a chunk, unless it is here, or failed a short time ago."""
        place = (segment.id, number)
        if place in self._chunks or self._failed.get(place, float("-inf")) > _now() - RETRY_S:
            return
        waiting = self._loading.get(place)
        if waiting is None:
            self._loading[place] = [partition]
            self._run(self._fetch(segment, number, place), f"reading {segment.id} of remote storage")
        elif partition not in waiting:
            waiting.append(partition)

    async def _fetch(self, segment: TieredSegment, number: int, place: _Place) -> None:
        partitions = self._loading[place]
        try:
            async with self._turn:
                data = await self._get(segment, number)
            self._failed.pop(place, None)
            self._put(place, data)
        except StoreError as error:
            self._note_failure(partitions[0], place, str(error))
        finally:
            self._loading.pop(place, None)
        for partition in partitions:
            partition.consumer_fetches.wake()

    async def _get(self, segment: TieredSegment, number: int) -> bytes:
        cluster_id = self._cluster_id()
        if cluster_id is None:
            raise StoreError("the cluster's id is unknown")
        if number == _INDEX_CHUNK:
            return await self._store.get(segment.object_name(cluster_id, INDEX), 0, INDEX_BYTES)
        start = number * self._chunk_bytes
        length = min(self._chunk_bytes, segment.size - start)
        data = await self._store.get(segment.object_name(cluster_id, LOG), start, length)
        if len(data) < length:
            raise StoreError(f"{segment.object_name(cluster_id, LOG)}: the object ends at byte {start + len(data)}")
        return data

    def _put(self, place: _Place, data: bytes) -> None:
        self._chunks[place] = data
        self._size += len(data)
        while self._size > self._cache_bytes and len(self._chunks) > 1:
            self._forget(next(iter(self._chunks)))

    def _forget(self, place: _Place) -> None:
        self._size -= len(self._chunks.pop(place, b""))
        if place[1] == _INDEX_CHUNK:
            self._indexes.pop(place[0], None)

    def _note_failure(self, partition: Partition, place: _Place, reason: str) -> None:
        if place not in self._failed:
            self.failures += 1
            partition.trace("remote_read_failed", reason=reason)
        self._failed[place] = _now()
        while len(self._failed) > 1_000:
            self._failed.pop(next(iter(self._failed)))


def _now() -> float:
    return asyncio.get_running_loop().time()
