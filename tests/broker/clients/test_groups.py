"""Consumer groups with the clients that people use, unmodified: they share partitions, take over, and keep offsets."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiokafka
import pytest
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer

from tests.broker.clients.harness import PATIENCE, Cluster, cluster, until

pytestmark = pytest.mark.rotating(3, among="groups of real brokers")
GROUPS = {"offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 100}
# A single broker cannot lose its lease to another one, however slow its machine is.
ONE = {
    **GROUPS,
    "offsets.topic.replication.factor": 1,
    "broker.lease.ms": 60_000,
    "broker.session.timeout.ms": 61_000,
}
THREE = {**GROUPS, "offsets.topic.replication.factor": 3, "min.insync.replicas": 2}
SESSION_MS = 6_000
REBALANCES = 4 * PATIENCE  # what takes several of them on a slow machine


@contextmanager
def with_topic(tmp_path: Path, size: int, partitions: int, records: int) -> Iterator[Cluster]:
    """A cluster with topic `t`, `records` records in each of its partitions."""
    with cluster(tmp_path, size, **(ONE if size == 1 else THREE)) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        admin.create_topics([NewTopic("t", partitions, size)])["t"].result(PATIENCE)
        producer = Producer({"bootstrap.servers": nodes.bootstrap})
        for partition in range(partitions):
            for number in range(records):
                producer.produce("t", b"%d-%d" % (partition, number), partition=partition)
        assert producer.flush(PATIENCE) == 0
        yield nodes


def consumer(nodes: Cluster, **settings: object) -> Consumer:
    """One of group `g`, subscribed to `t`."""
    made = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    made.subscribe(["t"])
    return made


def take(one: Consumer, into: set[bytes]) -> None:
    message = one.poll(0.05)
    if message is not None and message.error() is None:
        value = message.value()
        assert value is not None, "every record has one"
        into.add(value)


def assigned(one: Consumer) -> set[int]:
    return {partition.partition for partition in one.assignment()}


def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(tmp_path: Path) -> None:
    with with_topic(tmp_path, 1, 4, 10) as nodes:
        first, second = consumer(nodes), consumer(nodes)
        seen: set[bytes] = set()

        def shared() -> bool:
            take(first, seen)
            take(second, seen)
            return len(assigned(first)) == len(assigned(second)) == 2

        until(shared, "each has two partitions", REBALANCES)
        assert assigned(first) | assigned(second) == {0, 1, 2, 3}
        until(lambda: shared() and len(seen) == 40, "all records were read", REBALANCES)
        first.commit(asynchronous=False)
        second.commit(asynchronous=False)
        second.close()

        def alone() -> bool:
            take(first, seen)
            return assigned(first) == {0, 1, 2, 3}

        until(alone, "the one that is left has all partitions", REBALANCES)
        committed = first.committed([TopicPartition("t", partition) for partition in range(4)], PATIENCE)
        assert [partition.offset for partition in committed] == [10, 10, 10, 10]
        first.close()


def test_a_group_continues_from_its_commits_after_a_kill_of_its_coordinator(tmp_path: Path) -> None:
    with with_topic(tmp_path, 3, 2, 10) as nodes:
        one = consumer(nodes)
        seen: set[bytes] = set()

        def read_all() -> bool:
            take(one, seen)
            return len(seen) == 20

        until(read_all, "all records were read", REBALANCES)
        one.commit(asynchronous=False)
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        coordinator = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE).coordinator.id
        nodes.brokers[coordinator].kill()
        alive = ",".join(broker.address for broker in nodes.brokers.values() if broker.alive)
        producer = Producer({"bootstrap.servers": alive})
        for partition in range(2):
            producer.produce("t", b"%d-more" % partition, partition=partition)
        assert producer.flush(PATIENCE) == 0

        def went_on() -> bool:
            take(one, seen)
            return {b"0-more", b"1-more"} <= seen

        until(went_on, "the group reads on under another coordinator", REBALANCES)
        one.commit(asynchronous=False)
        one.close()

        other, again = consumer(nodes), set[bytes]()

        def has_assignment() -> bool:
            take(other, again)
            return assigned(other) == {0, 1}

        until(has_assignment, "the next consumer has the partitions", REBALANCES)
        committed = other.committed([TopicPartition("t", partition) for partition in range(2)], PATIENCE)
        assert [partition.offset for partition in committed] == [11, 11]
        assert again == set()
        other.close()


def test_a_restarted_static_member_keeps_its_partitions_without_a_rebalance(tmp_path: Path) -> None:
    with with_topic(tmp_path, 1, 2, 1) as nodes:
        rebalances: list[object] = []
        stays = consumer(nodes, group_instance_id="stays")
        stays.subscribe(["t"], on_assign=lambda _, partitions: rebalances.append(partitions))
        bounces = consumer(nodes, group_instance_id="bounces")
        seen: set[bytes] = set()

        def shared() -> bool:
            take(stays, seen)
            take(bounces, seen)
            return len(assigned(stays)) == len(assigned(bounces)) == 1

        until(shared, "each has a partition", REBALANCES)
        before, count = assigned(bounces), len(rebalances)
        bounces.close()  # a static member does not leave by closing
        bounces = consumer(nodes, group_instance_id="bounces")
        until(shared, "it is back", REBALANCES)
        assert assigned(bounces) == before
        assert len(rebalances) == count
        stays.close()
        bounces.close()


def test_administrators_see_and_change_groups(tmp_path: Path) -> None:
    with with_topic(tmp_path, 1, 2, 3) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        one = consumer(nodes)
        seen: set[bytes] = set()

        def read_all() -> bool:
            take(one, seen)
            return len(seen) == 6

        until(read_all, "all records were read", REBALANCES)
        one.commit(asynchronous=False)
        described = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE)
        assert described.state.name == "STABLE"
        assert len(described.members) == 1
        assert len(described.members[0].assignment.topic_partitions) == 2
        assert [group.group_id for group in admin.list_consumer_groups().result(PATIENCE).valid] == ["g"]
        one.close()

        def empty() -> bool:
            return bool(admin.describe_consumer_groups(["g"])["g"].result(PATIENCE).state.name == "EMPTY")

        until(empty, "the group is empty", REBALANCES)
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 1)])
        admin.alter_consumer_group_offsets([wanted])["g"].result(PATIENCE)
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(PATIENCE)
        assert {its.partition: its.offset for its in found.topic_partitions} == {0: 1, 1: 3}
        admin.delete_consumer_groups(["g"])["g"].result(PATIENCE)
        assert admin.list_consumer_groups().result(PATIENCE).valid == []


def test_kafka_python_reads_and_commits_in_a_group(tmp_path: Path) -> None:
    with with_topic(tmp_path, 1, 2, 5) as nodes:
        one = KafkaConsumer(
            bootstrap_servers=nodes.bootstrap,
            group_id="py",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        # kafka-python 3.0 joins also before it has metadata of its topics. A leader of the group that gets them while
        # it assigns may assign nothing and never join again. So the client knows the topic before it subscribes.
        until(lambda: one.partitions_for_topic("t") == {0, 1}, "the client knows the topic")
        one.subscribe(["t"])
        seen: set[bytes] = set()

        def read_all() -> bool:
            for records in one.poll(timeout_ms=100).values():
                seen.update(record.value for record in records)
            return len(seen) == 10

        until(read_all, "all records were read", REBALANCES)
        one.commit()
        assert {one.committed(partition) for partition in one.assignment()} == {5}
        one.close()


def test_aiokafka_reads_and_commits_in_a_group(tmp_path: Path) -> None:
    async def story(bootstrap: str) -> None:
        one = aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest", enable_auto_commit=False
        )
        await one.start()
        try:
            seen: set[bytes] = set()
            end = time.monotonic() + REBALANCES
            while len(seen) < 10:
                assert time.monotonic() < end, f"only {len(seen)} records were read"
                for records in (await one.getmany(timeout_ms=100)).values():
                    seen.update(record.value for record in records)
            await one.commit()
            assert [await one.committed(AioPartition("t", partition)) for partition in (0, 1)] == [5, 5]
        finally:
            await one.stop()

    with with_topic(tmp_path, 1, 2, 5) as nodes:
        asyncio.run(story(nodes.bootstrap))
