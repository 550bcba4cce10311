"""Files that are replaced, and the result when the caller cancels the replacement or is killed."""

import asyncio
import functools
import random

from simulator.disk import SimulatedDisk
from tests.simulator.running import World
from tests.simulator.test_disk import STRICT, disk_with


async def replaced_in_vain(disk: SimulatedDisk, *, begun: bool) -> None:
    """Replace a file's content, and give that up while it is being synced, or before."""
    await disk.replace_file("a", b"old")
    other = disk.open("b", create=True)
    other.append([b"x"])
    others = [] if begun else [asyncio.ensure_future(other.sync())]
    await asyncio.sleep(0)
    replacing = asyncio.ensure_future(disk.replace_file("a", b"new"))
    await asyncio.sleep(0)
    replacing.cancel()
    await asyncio.gather(replacing, *others, return_exceptions=True)
    assert replacing.cancelled()


def test_a_cancelled_file_replacement_completes_if_it_has_started() -> None:
    """As by the thread of the real disk (`test_a_cancelled_disk_operation_is_not_started`)."""

    async def case(disk: SimulatedDisk, *, begun: bool) -> None:
        await replaced_in_vain(disk, begun=begun)
        assert disk.durable("a") == b"old"
        await asyncio.sleep(5)
        assert disk.durable("a") == (b"new" if begun else b"old")

    for begun in (True, False):
        disk_with(STRICT, functools.partial(case, begun=begun))


def test_a_later_file_replacement_follows_a_cancelled_one() -> None:
    async def case(disk: SimulatedDisk) -> None:
        await replaced_in_vain(disk, begun=True)
        await disk.replace_file("a", b"last")
        await asyncio.sleep(5)
        assert disk.durable("a") == b"last"
        assert not disk.exists("a.tmp")

    disk_with(STRICT, case)


def test_a_replacement_by_a_killed_process_does_not_block_the_next_one() -> None:
    world = World()
    disk = SimulatedDisk(world.loop, random.Random(0), file_system=STRICT)

    async def story() -> None:
        await asyncio.wait([world.start("a", replaced_in_vain(disk, begun=True))])
        world.hosts["a"].kill()
        disk.process_died(world.hosts["a"])
        await asyncio.sleep(5)
        assert disk.open("a").read(0, 9) == b"old"
        await asyncio.wait_for(disk.replace_file("a", b"later"), 5.0)
        assert disk.durable("a") == b"later"

    world.run("c", story())
