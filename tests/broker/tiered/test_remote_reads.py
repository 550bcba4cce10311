"""Reads of remote segments through the cache of chunks: bytes, copies, memory of answers, and prefetch."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.log.epochs import EpochEntry
from broker.log.timestamps import TimedOffset
from broker.ports import Buffer
from broker.protocol.records import Record, build_batch
from broker.tiered.manifest import Lineage, Manifest
from broker.tiered.object_digests import DIFFERENT, LogDigest, ObjectDigest
from broker.tiered.remote_index import IndexEntry, RemoteIndex
from broker.tiered.remote_reads import CHUNKS_AHEAD, LEAST_SHARE, RemoteReads
from broker.tiered.segments import INDEX, LOG, SUFFIXES, RemotePartition, SegmentState, TieredSegment
from tests.stories import played_by

BATCH_BYTES, BATCHES, SEGMENTS = 300, 40, 3
END = SEGMENTS * BATCHES
WHOLE = 1 << 20
"""More than all bytes of a segment."""


def batch(offset: int, content: int = 0) -> bytes:
    """A batch of `BATCH_BYTES` with one record, whose bytes are all `content`."""
    record = Record(offset=0, timestamp=10 * offset, key=None, value=bytes(200))
    missing = BATCH_BYTES - len(build_batch([record], offset, 0))
    return build_batch([record._replace(value=bytes([content]) * (200 + missing))], offset, 0)


def segment(number: int) -> TieredSegment:
    base = number * BATCHES
    return TieredSegment(
        f"{number:032x}", RemotePartition("log", bytes(16), 0), base, base + BATCHES - 1, (EpochEntry(0, base),),
        10 * (base + BATCHES - 1), BATCHES * BATCH_BYTES, 1, 0, SegmentState.COPY_FINISHED,
    )  # fmt: skip


class RemoteLog:
    """A log whose records are all in three remote segments, in a store that counts what is read from it."""

    def __init__(self, chunk_bytes: int, *, cached_chunks: int = 1_000) -> None:
        self.segments = [segment(number) for number in range(SEGMENTS)]
        self.objects: dict[str, bytes] = {}
        for number, each in enumerate(self.segments):
            records, digest = b"".join(map(batch, range(each.base_offset, each.next_offset))), LogDigest(chunk_bytes)
            digest.add(records)
            ends = [IndexEntry(each.base_offset, 0, -1), IndexEntry(each.next_offset, each.size, each.max_timestamp)]
            index = RemoteIndex(ends, digest.block_sums, chunk_bytes).encode()
            self.objects |= {each.object_name("c", LOG): records, each.object_name("c", INDEX): index}
            others = [ObjectDigest.of(suffix, b"") for suffix in SUFFIXES[2:]]
            objects = (digest.digest(LOG), ObjectDigest.of(INDEX, index), *others)
            self.segments[number] = replace(each, objects=objects)
        self.loaded: Counter[tuple[str, int]] = Counter()
        self.returned: dict[int, bytes] = {}
        """What the store has returned, by identity."""
        self.printed: list[str] = []
        self.arrived = asyncio.Event()
        log = SimpleNamespace(log_start_offset=0, local_start_offset=END)
        fetches = SimpleNamespace(wake=self.arrived.set)
        self.partition: Any = SimpleNamespace(log=log, consumer_fetches=fetches, trace=lambda *_, **__: None)
        store: Any = self
        self.reads = RemoteReads(
            store=store,
            cluster_id=lambda: "c",
            cache_bytes=cached_chunks * chunk_bytes,
            chunk_bytes=chunk_bytes,
            run=lambda work, _: asyncio.ensure_future(work),
            say=self.printed.append,
            block_bytes=chunk_bytes,
        )

    async def get(self, name: str, start: int, length: int) -> bytes:
        self.loaded[name, start] += 1
        data = bytes(bytearray(self.objects[name][start : start + length]))
        self.returned[id(data)] = data
        return data

    async def read(self, offset: int, max_bytes: int = WHOLE) -> Sequence[Buffer]:
        while True:
            self.arrived.clear()
            lineage = Lineage((EpochEntry(0, 0),), END)
            found = self.reads.read(
                self.partition, lineage, Manifest(self.segments), offset, max_bytes, min_one=True
            )  # fmt: skip
            if found is not None:
                assert not isinstance(found, ErrorCode)
                return found
            await self.arrived.wait()

    def chunks(self) -> set[tuple[int, int]]:
        """The loaded chunks: number of the segment and position."""
        names = {each.object_name("c", LOG): number for number, each in enumerate(self.segments)}
        return {(names[name], start) for name, start in self.loaded if name in names}


def run_story(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


STORIES = played_by(run_story)


@pytest.mark.parametrize("max_bytes", [1, BATCH_BYTES, 1_000, WHOLE])
@pytest.mark.parametrize("chunk_bytes", [61, 100, BATCH_BYTES, 299, 301, 1_000, 4_096, WHOLE])
async def test_reads_in_sequence_return_every_byte_once(chunk_bytes: int, max_bytes: int) -> None:
    log, offset, found = RemoteLog(chunk_bytes), 0, b""
    while offset < END:
        part = b"".join(await log.read(offset, max_bytes))
        assert part
        assert len(part) % BATCH_BYTES == 0
        assert len(part) <= max(max_bytes, BATCH_BYTES)
        found, offset = found + part, offset + len(part) // BATCH_BYTES
    assert found == b"".join(map(batch, range(END)))
    assert set(log.loaded.values()) == {1}


async def test_a_large_answer_consists_of_views_of_store_chunks() -> None:
    log = RemoteLog(1_000)
    await log.read(0, 2_500)
    await asyncio.sleep(0)  # the chunks after the first one
    parts = await log.read(0, 2_500)
    assert [len(part) for part in parts] == [900, 300, 600, 300, 300]
    views = [part for part in parts if isinstance(part, memoryview)]
    are_of_chunks = [id(view.obj) in log.returned for view in views]
    assert are_of_chunks == [True, False, True, False, True], "only batches that span two chunks are copied"


async def test_a_small_answer_keeps_no_chunk_in_memory() -> None:
    log = RemoteLog((LEAST_SHARE + 1) * BATCH_BYTES)
    [small] = await log.read(0, BATCH_BYTES)
    assert isinstance(small, bytes)
    [large] = await log.read(0, 2 * BATCH_BYTES)
    assert isinstance(large, memoryview)


@pytest.mark.parametrize(("cached", "ahead"), [(1_000, CHUNKS_AHEAD), (4, 2), (2, 1), (1, 0)])
async def test_the_following_chunks_are_loaded_ahead_up_to_half_of_the_cache(cached: int, ahead: int) -> None:
    log = RemoteLog(10 * BATCH_BYTES, cached_chunks=cached)
    await log.read(0, BATCH_BYTES)
    await asyncio.sleep(0.01)
    assert log.chunks() == {(0, number * 10 * BATCH_BYTES) for number in range(1 + ahead)}


@pytest.mark.parametrize("local_segments", [0, 1, 2])
async def test_chunks_of_the_next_segments_are_loaded_ahead_unless_their_records_are_local(local_segments: int) -> None:
    log = RemoteLog(20 * BATCH_BYTES)  # two chunks in each segment
    log.partition.log.local_start_offset = (SEGMENTS - local_segments) * BATCHES
    await log.read(BATCHES - 1)
    await asyncio.sleep(0.01)
    following = [(1, 0), (1, 20 * BATCH_BYTES), (2, 0), (2, 20 * BATCH_BYTES)][:CHUNKS_AHEAD]
    remote = {place for place in following if place[0] < SEGMENTS - local_segments}
    assert log.chunks() == {(0, 20 * BATCH_BYTES), *remote} | {(0, 0)}


@pytest.mark.parametrize("chunk_bytes", [61, 1_000, 4_096, WHOLE])
async def test_a_search_by_time_waits_for_the_chunk_with_the_record(chunk_bytes: int) -> None:
    """It must not answer with a later record that is loaded already."""
    log = RemoteLog(chunk_bytes)
    lineage, manifest = Lineage((EpochEntry(0, 0),), END), Manifest(log.segments)
    for offset in (BATCHES, 2 * BATCHES - 1, 1, BATCHES - 1):
        await log.read(2 * BATCHES)
        while True:
            log.arrived.clear()
            found = log.reads.first_not_before(log.partition, lineage, manifest, 10 * offset)
            if found is not ErrorCode.OFFSET_NOT_AVAILABLE:
                break
            await log.arrived.wait()
        assert found == TimedOffset(offset, 10 * offset)


async def test_the_batches_before_a_damaged_block_are_served() -> None:
    log = RemoteLog(1_000)
    name = log.segments[0].object_name("c", LOG)
    damaged = bytearray(log.objects[name])
    damaged[5 * BATCH_BYTES + 100] ^= 1
    log.objects[name] = bytes(damaged)
    await log.read(0)
    await asyncio.sleep(0.01)
    assert b"".join(await log.read(1)) == b"".join(map(batch, range(1, 3))), "the block starts in the fourth batch"
    lineage, manifest = Lineage((EpochEntry(0, 0),), END), Manifest(log.segments)
    found = log.reads.read(log.partition, lineage, manifest, 3, WHOLE, min_one=True)
    assert found is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.reads.failures == {DIFFERENT: 1}
    assert [name in line and DIFFERENT in line for line in log.printed] == [True]


def cut(data: bytes) -> bytes:
    return data[:-1]


def continued(data: bytes) -> bytes:
    return data + data


def other_byte(data: bytes) -> bytes:
    return data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]


@pytest.mark.conforms("K405-2")
@pytest.mark.parametrize("chunk_bytes", [1_000, WHOLE])
@pytest.mark.parametrize("suffix", [LOG, INDEX])
@pytest.mark.parametrize("change", [cut, continued, other_byte, "of another topic", "of the segment before"])
async def test_a_foreign_object_is_an_error_and_never_an_answer(chunk_bytes: int, suffix: str, change: Any) -> None:
    """An object of another topic has the same borders, is valid in itself, and has other records."""
    log = RemoteLog(chunk_bytes)
    before, one, _ = log.segments
    name, own = one.object_name("c", suffix), log.objects[one.object_name("c", suffix)]
    if change == "of the segment before":
        log.objects[name] = log.objects[before.object_name("c", suffix)]
    elif change == "of another topic":
        records, digest = (
            b"".join(batch(offset, 7) for offset in range(one.base_offset, one.next_offset)),
            LogDigest(),
        )
        digest.add(records)
        ends = [IndexEntry(one.base_offset, 0, -1), IndexEntry(one.next_offset, one.size, 0)]
        log.objects[name] = records if suffix == LOG else RemoteIndex(ends, digest.block_sums).encode()
    else:
        log.objects[name] = change(own)
    lineage, manifest = Lineage((EpochEntry(0, 0),), END), Manifest(log.segments)
    answers: list[Any] = []
    for _ in range(20):
        offset = one.next_offset - 1  # the last block, which each change reaches
        answers.append(log.reads.read(log.partition, lineage, manifest, offset, WHOLE, min_one=True))
        await asyncio.sleep(0)
    if change is continued and suffix == LOG:
        assert b"".join(answers[-1]) == batch(one.next_offset - 1), "what follows the end is not read"
        return
    assert set(map(str, answers)) == {"None", str(ErrorCode.KAFKA_STORAGE_ERROR)}
    assert set(log.reads.failures) == {DIFFERENT}
    assert name in log.printed[0] if log.printed else change is cut


async def test_a_limit_below_the_size_of_the_batch_returns_no_part() -> None:
    log = RemoteLog(WHOLE)
    await log.read(0)
    lineage, manifest = Lineage((EpochEntry(0, 0),), END), Manifest(log.segments)
    found = log.reads.read(log.partition, lineage, manifest, 0, BATCH_BYTES - 1, min_one=False)
    assert found == ()
