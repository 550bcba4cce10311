"""A renamed directory on the simulated disk: as on a real one, and after a power cut."""

import random
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.ports import Disk
from simulator.disk import FileSystem, SimulatedDisk
from tests.broker.log.making import in_loop
from tests.simulator.test_disk import STRICT, disk_with

OLD, NEW = "d", "d-aside"


async def filled(disk: Disk) -> None:
    """A directory with two files and one in a directory below, durably."""
    disk.make_directory(f"{OLD}/below")
    for path in ("a", "b", "below/c"):
        file = disk.open(f"{OLD}/{path}", create=True)
        file.append([path.encode()])
        await file.sync()
        file.close()
    for directory in (f"{OLD}/below", OLD, ""):
        await disk.sync_directory(directory)


async def renamed(disk: Disk) -> None:
    await filled(disk)
    disk.rename(OLD, NEW)


async def renamed_durably(disk: Disk) -> None:
    await renamed(disk)
    await disk.sync_directory("")


def names(disk: Disk, *directories: str) -> list[list[str]]:
    return [disk.list(directory) for directory in directories]


@in_loop
async def test_all_that_is_in_it_has_the_new_name_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    await as_a_real_disk(disk)
    disk.close()


def test_all_that_is_in_it_has_the_new_name_on_the_simulated_disk() -> None:
    disk_with(STRICT, as_a_real_disk)


async def as_a_real_disk(disk: Disk) -> None:
    await filled(disk)
    disk.make_directory(f"{OLD}x")
    still_open = disk.open(f"{OLD}/a")
    disk.rename(OLD, NEW)
    assert names(disk, "", OLD, NEW, f"{NEW}/below") == [[NEW, f"{OLD}x"], [], ["a", "b", "below"], ["c"]]
    still_open.append([b"more"])
    again = disk.open(f"{NEW}/a")
    assert again.read(0, 9) == b"amore"
    still_open.close()
    again.close()
    disk.open("file", create=True).close()
    for source, target, error in (
        (OLD, "any", FileNotFoundError),
        (NEW, "no/such", FileNotFoundError),
        (NEW, "file", NotADirectoryError),
        (f"{OLD}x", NEW, OSError),
        (NEW, f"{NEW}/below/it", OSError),
    ):
        with pytest.raises(error):
            disk.rename(source, target)
    disk.rename(NEW, f"{OLD}x")
    assert names(disk, "", f"{OLD}x") == [[f"{OLD}x", "file"], ["a", "b", "below"]]


@pytest.mark.parametrize("file_system", FileSystem)
def test_a_renamed_directory_keeps_its_name_after_a_sync_of_its_parent(file_system: FileSystem) -> None:
    disk = disk_with(file_system, renamed)
    assert (disk.durable(f"{OLD}/a"), disk.durable(f"{NEW}/a")) == (b"a", None)
    disk.power_loss(random.Random(0), commit=False)
    assert names(disk, "", OLD, f"{OLD}/below") == [[OLD], ["a", "b", "below"], ["c"]]
    disk = disk_with(file_system, renamed_durably)
    assert (disk.durable(f"{OLD}/a"), disk.durable(f"{NEW}/a")) == (None, b"a")
    disk.power_loss(random.Random(0), commit=False)
    assert names(disk, "", NEW, f"{NEW}/below") == [[NEW], ["a", "b", "below"], ["c"]]


def test_a_strict_file_system_renames_a_directory_completely_or_not() -> None:
    left = set()
    for seed in range(20):
        disk = disk_with(STRICT, renamed)
        disk.power_loss(random.Random(seed), commit=True)
        (name,) = disk.list("")
        assert disk.list(f"{name}/below") == ["c"]
        left.add((name, *disk.list(name)))
    assert left == {(OLD, "a", "b", "below"), (NEW, "a", "b", "below")}


@pytest.mark.parametrize("first", ["", OLD], ids=["the one above synced first", "its own names first"])
def test_a_new_directory_with_the_old_name_has_only_its_own_files(first: str) -> None:
    async def case(disk: SimulatedDisk) -> None:
        await renamed(disk)
        disk.make_directory(OLD)
        file = disk.open(f"{OLD}/own", create=True)
        await file.sync()
        for directory in (first, OLD, ""):
            await disk.sync_directory(directory)

    disk = disk_with(STRICT, case)
    disk.power_loss(random.Random(0), commit=False)
    assert names(disk, "", OLD, NEW) == [[OLD, NEW], ["own"], ["a", "b", "below"]]
