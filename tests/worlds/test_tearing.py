"""Finding data that is only in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from orchestrator.machine import syscalls
from orchestrator.worlds.namespaces.tearing import PAGE, dirty_pages, tear


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
