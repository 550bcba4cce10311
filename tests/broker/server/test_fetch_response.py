"""The hand-written Fetch response has the bytes of the codec's, in every version."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from broker.errors import ErrorCode
from broker.log.reading import Slice
from broker.ports import Buffer
from broker.protocol.api import APIS, ApiKey, decode_response_header
from broker.protocol.codec import decode_exactly
from broker.protocol.messages.fetch import EpochEndOffset, FetchResponse, PartitionData
from broker.replica.log_view import EpochEnd
from broker.replica.reads import PartitionRead
from broker.server.handlers.fetch_response import READ_BELOW, TopicAnswer, fetch_reply
from broker.server.reply import Reply

VERSIONS = range(4, 18)


class MemoryFile:
    """A file of known content."""

    path = "memory"

    def __init__(self, content: bytes) -> None:
        self.content = content

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]

    def append(self, buffers: Sequence[Buffer]) -> int:
        raise NotImplementedError

    def truncate(self, length: int) -> None:
        raise NotImplementedError

    async def sync(self, *, in_background: bool = False) -> None:
        raise NotImplementedError

    async def sync_again(self, start: int) -> None:
        raise NotImplementedError

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        raise NotImplementedError

    def close(self) -> None: ...


def read(partition: int, high_watermark: int, log_start_offset: int, slices: list[Slice]) -> PartitionRead:
    size = sum(part.length for part in slices)
    return PartitionRead("t", partition, ErrorCode.NONE, high_watermark, log_start_offset, slices, size)


def wire(reply: Reply) -> bytes:
    return b"".join(p.file.read(p.position, p.length) if isinstance(p, Slice) else bytes(p) for p in reply)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_encoded_fetch_response_decodes_to_the_original(version: int) -> None:
    rng = random.Random(version)
    file = MemoryFile(rng.randbytes(200_000))
    answers = [
        read(0, 17, 3, [Slice(file, 10, 100)]),
        PartitionRead("t", 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        read(2, 9, 0, [Slice(file, 0, READ_BELOW + 1), Slice(file, 500, 70_000)]),
        PartitionRead("t", 3, diverging=EpochEnd(4, 44)),
    ]
    topic_id = rng.randbytes(16)
    reply = fetch_reply(version, 4711, [TopicAnswer("tøpic", answers, topic_id)], read_committed=version % 2 == 0)
    data = wire(reply)

    assert int.from_bytes(data[:4], "big") == len(data) - 4
    api = APIS[ApiKey.FETCH]
    correlation_id, position = decode_response_header(api, version, data, 4)
    assert correlation_id == 4711
    response = decode_exactly(FetchResponse, version, data, position)
    (topic,) = response.responses
    assert (topic.topic, topic.topic_id) == (("", topic_id) if version >= 13 else ("tøpic", bytes(16)))
    assert [bytes(p.records or b"") for p in topic.partitions] == [
        b"".join(file.read(r.position, r.length) for r in answer.slices) for answer in answers
    ]
    assert [(p.partition_index, p.error_code, p.high_watermark) for p in topic.partitions] == [
        (a.partition, a.error, a.high_watermark) for a in answers
    ]
    assert all(p.last_stable_offset == p.high_watermark for p in topic.partitions)
    assert [p.aborted_transactions for p in topic.partitions] == [[] if version % 2 == 0 else None] * 4
    last: PartitionData = topic.partitions[3]
    if version >= 12:
        assert last.diverging_epoch == EpochEndOffset(4, 44)
        assert topic.partitions[0].diverging_epoch is None


def test_large_ranges_stay_ranges_and_small_ones_do_not() -> None:
    file = MemoryFile(bytes(100_000))
    small, large = Slice(file, 0, READ_BELOW - 1), Slice(file, 0, READ_BELOW)
    reply = fetch_reply(12, 1, [TopicAnswer("t", [read(0, 1, 0, [small, large])])])
    assert [part for part in reply if isinstance(part, Slice)] == [large]


def test_a_small_range_truncated_meanwhile_is_left_to_the_connection() -> None:
    truncated = Slice(MemoryFile(b"short"), 0, 100)
    reply = fetch_reply(12, 1, [TopicAnswer("t", [read(0, 1, 0, [truncated])])])
    assert truncated in reply


def test_an_error_of_the_whole_request() -> None:
    data = wire(fetch_reply(12, 1, [], error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    _, position = decode_response_header(APIS[ApiKey.FETCH], 12, data, 4)
    assert decode_exactly(FetchResponse, 12, data, position).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
