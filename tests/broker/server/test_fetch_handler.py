"""How many fetches wait on one connection: one of a consumer's, any number of a replica's; and when they end."""

import asyncio
import gc
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
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
from tests.stories import run_by

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
@run_by(asyncio.run)
async def test_a_consumer_has_one_fetch_parked_and_a_replica_more(replica: int, begun: list[int]) -> None:
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


class ParkedReplicas(Replicas):
    """Knows which fetches are parked."""

    def __init__(self) -> None:
        super().__init__()
        self.parked: set[int] = set()

    async def wait_for_fetch(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> list[PartitionRead]:
        try:
            return await super().wait_for_fetch(limits, positions)
        finally:
            self.parked -= {position.fetch_offset for position in positions}

    def fetch_now(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> list[PartitionRead] | None:
        self.parked |= {position.fetch_offset for position in positions}
        return super().fetch_now(limits, positions)


@pytest.mark.parametrize("turns", [0, 1, 2], ids=["in its turn", "in the next turn", "later"])
def test_a_parked_fetch_leaves_when_its_broker_stops(turns: int) -> None:
    """Also one that came in the turn in which the broker stops: its task has not started."""

    async def story() -> None:
        replicas: Any = ParkedReplicas()
        dispatcher = Dispatcher(Tracer(1, lambda: 0, print), print)
        dispatcher.serve(ApiKey.FETCH, FetchHandler(dispatcher, replicas, MetadataImage).serve)
        connection: Any = SimpleNamespace(
            peer="h:1",
            principal=None,
            address="h",
            reserve=lambda blocking: SimpleNamespace(fill=print),  # noqa: ARG005
            cancel_when_lost=lambda task: None,  # noqa: ARG005
        )
        dispatcher.dispatch(connection, memoryview(fetch(7, 2))[4:])
        assert replicas.parked == {7}
        for _ in range(turns):
            await asyncio.sleep(0)
        dispatcher.stop()
        waiting = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        assert replicas.parked == set()

    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(each.message) for each in reported if "never awaited" in str(each.message)] == []
