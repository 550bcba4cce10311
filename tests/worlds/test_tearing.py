"""Finding data that is only in memory."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from orchestrator.machine import syscalls
from orchestrator.worlds.namespaces.lab import PAGE, dirty_pages, tear


class FakeFile:
    """Answers for a file whose dirty pages are known, and counts the questions."""

    def __init__(self, dirty: set[int]) -> None:
        self.dirty = dirty
        self.questions = 0
        self.written: list[int] = []

    def count(self, _: int, offset: int, length: int) -> int:
        self.questions += 1
        return len(self.dirty & set(range(offset // PAGE, (offset + length) // PAGE)))

    def write_back(self, _: int, offset: int, length: int) -> None:
        assert length == PAGE
        self.written.append(offset // PAGE)
        self.dirty.discard(offset // PAGE)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeFile:
    file = FakeFile(set())
    monkeypatch.setattr(syscalls, "dirty_pages", file.count)
    monkeypatch.setattr(syscalls, "write_back", file.write_back)
    return file


@pytest.mark.parametrize("dirty", [set(), {0}, {3, 4, 5}, set(range(1000)), {0, 999}, set(range(0, 1000, 7))])
def test_dirty_pages_are_found(fake: FakeFile, dirty: set[int]) -> None:
    fake.dirty = set(dirty)
    assert list(dirty_pages(-1, 1000 * PAGE - 1)) == sorted(dirty)


def test_a_clean_or_wholly_dirty_file_takes_one_question(fake: FakeFile) -> None:
    assert list(dirty_pages(-1, 1000 * PAGE)) == []
    assert fake.questions == 1


def test_an_empty_file_has_no_pages(fake: FakeFile) -> None:
    assert list(dirty_pages(-1, 0)) == []
    assert fake.questions == 0


def test_the_same_seed_writes_back_the_same_pages(fake: FakeFile, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 100 * PAGE)
    written = []
    for _ in range(2):
        fake.dirty, fake.written = set(range(100)), []
        torn = tear(tmp_path, Random("7:n1"))
        assert torn.written_back == len(fake.written) == 100 - (torn.dropped or 0)
        written.append((torn, fake.written))
    assert written[0] == written[1]


def test_without_a_seed_no_page_is_written_back(fake: FakeFile, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 10 * PAGE)
    fake.dirty = {1, 2}
    torn = tear(tmp_path, None)
    assert (torn.written_back, torn.dropped, torn.journal_flushed, fake.written) == (0, 2, False, [])


def test_an_older_kernel_gives_no_count_of_dropped_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(*_: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(syscalls, "dirty_pages", unknown)
    (tmp_path / "log").write_bytes(b"x")
    assert tear(tmp_path, Random(1)).dropped is None


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(path))


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # as /dev/zero
    except PermissionError:
        pytest.skip("only root makes devices")


def make_unreadable(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root reads it all the same, as a node's power cut does")
    path.write_bytes(b"x" * PAGE)
    path.chmod(0)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    ("make", "pages"),
    [
        pytest.param(bind_socket, 1, id="socket"),
        pytest.param(os.mkfifo, 1, id="pipe"),
        pytest.param(make_device, 1, id="device"),
        pytest.param(lambda path: path.symlink_to("nowhere"), 1, id="dangling link"),
        pytest.param(lambda path: path.symlink_to("/"), 1, id="link to a directory outside"),
        pytest.param(lambda path: path.symlink_to("/etc/passwd"), 1, id="link to a file outside"),
        pytest.param(lambda path: path.symlink_to(path), 1, id="link to itself"),
        pytest.param(lambda path: path.hardlink_to(path.with_name("log")), 1, id="hard link"),
        pytest.param(lambda path: path.mkdir(0), 1, id="unreadable directory"),
        pytest.param(lambda path: path.write_bytes(b""), 1, id="empty file"),
        pytest.param(make_unreadable, 2, id="unreadable file"),
        pytest.param(make_sparse, 2, id="sparse file"),
    ],
)
@pytest.mark.parametrize("name", ["a", "z", "\udcff\n"])
def test_only_regular_files_are_torn_and_each_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Path], None], pages: int, name: str
) -> None:
    """A link, pipe, socket or device beside the log neither blocks the cut nor ends it."""
    monkeypatch.setattr(syscalls, "dirty_pages", lambda _descriptor, offset, _length: int(offset == 0))
    written: list[int] = []
    monkeypatch.setattr(syscalls, "write_back", lambda descriptor, *_: written.append(os.fstat(descriptor).st_ino))
    (tmp_path / "log").write_bytes(b"x" * PAGE)
    make(tmp_path / name)
    assert tear(tmp_path, None).dropped == pages, "each file has one dirty page, the first one"
    for seed in range(20):
        tear(tmp_path, Random(seed))
    torn = {tmp_path / "log", *([tmp_path / name] if pages > 1 else [])}
    assert set(written) == {path.stat().st_ino for path in torn}
