"""A disk that loses unsynced data like ext4 and xfs (docs/nodes.md: "What a power cut leaves").

Theory of operation. The model is a journalling file system with delayed allocation:
- names and sizes change in the page cache and become durable together, at the next commit of the journal. Every sync,
  of a file or of a directory, commits; so may the kernel, at any time;
- bytes become durable by a sync of their file. A commit without it leaves appended bytes out, or includes whatever the
  kernel happened to write back: a torn tail;
- replacing a file by rename, or rewriting it from zero, makes the kernel write the new bytes first (where it does so).
`STRICT` gives only what the Disk port promises: a name becomes durable only by a sync of its directory.
"""

import asyncio
import contextvars
import errno
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from broker.ports import ASIDE, Buffer, File, parent
from history.damage import Damage
from simulator.conditions import Conditions
from simulator.crash_points import CrashPoints, operation, process_has_ended
from simulator.disk_faults import DamageListener, DiskFaults, Flip
from simulator.host import CURRENT_HOST, HostContext
from simulator.loop import VirtualLoop
from simulator.network import SimulatedTransport

# ---- One file of a simulated disk: its content in the page cache, and the durable part of it.

PAGE = 4096
NOWHERE = 1 << 62


class Tear(Enum):
    """The form of appended, unsynced bytes after a commit of the journal."""

    LOST = "lost"
    PREFIX = "a clean prefix, whole pages"
    HOLE = "a hole of zeros, then data"
    ZEROS = "zeros to the end of the file"
    RECORD = "a prefix that ends anywhere"
    COMPLETE = "complete"


# Frequencies counted in 150 power cuts of ext4; the most frequent result, nothing written back, is separate.
WEIGHTS = {Tear.LOST: 75, Tear.PREFIX: 51, Tear.HOLE: 46, Tear.ZEROS: 17, Tear.RECORD: 14, Tear.COMPLETE: 22}


def choose_tear(rng: random.Random) -> Tear:
    """A random form of tearing, with the observed frequencies."""
    (tear,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return tear


class Inode:
    """A file's bytes in the page cache (`data`), and the information that determines them after a power cut.

    The durable content is `_image`, or, while it is the same, the first `_durable` bytes of `data` and zeros up to
    `_zeros_to`. Its first `_kept` bytes still belong to the file; beyond them the file was truncated, which becomes
    durable with the next commit.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.allocate_on_commit = False
        """Whether the kernel writes all bytes before the next commit."""
        self._image: bytes | None = None
        self._durable = 0
        self._kept = 0
        self._zeros_to = 0
        self._cut_block = -1  # the block of the last truncation: it is written before that is committed
        self._extended = 0  # a size that was set and not yet filled by a sync
        self._torn: bytes | None = None
        self._sync_image: bytes | None = None
        self._sync_size = -1  # -1: no sync is in progress
        self._sync_kept = 0
        self._forgotten: list[
            tuple[int, int]
        ] = []  # ranges that the kernel considers clean, and that are not on the disk
        self._rewritten = self._sync_rewritten = (
            NOWHERE  # from here on everything is dirty again, or being synced again
        )

    @classmethod
    def holding(cls, data: bytes) -> "Inode":
        """A file that is on the disk with all its bytes."""
        inode = cls()
        inode.data += data
        inode._make_durable()
        return inode

    @property
    def durable(self) -> bytes:
        """The content that is certain to remain after a power cut."""
        if self._image is not None:
            return self._image
        return bytes(self.data[: self._durable]) + bytes(max(0, self._zeros_to - self._durable))

    @property
    def durable_size(self) -> int:
        """How many of its first bytes, in their current form, are certain to remain after a power cut."""
        return min([self._kept, *(start for start, _ in self._forgotten)])

    def append(self, buffers: Sequence[Buffer]) -> int:
        for buffer in buffers:
            self.data += buffer
        return len(self.data)

    def truncate(self, length: int) -> None:
        if length > len(self.data):
            self.data += bytes(length - len(self.data))
            self._extended = length
            return
        if length < self._sync_kept and self._sync_size >= 0:
            if self._sync_image is None:
                self._sync_image = self._without_forgotten(self.data[: self._sync_size], self._sync_rewritten)
            self._sync_kept = length
        if length < self._kept:
            if self._image is None:
                self._image = self.durable
            self._kept = length
            self._cut_block = length // PAGE if length % PAGE else -1
        self._extended = min(self._extended, length)
        self._forgotten = [(start, min(end, length)) for start, end in self._forgotten if start < length]
        del self.data[length:]

    # --- syncs

    def begin_sync(self) -> None:
        """Start a sync: later writes are not part of it."""
        self._sync_size = self._sync_kept = len(self.data)
        self._sync_image = None
        self._sync_rewritten, self._rewritten = self._rewritten, NOWHERE

    def finish_sync(self) -> None:
        """The content at the start of the sync becomes durable; a truncation since then does not, yet."""
        limit = self._sync_rewritten
        self._forgotten = [(start, min(end, limit)) for start, end in self._forgotten if start < limit]
        self._image = self._sync_image
        if self._forgotten:
            image = self.data[: self._sync_size] if self._image is None else self._image
            self._image = self._without_forgotten(image)
        self._durable = self._sync_size
        self._kept = self._sync_kept
        self._zeros_to, self._torn = 0, None
        was_cut = self._sync_image is not None and self._sync_kept % PAGE
        self._cut_block = self._sync_kept // PAGE if was_cut else -1
        if self._extended <= self._sync_size:
            self._extended = 0
        if self._image is None and len(self.data) == self._durable:
            self.allocate_on_commit = False
        self.fail_sync()

    def fail_sync(self) -> None:
        """The sync in progress has no effect."""
        self._sync_size, self._sync_image = -1, None

    def forget_sync(self) -> None:
        """The kernel reports the error once and considers the pages clean ("fsyncgate"): a later sync succeeds, but the
        data of this one is not on the disk."""
        if self._sync_kept > self._kept:
            self._forgotten.append((self._kept, self._sync_kept))
        self.fail_sync()

    def write_again(self, start: int) -> None:
        """Write the bytes from `start` on again, unchanged: the kernel knows that they are not on the disk, and the
        next sync writes them unless it fails as well."""
        self._rewritten = min(self._rewritten, start)

    def flip(self, at: int, bit: int) -> None:
        """Flip a bit, on the disk and therefore in later reads."""
        self.data[at] ^= 1 << bit
        if self._image is not None and at < len(self._image):
            image = bytearray(self._image)
            image[at] ^= 1 << bit
            self._image = bytes(image)

    def _without_forgotten(self, content: bytes | bytearray, limit: int = NOWHERE) -> bytes:
        """The form of this content on the disk, with zeros in place of forgotten pages. From `limit` on the bytes have
        been written again."""
        written = bytearray(content)
        for start, end in self._forgotten:
            end = min(end, limit, len(written))
            written[start:end] = bytes(max(0, end - start))
        return bytes(written)

    # --- the journal

    def commit(self, *, sizes_first: bool = False) -> None:
        """Truncations and sizes become durable; bytes only if the kernel has written them. `sizes_first`: as on ext4,
        bytes appended to an existing block count for the file's size before they are written, as zeros; except in the
        block of a truncation, which is written first."""
        grown_to = self._extended
        if sizes_first and self._kept % PAGE and len(self.data) > self._kept:
            grown_to = max(grown_to, min(len(self.data), self._kept + PAGE - self._kept % PAGE))
        if self.allocate_on_commit:
            self._make_durable()
            if self._forgotten:  # clean pages are never written
                self._image = self._without_forgotten(self.data)
        elif sizes_first and self._kept // PAGE == self._cut_block and grown_to > self._kept and not self._forgotten:
            self._image, self._cut_block, self._zeros_to = None, -1, 0
            self._durable = self._kept = grown_to
        elif self._torn is not None:
            self._image, self._durable = self._without_forgotten(self._torn), len(self._torn)
        elif self._image is not None:
            # A size that was set without a sync reads as zeros.
            written = bytes(self.data[: self._kept]) + bytes(max(0, grown_to - self._kept))
            self._image = self._without_forgotten(written)
            self._durable = len(self._image)
        elif grown_to > self._kept:
            self._zeros_to = grown_to

    def write_range(self, start: int, end: int) -> None:
        """The kernel writes these bytes, on its own or on request (`sync_file_range`): the next commit includes them,
        with zeros for unwritten bytes before them."""
        written = bytearray(self.data[: self._kept] if self._torn is None else self._torn)
        start, end = max(start, self._kept), min(end, len(self.data))
        if start < end:
            written += bytes(max(0, end - len(written)))
            written[start:end] = self.data[start:end]
            self._torn = bytes(written)

    def write_back(self, tear: Tear, rng: random.Random) -> None:
        """The kernel writes some of the dirty bytes just before a power cut; a commit includes them."""
        start, end = self._kept, len(self.data)
        if start >= end or tear is Tear.LOST:
            return
        tail = bytearray(self.data[start:])
        if tear is Tear.PREFIX:
            pages = range(PAGE * (start // PAGE + 1), end, PAGE)
            tail = tail[: (rng.choice(pages) if pages else start) - start]
        elif tear is Tear.HOLE:
            hole_start = rng.randrange(len(tail))
            hole_end = rng.randint(hole_start + 1, len(tail))
            tail[hole_start:hole_end] = bytes(hole_end - hole_start)
        elif tear is Tear.ZEROS:
            hole_start = rng.randrange(len(tail))
            tail[hole_start:] = bytes(len(tail) - hole_start)
        elif tear is Tear.RECORD:
            tail = tail[: rng.randrange(len(tail))]
        self._torn = bytes(self.data[:start] + tail)

    def revert(self) -> None:
        """After a power cut the page cache is empty: the file has its durable content."""
        if self._image is not None:
            self.data = bytearray(self._image)
        else:
            del self.data[self._durable :]
            self.data += bytes(max(0, self._zeros_to - self._durable))
        self._forgotten.clear()
        self._rewritten = NOWHERE
        self._make_durable()
        self.fail_sync()

    def _make_durable(self) -> None:
        self._image = self._torn = None
        self._durable = self._kept = len(self.data)
        self._extended = self._zeros_to = 0
        self._cut_block = -1
        self.allocate_on_commit = False


HIGHEST_SEND = 1 << 20


class FileSystem(Enum):
    """The file system of a machine's disk."""

    EXT4 = "ext4"
    XFS = "xfs"
    STRICT = "strict"


class SimulatedFile:
    """An open file. A sync that failed is final, as with the real disk."""

    def __init__(self, disk: "SimulatedDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._rewritten = False
        self._closed = False
        self._failure: int | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def crash_points(self) -> CrashPoints | None:
        return self._disk.crash_points

    def size(self) -> int:
        return len(self._inode.data)

    @operation
    def append(self, buffers: Sequence[Buffer]) -> int:
        self._refuse_after_failure()
        self._disk.faults.take(sum(memoryview(buffer).nbytes for buffer in buffers), self._path)
        return self._inode.append(buffers)

    @operation
    def read(self, offset: int, length: int) -> bytes:
        return bytes(memoryview(self._inode.data)[offset : offset + length])

    @operation
    def truncate(self, length: int) -> None:
        self._refuse_after_failure()
        if length == 0 and self._inode.data:
            self._rewritten = True
        self._inode.truncate(length)

    @operation
    async def sync(self, *, in_background: bool = False) -> None:  # noqa: ARG002 - here syncs run one at a time
        self._refuse_after_failure()
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        try:
            await self._disk.commit_later(self._inode, self._path)
        except OSError as failure:
            self._failure = failure.errno or errno.EIO
            raise

    async def sync_again(self, start: int) -> None:
        self._inode.write_again(start)
        await self.sync()

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        assert isinstance(transport, SimulatedTransport)
        room = min(length, transport.room(), HIGHEST_SEND)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = self.read(offset, room)
        transport.write(data)
        return len(data)

    def close(self) -> None:
        self._closed = True
        if self._rewritten and not process_has_ended():
            # A file that was rewritten from zero is written out when it is closed (auto_da_alloc, and xfs alike).
            self._inode.allocate_on_commit = True
            self._rewritten = False

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure, "an earlier sync failed; the file is given up", self._path)


class _Job:
    """One sync, running or queued: its waiters, and the processes that they belong to."""

    def __init__(self, inode: Inode | None, path: str) -> None:
        self.inode = inode
        self.path = path
        self.waiters: list[asyncio.Future[None]] = []
        self.hosts: set[HostContext | None] = set()


Content = list[tuple[str, bytes | None]]
"""Paths with their content, None for a directory, parents first."""


class SimulatedDisk:
    """The disk of one machine. It survives the machine's processes; power cuts leave its synced data."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        conditions: Conditions | None = None,
        file_system: FileSystem = FileSystem.EXT4,
    ) -> None:
        self.file_system = file_system
        self.faults = DiskFaults()
        self.listener = DamageListener()
        self.crash_points: CrashPoints | None = None
        self._loop = loop
        self._rng = rng
        self._conditions = conditions or Conditions()
        self._context = contextvars.Context()
        self._names: dict[str, Inode | None] = {"": None}  # None: a directory
        self._durable_names: dict[str, Inode | None] = {"": None}
        self._moved: list[tuple[str, str]] = []
        """Directories with a rename (from, to) that is not yet durable. Their durable content has two names until then;
        it does not remain under the newer one, because that name is not durable (`_stays`)."""
        self._queue: dict[object, _Job] = {}
        self._running: _Job | None = None
        self._held: _Job | None = None
        self._power_cuts = 0
        self._flips: list[tuple[Flip, int]] = []  # each with its byte's previous value
        self._locks: dict[str, HostContext | None] = {}
        self._given_up: dict[str, tuple[asyncio.Task[None], HostContext | None]] = {}
        """Replacements of files without a waiter, and the processes whose threads finish them."""

    async def sync_everything(self) -> None:
        """syncfs: everything in the page cache becomes durable. Raises `OSError`."""
        files = [(path, inode) for path, inode in sorted(self._names.items(), key=_by_path) if inode is not None]
        await asyncio.gather(*(self.commit_later(inode, path) for path, inode in files))
        await self.sync_directory("")

    def files(self) -> Content:
        """Every path with its content as processes see it, None for a directory, parents first."""
        return [
            (path, None if inode is None else bytes(inode.data))
            for path, inode in sorted(self._names.items(), key=_by_path)
            if path
        ]

    def durable(self, path: str) -> bytes | None:
        """A file's content that is certain to remain after a power cut; None if not even its name is."""
        inode = self._durable_names.get(path)
        return None if inode is None or not self._stays(path) else inode.durable

    def durable_size(self, path: str) -> int:
        """How many of a file's first bytes, as processes see them, are certain to remain after a power cut."""
        inode = self._names.get(path)
        stays = inode is not None and self._durable_names.get(path) is inode and self._stays(path)
        return inode.durable_size if inode is not None and stays else 0

    def _stays(self, path: str) -> bool:
        """Whether a name is certain to remain after a power cut: it and the directories above it are durable."""
        while path and path in self._durable_names:
            path = parent(path)
        return not path

    # --- the Disk port

    def open(self, path: str, *, create: bool = False) -> File:
        inode = self._names.get(path)
        if inode is None:
            if path in self._names:
                raise _error(errno.EISDIR, path)
            if not create:
                raise _error(errno.ENOENT, path)
            self._check_parent(path)
            inode = self._names[path] = Inode()
        return SimulatedFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return path in self._names

    def list(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        inside = (path[len(prefix) :] for path in self._names if path.startswith(prefix) and path != "")
        return sorted(name for name in inside if "/" not in name)

    @operation
    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self._names.setdefault("/".join(parts[:end]), None)

    @operation
    def rename(self, source: str, target: str) -> None:
        if source in self._names and self._names[source] is None:
            self._rename_directory(source, target)
            return
        inode = self._file_at(source)
        self._check_parent(target)
        replaced = self._names.get(target)
        if replaced is not None and self.file_system is FileSystem.EXT4:
            inode.allocate_on_commit = True
        del self._names[source]
        self._names[target] = inode

    def _rename_directory(self, source: str, target: str) -> None:
        """Its whole content moves with it, at once, also on the disk."""
        self._check_parent(target)
        if _lies_in(target, source):
            raise _error(errno.EINVAL, target)
        if self._names.get(target) is not None:
            raise _error(errno.ENOTDIR, target)
        if self.list(target):
            raise _error(errno.ENOTEMPTY, target)
        for name in [name for name in self._names if _lies_in(name, source)]:
            self._names[target + name.removeprefix(source)] = self._names.pop(name)
        for name in [name for name in self._durable_names if name != source and _lies_in(name, source)]:
            self._durable_names[target + name.removeprefix(source)] = self._durable_names[name]
        self._moved.append((source, target))

    @operation
    async def replace_file(self, path: str, content: bytes) -> None:
        """As on the real disk: its thread finishes a started replacement after a cancellation, and starts no other."""
        while path in self._given_up:
            await asyncio.wait([self._given_up[path][0]])
        file = self.open(path + ASIDE, create=True)
        aside = self._file_at(path + ASIDE)
        try:
            file.truncate(0)
            file.append([content])
            await file.sync()
        except asyncio.CancelledError:
            if aside not in self._queue:
                task = self._loop.create_task(self._replace_alone(path, aside, content))
                self._given_up[path] = task, CURRENT_HOST.get()
            raise
        finally:
            file.close()
        self.rename(path + ASIDE, path)
        await self.sync_directory(parent(path))

    async def _replace_alone(self, path: str, aside: Inode, content: bytes) -> None:
        """Finish a replacement after its cancellation, without reporting the result."""
        try:
            if self._running is not None and self._running.inode is aside:
                synced: asyncio.Future[None] = self._loop.create_future()
                self._running.waiters.append(synced)
                await synced
            if aside.durable == content:
                self.rename(path + ASIDE, path)
                await self.sync_directory(parent(path))
        except OSError:
            pass
        finally:
            self._given_up.pop(path, None)

    def overwrite(self, path: str, content: bytes) -> None:
        """Write over a whole file, without a sync. It takes the space by which the file grows. Raises `OSError`."""
        inode = self._file_at(path)
        self.faults.take(max(0, len(content) - len(inode.data)), path)
        inode.truncate(0)
        inode.append([content])

    @operation
    def unlink(self, path: str) -> None:
        self._file_at(path)
        del self._names[path]

    @operation
    def remove_directory(self, path: str) -> None:
        if path not in self._names:
            raise _error(errno.ENOENT, path)
        if self.list(path):
            raise _error(errno.ENOTEMPTY, path)
        del self._names[path]

    @operation
    async def sync_directory(self, path: str) -> None:
        if path not in self._names:
            raise _error(errno.ENOENT, path)
        await self.commit_later(None, path)

    def lock(self, path: str) -> None:
        holder = self._locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self._locks[path] = CURRENT_HOST.get()

    # --- syncs: one at a time; requests made while one is queued share it

    async def commit_later(self, inode: Inode | None, path: str) -> None:
        """Make a file, or the names of a directory, durable. Raises `OSError`."""
        key: object = path if inode is None else inode
        job = self._queue.get(key)
        if job is None:
            job = self._queue[key] = _Job(inode, path)
        waiter: asyncio.Future[None] = self._loop.create_future()
        job.waiters.append(waiter)
        job.hosts.add(CURRENT_HOST.get())
        if self._running is None:
            self._begin_next()
        await waiter

    def process_died(self, host: HostContext) -> None:
        """Drop queued syncs that only a killed process had requested; finish those that run in the kernel."""
        self._queue = {key: job for key, job in self._queue.items() if job.hosts != {host}}
        self._given_up = {path: entry for path, entry in self._given_up.items() if entry[1] is not host}

    def _begin_next(self) -> None:
        if not self._queue:
            self._running = None
            return
        job = self._running = self._queue.pop(next(iter(self._queue)))
        if job.inode is not None:
            job.inode.begin_sync()
        conditions = self._conditions
        slow = self._rng.random() < conditions.sync_spike_probability
        latency = self._rng.uniform(*(conditions.sync_spike_s if slow else conditions.sync_latency_s))
        latency += self.faults.slow_s
        self._loop.call_later(latency, self._finish, job, self._power_cuts, context=self._context)

    def _finish(self, job: _Job, power_cuts: int) -> None:
        if power_cuts != self._power_cuts:
            return
        if self.faults.hung:
            self._held = job
            return
        failed = self.faults.failing
        if failed:
            self.listener.before(Damage.UNSYNCED)
            self.faults.failed_syncs += 1
            if job.inode is not None:
                job.inode.forget_sync()
        else:
            self._apply(job)
        self._begin_next()
        for waiter in job.waiters:
            if waiter.done():
                continue
            if failed:
                waiter.set_exception(OSError(errno.EIO, os.strerror(errno.EIO), job.path))
            else:
                waiter.set_result(None)

    def release(self) -> None:
        """End a hang: the held sync continues, and the queued ones after it."""
        self.faults.hung = False
        job, self._held = self._held, None
        if job is not None:
            self._loop.call_soon(self._finish, job, self._power_cuts, context=self._context)

    def _apply(self, job: _Job) -> None:
        if job.inode is not None:
            job.inode.finish_sync()
        if self.file_system is not FileSystem.STRICT:
            self.commit()
        elif job.inode is None:
            self._commit_directory(job.path)

    def write_range(self, path: str, start: int, end: int) -> None:
        """Let the kernel write these bytes of a file; neither its size nor the bytes become durable."""
        self._file_at(path).write_range(start, end)

    # --- the file system's journal

    def commit(self) -> None:
        """Commit the journal: current names and sizes, and the bytes that the kernel has written."""
        sizes_first = self.file_system is FileSystem.EXT4
        for inode in _inodes(self._names):
            inode.commit(sizes_first=sizes_first)
        self._durable_names = dict(self._names)
        self._moved.clear()

    def _commit_directory(self, path: str) -> None:
        """Make the names of one directory durable, as the port promises, and no others."""
        if path not in self._names:
            return  # it was removed or renamed since the request
        for move in [move for move in self._moved if path in map(parent, move)]:
            self._move_durably(*move)
            self._moved.remove(move)
        prefix = f"{path}/" if path else ""

        def inside(name: str) -> bool:
            return name.startswith(prefix) and "/" not in name[len(prefix) :] and name != ""

        for name in [name for name in self._durable_names if inside(name) and name not in self._names]:
            del self._durable_names[name]
        for name, inode in self._names.items():
            if inside(name):
                self._durable_names[name] = inode

    def _move_durably(self, source: str, target: str) -> None:
        """Remove the old name of a renamed directory; a new directory with that name keeps only its own content."""
        for name in [name for name in self._durable_names if _lies_in(name, source)]:
            if name == source or name not in self._names or self._names[name] is not self._durable_names[name]:
                del self._durable_names[name]
        self._durable_names[target] = None

    def power_loss(self, rng: random.Random, *, commit: bool | None = None, tear: Tear | None = None) -> None:
        """Lose what is not durable. The journal may have been committed just before, and tails may be torn.

        `rng` decides this; `commit` and `tear` override it.
        """
        self.listener.before(Damage.UNSYNCED)
        self._power_cuts += 1
        self._queue.clear()
        self._given_up.clear()
        job, self._running, self._held = self._running, None, None
        if job is not None and rng.random() < 0.5:
            self._apply(job)  # it had reached the platter, but had not been reported
        if rng.random() < 0.5 if commit is None else commit:
            for inode in _inodes(self._names):
                inode.write_back(choose_tear(rng) if tear is None else tear, rng)
            if self.file_system is FileSystem.STRICT:
                self._commit_some(rng)
            else:
                self.commit()
        # The content of a directory whose name was not durable is lost with it.
        self._durable_names = {name: inode for name, inode in self._durable_names.items() if self._stays(name)}
        self._names = dict(self._durable_names)
        self._moved.clear()
        for inode in _inodes(self._names):
            inode.revert()

    # --- changes of a disk that is not in use

    def flip(self, rng: random.Random, paths: Sequence[str]) -> Flip | None:
        """Flip one bit of one of these files, at rest; None if all are empty."""
        filled = [path for path in paths if self._file_at(path).data]
        if not filled:
            return None
        self.listener.before(Damage.SYNCED)
        path = rng.choice(filled)
        inode = self._file_at(path)
        flip = Flip(path, rng.randrange(len(inode.data)), rng.randrange(8))
        self._flips.append((flip, inode.data[flip.at]))
        inode.flip(flip.at, flip.bit)
        return flip

    def mend(self) -> int:
        """Flip back every bit whose byte is still unchanged; returns how many there were."""
        mended = self._turn_back()
        self._flips.clear()
        return len(mended)

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Temporarily undo all flips: the broker is checked by what it wrote, not by what rotted."""
        mended = self._turn_back()
        try:
            yield
        finally:
            for flip in reversed(mended):
                self._file_at(flip.path).flip(flip.at, flip.bit)

    def _turn_back(self) -> Sequence[Flip]:
        """Undo flips, the last one first: two may be in one byte."""
        mended = []
        for flip, written in reversed(self._flips):
            inode = self._names.get(flip.path)
            if inode is not None and flip.at < len(inode.data) and inode.data[flip.at] == written ^ (1 << flip.bit):
                inode.flip(flip.at, flip.bit)
                mended.append(flip)
        return mended

    @property
    def is_whole(self) -> bool:
        """Whether the disk has no fault and no flipped bit."""
        faults = self.faults
        return not (faults.failing or faults.hung or faults.slow_s or self._flips or faults.free_bytes is not None)

    def has_rotted(self, directory: str) -> bool:
        """Whether a bit of a file in a directory is flipped."""
        return any(flip.path.startswith(f"{directory}/") for flip, _ in self._flips)

    def image(self) -> Content:
        """A copy of all durable data, in the form of `files`."""
        return [
            (path, None if inode is None else inode.durable)
            for path, inode in sorted(self._durable_names.items(), key=_by_path)
            if path and self._stays(path)
        ]

    def replace(self, content: Content) -> None:
        """Replace the disk by an empty one or by an older copy; all of it is durable. No process may run."""
        damage = Damage.NEWER_STATE if any(data is not None for _, data in content) else Damage.DISK
        self.listener.before(damage)
        self._power_cuts += 1
        self._queue.clear()
        self._given_up.clear()
        self._running = self._held = None
        self._locks.clear()
        self._flips.clear()
        self._moved.clear()
        self._names = {"": None}
        for path, data in content:
            self._names[path] = None if data is None else Inode.holding(data)
        self._durable_names = dict(self._names)
        self.listener.after(damage)

    def _commit_some(self, rng: random.Random) -> None:
        """Make a random subset of the changed names durable, for a file system without promises."""
        for inode in _inodes(self._names):
            inode.commit()
        while self._moved and rng.random() < 0.5:
            self._move_durably(*self._moved.pop(0))
        still = [name for move in self._moved for name in move]
        for name in sorted({**self._durable_names, **self._names}):
            if any(_lies_in(name, directory) for directory in still):
                continue  # the rename is atomic: everything is at its old place
            if rng.random() < 0.5 and parent(name) in self._durable_names:
                if name in self._names:
                    self._durable_names[name] = self._names[name]
                elif self._durable_names[name] is not None:
                    del self._durable_names[name]

    def _check_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._names:
            raise _error(errno.ENOENT, path)
        if self._names[parent] is not None:
            raise _error(errno.ENOTDIR, path)

    def _file_at(self, path: str) -> Inode:
        inode = self._names.get(path)
        if inode is None:
            raise _error(errno.ENOENT, path)
        return inode


def _inodes(names: dict[str, Inode | None]) -> list[Inode]:
    """The files among the names, in a deterministic order."""
    return [inode for _, inode in sorted(names.items(), key=_by_path) if inode is not None]


def _lies_in(path: str, directory: str) -> bool:
    """Whether a path is that of a directory, or of something below it."""
    return path == directory or path.startswith(f"{directory}/")


def _by_path(entry: tuple[str, Inode | None]) -> str:
    return entry[0]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
