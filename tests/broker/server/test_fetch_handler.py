"""How many fetches wait on one connection: one of a consumer's, any number of a replica's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.controller.image import MetadataImage
from broker.protocol.api import ApiKey, encode_request
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.replica.reads import CONSUMER, FetchLimits, FetchPosition, PartitionRead
from broker.server.dispatch import Dispatcher
from broker.server.handlers.fetch_handler import FetchHandler
from broker.server.listener import Listener
from broker.trace import Tracer
from tests.broker.server.test_connection import answer

VERSION = 12


class Replicas:
    """Has nothing to read before `there_is_more`."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.looked = asyncio.Event()
        self.there_is_more = asyncio.Event()

    def fetch_now(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> list[PartitionRead] | None:  # noqa: ARG002
        self.asked += [position.fetch_offset for position in positions]
        self.looked.set()
        return None

    async def wait_for_fetch(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> list[PartitionRead]:  # noqa: ARG002
        await self.there_is_more.wait()
        return [PartitionRead(position.topic, position.partition) for position in positions]


def fetch(offset: int, replica: int) -> bytes:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=offset)])]
    request = FetchRequest(replica_id=replica, max_wait_ms=30_000, min_bytes=1, topics=topics)
    return bytes(encode_request(request, VERSION, offset, "test"))


@pytest.mark.parametrize(("replica", "begun"), [(CONSUMER, [0]), (2, [0, 1, 2])])
def test_a_consumer_has_one_fetch_parked_and_a_replica_more(replica: int, begun: list[int]) -> None:
    async def story() -> None:
        tracer = Tracer(1, lambda: 0, print)
        replicas: Any = Replicas()
        dispatcher = Dispatcher(tracer, print)
        dispatcher.serve(ApiKey.FETCH, FetchHandler(dispatcher, replicas, MetadataImage).serve)
        listener = Listener(dispatcher, tracer, request_max_bytes=1 << 20, max_connections=10, max_queued=1000)
        await listener.start("127.0.0.1", 0)
        assert isinstance(listener._server, asyncio.Server)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener._server.sockets[0].getsockname()[1])
        writer.write(b"".join([fetch(offset, replica) for offset in range(3)]))
        await replicas.looked.wait()  # all three have come with one read of the socket
        assert replicas.asked == begun
        replicas.there_is_more.set()
        answered = [int.from_bytes((await answer(reader))[:4], "big") for _ in range(3)]
        assert answered == replicas.asked == [0, 1, 2]
        writer.close()
        await listener.stop()

    asyncio.run(story())
