"""Reads records that are only in remote storage, through a bounded cache of chunks of remote segments.

Theory of operation. Requests of consumers are answered in turns of the event loop that cannot wait. So a read returns
what the cache has, or nothing; then it starts to load what is missing, and the arrival wakes the fetches that are
parked at the partition. A search by timestamp is refused with OFFSET_NOT_AVAILABLE meanwhile, and clients repeat it.
A read also starts to load the chunks that follow it, also those of the next segment. Answers are views of the cached
chunks: large answers are not copied, and keep their chunks in memory until they are sent.

Bytes from the store are not trusted. An index and each chunk are compared with the segment's metadata when they are
first used (`object_digests.py`), so an object of another segment is never served. Of every batch that is served the
CRC, the continuity of the offsets and the leader epoch (by the log's own epoch cache, H28) are checked. A failed load
is not repeated for `RETRY_S`; until then reads of it fail with KAFKA_STORAGE_ERROR, which clients retry, and the rest
of the partition is served.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

from broker.errors import ErrorCode
from broker.log.timestamps import TimedOffset, times_of
from broker.ports import Buffer
from broker.protocol.records import BATCH_HEADER_SIZE, BatchHeader, CorruptBatch, parse_header, validate_batch
from broker.replica.partition import Partition
from broker.tiered.manifest import Lineage, Manifest
from broker.tiered.object_digests import BLOCK_BYTES, DIFFERENT, ObjectDifferentError
from broker.tiered.object_store import MISSING, ObjectStore, StoreError
from broker.tiered.remote_index import CorruptIndexError, RemoteIndex
from broker.tiered.segments import INDEX, LOG, TieredSegment

RETRY_S = 1.0
LEAST_SHARE = 8
"""Answers below this fraction of a chunk are copied: small answers to slow clients do not keep whole chunks."""
LOADS_AT_ONCE = 8
CHUNKS_AHEAD = 3
"""One is sent, one is loaded, and one hides that a load sometimes takes longer than the answer before it."""
INDEX_BYTES = 64 << 20
"""More than the index of any segment."""
DAMAGED = "the object is damaged"
"""The kind of failure of an object that is that of the metadata, and cannot be understood."""
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


class _Piece(NamedTuple):
    """The bytes `data[start:end]`. `data` is a chunk, or a copy of a batch that is in more than one chunk."""

    data: bytes
    start: int
    end: int

    def view(self) -> memoryview:
        return memoryview(self.data)[self.start : self.end]


class _Failure(NamedTuple):
    """When a part of an object could not be read, in loop time, and why."""

    at: float
    reason: str


class RemoteReads:
    """The cache of one broker. `cache_bytes`: the size of chunks and indexes together; at least what one read needs.
    `chunk_bytes` is rounded up to whole blocks of `block_bytes`. `compares`: objects are compared with the metadata.
    `say` gets a line for the log of the process. `failures`: parts of objects that could not be read, by kind."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster_id: Callable[[], str | None],
        cache_bytes: int,
        chunk_bytes: int,
        run: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        say: Callable[[str], None],
        block_bytes: int = BLOCK_BYTES,
        compares: bool = True,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._cache_bytes = cache_bytes
        self._chunk_bytes = -(-chunk_bytes // block_bytes) * block_bytes
        self._run = run
        self._say = say
        self._compares = compares
        self._chunks: OrderedDict[_Place, bytes] = OrderedDict()
        self._unchecked: set[_Place] = set()
        self._indexes: dict[str, RemoteIndex] = {}
        self._size = 0
        self._largest_index = self._largest_copied = 0
        self._loading: dict[_Place, list[Partition]] = {}
        self._failed: dict[_Place, _Failure] = {}
        self._turn = asyncio.Semaphore(LOADS_AT_ONCE)
        self.failures: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return self._size

    # -- answers ------------------------------------------------------------------------------------------------

    def read(
        self, partition: Partition, lineage: Lineage, manifest: Manifest, offset: int, max_bytes: int, *, min_one: bool
    ) -> Sequence[Buffer] | ErrorCode | None:
        """Whole batches from the one that contains `offset`, at most `max_bytes`; with `min_one` also a larger one. The
        result is their concatenation. None: they are being loaded."""
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
                    position = self._first_of(source, segment, start, timestamp)
                    if position is not None:
                        return position if position.offset < local else None
        except _Pending:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        except _FailedError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _read(
        self, source: _Source, segment: TieredSegment, offset: int, max_bytes: int, min_one: bool
    ) -> Sequence[Buffer]:
        position = self._index(source, segment).position_before(offset)
        pieces: list[_Piece] = []
        size = 0
        try:
            for at, header, piece in self._batches(source, segment, position):
                if header.next_offset <= offset:
                    continue
                if not source.lineage.has(header):
                    if not size:
                        reason = f"offset {header.base_offset} has another leader epoch"
                        raise self._damaged(source, segment, at, reason)
                    break
                if size + header.size > max_bytes and (size or not min_one):
                    break
                if pieces and pieces[-1].data is piece.data:
                    pieces[-1] = pieces[-1]._replace(end=piece.end)
                else:
                    pieces.append(piece)
                size, position = size + header.size, at + header.size
        except (_Pending, _FailedError):
            if not size:
                raise  # otherwise the next read reports it
        self._read_ahead(source, segment, position)
        if not size:
            return ()  # `max_bytes` is smaller than the batch
        views = [piece.view() for piece in pieces]
        return views if size * LEAST_SHARE >= self._chunk_bytes else (b"".join(views),)

    def _first_of(self, source: _Source, segment: TieredSegment, start: int, timestamp: int) -> TimedOffset | None:
        position = self._index(source, segment).position_before_timestamp(timestamp)
        for _, header, batch in self._batches(source, segment, position):
            if header.max_timestamp < timestamp or header.next_offset <= start:
                continue
            if not source.lineage.has(header):
                return None
            for record_time in times_of(header, bytes(batch.view())):
                if record_time.timestamp >= timestamp and record_time.offset >= start:
                    return record_time
        return None

    # -- batches ------------------------------------------------------------------------------------------------

    def _batches(
        self, source: _Source, segment: TieredSegment, position: int
    ) -> Iterator[tuple[int, BatchHeader, _Piece]]:
        """Position, header and bytes of the checked batches from a position on. Raises `_Pending` before the first one
        that is not in the cache, `_FailedError` before one that is damaged."""
        due = -1
        while position < segment.size:
            try:
                head = self._bytes(source, segment, position, min(BATCH_HEADER_SIZE, segment.size - position))
                header = parse_header(head.data, head.start)
                if header.size < BATCH_HEADER_SIZE or position + header.size > segment.size:
                    raise CorruptBatch(f"a batch of {header.size} bytes")
                batch = self._bytes(source, segment, position, header.size)
                header = validate_batch(batch.data, batch.start)
                if due not in (-1, header.base_offset) or not self._fits(segment, header):
                    raise CorruptBatch(f"offset {header.base_offset} does not follow")
            except CorruptBatch as error:
                raise self._damaged(source, segment, position, str(error)) from error
            yield position, header, batch
            due, position = header.next_offset, position + header.size

    def _fits(self, segment: TieredSegment, header: BatchHeader) -> bool:
        return segment.base_offset <= header.base_offset and header.next_offset <= segment.next_offset

    def _bytes(self, source: _Source, segment: TieredSegment, position: int, length: int) -> _Piece:
        """Bytes of a segment; a copy of them only if they span chunks. Raises `CorruptBatch` if the object ends before
        them."""
        number, within = divmod(position, self._chunk_bytes)
        data, end = self._cached(source, segment, number), within + length
        if end > self._chunk_bytes:
            self._largest_copied = max(self._largest_copied, end)
            last = (position + length - 1) // self._chunk_bytes
            following = [self._cached(source, segment, chunk) for chunk in range(number + 1, last + 1)]
            data = b"".join((memoryview(data)[within:], *following))
            within, end = 0, length
        if end > len(data):
            raise CorruptBatch(f"the object ends before byte {position + length}")
        return _Piece(data, within, end)

    def _damaged(self, source: _Source, segment: TieredSegment, position: int, reason: str) -> _FailedError:
        number = position // self._chunk_bytes
        return self._refused(source, segment, number, DAMAGED, f"byte {position}: {reason}")

    def _refused(self, source: _Source, segment: TieredSegment, number: int, kind: str, reason: str) -> _FailedError:
        """Forget a chunk or index: the next load may bring other bytes."""
        self._forget((segment.id, number))
        name = segment.object_name(self._cluster_id() or "", INDEX if number == _INDEX_CHUNK else LOG)
        self._note_failure(source.partition, (segment.id, number), kind, f"{name}: {kind}: {reason}")
        return _FailedError(reason)

    # -- the cache ----------------------------------------------------------------------------------------------

    def _index(self, source: _Source, segment: TieredSegment) -> RemoteIndex:
        data = self._loaded(source, segment, _INDEX_CHUNK)
        index = self._indexes.get(segment.id)
        if index is None:
            try:
                if self._compares:
                    segment.digest(INDEX).check("", data)
                index = RemoteIndex.decode(data)
            except ObjectDifferentError as error:
                raise self._refused(source, segment, _INDEX_CHUNK, DIFFERENT, error.difference) from error
            except CorruptIndexError as error:
                raise self._refused(source, segment, _INDEX_CHUNK, DAMAGED, str(error)) from error
            self._indexes[segment.id] = index
            self._failed.pop((segment.id, _INDEX_CHUNK), None)
        return index

    def _cached(self, source: _Source, segment: TieredSegment, number: int) -> bytes:
        """A chunk of a `.log` object. At its first use it is compared with the index."""
        data = self._loaded(source, segment, number)
        place = (segment.id, number)
        if place in self._unchecked and self._compares:
            position = self._index(source, segment).different_block(number * self._chunk_bytes, data)
            if position is not None:
                raise self._refused(source, segment, number, DIFFERENT, f"the checksum of the block at {position}")
            self._failed.pop(place, None)
        self._unchecked.discard(place)
        return data

    def _loaded(self, source: _Source, segment: TieredSegment, number: int) -> bytes:
        place = (segment.id, number)
        data = self._chunks.get(place)
        if data is not None:
            self._chunks.move_to_end(place)
            return data
        if self._failed_now(place):
            raise _FailedError
        self._load(source.partition, segment, number)
        raise _Pending

    def _failed_now(self, place: _Place) -> bool:
        failure = self._failed.get(place)
        return failure is not None and failure.at > _now() - RETRY_S

    def _read_ahead(self, source: _Source, segment: TieredSegment, position: int) -> None:
        """Load the chunks after the one in which the answer ends, at most as many as half of the cache holds.
        `position`: the end of the answer."""
        number = max(position - 1, 0) // self._chunk_bytes
        for _ in range(min(CHUNKS_AHEAD, self._cache_bytes // (2 * self._chunk_bytes))):
            number += 1
            if number * self._chunk_bytes >= segment.size:
                following = source.manifest.find_in(source.lineage, segment.next_offset)
                if following is None or following.base_offset >= source.partition.log.local_start_offset:
                    return
                segment, number = following, 0
                self._load(source.partition, segment, _INDEX_CHUNK)
            self._load(source.partition, segment, number)

    def _load(self, partition: Partition, segment: TieredSegment, number: int) -> None:
        """Start to load a chunk, unless it is here, or failed a short time ago."""
        place = (segment.id, number)
        if place in self._chunks or self._failed_now(place):
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
            self._put(place, data)
        except StoreError as error:
            self._note_failure(partitions[0], place, error.kind, str(error))
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
            raise ObjectDifferentError(segment.object_name(cluster_id, LOG), f"it ends at byte {start + len(data)}")
        return data

    def _put(self, place: _Place, data: bytes) -> None:
        self._chunks[place] = data
        if place[1] != _INDEX_CHUNK:
            self._unchecked.add(place)
        self._size += len(data)
        self._largest_index = max(self._largest_index, len(data) if place[1] == _INDEX_CHUNK else 0)
        # One read needs an index and the chunks of a batch at the same time. A smaller cache would never answer it.
        least_bytes = self._largest_index + self._largest_copied + 2 * self._chunk_bytes
        while self._size > max(self._cache_bytes, least_bytes):
            self._forget(next(iter(self._chunks)))

    def _forget(self, place: _Place) -> None:
        self._size -= len(self._chunks.pop(place, b""))
        self._unchecked.discard(place)
        if place[1] == _INDEX_CHUNK:
            self._indexes.pop(place[0], None)

    def _note_failure(self, partition: Partition, place: _Place, kind: str, reason: str) -> None:
        """Count a failure. It is reported when its reason is new for this part of the object."""
        self.failures[kind] += 1
        failure = self._failed.pop(place, None)
        if failure is None or failure.reason != reason:
            partition.trace("remote_read_failed", reason=reason)
            if kind in (DIFFERENT, DAMAGED, MISSING):  # the store's own failures are reported once for all objects
                self._say(f"records in remote storage cannot be served: {reason}")
        self._failed[place] = _Failure(_now(), reason)
        while len(self._failed) > 1_000:
            self._failed.pop(next(iter(self._failed)))


def _now() -> float:
    return asyncio.get_running_loop().time()
