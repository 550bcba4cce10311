"""Voters that have lost their metadata directory, or part of it, but not `meta.properties`: they count as new disks."""

import asyncio
import random
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.disk import RealDisk
from broker.log.meta_properties import META_PROPERTIES, claim_directory
from broker.log.recovery import DamagedLogError
from broker.log.recovery_points import RECOVERY_POINTS_FILE
from broker.quorum.committed import data_batch
from broker.quorum.election_state import QUORUM_STATE
from broker.server.node_directory import METADATA_DIRECTORY, NodeDirectory
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.disk import SimulatedDisk
from tests.broker.log.making import in_loop
from tests.simulator.stories import in_cluster, started

pytestmark = pytest.mark.conforms("H22")
STORIES = in_loop
PROPERTIES = {"default.replication.factor": "3"}
LONG = 10.0
"""Seconds in which a quorum that can elect has elected many times."""


def remove(disk: SimulatedDisk, *, only: str = "") -> None:
    """Remove the metadata directory, or one of its files. The disk reports this damage to the oracles."""
    removed = f"{METADATA_DIRECTORY}/{only}" if only else METADATA_DIRECTORY
    disk.replace([(path, data) for path, data in disk.files() if not f"{path}/".startswith(f"{removed}/")])


def recovery_point(disk: SimulatedDisk) -> int:
    lines = (disk.durable(RECOVERY_POINTS_FILE) or b"").decode().splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith("__cluster_metadata ")), 0)


@pytest.mark.parametrize("only", ["", QUORUM_STATE], ids=["the directory", "quorum-state"])
@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@in_cluster(3, properties=PROPERTIES)
async def test_a_voter_without_its_log_elects_no_incomplete_leader(
    cluster: SimulatedCluster, /, only: str, clean: bool
) -> None:
    """One voter lags behind, and one has lost its log. The complete third voter is stopped: the two elect no leader."""
    client = await started(cluster)
    await client.create_topic("first", 1)
    leader = cluster.controller()
    assert leader is not None
    forgets, lags = (name for name in cluster.machines if name != leader)
    cluster.kill(lags)
    await client.create_topic("acknowledged", 1, 2)
    client.close()
    disk = cluster.machines[forgets].disk
    before = disk.durable(META_PROPERTIES)
    await cluster.until(lambda: recovery_point(disk) > 0)
    if clean:
        await cluster.stop(leader, forgets)
    else:
        cluster.kill(leader, forgets)
    remove(disk, only=only)

    cluster.start(forgets, lags)
    await asyncio.sleep(LONG)
    assert all(cluster.machines[name].running for name in (forgets, lags)), "the remedy is one"
    assert cluster.controller() is None
    after = disk.durable(META_PROPERTIES)
    assert before is not None
    assert after is not None
    assert [line.split(b"=")[0] for line in before.split() if line not in after.split()] == [b"directory.id"]

    cluster.start(leader)
    await cluster.ready()
    for name in cluster.machines:
        topics = cluster.node(name).image.topics
        await cluster.until(lambda topics=topics: set(topics) == {"first", "acknowledged"})  # type: ignore[misc]
    taken_in = cluster.node(forgets).quorum
    await cluster.until(lambda: all(cluster.node(name).quorum.voter_ids == (1, 2, 3) for name in cluster.machines))
    cluster.kill(lags)  # now the forgetful one is needed, and counts
    await cluster.until(lambda: taken_in.leader_id is not None)
    await SimulatedClient(cluster.addresses).create_topic("last", 1, 2)


def several(path: Path, voters: int = 3, *, node: int = 1) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "node.id": str(node),
            "listeners": f"h{node}:9092,CONTROLLER://h{node}:9093",
            "controller.listener.names": "CONTROLLER",
            "quorum.voters": ",".join(f"{node}@h{node}:9093" for node in range(1, voters + 1)),
            "log.dir": str(path),
        }
    )


async def opened(path: Path, voters: int = 3, *, node: int = 1, took_part: bool, records: int = 0) -> bytes:
    """Open the directory as a process does, and end; its id. `took_part`: with a quorum-state file. `records`: what its
    log gets, up to where its recovery point is then."""
    disk = RealDisk(str(path))
    directory = await NodeDirectory.open(disk, several(path, voters, node=node), random.Random())
    if took_part:
        (path / METADATA_DIRECTORY / QUORUM_STATE).write_text("{}")
    if records:
        await directory.metadata_log.start_leader_epoch(1)
        directory.metadata_log.append_as_leader(data_batch((b"x",) * records, 0), 1)
        await directory.metadata_log.flush()
        await directory.recovery_points.write_durably()
    await directory.close()
    disk.close()
    return directory.id


async def test_a_directory_keeps_its_id_while_its_state_file_exists(tmp_path: Path) -> None:
    first = await opened(tmp_path, took_part=True)
    assert await opened(tmp_path, took_part=True) == first
    (tmp_path / METADATA_DIRECTORY / QUORUM_STATE).unlink()
    new = await opened(tmp_path, took_part=True)
    assert new != first
    assert await opened(tmp_path, took_part=True) == new


async def test_a_new_directory_id_is_durable_before_any_promise(tmp_path: Path) -> None:
    await opened(tmp_path, took_part=False)
    disk = RealDisk(str(tmp_path))
    directory = await NodeDirectory.open(disk, several(tmp_path), random.Random())
    assert (await claim_directory(disk, "data", 1, random.Random())).directory_id == directory.id
    assert not disk.exists(f"{METADATA_DIRECTORY}/{QUORUM_STATE}")
    await directory.close()
    disk.close()


async def test_a_voter_that_is_alone_stays_the_same(tmp_path: Path) -> None:
    first = await opened(tmp_path, 1, took_part=False)
    assert await opened(tmp_path, 1, took_part=False) == first


@pytest.mark.parametrize(("node", "voters"), [(1, 3), (4, 3), (2, 1)], ids=["voter", "observer", "observer of one"])
async def test_a_node_without_its_metadata_directory_restarts_with_a_new_id(
    tmp_path: Path, node: int, voters: int
) -> None:
    """The broker's message after damage: other nodes have the records."""
    first = await opened(tmp_path, voters, node=node, took_part=True, records=5)
    (tmp_path / METADATA_DIRECTORY).rename(tmp_path / "damaged")
    new = await opened(tmp_path, voters, node=node, took_part=True)
    assert new != first
    assert await opened(tmp_path, voters, node=node, took_part=True) == new


async def test_a_single_voter_refuses_to_start_without_its_log(tmp_path: Path) -> None:
    await opened(tmp_path, 1, took_part=True, records=5)
    (tmp_path / METADATA_DIRECTORY).rename(tmp_path / "damaged")
    with pytest.raises(DamagedLogError):
        await opened(tmp_path, 1, took_part=True)
