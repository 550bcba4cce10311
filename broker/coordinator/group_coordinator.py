"""All groups that this broker coordinates: a shard for each partition of `__consumer_offsets` that it leads."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.coordinator.led_partition import LedPartition, Refuse
from broker.coordinator.offsets_topic import OFFSETS_TOPIC, partition_of, settings
from broker.errors import ErrorCode, ProtocolError
from broker.groups.group_effects import Effect
from broker.groups.group_settings import GroupSettings
from broker.groups.memory_quota import Account
from broker.groups.shard import Shard
from broker.mutants import Mutants
from broker.peers import Peers
from broker.protocol.schema import Message
from broker.replica.background import Background
from broker.replica.leader import PartitionLeader
from broker.replica.manager import ReplicaManager
from broker.topic_creation import create
from broker.trace import Tracer

DELETED_AT_MOST = 10_000  # deleted topics that are remembered for partitions that this broker leads later

M = TypeVar("M", bound=Message)


class GroupCoordinator:
    """The coordinator of one broker. The node calls `apply` after its replicas have followed the metadata."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        peers: Peers,
        controller_id: Callable[[], int | None],
        lease_valid: Callable[[], bool],
        wall_ms: Callable[[], int],
        rng: random.Random,
        tracer: Tracer,
        mutants: Mutants,
        on_defect: Callable[[str, BaseException], None],
    ) -> None:
        self._config = config
        self.node_id = config.node_id
        self._replicas = replicas
        self._peers = peers
        self._controller_id = controller_id
        self._lease_valid = lease_valid
        self._wall_ms = wall_ms
        self._rng = rng
        self._tracer = tracer
        self._settings = GroupSettings.from_broker(config)
        self.account = Account(self._settings.max_bytes)
        self._acknowledges_early = mutants.active("commit_acked_before_hw")
        self._background = Background(on_defect)
        self._image = MetadataImage()
        self._topics: dict[str, bytes] = {}
        self._deleted: dict[str, None] = {}
        """Deleted topics, which were not created again; the most recent is last."""
        self._led: dict[int, LedPartition] = {}
        self._creating: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()

    # --- the partitions that this broker leads

    def apply(self, image: MetadataImage) -> None:
        """Start shards for new leaderships, stop those of lost ones at once, and remove the offsets of deleted
        topics."""
        self._image = image
        topics = {name: topic.id for name, topic in image.topics.items()}
        deleted = [name for name, topic_id in self._topics.items() if topics.get(name) != topic_id]
        self._topics = topics
        self._remember_deleted(deleted)
        for led in self._led.values():
            led.forget(deleted)
        topic = image.topics.get(OFFSETS_TOPIC)
        for index in sorted(self._led.keys() | (topic.partitions.keys() if topic is not None else set())):
            self._follow_role(index)

    def _remember_deleted(self, deleted: Iterable[str]) -> None:
        self._deleted |= dict.fromkeys(deleted)
        for name in self._deleted.keys() & self._topics.keys():
            del self._deleted[name]
        while len(self._deleted) > DELETED_AT_MOST:
            del self._deleted[next(iter(self._deleted))]

    def _follow_role(self, index: int) -> None:
        partition = self._replicas.partition(OFFSETS_TOPIC, index)
        role = None if partition is None else partition.role
        led = self._led.get(index)
        if led is not None and led.role is not role:
            self._led.pop(index).close()
            led = None
        if led is None and partition is not None and isinstance(role, PartitionLeader):
            self._led[index] = led = LedPartition(
                partition,
                role,
                Shard(self._settings, self._rng, self._wall_ms, self._knows, self.account),
                lease_valid=self._lease_valid,
                wall_ms=self._wall_ms,
                commit_timeout_s=self._config.offsets_commit_timeout_ms / 1000,
                max_batch_bytes=self._config.message_max_bytes,
                background=self._background,
                reading=self._reading,
                acknowledges_early=self._acknowledges_early,
            )
            # The previous coordinator may not have removed these offsets. It accepted commits only before this broker
            # became leader, for topics that it knew then. None of these is a later topic that is unknown here.
            led.forget(self._deleted)

    def stop(self) -> None:
        """Answer all pending requests, and coordinate no groups any more."""
        for led in self._led.values():
            led.close()
        self._led.clear()
        self._background.abort()

    def _knows(self, topic: str, partition: int) -> bool:
        """Whether offsets may be committed for the partition. The image is ahead of `apply`: for a topic that was
        created again, commits must wait until the offsets of its predecessor are removed."""
        topic_image = self._image.topics.get(topic)
        return (
            topic_image is not None
            and partition in topic_image.partitions
            and self._topics.get(topic, topic_image.id) == topic_image.id
        )

    # --- requests

    def shard_of(self, group: str) -> Shard:
        """The shard of a group, for read-only requests. Raises `ProtocolError` where it may not answer."""
        led = self._led_for(group)
        led.check()
        return led.shard

    def ask(
        self, group: str, call: Callable[[Shard, float, int], Iterable[Effect]], refuse: Refuse
    ) -> asyncio.Future[Message]:
        """The answer of a group's shard to a request; errors are answers, too. `call` is called at once and not kept;
        `refuse` is kept until there is an answer."""
        try:
            led = self._led_for(group)
            return led.ask(lambda now, ticket: call(led.shard, now, ticket), refuse)
        except ProtocolError as error:
            return answered(refuse(error.code))

    def _led_for(self, group: str) -> LedPartition:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        index = 0 if topic is None else partition_of(group, len(topic.partitions))
        state, led = self._image.partition(OFFSETS_TOPIC, index), self._led.get(index)
        # The image is ahead of the roles. A leader with a later successor must not accept offsets: see `_follow_role`.
        if led is None or state is None or state.leader_epoch != led.role.leader_epoch:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        return led

    def led(self, index: int) -> LedPartition | None:
        """The partition of this index, if this broker coordinates its groups; it may still be loading."""
        return self._led.get(index)

    def shards(self) -> list[Shard]:
        """All shards of this broker. Raises `ProtocolError` while one of them is being loaded."""
        for led in self._led.values():
            led.check()
        return [led.shard for led in self._led.values()]

    # --- finding coordinators

    def find(self, group: str, listener: str) -> tuple[int, str, int]:
        """The id of a group's coordinator, and host and port of its listener of this name. Raises `ProtocolError` while
        it has none.

        The first request creates the topic.
        """
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            self._create_topic()
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")
        return self.address(topic.partitions[partition_of(group, len(topic.partitions))].leader, listener)

    def address(self, broker_id: int, listener: str) -> tuple[int, str, int]:
        """A broker's id, and host and port of its listener of this name. Raises `ProtocolError` without one."""
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(listener)
        if broker is None or broker.fenced or endpoint is None:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker_id} is not available")
        return broker.id, endpoint.host, endpoint.port

    def _create_topic(self) -> None:
        if self._creating is None or self._creating.done():
            self._creating = self._background.run(self._ask_for_topic(), f"creation of {OFFSETS_TOPIC}")

    async def _ask_for_topic(self) -> None:
        controller = self._controller_id()
        if controller is None:
            return
        # If it does not exist afterwards, the next FindCoordinator request tries again.
        partitions, replicas = self._config.offsets_topic_num_partitions, self._config.offsets_topic_replication_factor
        reason = await create(self._peers, controller, OFFSETS_TOPIC, partitions, replicas, settings(self._config))
        if reason is not None:
            self._tracer.emit("offsets_topic_refused", reason=reason)


def answered(answer: Message) -> asyncio.Future[Message]:
    """A completed answer."""
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future
