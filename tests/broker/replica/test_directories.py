"""The directories of partitions on a real disk, with their length limits."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log_config import LogConfig
from broker.replica.manager import METADATA_FILE, Found, PartitionDirectories
from tests.broker.log.making import SMALL, batch, values, write
from tests.stories import run_by

STORIES = run_by(asyncio.run)
ID = b"topic-id-of-log!"


class KilledError(Exception):
    """The process ends here."""


class MortalDisk(RealDisk):
    """Kills its broker at the rename after `renames` others."""

    renames = 1 << 20

    def rename(self, source: str, target: str) -> None:
        if self.renames == 0:
            raise KilledError
        self.renames -= 1
        super().rename(source, target)


@pytest.mark.parametrize("index", [0, 99_999])
@pytest.mark.parametrize("length", [1, 230, 240, 244, 249])
async def test_a_partition_is_set_aside_however_long_its_topics_name(tmp_path: Path, length: int, index: int) -> None:
    topic, other = "x" * length, "x" * (length - 1) + "y"
    disk = RealDisk(str(tmp_path))
    directories = PartitionDirectories(disk, LogConfig())
    names = []
    for name in (topic, topic, other):
        log = await directories.create(name, index, ID)
        await log.close()
        assert await directories.scan() == [Found(name, index, ID)]
        names.append(await directories.set_aside(name, index))
        assert await directories.scan() == []
    assert sorted(disk.list("")) == sorted(set(names))
    assert len(names) == len(set(names))
    assert all(name.endswith("-aside") and METADATA_FILE in disk.list(name) for name in names)
    disk.close()


async def test_a_name_that_fits_stays_whole(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    directories = PartitionDirectories(disk, LogConfig())
    log = await directories.create("log", 3, ID)
    await log.close()
    assert await directories.set_aside("log", 3) == "log-3.1-aside"
    disk.close()


async def test_a_new_partition_does_not_reuse_files_of_an_earlier_topic_of_its_name(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    directories = PartitionDirectories(disk, LogConfig())
    old = await directories.create("log", 0, b"older-id-of-log!")
    await old.start_leader_epoch(0)
    old.append_as_leader(batch("a"), 0)
    await old.close()
    for _ in range(2):  # what an earlier try has made of it is its own
        new = await directories.create("log", 0, ID)
        assert (new.log_end_offset, new.last_epoch) == (0, -1)
        await new.close()
    assert await directories.scan() == [Found("log", 0, ID)]
    assert disk.list("") == ["log-0", "log-0.1-aside"]
    (kept,) = (tmp_path / "log-0.1-aside").glob("*.log")
    assert kept.stat().st_size > 0
    disk.close()


@pytest.mark.parametrize("renames", range(4))
async def test_a_log_is_moved_completely_or_not_when_its_broker_is_killed(tmp_path: Path, renames: int) -> None:
    """Without its first segments the log would look like one with a deleted head."""
    disk = MortalDisk(str(tmp_path))
    directories = PartitionDirectories(disk, SMALL)
    log = await directories.create("log", 0, ID)
    written = [f"{number:0300d}" for number in range(10)]
    await write(log, 0, *written)
    assert len(log.segments) > 2
    await log.close()
    had, disk.renames = sorted(disk.list("log-0")), renames
    with contextlib.suppress(KilledError):
        await directories.set_aside("log", 0)
    disk.close()

    disk = MortalDisk(str(tmp_path))
    directories = PartitionDirectories(disk, SMALL)
    if await directories.scan():
        log = await directories.open("log", 0, clean_shutdown=False)
        assert log.log_start_offset == 0
        assert values(log) == written
        await log.close()
    else:
        assert sorted(disk.list("log-0.1-aside")) == had
    disk.close()
