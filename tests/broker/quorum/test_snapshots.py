"""Snapshots of the metadata log (KIP-630): their files, and a cluster that lives on them."""

import asyncio
import contextlib
from dataclasses import fields
from pathlib import Path

import pytest

from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.controller.image_records import records_of
from broker.disk import RealDisk
from broker.errors import StartupError
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.producers.producer_ids import BLOCK_SIZE
from broker.protocol.messages.acl_apis import AclCreation, CreateAclsRequest
from broker.protocol.messages.credential_apis import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from broker.protocol.messages.metadata_records import encode_record
from broker.protocol.messages.producer_apis import AllocateProducerIdsRequest
from broker.quorum.committed import data_batch
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.snapshots import Snapshots
from broker.security.acls import AclOperation, PatternType, Permission, ResourceType
from broker.security.scram import ScramMechanism
from broker.server.node_directory import METADATA_DIRECTORY
from simulator.client import SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.disk import FileSystem
from tests.broker.controller.world import World
from tests.broker.log.making import in_loop
from tests.simulator.stories import in_cluster, started

STORIES = in_loop
ID = OffsetAndEpoch(epoch=3, offset=120)
NAME = "log/00000000000000000120-0000000003.checkpoint"
SMALL = {"metadata.log.max.record.bytes.between.snapshots": "1000", "default.replication.factor": "3"}


def snapshots(path: Path) -> Snapshots:
    disk = RealDisk(str(path))
    disk.make_directory("log")
    return Snapshots(disk, "log")


@pytest.mark.parametrize("count", [0, 1, 500, 1_234])
async def test_a_written_lock_file_reads_back(tmp_path: Path, count: int) -> None:
    store = snapshots(tmp_path)
    assert store.latest() is None
    records = [b"%d" % number for number in range(count)]
    await store.write_durably(ID, records, None, 7)
    assert (tmp_path / NAME).exists()
    assert snapshots(tmp_path).latest() == ID
    assert store.load(ID).records == records


async def test_a_snapshot_is_fetched_in_pieces(tmp_path: Path) -> None:
    source, target = snapshots(tmp_path / "a"), snapshots(tmp_path / "b")
    records = [b"record %d" % number for number in range(300)]
    await source.write_durably(ID, records, None, 7)
    target.append(ID, 0, b"what an earlier attempt left behind" * 100)
    position = 0
    while True:
        piece = source.read(ID, position, 777, now=0.0)
        assert piece is not None
        target.append(ID, position, piece.data)
        position += len(piece.data)
        assert target.latest() is None
        if position == piece.size:
            break
    await target.finish(ID)
    assert target.latest() == ID
    assert target.load(ID).records == records
    assert source.read(OffsetAndEpoch(3, 121), 0, 10, now=0.0) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "no footer"])
async def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    store = snapshots(tmp_path)
    await store.write_durably(ID, [b"a" * 100, b"b" * 100], None, 7)
    data = bytearray((tmp_path / NAME).read_bytes())
    if damage == "flip":
        data[200] ^= 1
    footer = 61 + 1 + 1 + 1 + 1 + 1 + 4 + 1 + 3 + 1
    (tmp_path / NAME).write_bytes(data[:-5] if damage == "cut" else data[:-footer] if damage == "no footer" else data)
    with pytest.raises(StartupError, match=r"checkpoint: is damaged"):
        store.load(ID)


async def test_only_the_newest_stays(tmp_path: Path) -> None:
    store = snapshots(tmp_path)
    newer = OffsetAndEpoch(epoch=4, offset=200)
    await store.write_durably(ID, [b"a"], None, 7)
    await store.write_durably(newer, [b"b"], None, 7)
    store.append(OffsetAndEpoch(epoch=2, offset=300), 0, b"begun")
    assert store.latest() == newer
    await snapshots(tmp_path).remove_older(newer)  # of another process
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["00000000000000000200-0000000004.checkpoint"]


@pytest.mark.conforms("K595-7")
async def test_an_own_snapshot_leaves_the_one_that_is_being_fetched(tmp_path: Path) -> None:
    source, target = snapshots(tmp_path / "a"), snapshots(tmp_path / "b")
    await source.write_durably(ID, [b"a" * 100, b"b" * 100], None, 7)
    content = (tmp_path / "a" / NAME).read_bytes()
    target.append(ID, 0, content[:100])
    own = OffsetAndEpoch(epoch=2, offset=100)
    await target.write_durably(own, [b"c"], None, 7)
    await target.remove_older(own)
    target.append(ID, 100, content[100:])
    target.check(ID)
    await target.finish(ID)
    await target.remove_older(ID)
    assert [path.name for path in (tmp_path / "b" / "log").iterdir()] == [Path(NAME).name]


@pytest.mark.conforms("K595-6", "K595-7")
@pytest.mark.parametrize(
    ("start", "epoch", "continues"),
    [(120, 2, False), (121, 2, False), (121, 3, False), (120, 3, True), (120, 4, True)],
    ids=["older tail at its end", "older tail behind it", "gap", "its epoch", "a later epoch"],
)
async def test_only_a_log_that_continues_a_snapshot_is_kept_with_it(
    tmp_path: Path, start: int, epoch: int, continues: bool
) -> None:
    """A crash may leave parts of a log that a snapshot has replaced: its newest segments are removed first."""
    disk = RealDisk(str(tmp_path))
    log = await PartitionLog.open(disk, "log", LogConfig(), clean_shutdown=False)
    await log.truncate_fully_and_start_at(start)
    await log.start_leader_epoch(epoch)
    log.append_as_leader(data_batch((b"x",) * 5, 0), epoch)
    await log.flush()
    store = Snapshots(disk, "log")
    await store.write_durably(ID, [b"a"], None, 7)
    assert await store.restore(log) == ID
    end, entries = (start + 5, [(epoch, start)]) if continues else (120, [(3, 120)])
    assert (log.log_start_offset, log.log_end_offset, [tuple(each) for each in log.epochs.entries]) == (
        120,
        end,
        entries,
    )
    await log.close()


def test_an_image_is_made_again_of_its_records() -> None:
    world = World(min_insync_replicas=3)
    world.decide(world.rules.first_records(world.image))
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], [2, 3, 1])
    world.create("u", [3, 2])
    world.fence(3)
    assert {partition.elr for _, _, partition in world.image.partitions()} == {(3,)}
    for broker_id in (1, 2):
        epoch = world.image.brokers[broker_id].epoch
        world.decide(world.rules.allocate_producer_ids(world.image, AllocateProducerIdsRequest(broker_id, epoch)))
    acl = AclCreation(ResourceType.TOPIC, "t", PatternType.PREFIXED, "User:a", "*", AclOperation.READ, Permission.DENY)
    world.decide(world.rules.create_acls(world.image, CreateAclsRequest([acl])))
    password = ScramCredentialUpsertion("a", ScramMechanism.SHA_512, 4096, b"salt", b"salted")
    changed = AlterUserScramCredentialsRequest(upsertions=[password])
    world.decide(world.rules.alter_scram_credentials(world.image, changed))
    records = [encode_record(record) for record in records_of(world.image)]
    again = MetadataImage()
    changes = again.restore(world.image.offset + 1, records)
    assert (again.offset, again.cluster_id) == (world.image.offset, world.image.cluster_id)
    assert again.session_timeout_ms == world.image.session_timeout_ms == 1_500
    assert again.topics == world.image.topics
    assert again.defaults == world.image.defaults == {"min.insync.replicas": "3"}
    assert again.acls == world.image.acls
    assert again.scram == world.image.scram
    assert len(again.acls) == len(again.scram) == 1
    assert again.topic_by_id(again.topics["t"].id) is again.topics["t"]
    assert again.next_producer_id == world.image.next_producer_id == 2 * BLOCK_SIZE  # none is given twice
    for broker_id, broker in again.brokers.items():
        known = world.image.brokers[broker_id]
        assert (broker.epoch, broker.fenced, broker.incarnation) == (known.epoch, known.fenced, known.incarnation)
        assert broker.endpoints == known.endpoints
        assert broker.lost_at >= known.lost_at
    assert not again.removed_topics
    assert changes.partitions == {("t", 0), ("t", 1), ("u", 0)}
    assert changes.acls
    deleted = {topic.id for topic in again.topics.values()}
    assert again.restore(again.offset + 1, records[:1]).partitions == changes.partitions
    assert again.removed_topics == deleted  # a snapshot does not say what was deleted before it, only what is left


def test_the_records_of_an_image_restore_all_of_it() -> None:
    """A new part of the image must be added to `records_of`, to the test above, and here."""

    def names(cls: type) -> set[str]:
        return {field.name for field in fields(cls)}

    of_this_process = {"removed_topics"}
    assert set(vars(MetadataImage())) - of_this_process == {
        "offset", "cluster_id", "session_timeout_ms", "brokers", "topics", "defaults", "next_producer_id", "acls",
        "scram", "_names",
    }  # fmt: skip
    assert names(TopicImage) == {"name", "id", "partitions", "configs", "defaults"}
    assert names(PartitionImage) == {
        "leader", "leader_epoch", "partition_epoch", "isr", "replicas", "recovering", "adding", "removing", "elr",
        "last_known_elr",
    }  # fmt: skip
    assert names(BrokerImage) == {
        "id", "epoch", "incarnation", "endpoints", "fenced", "rack", "lost_at", "directories",
    }  # fmt: skip


def start_of(cluster: SimulatedCluster, name: str) -> int:
    return cluster.node(name).quorum.log_start_offset


@pytest.mark.conforms("K595-6", "K595-7")
@pytest.mark.parametrize("seed", range(4))
@in_cluster("seed", properties=SMALL)
async def test_a_cluster_lives_on_its_snapshots(cluster: SimulatedCluster, /) -> None:
    """One is away while the others let their logs go; all lose power; everything that was committed is there."""
    client = await started(cluster)
    await client.create_topic("first", 2)
    away = next(name for name in cluster.machines if name != cluster.controller())
    end_before = cluster.node(away).quorum.log_end.offset
    cluster.kill(away)
    for number in range(12):
        await client.create_topic(f"t{number}", 2, replication_factor=2)
    others = [name for name in cluster.machines if name != away]
    await cluster.until(lambda: all(start_of(cluster, name) > end_before for name in others))

    cluster.start(away)
    await cluster.ready()
    assert start_of(cluster, away) > end_before  # its own log could not go on: it has fetched a snapshot
    wanted = {"first"} | {f"t{number}" for number in range(12)}
    for name in cluster.machines:
        await cluster.until(lambda name=name: set(cluster.node(name).image.topics) == wanted)  # type: ignore[misc]

    cluster.power_loss()
    client = await started(cluster)
    for name in cluster.machines:
        assert set(cluster.node(name).image.topics) == wanted
        assert start_of(cluster, name) > 0
    await client.create_topic("last")
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(UncertainError):  # a node that has just restarted may still hand over
                await client.produce("first", 1, [b"value"])
                break


@pytest.mark.conforms("K595-6", "K595-7")
@pytest.mark.parametrize("snapshots_from", ["1000", "1000000"])
def test_a_lone_node_applies_its_known_committed_records(snapshots_from: str) -> None:
    properties = {**SMALL, "metadata.log.max.record.bytes.between.snapshots": snapshots_from}
    with SimulatedCluster(7, properties=properties) as cluster:

        async def story() -> None:
            client = await started(cluster)
            wanted = {f"t{number}" for number in range(5)}
            for name in sorted(wanted):
                await client.create_topic(name, 1)
            await asyncio.sleep(3)
            cluster.power_loss()
            cluster.start("n2")
            alone = cluster.machines["n2"]
            await cluster.until(lambda: alone.node is not None and set(alone.node.image.topics) == wanted)
            assert cluster.node("n2").quorum.leader_id is None
            cluster.start()
            await cluster.ready()
            await SimulatedClient(cluster.addresses).create_topic("last")

        cluster.run(story())


@pytest.mark.conforms("K595-7")
def test_a_snapshot_and_its_name_are_durable_before_the_log_is_trimmed() -> None:
    """A power cut at any moment, also between the two, leaves one or the other."""
    properties = {**SMALL, "metadata.log.max.record.bytes.between.snapshots": "200"}
    with SimulatedCluster(1, properties=properties, file_system=FileSystem.STRICT) as cluster:
        machine = cluster.machines["n1"]

        def durable_snapshots() -> list[int]:
            files = {name: machine.disk.durable(f"{METADATA_DIRECTORY}/{name}") for name in metadata_files()}
            return [int(name[:20]) for name, content in files.items() if content and name.endswith(".checkpoint")]

        def metadata_files() -> list[str]:
            return machine.disk.list(METADATA_DIRECTORY)

        async def watch() -> None:
            while True:
                start = start_of(cluster, machine.name)
                assert start == 0 or start <= max(durable_snapshots(), default=0)
                await asyncio.sleep(0.001)

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            machine.disk.faults.slow_s = 0.05  # each sync takes as long as to see what is in front of it
            watching = asyncio.create_task(watch())
            client = SimulatedClient(cluster.addresses)
            for number in range(6):
                await client.create_topic(f"t{number}", 1)
            await cluster.until(lambda: start_of(cluster, machine.name) > 0)
            assert not watching.done(), watching.result()
            watching.cancel()

        cluster.run(story())


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_moment_leaves_a_usable_log(seed: int) -> None:
    properties = {**SMALL, "metadata.log.max.record.bytes.between.snapshots": "200"}
    with SimulatedCluster(seed, properties=properties) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            for number in range(6):
                client = SimulatedClient(cluster.addresses)
                await client.create_topic(f"t{number}", 1)
                victim = f"n{number % 3 + 1}"
                await asyncio.sleep(cluster.rng.random() * 0.02)
                cluster.power_loss(victim)
                cluster.start(victim)
                await cluster.ready()
                client.close()
            wanted = {f"t{number}" for number in range(6)}
            for name in cluster.machines:
                await cluster.until(lambda name=name: set(cluster.node(name).image.topics) == wanted)  # type: ignore[misc]

        cluster.run(story())
