"""The simulated disk agrees with the measured table of power cuts, and with the Disk port's promises."""

import asyncio
import contextlib
import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.log.log import PartitionLog
from broker.ports import Disk
from simulator.disk import PAGE, FileSystem, SimulatedDisk, Tear
from simulator.loop import new_loop
from tests.broker.log.making import SMALL, life_of, values, write
from tests.simulator.power_table import ROWS, Row, append_and_sync, contents, rename_after_sync
from tests.simulator.running import World
from tests.stories import played_by

EXT4, XFS, STRICT = FileSystem.EXT4, FileSystem.XFS, FileSystem.STRICT
Case = Callable[[SimulatedDisk], Coroutine[Any, Any, object]]


def disk_with(file_system: FileSystem, case: Case, seed: int = 0) -> SimulatedDisk:
    """A disk on which a case has been played."""
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    loop.run_until_complete(case(disk))
    return disk


STORIES = played_by(functools.partial(disk_with, EXT4))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_measured_table(row: Row) -> None:
    for file_system, left in ((EXT4, row.ext4), (XFS, row.xfs)):
        disk = disk_with(file_system, row.play)
        disk.power_loss(random.Random(0), commit=False, tear=Tear.LOST)
        assert contents(disk) == left, file_system


def test_a_rename_that_is_not_durable_leaves_both_names() -> None:
    disk = disk_with(EXT4, rename_after_sync)
    disk.power_loss(random.Random(0), commit=False)
    assert disk.list("") == ["new", "old"]


def test_middle_pages_leave_a_hole() -> None:
    async def case(disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.append([b"s" * PAGE])
        await file.sync()
        file.append([b"d" * (8 * PAGE)])

    lengths: set[int] = set()
    for seed in range(50):
        disk = disk_with(EXT4, case)
        disk.power_loss(random.Random(seed), commit=True, tear=Tear.HOLE)
        left = disk.open("a").read(0, 1 << 20)
        assert left[:PAGE] == b"s" * PAGE, "what was synced stays"
        assert len(left) == 9 * PAGE
        assert left[PAGE:].strip(b"d").strip(b"\0") == b""
        lengths.add(left.count(b"\0"))
    assert len(lengths) > 10


@pytest.mark.parametrize("tear", list(Tear))
@pytest.mark.parametrize("file_system", [EXT4, XFS, STRICT])
def test_only_unsynced_tails_tear(tear: Tear, file_system: FileSystem) -> None:
    async def case(disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.append([b"s" * 5000])
        await file.sync()
        await disk.sync_directory("")
        file.append([b"d" * 20_000])

    for seed in range(20):
        disk = disk_with(file_system, case)
        disk.power_loss(random.Random(seed), commit=True, tear=tear)
        left = disk.open("a").read(0, 1 << 20)
        assert left.startswith(b"s" * 5000)
        tail = left[5000:]
        expected = {
            # A block that the file has already is grown into before it is written.
            Tear.LOST: tail == (bytes(2 * PAGE - 5000) if file_system is EXT4 else b""),
            Tear.PREFIX: tail == b"d" * len(tail) and len(left) % PAGE == 0,
            Tear.HOLE: len(tail) == 20_000 and b"\0" in tail,
            Tear.ZEROS: len(tail) == 20_000 and tail.endswith(b"\0"),
            Tear.RECORD: tail == b"d" * len(tail) and len(tail) < 20_000,
            Tear.COMPLETE: tail == b"d" * 20_000,
        }
        assert expected[tear]


def test_every_tear_happens_by_chance() -> None:
    async def case(disk: Disk) -> None:
        file = disk.open("a", create=True)
        await file.sync()
        file.append([b"d" * 20_000])

    left = set()
    for seed in range(200):
        disk = disk_with(EXT4, case)
        disk.power_loss(random.Random(seed))
        data = disk.open("a").read(0, 1 << 20)
        left.add((len(data) == 0, len(data) == 20_000, b"\0" in data, data.endswith(b"\0")))
    assert len(left) >= 5


def test_a_strict_disk_keeps_only_durable_files() -> None:
    async def case(disk: Disk) -> None:
        disk.make_directory("d")
        await disk.sync_directory("")
        file = disk.open("d/promised", create=True)
        file.append([b"x"])
        await file.sync()
        await disk.sync_directory("d")
        other = disk.open("d/not promised", create=True)
        other.append([b"x"])
        await other.sync()
        disk.rename("d/promised", "d/renamed")

    disk = disk_with(STRICT, case)
    disk.power_loss(random.Random(0), commit=False)
    assert disk.list("d") == ["promised"]
    assert disk.open("d/promised").read(0, 9) == b"x"


def test_files_in_a_directory_that_was_not_durable_are_lost_with_it() -> None:
    async def case(disk: Disk) -> None:
        disk.make_directory("d/e")
        file = disk.open("d/e/a", create=True)
        file.append([b"x"])
        await file.sync()
        await disk.sync_directory("d/e")
        await disk.sync_directory("d")

    disk = disk_with(STRICT, case)
    assert (disk.durable("d/e/a"), disk.durable_size("d/e/a"), disk.image()) == (None, 0, [])
    disk.power_loss(random.Random(0), commit=False)
    assert disk.files() == []

    async def with_its_name(disk: Disk) -> None:
        await case(disk)
        await disk.sync_directory("")

    disk = disk_with(STRICT, with_its_name)
    assert (disk.durable("d/e/a"), disk.durable_size("d/e/a")) == (b"x", 1)


async def forgotten(disk: SimulatedDisk) -> None:
    """A file whose last sync has failed."""
    file = disk.open("a", create=True)
    file.append([b"kept"])
    await file.sync()
    file.append([b" forgotten"])
    disk.faults.failing = True
    with pytest.raises(OSError, match="Input/output"):
        await file.sync()
    disk.faults.failing = False


def test_failed_syncs_discard_their_writes() -> None:
    async def case(disk: SimulatedDisk) -> None:
        await forgotten(disk)
        again = disk.open("a")
        assert again.read(0, 20) == b"kept forgotten", "the page cache shows it"
        again.append([b" later"])
        await again.sync()

    disk = disk_with(EXT4, case)
    disk.power_loss(random.Random(0), commit=False)
    assert disk.open("a").read(0, 30) == b"kept" + bytes(len(" forgotten")) + b" later"
    assert disk.faults.failed_syncs == 1


def test_a_full_disk_writes_the_part_that_fits() -> None:
    async def case(disk: SimulatedDisk) -> None:
        file = disk.open("a", create=True)
        disk.faults.free_bytes = 4
        file.append([b"four"])
        with pytest.raises(OSError, match="No space left"):
            file.append([b"5"])
        disk.faults.free_bytes = None
        file.append([b"5"])
        assert file.read(0, 9) == b"four5"

    assert disk_with(EXT4, case).faults.refused_writes == 1


async def test_syncs_are_slow_or_hang_until_they_are_released(disk: SimulatedDisk, /) -> None:
    loop = asyncio.get_running_loop()
    file = disk.open("a", create=True)
    disk.faults.slow_s = 1.0
    began = loop.time()
    await file.sync()
    assert 1.0 <= loop.time() - began < 1.2
    disk.faults.slow_s, disk.faults.hung = 0.0, True
    waiting = [asyncio.ensure_future(file.sync()), asyncio.ensure_future(disk.sync_directory(""))]
    await asyncio.sleep(100.0)
    assert not any(each.done() for each in waiting)
    disk.release()
    await asyncio.gather(*waiting)


def test_bits_flip_on_the_disk_and_are_mended_where_they_still_are() -> None:
    async def case(disk: SimulatedDisk) -> None:
        file = disk.open("a", create=True)
        file.append([bytes(100)])
        await file.sync()

    disk = disk_with(EXT4, case)
    flip = disk.flip(random.Random(1), ["a"])
    assert flip is not None
    assert disk.open("a").read(flip.at, 1) == bytes([1 << flip.bit])
    disk.power_loss(random.Random(0), commit=False)
    assert disk.open("a").read(flip.at, 1) == bytes([1 << flip.bit]), "it is on the disk"
    with disk.as_written():
        assert disk.open("a").read(0, 100) == bytes(100)
    assert disk.open("a").read(flip.at, 1) == bytes([1 << flip.bit])
    assert disk.mend() == 1
    assert disk.open("a").read(0, 100) == bytes(100)
    assert not disk.mend(), "nothing of it is left"
    assert disk.flip(random.Random(1), []) is None


def test_a_restored_disk_has_the_copied_content_or_none() -> None:
    async def case(disk: SimulatedDisk) -> None:
        disk.make_directory("d")
        file = disk.open("d/a", create=True)
        file.append([b"durable"])
        await file.sync()
        file.append([b" or not"])

    disk = disk_with(EXT4, case)
    copy = disk.image()
    assert copy == [("d", None), ("d/a", b"durable")]
    disk.replace([])
    assert disk.files() == []
    disk.replace(copy)
    assert disk.files() == copy
    disk.power_loss(random.Random(0), commit=False)
    assert disk.files() == copy


def test_an_unsynced_truncation_may_be_undone() -> None:
    async def case(disk: Disk) -> None:
        await append_and_sync(disk)
        file = disk.open("old")
        file.truncate(3)
        file.append([b"er"])

    for commit, left in ((False, b"old and new"), (True, b"older")):
        disk = disk_with(EXT4, case)
        disk.power_loss(random.Random(0), commit=commit, tear=Tear.LOST)
        assert disk.open("old").read(0, 100) == left


def test_a_sync_covers_writes_before_its_start() -> None:
    async def case(disk: SimulatedDisk) -> None:
        file = disk.open("a", create=True)
        file.append([b"1"])
        first = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        file.append([b"2"])
        later = [asyncio.ensure_future(file.sync()) for _ in range(5)]
        await first
        began = asyncio.get_running_loop().time()
        copies.append(began)
        disk.power_loss(random.Random(1), commit=False)
        assert file.read(0, 9) in (b"1", b"12"), "the second sync had started"
        for sync in later:
            sync.cancel()

    copies: list[float] = []
    disk_with(EXT4, case)
    assert copies[0] > 0


async def test_waiting_syncs_of_a_file_share_one_turn(disk: SimulatedDisk, /) -> None:
    file, other = disk.open("a", create=True), disk.open("b", create=True)
    loop = asyncio.get_running_loop()
    finished: list[tuple[str, float]] = []

    async def sync(name: str, of: object) -> None:
        await of.sync()  # type: ignore[attr-defined]
        finished.append((name, loop.time()))

    await asyncio.gather(*(sync(name, of) for name, of in (("a", file), ("b", other), ("b", other), ("a", file))))
    assert [name for name, _ in finished] == ["a", "b", "b", "a"]
    times = [at for _, at in finished]
    assert times[0] < times[1] == times[2] < times[3]


def test_a_cut_during_a_sync() -> None:
    async def case(disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.append([b"0123456789"])
        sync = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        file.truncate(5)
        file.append([b"abc"])
        await sync

    for commit, left in ((False, b"0123456789"), (True, b"01234abc")):
        disk = disk_with(STRICT if not commit else EXT4, case)
        disk._durable_names = dict(disk._names)  # the name is not what this is about
        disk.power_loss(random.Random(0), commit=commit, tear=Tear.LOST)
        assert disk.open("a").read(0, 100) == left


def test_a_killed_process_loses_only_its_own_waiting_syncs() -> None:
    world = World()
    disk = SimulatedDisk(world.loop, random.Random(0), file_system=STRICT)

    async def sync(*names: str) -> None:
        for name in names:
            disk.open(name, create=True).append([b"x"])
        await asyncio.gather(*(disk.open(name).sync() for name in names), disk.sync_directory(""))

    async def story() -> None:
        killed = world.start("a", sync("running", "waiting"))
        prober = world.start("b", sync("probe"))
        await asyncio.sleep(1e-6)  # all have asked, and the first sync is under way
        world.hosts["a"].kill()
        disk.process_died(world.hosts["a"])
        await asyncio.wait_for(prober, 5.0)
        assert not killed.done()

    world.run("c", story())
    disk.power_loss(random.Random(0), commit=False)
    assert [(name, disk.durable(name)) for name in disk.list("")] == [
        ("probe", b"x"),
        ("running", b"x"),
        ("waiting", b""),
    ], "the names were synced for the prober, independent of the first requester"


def test_a_failed_sync_is_final_for_the_open_file() -> None:
    async def case(disk: SimulatedDisk) -> None:
        file = disk.open("a", create=True)
        file.append([b"x"])
        disk.faults.failing = True
        with pytest.raises(OSError, match="Input/output"):
            await file.sync()
        disk.faults.failing = False
        for call in (lambda: file.append([b"y"]), lambda: file.truncate(0)):
            with pytest.raises(OSError, match="an earlier sync failed"):
                call()
        with pytest.raises(OSError, match="an earlier sync failed"):
            await file.sync()
        await disk.sync_directory("")

    disk = disk_with(EXT4, case)
    disk.power_loss(random.Random(0), commit=False)
    assert disk.open("a").read(0, 9) == b""


async def test_names_behave_as_on_a_real_disk(disk: Disk, /) -> None:
    for missing in (lambda: disk.open("a"), lambda: disk.unlink("a"), lambda: disk.rename("a", "b")):
        with pytest.raises(FileNotFoundError):
            missing()
    with pytest.raises(FileNotFoundError):
        disk.open("no/such", create=True)
    disk.make_directory("x/y")
    disk.open("x/b", create=True)
    disk.open("x/a", create=True)
    assert disk.list("x") == ["a", "b", "y"]
    assert disk.list("") == ["x"]
    assert disk.list("no") == []
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory("x")
    with pytest.raises(IsADirectoryError):
        disk.open("x")
    disk.remove_directory("x/y")
    assert disk.exists("x")
    assert not disk.exists("x/y")
    with pytest.raises(FileNotFoundError):
        await disk.sync_directory("x/y")


def test_a_lock_is_held_as_long_as_its_process_lives() -> None:
    world = World()
    disk = SimulatedDisk(world.loop, random.Random(0))

    async def take() -> None:
        disk.lock(".lock")

    world.run("a", take())
    with pytest.raises(BlockingIOError):
        world.run("b", take())
    world.hosts["a"].kill()
    world.run("b", take())


@pytest.mark.parametrize("file_system", [EXT4, XFS, STRICT])
@pytest.mark.parametrize("seed", range(15))
def test_a_log_keeps_its_durable_records_after_power_cuts(file_system: FileSystem, seed: int) -> None:
    """A hundred power cuts: everything below `durable_end_offset` is there again, and what follows is a prefix."""
    loop = new_loop()
    rng = random.Random(seed)
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)

    async def life(expected: list[str], durable: int) -> tuple[list[str], int]:
        log = await PartitionLog.open(disk, "log-0", SMALL, clean_shutdown=False)
        found = values(log)
        assert len(found) >= durable
        assert found == expected[: len(found)]
        assert log.durable_end_offset == len(found)
        expected, durable = found, len(found)
        for _ in range(rng.randint(1, 6)):
            epoch = max(log.last_epoch, 0) + (rng.random() < 0.3)
            new = [f"{rng.random()}" * rng.randint(1, 10) for _ in range(rng.randint(0, 5))]
            await write(log, epoch, *new)
            expected = expected + new
            if rng.random() < 0.5:
                durable = await log.flush()
            if rng.random() < 0.2:
                durable = min(durable, await log.truncate_to(rng.randint(0, len(expected))))
                expected = expected[: log.log_end_offset]
        if rng.random() < 0.5:
            loop.create_task(log.flush())
            await asyncio.sleep(rng.random() * 0.002)
        return expected, durable

    expected: list[str] = []
    durable, processes = 0, []
    for _ in range(7):
        (expected, durable), process = life_of(loop, life(expected, durable))
        processes.append(process)
        disk.power_loss(rng)


@pytest.mark.conforms("K595-7")
@pytest.mark.parametrize("seed", range(20))
def test_appends_and_rolls_during_a_flush_do_not_count_as_durable(seed: int) -> None:
    loop = new_loop()
    rng = random.Random(seed)
    disk = SimulatedDisk(loop, random.Random(seed), file_system=STRICT)

    async def life() -> int:
        log = await PartitionLog.open(disk, "log-0", SMALL, clean_shutdown=False)
        flushes = []
        for number in range(rng.randint(5, 60)):
            await write(log, 0, f"{number}" * rng.randint(1, 40))
            if rng.random() < 0.4:
                flushes.append(loop.create_task(log.flush()))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.001)
        return max([0, *await asyncio.gather(*flushes), log.durable_end_offset])

    async def reopen() -> int:
        return (await PartitionLog.open(disk, "log-0", SMALL, clean_shutdown=False)).log_end_offset

    durable = loop.run_until_complete(life())
    disk.power_loss(rng, commit=False)
    assert loop.run_until_complete(reopen()) >= durable


def test_data_that_is_synced_again_is_durable() -> None:
    async def case(disk: SimulatedDisk) -> None:
        await forgotten(disk)
        await disk.open("a").sync_again(len(b"kept"))

    disk = disk_with(EXT4, case)
    assert disk.durable_size("a") == len(b"kept forgotten")
    disk.power_loss(random.Random(0), commit=False)
    assert disk.open("a").read(0, 30) == b"kept forgotten"


@pytest.mark.parametrize("again", [True, False])
def test_a_later_sync_of_clean_pages_does_not_count(again: bool) -> None:
    """A sync that must write them again fails as well."""

    async def case(disk: SimulatedDisk) -> None:
        await forgotten(disk)
        if again:
            disk.faults.failing = True
            with pytest.raises(OSError, match="Input/output"):
                await disk.open("a").sync_again(len(b"kept"))
            disk.faults.failing = False
        later = disk.open("a")
        await later.sync()
        later.append([b" later"])
        await later.sync()
        later.append([b" last"])

    disk = disk_with(EXT4, case)
    assert disk.durable_size("a") == len(b"kept")
    disk.power_loss(random.Random(0), commit=True, tear=Tear.COMPLETE)
    assert disk.open("a").read(0, 40) == b"kept" + bytes(len(" forgotten")) + b" later last", "nothing brings them back"


@pytest.mark.parametrize("file_system", [EXT4, XFS, STRICT])
@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_keeps_durable_files(file_system: FileSystem, seed: int) -> None:
    """Whatever was done to files and directories before, and whichever syncs failed."""
    rng, loop = random.Random(seed), new_loop()
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    for _ in range(8):
        loop.run_until_complete(_anything(disk, rng))
        before = {path: data for path, data in disk.files() if data is not None}
        sizes = {path: disk.durable_size(path) for path in before}
        names = [path for path in before if disk.durable(path) is not None]
        disk.power_loss(rng)
        left = dict(disk.files())
        assert set(names) <= left.keys() or file_system is STRICT, (
            "where any name may go before its directory is synced"
        )
        for path, size in sizes.items():
            assert not size or (left[path] or b"")[:size] == before[path][:size], path


async def _anything(disk: SimulatedDisk, rng: random.Random) -> None:
    """A few operations on some files; syncs fail now and then."""
    for number in range(rng.randint(1, 25)):
        directory = rng.choice(("", "d", "d/e"))
        disk.make_directory(directory or "d")
        path = f"{directory}/{rng.choice('ab')}".lstrip("/")
        file = disk.open(path, create=True)
        disk.faults.failing = rng.random() < 0.2
        with contextlib.suppress(OSError):
            match rng.choice(
                ("append", "append", "truncate", "sync", "sync", "sync again", "replace", "directory", "go on")
            ):
                case "append":
                    file.append([b"%d" % number * rng.choice((1, 100, 3000))])
                case "truncate":
                    file.truncate(rng.randint(0, file.size()))
                case "sync":
                    await file.sync()
                case "sync again":
                    await file.sync_again(rng.randint(0, file.size()))
                case "replace":
                    await disk.replace_file(path, b"%d" % number * rng.choice((1, 100, 3000)))
                case "directory":
                    await disk.sync_directory(directory)
                case "go on":
                    syncing = asyncio.ensure_future(file.sync())
                    syncing.add_done_callback(lambda done: done.cancelled() or done.exception())
                    await asyncio.sleep(rng.choice((0.0, 0.001)))
        file.close()
    disk.faults.failing = False
