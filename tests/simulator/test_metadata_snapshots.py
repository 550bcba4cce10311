"""The oracle of metadata snapshots: a snapshot has all records before it, the same on every node."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from broker.controller.image import Changes, MetadataImage, PartitionImage
from broker.controller.image_records import records_of
from broker.protocol.messages.metadata_records import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.snapshots import Snapshots
from broker.quorum.voters import VoterHistory
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC
from tests.simulator.test_oracles import planted

SNAPSHOTS: Mapping[str, str] = {**QUICK, "metadata.log.max.record.bytes.between.snapshots": "100"}
"""Enough that one follows soon after every event."""
TWO_IN_SYNC: Mapping[str, str] = {**SNAPSHOTS, "min.insync.replicas": "2"}


def unfenced(record: MetadataRecord) -> MetadataRecord:
    return structs.replace(record, fenced=False) if isinstance(record, RegisterBrokerRecord) else record


def ineligible(record: MetadataRecord) -> MetadataRecord:
    return structs.replace(record, eligible_leader_replicas=None) if isinstance(record, PartitionRecord) else record


async def lose_two_of_five(cluster: SimulatedCluster) -> None:
    """A partition with one replica in sync and another that may be elected still, and snapshots behind that."""
    client = await started(cluster)
    await client.create_topic(TOPIC)
    leader = await client.leader_of(TOPIC, 0)
    led = cluster.node(f"n{leader}").image

    def state() -> PartitionImage:
        found = led.partition(TOPIC, 0)
        assert found is not None
        return found

    async def lose(other: int) -> None:
        cluster.kill(f"n{other}")
        await cluster.until(lambda: other not in state().isr)

    for other in [replica for replica in state().replicas if replica != leader]:
        await lose(other)
    assert state().elr
    for number in range(3):
        await client.create_topic(f"another-{number}", replication_factor=1)


def found_by(cluster: SimulatedCluster) -> dict[str, str]:
    return {finding.oracle: finding.sentence for finding in cluster.watch.findings.found}


@pytest.mark.conforms("H16")
def test_a_snapshot_has_the_state_of_its_node_and_the_others() -> None:
    with SimulatedCluster(1, 5, properties=TWO_IN_SYNC) as cluster:

        async def story() -> None:
            await lose_two_of_five(cluster)
            cluster.power_loss("n3")
            cluster.start()
            await cluster.ready()

        cluster.run(story())
        assert cluster.watch.findings.checks["snapshot-mismatch"] > 10


@pytest.mark.conforms("H16")
@pytest.mark.parametrize(
    ("poorer", "what"),
    [(unfenced, "brokers "), (ineligible, f"topics {TOPIC}")],
)
def test_an_incomplete_snapshot_is_found_at_its_creation(
    poorer: Callable[[MetadataRecord], MetadataRecord], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(image: MetadataImage) -> Iterator[MetadataRecord]:
        state = image.partition(TOPIC, 0)
        poor = state is not None and state.elr
        return (poorer(record) if poor else record for record in records_of(image))

    monkeypatch.setattr("broker.server.broker_node.records_of", changed)
    with SimulatedCluster(1, 5, properties=TWO_IN_SYNC, mutants=["tier_above_hw"]) as cluster:
        cluster.run(lose_two_of_five(cluster))
    assert f"is not the state that it was made of: it differs in {what}" in found_by(cluster)["snapshot-mismatch"]


@pytest.mark.conforms("K595-18")
def test_a_snapshot_with_another_epoch_than_the_record_in_front_of_it_is_found() -> None:
    with planted(properties=SNAPSHOTS) as cluster:
        cluster.run(make_topics(cluster))
        assert found_by(cluster) == {}
        made = next(event for event in reversed(cluster.journal.of("quorum_snapshot")) if event["node"] == 1)
        cluster.watch.heard("n1", {**made, "event": "quorum_snapshot", "epoch": int(str(made["epoch"])) + 1})
        assert f"is behind a record of epoch {made['epoch']}" in found_by(cluster)["snapshot-mismatch"]


async def make_topics(cluster: SimulatedCluster) -> None:
    """Snapshots of every member."""
    client = await started(cluster)
    for number in range(3):
        await client.create_topic(f"another-{number}")
    end = cluster.node("n1").image.offset
    await cluster.until(lambda: all(cluster.node(name).image.offset >= end for name in cluster.machines))


def test_a_snapshot_without_the_voters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoterHistory, "as_of", lambda *_: None)
    with SimulatedCluster(1, properties=SNAPSHOTS, mutants=["tier_above_hw"]) as cluster:
        cluster.run(make_topics(cluster))
    assert "is not the state that it was made of: it differs in voters 1" in found_by(cluster)["snapshot-mismatch"]


def test_a_snapshot_incomplete_on_one_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that made the first snapshot with that end had all of it."""
    write, made = Snapshots.write_durably, dict[OffsetAndEpoch, Snapshots]()

    async def write_poorer(
        snapshots: Snapshots, end: OffsetAndEpoch, records: Sequence[bytes], voters: bytearray | None, time_ms: int
    ) -> None:
        first = made.setdefault(end, snapshots) is snapshots
        await write(snapshots, end, records if first else records[:-1], voters, time_ms)

    monkeypatch.setattr(Snapshots, "write_durably", write_poorer)
    with SimulatedCluster(1, properties=SNAPSHOTS, mutants=["tier_above_hw"]) as cluster:
        cluster.run(make_topics(cluster))
    assert " had there: it differs in " in found_by(cluster)["snapshot-mismatch"]


def test_a_node_with_another_state_than_the_others_is_found_at_its_snapshot() -> None:
    with SimulatedCluster(1, properties=SNAPSHOTS, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC)
            assert found_by(cluster) == {}
            topics = cluster.node("n3").image.topics
            topics[TOPIC].partitions[0] = replace(topics[TOPIC].partitions[0], recovering=True)
            for number in range(3):
                await client.create_topic(f"another-{number}")

        cluster.run(story())
    assert "n3" in found_by(cluster)["snapshot-mismatch"]


@pytest.mark.conforms("H16")
def test_a_snapshot_that_would_be_incomplete_is_found_without_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = MetadataImage.restore

    def restore_poorer(image: MetadataImage, end: int, records: Sequence[bytes]) -> Changes:
        changes = restore(image, end, records)
        for topic, index, partition in list(image.partitions()):
            topic.partitions[index] = replace(partition, elr=())
        return changes

    monkeypatch.setattr(MetadataImage, "restore", restore_poorer)
    none = {**TWO_IN_SYNC, **dict.fromkeys(SNAPSHOTS.keys() - QUICK.keys(), str(1 << 20))}
    with SimulatedCluster(1, 5, properties=none, mutants=["tier_above_hw"]) as cluster:
        cluster.run(lose_two_of_five(cluster))
    assert not cluster.journal.of("quorum_snapshot")
    sentence = found_by(cluster)["snapshot-mismatch"]
    assert sentence.endswith(f"would not be the state that it is made of: it differs in topics {TOPIC}")
