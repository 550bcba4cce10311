"""Registration, heartbeats and the lease, from the broker's side."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.config import BrokerConfig, Endpoint
from broker.errors import ErrorCode, StartupError
from broker.listeners import plaintext
from broker.mutants import Mutants
from broker.protocol.messages.broker_apis import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from broker.protocol.schema import Message
from broker.server.lease import Lease
from broker.server.lifecycle import SESSIONS_OF_PATIENCE, BrokerLifecycle
from broker.trace import Tracer, Value
from tests.broker.controller.clock import play
from tests.stories import played_by, run_by

CONFIG = BrokerConfig(
    node_id=4,
    listeners=(plaintext("h", 9092),),
    voters=(Endpoint(1, "a", 1), Endpoint(2, "b", 1)),
    log_dir="/nowhere",
    broker_heartbeat_interval_ms=10,
)
UNFENCED = BrokerHeartbeatResponse(is_fenced=False, lease_ms=150)


class Controller:
    """Plays the controllers: node 1 leads at first; answers are what the story sets."""

    def __init__(self, config: BrokerConfig = CONFIG, mutants: tuple[str, ...] = ()) -> None:
        self.leader: int | None = 1
        self.registration = BrokerRegistrationResponse(broker_epoch=7)
        self.heartbeat = UNFENCED
        self.asked: list[tuple[int, Message]] = []
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.delay = 0.0
        self.changed = asyncio.Event()
        self.events: list[dict[str, Value]] = []
        self.lease = Lease()
        self.lifecycle = BrokerLifecycle(
            config=config,
            connector=self,
            lease=self.lease,
            tracer=Tracer(4, lambda: 0, self._record),
            incarnation_id=b"i" * 16,
            directory_id=b"d" * 16,
            cluster_id=lambda: "brownout-cluster",
            previous_broker_epoch=lambda: 3,
            controller_id=lambda: self.leader,
            metadata_offset=lambda: 99,
            mutants=Mutants(mutants),
        )

    def _record(self, event: dict[str, Value]) -> None:
        self.events.append(event)
        self.changed.set()

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:  # noqa: ARG002
        self.asked.append((node_id, message))
        self.changed.set()
        if not self.reachable.is_set():
            raise ConnectionError("cut off")
        await asyncio.sleep(self.delay)
        return self.registration if isinstance(message, BrokerRegistrationRequest) else self.heartbeat

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def seen(self, event: str) -> int:
        return sum(1 for it in self.events if it["event"] == event)


def story(tell: Callable[[Controller], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(120):
            controller = Controller()
            task = asyncio.create_task(controller.lifecycle.run())
            try:
                await tell(controller)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    play(run())


STORIES = played_by(story)


async def test_a_broker_registers_and_is_unfenced(controller: Controller, /) -> None:
    await controller.lifecycle.unfenced.wait()
    assert controller.lifecycle.broker_epoch == 7
    assert controller.lease.valid()
    request = controller.asked[0][1]
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.incarnation_id, request.previous_broker_epoch) == (4, b"i" * 16, 3)
    beat = controller.asked[1][1]
    assert isinstance(beat, BrokerHeartbeatRequest)
    assert (beat.broker_epoch, beat.current_metadata_offset) == (7, 99)
    assert [event["event"] for event in controller.events] == ["registered", "unfenced"]


async def test_a_broker_finds_a_moved_controller(controller: Controller, /) -> None:
    controller.leader = None
    controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
    await asyncio.sleep(0)
    controller.leader = 1
    await controller.until(lambda: len(controller.asked) >= 2)
    controller.leader, controller.registration = 2, BrokerRegistrationResponse(broker_epoch=8)
    await controller.lifecycle.unfenced.wait()
    assert controller.asked[-1][0] == 2


async def test_a_fenced_broker_has_no_lease_and_retries_soon(controller: Controller, /) -> None:
    controller.heartbeat = BrokerHeartbeatResponse(is_fenced=True)
    await controller.until(lambda: len(controller.asked) >= 4)
    assert not controller.lease.valid()
    assert not controller.lifecycle.unfenced.is_set()
    controller.heartbeat = UNFENCED
    await controller.lifecycle.unfenced.wait()
    assert controller.lease.valid()
    controller.heartbeat = BrokerHeartbeatResponse(is_fenced=True)
    await controller.until(lambda: controller.seen("fenced") == 1)
    assert not controller.lease.valid()


async def test_the_lease_of_a_broker_that_is_cut_off_ends(controller: Controller, /) -> None:
    await controller.lifecycle.unfenced.wait()
    loop = asyncio.get_running_loop()
    controller.reachable.clear()
    cut = loop.time()
    while controller.lease.valid():  # noqa: ASYNC110 - the lease ends by the clock alone
        await asyncio.sleep(0.005)
    assert loop.time() - cut <= 0.150 + 0.050
    controller.reachable.set()
    while not controller.lease.valid():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_the_lease_counts_from_when_the_heartbeat_was_sent(controller: Controller, /) -> None:
    controller.delay = 0.200  # an answer takes longer than the lease lasts
    await controller.lifecycle.unfenced.wait()
    assert not controller.lease.valid()


async def test_a_lost_registration_is_repeated(controller: Controller, /) -> None:
    await controller.lifecycle.unfenced.wait()
    controller.registration = BrokerRegistrationResponse(broker_epoch=20)
    controller.heartbeat = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    await controller.until(lambda: controller.seen("registered") == 2)
    controller.heartbeat = UNFENCED
    await controller.lifecycle.unfenced.wait()
    assert controller.lifecycle.broker_epoch == 20


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("mutants", [(), ("leave_under_lease",)])
@run_by(play)
async def test_a_stopping_broker_gives_up_its_lease_before_it_informs_the_controller(mutants: tuple[str, ...]) -> None:
    controller = Controller(mutants=mutants)
    controller.heartbeat = BrokerHeartbeatResponse(is_fenced=False, lease_ms=1 << 40)
    living = asyncio.create_task(controller.lifecycle.run())
    await controller.lifecycle.unfenced.wait()
    living.cancel()
    asked = len(controller.asked)
    controller.delay = 1e6  # the answer never comes
    leaving = asyncio.create_task(controller.lifecycle.leave(1e6))
    await controller.until(lambda: len(controller.asked) > asked)
    request = controller.asked[-1][1]
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.want_shut_down
    assert controller.lease.valid() == bool(mutants)
    leaving.cancel()
    await asyncio.gather(living, leaving, return_exceptions=True)


@pytest.mark.conforms("K595-8")
@run_by(play)
async def test_another_cluster_is_fatal() -> None:
    controller = Controller()
    controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    with pytest.raises(StartupError, match=r"cluster\.id 'brownout-cluster' is not that of the cluster"):
        await asyncio.wait_for(controller.lifecycle.run(), 10)


def test_an_id_in_use_is_fatal_and_an_old_session_is_waited_for() -> None:
    async def run() -> None:
        controller = Controller(replace(CONFIG, broker_session_timeout_ms=200))
        controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        with pytest.raises(StartupError, match=r"node\.id 4: another process, on another data directory, is alive"):
            await asyncio.wait_for(controller.lifecycle.run(), 10)

    async def tell(controller: Controller) -> None:
        controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        await controller.until(lambda: len(controller.asked) > 3)
        controller.registration = BrokerRegistrationResponse(broker_epoch=7)
        await controller.lifecycle.unfenced.wait()

    play(run())
    story(tell)


@run_by(play)
async def test_the_wait_for_an_old_session_starts_at_the_first_refusal() -> None:
    """A controller was missing for longer than a session: the next controller restarts the session of each broker."""
    controller = Controller(replace(CONFIG, broker_session_timeout_ms=100))
    controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    controller.reachable.clear()
    living = asyncio.create_task(controller.lifecycle.run())
    await asyncio.sleep(0.100 * (SESSIONS_OF_PATIENCE + 1))  # in virtual time
    refused = len(controller.asked) + 1
    controller.reachable.set()
    await controller.until(lambda: len(controller.asked) > refused or living.done())
    controller.registration = BrokerRegistrationResponse(broker_epoch=7)
    async with asyncio.timeout(1):
        await controller.lifecycle.unfenced.wait()
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)


@pytest.mark.parametrize("reason", ["unreachable", "not the controller"])
@run_by(play)
async def test_the_wait_for_an_old_session_restarts_after_a_time_without_a_controller(reason: str) -> None:
    controller = Controller(replace(CONFIG, broker_session_timeout_ms=100))
    refused = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    controller.registration = refused
    living = asyncio.create_task(controller.lifecycle.run())
    await controller.until(lambda: len(controller.asked) >= 2)
    if reason == "unreachable":
        controller.reachable.clear()
    else:
        controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
    await asyncio.sleep(0.100 * (SESSIONS_OF_PATIENCE + 3))  # in virtual time; an answer may be under way before
    controller.registration = refused
    asked = len(controller.asked)
    controller.reachable.set()
    await controller.until(lambda: len(controller.asked) > asked + 1 or living.done())
    assert not living.done()
    controller.registration = BrokerRegistrationResponse(broker_epoch=7)
    async with asyncio.timeout(1):
        await controller.lifecycle.unfenced.wait()
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)


def test_the_lease_must_end_before_the_session() -> None:
    with pytest.raises(StartupError, match="must be smaller"):
        BrokerConfig.from_properties(
            {
                "node.id": "1",
                "listeners": "h:1",
                "quorum.voters": "1@h:1",
                "log.dir": "x",
                "broker.lease.ms": "3000",
                "broker.session.timeout.ms": "3000",
            }
        )
    assert replace(CONFIG, broker_lease_ms=1).broker_lease_ms < CONFIG.broker_session_timeout_ms
