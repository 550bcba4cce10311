"""A node around the running controller: a quorum that commits after a moment, and brokers that register and beat."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from broker.controller.active import ActiveController
from broker.controller.image import MetadataImage
from broker.controller.image_records import records_of
from broker.errors import AppendRefusedError, ErrorCode
from broker.mutants import Mutants
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from broker.protocol.messages.metadata_records import decode_record, encode_record
from broker.protocol.messages.partition_apis import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from broker.quorum.messages import Predecessor
from broker.quorum.runner import QuorumRunner
from broker.trace import Tracer
from tests.broker.controller.world import configuration, registration

SESSION = 3.0
LEASE = 2.0
COMMIT_DELAY = 0.01


class FakeQuorum:
    """Commits after a moment; can hang, lose its leadership, or refuse more than a number of records."""

    def __init__(self, apply: Callable[[int, list[bytes]], None]) -> None:
        self._apply = apply
        self.next_offset = 100
        self.appending = 0
        self.most_appending = 0
        self.log: list[Any] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.failure: Exception | None = None
        self.most_records = 1_000_000
        self.deliver_late = False
        self.resigned: list[int] = []

    async def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)

    async def append(self, records: list[bytes]) -> int:
        if len(records) > self.most_records:
            raise AppendRefusedError(ErrorCode.POLICY_VIOLATION, "too many bytes")
        self.appending += 1
        self.most_appending = max(self.most_appending, self.appending)
        try:
            await asyncio.sleep(COMMIT_DELAY)
            await self.may_commit.wait()
            if self.failure is not None:
                raise self.failure
        finally:
            self.appending -= 1
        base = self.next_offset
        self.next_offset += len(records)
        self.log += [decode_record(record) for record in records]
        if self.deliver_late:
            asyncio.get_running_loop().call_later(0.05, self._apply, base, records)
        else:
            self._apply(base, records)
        return base + len(records) - 1


class Node:
    """What a node does around its controller."""

    def __init__(self, *mutants: str, session: float = SESSION, lease: float = LEASE) -> None:
        """`session` and `lease` in seconds: what its file says."""
        self.events: list[dict[str, Any]] = []
        self.image = MetadataImage()
        self.quorum = FakeQuorum(self._apply)
        self.asked: list[int] = []
        self.behind: set[int] = set()
        """Brokers that do not act on what is committed until their next heartbeat; all others act at once."""
        self.log_ends: dict[int, tuple[int, int]] = {}
        self.controller = ActiveController(
            config=configuration(broker_session_timeout_ms=int(session * 1000), broker_lease_ms=int(lease * 1000)),
            image=self.image,
            quorum=cast(QuorumRunner, self.quorum),
            peers=self,
            rng=random.Random(1),
            tracer=Tracer(1, lambda: 0, self.events.append),
            mutants=Mutants(mutants),
        )

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:  # noqa: ARG002
        """What the brokers answer when they are asked where their logs end."""
        assert isinstance(message, GetReplicaLogInfoRequest)
        self.asked.append(node_id)
        if node_id not in self.log_ends:
            raise ConnectionError("no listener")
        response = GetReplicaLogInfoResponse(broker_epoch=self.image.brokers[node_id].epoch)
        for topic in message.topic_partitions:
            name = next(it.name for it in self.image.topics.values() if it.id == topic.topic_id)
            info = TopicPartitionLogInfo(topic.topic_id)
            for index in topic.partitions:
                epoch, end = self.log_ends[node_id]
                current = self.image.topics[name].partitions[index].leader_epoch
                info.partition_log_info.append(PartitionLogInfo(index, epoch, current, end))
            response.topic_partition_log_info_list.append(info)
        return response

    def _apply(self, base: int, records: list[bytes]) -> None:
        self.controller.metadata_applied(self.image.apply_committed(base, records))
        for broker in self.image.brokers.values():
            if broker.id not in self.behind:
                self.controller.broker_acts(broker.id, broker.epoch, self.image.offset)

    def lead(self, epoch: int = 1, predecessor: Predecessor | None = None) -> None:
        self.controller.leadership_changed(epoch, predecessor)

    def lead_after(self, other: "Node", epoch: int = 2, predecessor: Predecessor | None = None) -> None:
        """Lead with all that another node has committed, as its records say it."""
        self.image.restore(other.image.offset + 1, [encode_record(record) for record in records_of(other.image)])
        self.quorum.next_offset = other.quorum.next_offset
        self.lead(epoch, predecessor)

    async def register(self, broker: int, life: int = 1) -> int:
        response = await self.controller.handle_broker_registration(registration(broker, life), 4)
        assert response.error_code == 0
        return response.broker_epoch

    async def heartbeat(self, broker: int, **changes: Any) -> BrokerHeartbeatResponse:
        known = self.image.brokers.get(broker)
        epoch = -1 if known is None else known.epoch
        request = BrokerHeartbeatRequest(broker, epoch, self.image.offset)
        for name, value in changes.items():
            setattr(request, name, value)
        return await self.controller.handle_broker_heartbeat(request, 1)

    async def start(self, *brokers: int) -> None:
        for broker in brokers:
            await self.register(broker)
            assert not (await self.heartbeat(broker)).is_fenced

    async def beat(self, seconds: float, *brokers: int) -> None:
        """Heartbeats every 0.3 s for a while."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for broker in brokers:
                assert not (await self.heartbeat(broker)).is_fenced
            await asyncio.sleep(0.3)


async def a_node(*brokers: int) -> Node:
    node = Node()
    node.lead()
    await node.start(*brokers)
    return node
