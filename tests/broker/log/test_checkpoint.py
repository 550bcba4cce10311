"""Files that are replaced as a whole, offsets by partition, and the identity of a directory."""

import asyncio
import random
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.errors import StartupError
from broker.log.checkpoint import AtomicFile, CorruptCheckpointError, OffsetCheckpoint
from broker.log.meta_properties import (
    CLEAN_SHUTDOWN,
    claim_directory,
    lock_directory,
    mark_clean_shutdown,
    store_cluster_id,
    take_clean_shutdown,
)
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import in_loop

STORIES = in_loop
NAME = "replication-offset-checkpoint"


@pytest.mark.conforms("K595-7")
async def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(RealDisk(str(tmp_path)), NAME)
    assert checkpoint.read() == {}
    await checkpoint.write_durably({("b", 0): 7, ("a", 10): 0, ("a", 2): 5})
    assert (tmp_path / NAME).read_text() == "0\n3\na 2 5\na 10 0\nb 0 7\n"
    assert checkpoint.read() == {("b", 0): 7, ("a", 10): 0, ("a", 2): 5}


@pytest.mark.parametrize("text", ["0\n1\na 0 -1\n", "0\n1\na b 1\n", "0\n1\na 1\n", "\0\0\0\0"])
def test_corrupt_offsets_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(CorruptCheckpointError, match="remove the file"):
        OffsetCheckpoint(RealDisk(str(tmp_path)), NAME).read()


@pytest.mark.conforms("H10")
async def test_writers_take_turns_and_the_last_one_stays(tmp_path: Path) -> None:
    file = AtomicFile(RealDisk(str(tmp_path)), "state")
    await asyncio.gather(*(file.write(f"text {number}" * number) for number in range(20)))
    assert file.read() == "text 19" * 19
    assert RealDisk(str(tmp_path)).list("") == ["state"]


@pytest.mark.conforms("H10")
async def test_a_draft_of_an_interrupted_write_is_ignored(tmp_path: Path) -> None:
    file = AtomicFile(RealDisk(str(tmp_path)), "state")
    await file.write("whole")
    (tmp_path / "state.tmp").write_text("a very long torn text")
    assert file.read() == "whole"
    await file.write("new")
    assert file.read() == "new"


@pytest.mark.conforms("K595-8")
async def test_a_directory_belongs_to_one_broker(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    meta = await claim_directory(disk, "data", 1, random.Random(1))
    assert await claim_directory(disk, "data", 1, random.Random(2)) == meta
    with pytest.raises(StartupError, match="the directory belongs to broker 1, this is broker 2"):
        await claim_directory(disk, "data", 2, random.Random(1))


@pytest.mark.conforms("K595-46", "K595-8")
async def test_the_cluster_id_is_kept_once_it_is_committed(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    meta = await claim_directory(disk, "data", 1, random.Random(1))
    assert meta.cluster_id is None
    await store_cluster_id(disk, meta, "one")
    meta = await claim_directory(disk, "data", 1, random.Random(1))
    assert meta.cluster_id == "one"
    assert await store_cluster_id(disk, meta, "one") == meta
    with pytest.raises(StartupError, match="belongs to cluster one, the quorum's is two"):
        await store_cluster_id(disk, meta, "two")


@pytest.mark.parametrize(
    "text", ["version=2\nnode.id=1\n", "version=1\nnode.id=1\n", "version=1\nnode.id=1\ndirectory.id=1\n", "nonsense"]
)
async def test_an_unreadable_owner_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(StartupError, match=r"data/meta\.properties"):
        await claim_directory(RealDisk(str(tmp_path)), "data", 1, random.Random(1))


async def test_a_clean_shutdown_is_vouched_for_once(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    assert await take_clean_shutdown(disk) is None
    await mark_clean_shutdown(disk, 42)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":42}', "as Apache Kafka has it"
    assert await take_clean_shutdown(disk) == 42
    assert await take_clean_shutdown(disk) is None


@pytest.mark.conforms("H16")
def test_no_power_cut_brings_back_the_mark_of_a_clean_shutdown() -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(0), file_system=FileSystem.STRICT)

    async def life() -> None:
        await mark_clean_shutdown(disk, 42)
        assert disk.durable(CLEAN_SHUTDOWN) is not None
        assert await take_clean_shutdown(disk) == 42
        assert disk.durable(CLEAN_SHUTDOWN) is None

    loop.run_until_complete(life())


@pytest.mark.conforms("H16")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"brokerEpoch":"x"}', b"\xff"])
async def test_a_mark_that_names_no_epoch_vouches_for_the_indexes_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert await take_clean_shutdown(RealDisk(str(tmp_path))) == -1


def test_two_processes_cannot_have_one_directory(tmp_path: Path) -> None:
    first, second = RealDisk(str(tmp_path)), RealDisk(str(tmp_path))
    lock_directory(first, "data")
    with pytest.raises(StartupError, match=r"data/\.lock: another process uses this data directory"):
        lock_directory(second, "data")
    first.close()
    lock_directory(second, "data")
    second.close()
