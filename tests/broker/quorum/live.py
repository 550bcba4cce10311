"""Running quorums in one process: real runner, real log, real disk; connections are calls through encoded bytes."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from broker.config import BrokerConfig
from broker.disk import RealDisk
from broker.environment import BrokerEnvironment
from broker.errors import CommitUncertainError, NotLeaderError
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.api import ApiKey, api_of
from broker.protocol.codec import decode, encode
from broker.protocol.schema import Message
from broker.quorum.runner import QuorumRunner, StateMachine
from broker.server.handlers.quorum_handler import QuorumHandler
from broker.trace import Tracer, Value

DIRECTORY = "__cluster_metadata-0"
WALL_NS = 1_700_000_000_000_000_000
PATIENCE = 60.0


def through_bytes(message: Message, version: int) -> Message:
    """The message as its receiver decodes it."""
    out = bytearray()
    encode(message, version, out)
    copy, _ = decode(type(message), version, bytes(out))
    return copy


@dataclass
class Seat:
    """One node: its quorum while it runs, and its reports."""

    node_id: int
    disk: RealDisk
    directory_id: bytes
    quorum: QuorumRunner | None = None
    log: PartitionLog | None = None
    committed: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    leadership: list[int | None] = field(default_factory=list)
    events: list[dict[str, Value]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def commit(self, base: int, epoch: int, records: list[bytes]) -> None:
        self.committed.append((base, epoch, records))

    @property
    def values(self) -> list[bytes]:
        return [value for _, _, records in self.committed for value in records]


class LiveCluster:
    """Nodes 1..n; the first `voters` vote, the others observe. It is also the connector of each node."""

    def __init__(self, path: Path, voters: int, observers: int = 0, **properties: str) -> None:
        self.seats = {node: self._seat(path, node, 1) for node in range(1, voters + observers + 1)}
        self._path = path
        self._voters = ",".join(f"{node}@host{node}:9093" for node in range(1, voters + 1))
        self._properties = properties
        self.cut: dict[int, None] = {}
        self.intercept: Callable[[int, int, Message], None] = lambda _sender, _receiver, _message: None

    @staticmethod
    def _seat(path: Path, node: int, disk: int) -> Seat:
        return Seat(node, RealDisk(str(path / f"{node}{'-new' * (disk - 1)}")), bytes([node, disk] * 8))

    async def replace_disk(self, node: int) -> None:
        """The node is down, and comes back with an empty disk."""
        await self.stop(node)
        self.seats[node] = self._seat(self._path, node, self.seats[node].directory_id[1] + 1)

    def config(self, node: int, **properties: str) -> BrokerConfig:
        return BrokerConfig.from_properties(
            {
                "node.id": str(node),
                "listeners": f"host{node}:9092,CONTROLLER://host{node}:9093",
                "controller.listener.names": "CONTROLLER",
                "quorum.voters": self._voters,
                "log.dir": "unused",
                "cluster.id": "cluster",
                **self._properties,
                **properties,
            }
        )

    async def start(self, *nodes: int, **properties: str) -> None:
        for node in nodes or tuple(self.seats):
            seat = self.seats[node]
            seat.committed.clear()
            seat.leadership.clear()
            seat.log = await PartitionLog.open(seat.disk, DIRECTORY, LogConfig(), clean_shutdown=False)
            config = self.config(node, **properties)
            tracer = Tracer(node, lambda: WALL_NS, seat.events.append)
            environment = BrokerEnvironment(config, seat.disk, random.Random(node), tracer, clock=lambda: WALL_NS)
            machine = StateMachine(
                on_commit=seat.commit,
                on_leadership=seat.leadership.append,
                records=list,
                on_snapshot=lambda _end, _records: None,
                on_failure=seat.failures.append,
            )
            seat.quorum = QuorumRunner(
                environment,
                machine,
                log=seat.log,
                connector=_Connector(self, node),
                cluster_id=config.cluster_id,
                directory_id=seat.directory_id,
            )
            await seat.quorum.start()

    async def stop(self, *nodes: int) -> None:
        for node in nodes or tuple(self.seats):
            seat = self.seats[node]
            if seat.quorum is not None:
                quorum, seat.quorum = seat.quorum, None
                await quorum.stop()
                assert seat.log is not None
                await seat.log.close()

    def quorum(self, node: int) -> QuorumRunner:
        quorum = self.seats[node].quorum
        assert quorum is not None
        return quorum

    async def leader(self) -> int:
        """The running node that leads and has said so."""
        leader: int = await self.until(self._leading)
        return leader

    def _leading(self) -> int | None:
        for node, seat in self.seats.items():
            established = seat.leadership and seat.leadership[-1] is not None
            if seat.quorum is not None and seat.quorum.is_leader and established and node not in self.cut:
                return node
        return None

    async def commit(self, record: bytes) -> None:
        """The current leader commits a record; during an election the record may be appended twice."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(NotLeaderError, CommitUncertainError):
                    await self.quorum(await self.leader()).append([record])
                    return

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition has a true value; the value."""
        async with asyncio.timeout(PATIENCE):
            while not (value := condition()):  # noqa: ASYNC110 - the state of several nodes has no event
                await asyncio.sleep(0.002)
        return value

    async def until_each(self, condition: Callable[[Seat], Any]) -> None:
        """Wait until a condition holds at one node after the other."""
        for seat in self.seats.values():
            await self.until(partial(condition, seat))

    async def request(self, sender: int, receiver: int, message: Message, limit: float) -> Message:
        self.intercept(sender, receiver, message)
        quorum = self.seats[receiver].quorum
        if quorum is None or sender in self.cut or receiver in self.cut:
            await asyncio.sleep(0.001)
            raise ConnectionError("no such peer")
        api = api_of(message)
        version = api.max_version
        handler = QuorumHandler(quorum)
        handlers: dict[ApiKey, Callable[[Any, int], Awaitable[Message]]] = {
            ApiKey.VOTE: handler.handle,
            ApiKey.BEGIN_QUORUM_EPOCH: handler.handle,
            ApiKey.END_QUORUM_EPOCH: handler.handle,
            ApiKey.FETCH: handler.handle,
            ApiKey.FETCH_SNAPSHOT: handler.handle,
        }
        async with asyncio.timeout(limit):
            answer = await handlers[api.key](through_bytes(message, version), version)
        if sender in self.cut or receiver in self.cut:
            raise ConnectionError("the answer was lost")
        return through_bytes(answer, version)


class _Connector:
    def __init__(self, cluster: LiveCluster, node: int) -> None:
        self._cluster = cluster
        self._node = node

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:  # noqa: ARG002
        return await self._cluster.request(self._node, node_id, message, timeout)


@asynccontextmanager
async def running(path: Path, voters: int, observers: int = 0, **properties: str) -> AsyncIterator[LiveCluster]:
    """A running cluster, which is stopped at the end. A node that failed unexpectedly fails the test."""
    cluster = LiveCluster(path, voters, observers, **properties)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
    failures = [failure for seat in cluster.seats.values() for failure in seat.failures]
    assert failures == []
