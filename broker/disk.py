"""The real disk: files of the kernel, made durable by threads that sync in groups.

Theory of operation. The loop's thread only writes to the page cache. Data that must be durable are handed to threads
that call fsync; requests for a file whose sync is under way are served together by its next call. Different files are
synced at the same time, because one commit of the file system's journal serves all of them: a thousand new partitions
need 1 s in place of 14. A directory may have its own thread: a vote must not wait until a thousand new partitions are
durable. Files are replaced in those threads, too: the file system blocks changes of names while it commits its journal,
and the loop must not wait for that many times a second. Complete segments have a further thread: each may have a
gigabyte to write, and no leader may wait for that.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial

from broker.descriptors import with_descriptors
from broker.ports import ASIDE, Buffer, File

WRITTEN_AGAIN_AT_ONCE = 1 << 20  # bytes
MOST_BUFFERS = 1024  # of one vectored write (IOV_MAX of Linux)
SYNCED_AT_ONCE = (
    16  # files and directories; more are not faster (ext4, 200 new partitions: 14.3 ms with 1, 1.0 with 16)
)


class _Job:
    """One call of fsync and all requests that wait for it."""

    __slots__ = ("action", "loop", "waiters")

    def __init__(self, action: Callable[[], None], loop: asyncio.AbstractEventLoop | None) -> None:
        self.action = action
        self.loop = loop
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def is_wanted(self) -> bool:
        """Whether a request still waits for it, or it was queued without one."""
        return self.loop is None or not all(waiter.done() for waiter in self.waiters)

    def settle(self, error: OSError | None) -> None:
        """In the loop's thread: report the result to the waiting requests."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class GroupCommit:
    """Threads that make things durable, in the order of their first requests.

    Every call has a subject, such as a file. Invariants: a request never joins a call that has already started, because
    that call may miss the last writes. Two calls of one subject never run at the same time. Every waiting request is
    answered, whatever the call raises; the threads do not end while requests may arrive. A call for which no request
    waits any more is not started.
    """

    def __init__(self, name: str = "group-commit", *, threads: int = 1) -> None:
        """`threads`: the number of calls that may run at the same time."""
        self._name = name
        self._most_threads = threads
        self._changed = threading.Condition()
        self._queue: dict[tuple[object, object, object], _Job] = {}
        """By subject, kind of call, and loop of the requests."""
        self._busy: set[object] = set()
        """The subjects whose calls have started."""
        self._threads: list[threading.Thread] = []
        self._stopping = False

    async def run(self, subject: object, action: Callable[[], None], kind: object = None) -> None:
        """Call `action` in a thread, once for all requests of its subject and kind before it starts. Raises `OSError`:
        the action's own, EIO for any other exception, EAGAIN when the system has no thread left."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        key = subject, kind, loop
        with self._changed:
            job = self._queue.get(key)
            if job is None:
                self._wake()
                job = self._queue[key] = _Job(action, loop)
            job.waiters.append(waiter)
        await waiter

    def later(self, subject: object, action: Callable[[], None]) -> None:
        """Call `action` after everything that is queued for its subject; at once without a thread. The caller does not
        wait."""
        with self._changed:
            if self._threads:
                self._wake()
                self._queue[subject, action, None] = _Job(action, None)
                return
        action()

    def stop(self) -> None:
        """Finish what is queued and end the threads."""
        with self._changed:
            threads, self._threads = self._threads, []
            self._stopping = True
            self._changed.notify_all()
        for thread in threads:
            thread.join()

    def _wake(self) -> None:
        """Requires the lock, so that the threads see the queue only after the caller has filled it."""
        if not self._threads or len(self._threads) < min(self._most_threads, len(self._busy) + len(self._queue) + 1):
            self._stopping = False
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as failure:
                if not self._threads:
                    raise OSError(errno.EAGAIN, f"no thread for syncs: {failure}") from failure
            else:
                self._threads.append(thread)
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while (key := self._next()) is None:
                    if self._stopping and not self._queue:
                        return
                    self._changed.wait()
                job, subject = self._queue.pop(key), key[0]
                self._busy.add(subject)
            error = _failure_of(job.action) if job.is_wanted else None
            with self._changed:
                self._busy.remove(subject)
                if self._queue:
                    self._changed.notify_all()  # the next call of the subject, or the end of the threads
            if job.loop is not None and job.is_wanted:
                with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits any more
                    job.loop.call_soon_threadsafe(job.settle, error)

    def _next(self) -> tuple[object, object, object] | None:
        """The first queued call whose subject is free. Requires the lock."""
        return next((key for key in self._queue if key[0] not in self._busy), None)


def _failure_of(action: Callable[[], None]) -> OSError | None:
    """The error of calling `action`, as an `OSError`; None on success."""
    try:
        action()
    except OSError as failure:
        return failure
    except Exception as failure:
        error = OSError(errno.EIO, f"a sync met {type(failure).__name__}: {failure}")
        error.__cause__ = failure
        return error
    return None


class RealFile:
    """An open file of the kernel.

    A failed sync is final (fsyncgate): the kernel drops the dirty pages and reports the next sync as successful. The
    content of the file is then unknown, and no further append, cut or sync is accepted.
    """

    __slots__ = (
        "_background",
        "_changes",
        "_closed",
        "_commit",
        "_durable_changes",
        "_failure",
        "_fd",
        "_path",
        "_size",
        "_syncing",
        "_went_to_background",
        "_with_metadata",
    )

    def __init__(self, path: str, fd: int, commit: GroupCommit, background: GroupCommit) -> None:
        self._path = path
        self._fd = fd
        self._commit = commit
        self._background = background
        self._went_to_background = False
        # The kernel reports a failed write once: of two concurrent syncs one would succeed without the bytes.
        self._syncing = threading.Lock()
        self._closed = False
        self._size = os.fstat(fd).st_size
        # A killed process may have left dirty pages: a file counts as changed until this process has synced it.
        self._changes = 1
        self._durable_changes = 0
        self._with_metadata = True
        self._failure: int | None = None  # errno

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._refuse_after_failure()
        start = self._size
        try:
            end = self._write(buffers, start)
        except OSError:
            self._cut_back(start)
            raise
        self._changes += 1
        self._size = end
        return end

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def truncate(self, length: int) -> None:
        self._refuse_after_failure()
        os.ftruncate(self._fd, length)
        self._changes += 1
        self._with_metadata = True
        self._size = length

    async def sync(self, *, in_background: bool = False) -> None:
        self._refuse_after_failure()
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        changes = self._changes
        if changes == self._durable_changes:
            return
        self._went_to_background |= in_background
        commit = self._background if in_background else self._commit
        await commit.run(self, self._make_durable)
        self._durable_changes = max(self._durable_changes, changes)

    async def sync_again(self, start: int) -> None:
        self._refuse_after_failure()
        changes = self._changes

        def write_and_sync() -> None:
            for position in range(start, self._size, WRITTEN_AGAIN_AT_ONCE):
                self._write([os.pread(self._fd, WRITTEN_AGAIN_AT_ONCE, position)], position)
            self._make_durable()

        await self._commit.run(self, write_and_sync, "again")
        self._durable_changes = max(self._durable_changes, changes)

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        if transport.get_write_buffer_size():
            raise BlockingIOError("earlier bytes wait to be sent")
        return os.sendfile(transport.get_extra_info("socket").fileno(), self._fd, offset, length)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # After syncs that may be under way: none may reach another file that got the same descriptor.
            if self._went_to_background:
                self._background.later(self, lambda: self._commit.later(self, self._close))
            else:
                self._commit.later(self, self._close)

    def __del__(self) -> None:
        # No code can use the file any more, and no sync is under way: that would hold a reference.
        if not self._closed:
            self._closed = True
            os.close(self._fd)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            reason = f"{os.strerror(self._failure)} (an earlier sync failed; the file is not used any more)"
            raise OSError(self._failure, reason, self._path)

    def _make_durable(self) -> None:
        """In the thread of a `GroupCommit`."""
        with self._syncing:
            self._refuse_after_failure()
            with_metadata, self._with_metadata = self._with_metadata, False
            try:
                if with_metadata:
                    os.fsync(self._fd)
                else:
                    os.fdatasync(self._fd)
            except OSError as failure:
                self._failure = failure.errno or errno.EIO
                raise OSError(self._failure, f"sync failed: {failure.strerror}", self._path) from failure

    def _write(self, buffers: Sequence[Buffer], position: int) -> int:
        size = sum(map(len, buffers))
        if len(buffers) == 1:
            written = os.pwrite(self._fd, buffers[0], position)
        elif len(buffers) <= MOST_BUFFERS:
            written = os.pwritev(self._fd, buffers, position)
        else:
            written = 0
        if written < size:  # the disk is nearly full, or the kernel takes less at once
            unwritten = memoryview(b"".join(buffers))
            while written < size:
                written += os.pwrite(self._fd, unwritten[written:], position + written)
        return position + size

    def _cut_back(self, length: int) -> None:
        """After a failed append: remove what it has written."""
        try:
            os.ftruncate(self._fd, length)
        except OSError as failure:
            self._failure = failure.errno or errno.EIO


class RealDisk:
    """A directory of the real file system; `root` is created when it is missing.

    Syncs below a directory in `apart` (a name in the root) do not wait for other syncs.
    """

    def __init__(self, root: str, *, apart: Collection[str] = ()) -> None:
        self._root = os.path.abspath(root)
        os.makedirs(self._root, exist_ok=True)
        self._commit = GroupCommit(threads=SYNCED_AT_ONCE)
        self._background = GroupCommit("background-sync")
        self._apart = {directory: GroupCommit() for directory in apart}
        self._locks: list[int] = []

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._root

    def open(self, path: str, *, create: bool = False) -> File:
        fd = os.open(self._at(path), os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        return RealFile(self._at(path), fd, self._commit_of(path), self._background)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._at(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(self._at(source), self._at(target))

    async def replace_file(self, path: str, content: bytes) -> None:
        # Each has its own call: joining another's would omit this one's bytes.
        target = self._at(path)
        await self._commit_of(path).run(target, partial(_replace, target, content), object())

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._at(path))

    async def sync_directory(self, path: str) -> None:
        directory = self._at(path)
        commit = self._commit_of(path)
        await with_descriptors(lambda: commit.run(directory, lambda: _sync_directory(directory)))

    def lock(self, path: str) -> None:
        fd = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        self._locks.append(fd)

    def close(self) -> None:
        """End the group commits and release the locks."""
        # The first one hands the files that it closes to the others.
        for commit in (self._background, self._commit, *self._apart.values()):
            commit.stop()
        while self._locks:
            os.close(self._locks.pop())

    def _commit_of(self, path: str) -> GroupCommit:
        return self._apart.get(path.partition("/")[0], self._commit)

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root


def _replace(path: str, content: bytes) -> None:
    """In the thread of a `GroupCommit`."""
    aside = path + ASIDE
    fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        written = 0
        while written < len(content):  # a nearly full disk takes less than all
            written += os.pwrite(fd, content[written:], written)
        os.fsync(fd)
    except OSError as failure:
        number = failure.errno or errno.EIO
        raise OSError(number, f"cannot be made durable: {os.strerror(number)}", aside) from failure
    finally:
        os.close(fd)
    os.replace(aside, path)
    _sync_directory(os.path.dirname(path))


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
