"""A small cluster's metadata without a quorum: decisions are applied immediately, at the next offsets."""

import random
from collections.abc import Iterable, Mapping
from typing import TypeVar

from broker.config import BrokerConfig, Endpoint
from broker.controller.controller import Controller, ControllerDecision, LogsFound
from broker.controller.eligibility import effective_min_insync
from broker.controller.image import BrokerImage, MetadataImage, PartitionImage
from broker.controller.partition_elections import LogEnd
from broker.errors import ErrorCode
from broker.listeners import plaintext
from broker.mutants import Mutants
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest, BrokerRegistrationRequest, Listener
from broker.protocol.messages.metadata_records import NO_LEADER, decode_record, encode_record
from broker.protocol.messages.partition_apis import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResult,
    AlterPartitionTopicData,
    BrokerState,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from broker.protocol.messages.topic_apis import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

T = TypeVar("T")

CLUSTER = "brownout-cluster"


FAR_AWAY = 1e9
"""The time at which leases end, in seconds; no test waits for it."""


def configuration(**values: object) -> BrokerConfig:
    given = {"cluster_id": CLUSTER, **values}
    return BrokerConfig(1, (plaintext("n1", 9092),), (Endpoint(1, "n1", 9092),), "log", **given)  # type: ignore[arg-type]


def registration(
    broker: int, life: int = 1, cluster_id: str = CLUSTER, *, directory: bytes = b"d" * 16
) -> BrokerRegistrationRequest:
    """The registration of a broker's n-th process, on this data directory."""
    incarnation = bytes([broker, life] * 8)
    listener = Listener("PLAINTEXT", f"n{broker}", 9092)
    return BrokerRegistrationRequest(broker, cluster_id, incarnation, [listener], log_dirs=[directory])


def topic_request(name: str, *assignments: Iterable[int]) -> CreateTopicsRequest:
    entries = [CreatableReplicaAssignment(index, list(ids)) for index, ids in enumerate(assignments)]
    return CreateTopicsRequest([CreatableTopic(name, -1, -1, entries)])


class World:
    """The cluster as the tests speak of it. Invariants of the image are checked after every step."""

    def __init__(self, *mutants: str, **config: object) -> None:
        self.config = configuration(**config)
        self.rules = Controller(self.config, random.Random(5), Mutants(mutants))
        self.image = MetadataImage()
        self.offset = 0

    def decide(self, decision: ControllerDecision[T]) -> T:
        """Commit and apply, through the bytes of the log."""
        data = [encode_record(record) for record in decision.records]
        assert [decode_record(record) for record in data] == list(decision.records)
        self.image.apply_committed(self.offset, data)
        self.offset += len(data)
        self.rules.handovers.applied(self.image, lambda _: FAR_AWAY)
        self.check()
        return decision.answer(self.image)

    def check(self) -> None:
        for topic, index, partition in self.image.partitions():
            where = f"{topic.name}-{index}: {partition}"
            known = [*partition.isr, *partition.elr, *partition.last_known_elr]
            assert known, where
            assert len(set(known)) == len(known), where
            assert set(known) <= set(partition.replicas), where
            assert all(self.image.is_available(member) for member in partition.isr), where
            if self.rules.handovers.holds((topic.name, index)):
                assert partition.leader == NO_LEADER, where
            elif partition.leader == NO_LEADER:
                assert not partition.isr, where
                assert not any(self.image.is_available(member) for member in partition.elr), where
            else:
                assert partition.leader in partition.isr, where
            minimum = topic.settings(self.config).min_insync_replicas
            if len(partition.isr) >= effective_min_insync(partition, minimum):
                assert not partition.elr, where
                assert not partition.last_known_elr, where
            assert not partition.recovering or len(partition.isr) <= 1, where

    # --- the life of a broker

    def register(self, broker: int, life: int = 1, *, directory: bytes = b"d" * 16, clean: bool = False) -> int:
        """`clean`: the process before closed its logs, and its mark is on the disk."""
        request = registration(broker, life, directory=directory)
        if clean:
            request.previous_broker_epoch = self.image.brokers[broker].epoch
        return self.decide(self.rules.register(self.image, request)).broker_epoch

    def heartbeat(self, broker: int, *, at: int | None = None, leaving: bool = False) -> BrokerImage:
        known = self.image.brokers[broker]
        offset = self.image.offset if at is None else at
        request = BrokerHeartbeatRequest(broker, known.epoch, offset, want_shut_down=leaving)
        self.decide(self.rules.heartbeat(self.image, request))
        return self.image.brokers[broker]

    def start(self, *brokers: int, life: int = 1) -> None:
        for broker in brokers:
            self.register(broker, life)
            self.heartbeat(broker)

    def restart(self, broker: int, life: int = 2, *, clean: bool = False) -> None:
        """Another process on the same disk, until it is let in."""
        self.register(broker, life, clean=clean)
        self.heartbeat(broker)

    def fence(self, broker: int) -> None:
        self.decide(self.rules.fence(self.image, broker, self.image.brokers[broker].epoch))

    def elect_successors(self, now: float = 0.0) -> None:
        """The controller looks which leaderships may be given to others."""
        self.decide(self.rules.elect_successors(self.image, self.rules.handovers.take_over(now)))

    def hand_over(self) -> None:
        """All brokers report that they applied the loss of their leaderships."""
        for broker in self.image.brokers:
            self.rules.handovers.heard(broker, self.image.offset)
        self.elect_successors()

    # --- topics

    def create(
        self, name: str, *assignments: Iterable[int], configs: Mapping[str, str] | None = None
    ) -> CreateTopicsResponse:
        request = topic_request(name, *assignments)
        request.topics[0].configs = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
        return self.decide(self.rules.create_topics(self.image, request))

    def compare(self, ends: Mapping[int, tuple[int, int]], topic: str = "t", index: int = 0) -> PartitionImage:
        """Brokers report the last epoch and the end of their logs. Returns the partition after that."""
        reports = {broker: (self.image.brokers[broker].epoch, LogEnd(*end)) for broker, end in ends.items()}
        logs = LogsFound(self.image.topics[topic].id, index, self.partition(topic, index).partition_epoch, reports)
        self.decide(self.rules.elect_most_complete(self.image, [logs]))
        return self.partition(topic, index)

    def elect(self, kind: int, topic: str = "t", *indexes: int) -> list[ErrorCode]:
        """ElectLeaders for some partitions (the first); the error of each."""
        request = ElectLeadersRequest(kind, [ElectLeadersTopicPartitions(topic, list(indexes or (0,)))])
        response = self.decide(self.rules.elect_leaders(self.image, request))
        (result,) = response.replica_election_results
        return [ErrorCode(partition.error_code) for partition in result.partition_result]

    def partition(self, topic: str = "t", index: int = 0) -> PartitionImage:
        partition = self.image.partition(topic, index)
        assert partition is not None
        return partition

    def proposal(
        self, sender: int, isr: Iterable[int], topic: str = "t", index: int = 0, **changes: object
    ) -> AlterPartitionRequest:
        """The ISR that a leader asks for, everything else as it should be but for `changes`."""
        partition = self.partition(topic, index)
        members = [BrokerState(member, self.image.brokers[member].epoch) for member in isr]
        data = AlterPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=partition.partition_epoch,
        )
        for name, value in changes.items():
            setattr(data, name, value)
        topic_data = AlterPartitionTopicData(self.image.topics[topic].id, [data])
        return AlterPartitionRequest(sender, self.image.brokers[sender].epoch, [topic_data])

    def alter(self, request: AlterPartitionRequest, version: int = 3) -> AlterPartitionResult:
        response = self.decide(self.rules.alter_partition(self.image, request, version))
        assert response.error_code == 0
        return response.topics[0].partitions[0]
