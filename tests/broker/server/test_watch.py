"""The controller detects a broker's end by refused connections, and by no weaker evidence."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from broker.controller.active import ActiveController
from broker.controller.image import BrokerImage, MetadataImage
from broker.listeners import plaintext
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest
from broker.server.failure_detector import DeathWatch
from broker.trace import Tracer, Value
from tests.stories import played_by


class Wire:
    """Stands for the connection of a broker."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[object]] = []
        self.ended_in_order = False

    def cancel_when_lost(self, future: asyncio.Future[object]) -> None:
        self.futures.append(future)

    def end_in_order(self) -> None:
        self.ended_in_order = True
        self.break_off()

    def break_off(self) -> None:
        for future in self.futures:
            future.cancel()


class Story:
    """Broker 2 is registered with epoch 7 and listens; this node, broker 1, is the controller."""

    def __init__(self, port: int) -> None:
        self.is_active = True
        self.dead: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.said = asyncio.Event()
        self.probed = 0
        self.image = MetadataImage()
        self.register(port)
        events: list[dict[str, Value]] = []
        self.watch = DeathWatch(
            node_id=1,
            image=lambda: self.image,
            controller=cast(ActiveController, self),
            tracer=Tracer(1, lambda: 0, events.append),
        )

    def register(self, port: int, epoch: int = 7, fenced: bool = False) -> None:
        self.image.brokers[2] = BrokerImage(2, epoch, b"i" * 16, (plaintext("127.0.0.1", port),), fenced)

    def broker_looks_dead(self, broker_id: int, broker_epoch: int) -> None:
        self.dead.append((broker_id, broker_epoch))
        self.said.set()

    def broker_ended(self, broker_id: int, broker_epoch: int) -> None:
        self.ended.append((broker_id, broker_epoch))

    def heartbeat(self, wire: Wire, epoch: int = 7) -> None:
        self.watch.heard(BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch), wire)  # type: ignore[arg-type]

    async def probes_done(self) -> None:
        await asyncio.gather(*self.watch._probes.values())


def tell(story: Callable[[Story, asyncio.Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(120):
            server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
            await story(Story(server.sockets[0].getsockname()[1]), server)
            server.close()

    asyncio.run(run())


STORIES = played_by(tell)


async def test_a_killed_broker_is_detected_immediately(it: Story, server: asyncio.Server, /) -> None:
    wire = Wire()
    it.heartbeat(wire)
    it.heartbeat(wire)
    server.close()
    wire.break_off()
    await it.said.wait()
    assert it.dead == [(2, 7)]


async def test_a_broken_connection_alone_does_not_prove_a_death(it: Story, server: asyncio.Server, /) -> None:  # noqa: ARG001
    wire = Wire()
    it.heartbeat(wire)
    wire.break_off()
    await asyncio.sleep(0)
    assert it.watch._probes
    await it.probes_done()
    assert it.dead == []


async def test_only_the_latest_connection_counts(it: Story, server: asyncio.Server, /) -> None:
    first, second = Wire(), Wire()
    it.heartbeat(first)
    it.heartbeat(second)
    server.close()
    first.break_off()
    await asyncio.sleep(0)
    assert not it.watch._probes


@pytest.mark.conforms("H31")
async def test_an_end_in_order_is_the_end_of_the_registration_of_the_latest_heartbeat(
    it: Story,
    server: asyncio.Server,  # noqa: ARG001
    /,
) -> None:
    wire = Wire()
    it.heartbeat(wire, epoch=6)
    it.heartbeat(wire, epoch=7)
    wire.end_in_order()
    await asyncio.sleep(0)
    assert (it.ended, it.dead, it.watch._probes) == ([(2, 7)], [], {})


@pytest.mark.conforms("H31")
async def test_an_orderly_end_of_an_earlier_connection_does_not_prove_a_death(
    it: Story,
    server: asyncio.Server,  # noqa: ARG001
    /,
) -> None:
    first, second = Wire(), Wire()
    it.heartbeat(first)
    it.heartbeat(second)
    first.end_in_order()
    await asyncio.sleep(0)
    assert it.ended == []


async def test_a_new_controller_watches_every_other_broker(it: Story, server: asyncio.Server, /) -> None:
    it.watch.leads()
    await it.probes_done()
    assert it.dead == []
    server.close()
    it.watch.leads()
    await it.said.wait()
    assert it.dead == [(2, 7)]


async def test_only_the_controller_probes_and_only_unfenced_brokers(it: Story, server: asyncio.Server, /) -> None:
    server.close()
    it.is_active = False
    it.watch.leads()
    assert not it.watch._probes
    it.is_active = True
    it.register(1, fenced=True)
    it.watch.leads()
    await it.probes_done()
    assert it.dead == []


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("in_order", [False, True])
async def test_a_voter_reports_a_process_that_ended_before_it_became_the_controller(
    it: Story,
    server: asyncio.Server,  # noqa: ARG001
    /,
    in_order: bool,
) -> None:
    it.is_active = False
    wire = Wire()
    it.heartbeat(wire)
    if in_order:
        wire.end_in_order()
    else:
        wire.break_off()
    await asyncio.sleep(0)
    assert it.ended == []
    it.is_active = True
    it.watch.leads()
    await it.probes_done()
    assert it.ended == ([(2, 7)] if in_order else [])


@pytest.mark.conforms("H31")
async def test_a_new_process_of_an_ended_broker_is_not_reported(it: Story, server: asyncio.Server, /) -> None:
    it.is_active = False
    wire = Wire()
    it.heartbeat(wire)
    wire.end_in_order()
    await asyncio.sleep(0)
    it.register(server.sockets[0].getsockname()[1], epoch=8)
    it.is_active = True
    it.watch.leads()
    await it.probes_done()
    assert it.ended == []
