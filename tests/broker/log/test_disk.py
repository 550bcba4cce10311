"""The real disk: appends, group commit, a sync that failed, files handed to sockets."""

import asyncio
import contextlib
import errno
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.disk import GroupCommit, RealDisk
from tests.broker.log.making import HeldCommit, in_loop

STORIES = in_loop


def test_appends_and_cuts(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        disk.open("a")
    file = disk.open("a", create=True)
    assert file.append([b"one", memoryview(b"two"), bytearray(b"three")]) == 11
    assert file.append([b"."] * 3000) == 3011
    assert file.read(3, 8) == b"twothree"
    assert file.read(3010, 50) == b"."
    file.truncate(6)
    assert file.append([b"!"]) == 7
    file.close()
    again = disk.open("a")
    assert (again.size(), again.read(0, 100)) == (7, b"onetwo!")


def test_names(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    assert disk.list("no/such") == []
    disk.make_directory("x/y")
    disk.make_directory("x/y")
    for name in ("b", "a"):
        disk.open(f"x/{name}", create=True).close()
    assert disk.list("x") == ["a", "b", "y"]
    disk.rename("x/a", "x/b")
    assert disk.list("x") == ["b", "y"]
    disk.unlink("x/b")
    disk.remove_directory("x/y")
    assert disk.list("x") == []
    assert disk.exists("x")
    assert not disk.exists("x/b")


async def test_a_partial_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(str(tmp_path)).open("a", create=True)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:2], at))
    assert file.append([b"abcdefg"]) == 7
    assert file.read(0, 10) == b"abcdefg"


def test_a_failed_append_leaves_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(str(tmp_path)).open("a", create=True)
    file.append([b"kept"])
    write, calls = os.pwrite, 0

    def full(fd: int, data: bytes, at: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(data)[:2], at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        file.append([b"lost"])
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"kept"
    assert file.append([b"!"]) == 5, "the disk has room again"


async def test_sync_requests_during_a_sync_share_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldCommit(monkeypatch)
    file = RealDisk(str(tmp_path)).open("a", create=True)
    file.append([b"1"])
    first = asyncio.create_task(file.sync())
    await asyncio.to_thread(held.entered.wait, 60)
    file.append([b"2"])
    later = [asyncio.create_task(file.sync()) for _ in range(10)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in (first, *later))
    held.go.set()
    await asyncio.gather(first, *later)
    assert len(held.calls) == 2
    await file.sync()
    assert len(held.calls) == 2, "nothing was written: nothing to do"


async def test_a_file_that_is_closed_during_its_sync_keeps_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldCommit(monkeypatch)
    disk = RealDisk(str(tmp_path))
    file = disk.open("a", create=True)
    file.append([b"1"])
    sync = asyncio.create_task(file.sync())
    await asyncio.to_thread(held.entered.wait, 60)
    file.close()
    file.close()
    assert open_here(tmp_path / "a")
    held.go.set()
    await sync
    disk.close()
    assert not open_here(tmp_path / "a")


def open_here(path: Path) -> bool:
    """Whether this process has the file open. A descriptor number alone is not enough: it may be another file's by
    now."""
    found = False
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own, and other threads'
            found |= os.readlink(f"/proc/self/fd/{number}") == str(path)
    return found


async def test_a_sync_that_failed_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk = RealDisk(str(tmp_path))
    file, other = disk.open("a", create=True), disk.open("b", create=True)
    file.append([b"1"])
    other.append([b"1"])
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "fdatasync", fail)
    results = await asyncio.gather(file.sync(), file.sync(), return_exceptions=True)
    assert all(isinstance(result, OSError) and result.errno == errno.EIO for result in results)
    monkeypatch.undo()
    with pytest.raises(OSError, match="an earlier sync failed"):
        await file.sync()
    with pytest.raises(OSError, match="an earlier sync failed"):
        file.append([b"2"])
    with pytest.raises(OSError, match="an earlier sync failed"):
        file.truncate(0)
    await other.sync()


async def test_any_error_of_a_sync_is_raised_and_the_thread_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise ValueError("file descriptor cannot be a negative integer (-1)")

    disk = RealDisk(str(tmp_path))
    file, other = disk.open("a", create=True), disk.open("b", create=True)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"met ValueError: file descriptor cannot be") as caught:
        await asyncio.wait_for(file.sync(), 60)
    assert caught.value.errno == errno.EIO
    monkeypatch.undo()
    await asyncio.wait_for(other.sync(), 60)


async def test_a_system_without_a_thread_to_give_refuses_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = RealDisk(str(tmp_path)).open("a", create=True)
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", none_left)
        with pytest.raises(OSError, match="no thread for syncs"):
            await asyncio.wait_for(file.sync(), 60)
    await asyncio.wait_for(file.sync(), 60)


async def test_a_closed_file_cannot_be_synced(tmp_path: Path) -> None:
    file = RealDisk(str(tmp_path)).open("a", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        await file.sync()


async def test_a_file_of_an_earlier_process_does_not_count_as_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    disk.open("a", create=True).append([b"left in the page cache"])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    await disk.open("a").sync()
    assert len(synced) == 1


async def test_a_directory_is_synced_by_the_same_thread(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.make_directory("x")
    await asyncio.gather(disk.sync_directory("x"), disk.sync_directory("x"), disk.sync_directory(""))
    with pytest.raises(FileNotFoundError):
        await disk.sync_directory("missing")
    disk.close()
    await disk.sync_directory("x")
    disk.close()


@pytest.mark.conforms("H10", "K595-5")
async def test_a_file_replacement_syncs_its_content_and_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    disk.make_directory("x")
    (tmp_path / "x/state").write_bytes(b"old")
    (tmp_path / "x/state.tmp").write_bytes(b"left by a killed process")
    done: list[tuple[str, ...]] = []
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        fsync(fd)
        done.append(("synced", os.readlink(f"/proc/self/fd/{fd}")))

    def replaced(source: str, target: str) -> None:
        done.append(("renamed", source, Path(source).read_text()))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    await disk.replace_file("x/state", b"new")
    aside = f"{tmp_path}/x/state.tmp"
    assert done == [("synced", aside), ("renamed", aside, "new"), ("synced", f"{tmp_path}/x")]
    assert disk.list("x") == ["state"]
    disk.close()


async def test_a_partial_write_does_not_replace_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk(str(tmp_path))
    await disk.replace_file("state", b"old")
    write, room = os.pwrite, [3, 2, 0]

    def short(fd: int, data: bytes, at: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: room.pop(0)], at)

    monkeypatch.setattr(os, "pwrite", short)
    with pytest.raises(OSError, match=r"No space left on device: '.*state\.tmp'"):
        await disk.replace_file("state", b"longer")
    assert (tmp_path / "state").read_bytes() == b"old"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:2], at))
    await disk.replace_file("state", b"longer")
    assert (tmp_path / "state").read_bytes() == b"longer"
    disk.close()


async def test_the_event_loop_continues_while_the_file_system_blocks_new_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    entered, go = asyncio.Event(), threading.Event()
    loop, replace = asyncio.get_running_loop(), os.replace

    def held(source: str, target: str) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert go.wait(60)
        replace(source, target)

    monkeypatch.setattr(os, "replace", held)
    replacing = asyncio.create_task(disk.replace_file("state", b"new"))
    await entered.wait()
    assert not replacing.done()
    go.set()
    await replacing
    assert (tmp_path / "state").read_bytes() == b"new"
    disk.close()


async def test_a_cancelled_disk_operation_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldCommit(monkeypatch)
    disk = RealDisk(str(tmp_path))
    first = asyncio.create_task(disk.replace_file("state", b"first"))
    await asyncio.to_thread(held.entered.wait, 60)
    given_up = asyncio.create_task(disk.replace_file("state", b"not needed"))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    held.go.set()
    await first
    await disk.replace_file("last", b"last")
    assert (tmp_path / "state").read_bytes() == b"first"
    disk.close()


async def test_queued_operations_complete_before_the_thread_ends() -> None:
    commit = GroupCommit()
    done: list[int] = []
    waiting = [asyncio.create_task(commit.run(number, partial(done.append, number))) for number in range(5)]
    await asyncio.sleep(0)
    commit.stop()
    await asyncio.gather(*waiting)
    assert done == [0, 1, 2, 3, 4]


async def test_different_subjects_are_made_durable_at_the_same_time() -> None:
    commit = GroupCommit(threads=3)
    together = threading.Barrier(3)

    def meet() -> None:
        together.wait(60)

    await asyncio.gather(*(commit.run(number, meet) for number in range(3)))
    commit.stop()


@pytest.mark.parametrize("threads", [1, 2, 16])
async def test_calls_of_one_subject_run_in_order_and_never_at_the_same_time(threads: int) -> None:
    commit = GroupCommit(threads=threads)
    under_way, done = Counter[str](), []
    choice = random.Random(threads)

    def call(subject: str, number: int) -> None:
        under_way[subject] += 1
        assert under_way[subject] == 1
        done.append((subject, number))
        under_way[subject] -= 1

    called: dict[str, int] = Counter()
    waiting = []
    for _ in range(2000):
        subject = choice.choice("abcd")
        action = partial(call, subject, called[subject])
        called[subject] += 1
        if choice.random() < 0.2:
            await asyncio.sleep(0)
            commit.later(subject, action)
        else:
            waiting.append(asyncio.create_task(commit.run(subject, action, object())))
            await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    commit.stop()
    by_subject = {subject: [number for at, number in done if at == subject] for subject in "abcd"}
    assert by_subject == {subject: list(range(called[subject])) for subject in "abcd"}


async def test_a_range_is_sent_to_a_socket_until_it_is_full(tmp_path: Path) -> None:
    file = RealDisk(str(tmp_path)).open("a", create=True)
    data = bytes(range(256)) * 4096
    file.append([data])
    here, there = socket.socketpair()
    here.setblocking(False)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, here)
    sent = file.send_to(transport, 256, 1000)
    assert sent == 1000
    assert there.recv(2000) == data[256:1256]
    with contextlib.suppress(BlockingIOError):
        while True:
            file.send_to(transport, 0, len(data))
    transport.write(bytes(1 << 20))
    with pytest.raises(BlockingIOError):
        file.send_to(transport, 0, 1)
    transport.abort()
    there.close()


async def test_a_separate_directory_does_not_wait_for_other_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path), apart=("metadata",))
    disk.make_directory("metadata")
    entered, go = threading.Event(), threading.Event()

    def held(sync: Callable[[int], None], fd: int) -> None:
        if "/metadata" not in os.readlink(f"/proc/self/fd/{fd}"):
            entered.set()
            assert go.wait(60)
        sync(fd)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(held, getattr(os, name)))
    others = [disk.open(f"partition-{number}", create=True) for number in range(100)]
    syncs = [asyncio.create_task(file.sync()) for file in others]
    await asyncio.to_thread(entered.wait)
    log = disk.open("metadata/log", create=True)
    log.append([b"a vote"])
    await log.sync()
    await disk.sync_directory("metadata")
    assert not any(sync.done() for sync in syncs), "a hundred partitions wait, the vote did not"
    go.set()
    await asyncio.gather(*syncs)
    log.append([b"more"])
    log.close()
    disk.close()


async def test_another_processs_bytes_are_written_before_they_are_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 10_000  # more than is written at once
    (tmp_path / "a").write_bytes(content)
    file = RealDisk(str(tmp_path)).open("a")
    done: list[tuple[int, int] | str] = []
    pwrite, fsync = os.pwrite, os.fsync

    def written(fd: int, data: bytes, position: int) -> int:
        done.append((position, len(data)))
        return pwrite(fd, data, position)

    def synced(fd: int) -> None:
        done.append("sync")
        fsync(fd)

    monkeypatch.setattr(os, "pwrite", written)
    monkeypatch.setattr(os, "fsync", synced)
    await file.sync_again(1000)
    *pieces, last = done
    assert last == "sync"
    assert sum(int(piece[1]) for piece in pieces) == len(content) - 1000
    assert pieces[0][0] == 1000
    assert (tmp_path / "a").read_bytes() == content
    await file.sync()
    assert done[-1] == "sync", "there is nothing more to sync"
    assert done.count("sync") == 1
