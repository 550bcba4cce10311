"""A disk after a power cut: flushed writes are kept, others are lost, for any state of the log."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from orchestrator.worlds.vagrant.machine import DISCARD, FLUSH, FUA, LogError, Replayed, replay

SECTOR = 512
DISK_SECTORS = 64


class WriteLog:
    """Writes a log as QEMU does, beside a disk on which every sector holds its `old` letter."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "writes.log"
        self.disk = directory / "base.raw"
        self.disk.write_bytes(b"." * SECTOR * DISK_SECTORS)
        self.data = bytearray(struct.pack("<QQQI", 0x6A736677736872, 1, 0, SECTOR).ljust(SECTOR, b"\0"))

    def write(self, sector: int, letters: str, flags: int = 0) -> WriteLog:
        """One sector for each letter."""
        self.entry(sector, len(letters), flags)
        self.data += b"".join(letter.encode() * SECTOR for letter in letters)
        return self

    def flush(self) -> WriteLog:
        return self.entry(0, 0, FLUSH)

    def discard(self, sector: int, sectors: int) -> WriteLog:
        return self.entry(sector, sectors, DISCARD)

    def gap(self, sectors: int) -> WriteLog:
        """Where a request had its place when QEMU was killed, but nothing was written."""
        self.data += bytes(sectors * SECTOR)
        return self

    def cut_off(self, sectors: int) -> WriteLog:
        del self.data[-sectors * SECTOR :]
        return self

    def replay(self, tear: int | None = None) -> Replayed:
        self.path.write_bytes(self.data)
        return replay(self.path, self.disk, None if tear is None else Random(tear))

    @property
    def on_disk(self) -> str:
        """A letter for each of the disk's first sectors; `0` for zeros, `?` for a torn sector."""
        sectors = [self.disk.read_bytes()[n * SECTOR : (n + 1) * SECTOR] for n in range(8)]
        letters = [chr(sector[0]) if len(set(sector)) == 1 else "?" for sector in sectors]
        return "".join("0" if letter == "\0" else letter for letter in letters)

    def entry(self, sector: int, sectors: int, flags: int) -> WriteLog:
        self.data += struct.pack("<QQQQ", sector, sectors, flags, 0).ljust(SECTOR, b"\0")
        return self


@pytest.fixture
def log(tmp_path: Path) -> WriteLog:
    return WriteLog(tmp_path)


def test_flushed_writes_are_kept_and_the_rest_is_lost(log: WriteLog) -> None:
    replayed = log.write(0, "ab").write(4, "c").flush().write(1, "X").write(6, "Y").replay()
    assert log.on_disk == "ab..c..."
    assert replayed == Replayed(writes=4, lost=2, flushes=1, gaps=0)


def test_without_a_flush_every_write_is_lost(log: WriteLog) -> None:
    assert log.write(0, "ab").replay().lost == 1
    assert log.on_disk == "........"


def test_writes_through_the_cache_are_kept_without_a_flush(log: WriteLog) -> None:
    log.flush().write(0, "a").write(1, "b", FUA).write(2, "c").replay()
    assert log.on_disk == ".b......"


def test_a_flush_with_data_flushes_earlier_writes(log: WriteLog) -> None:
    log.write(0, "a").write(1, "b", FLUSH).replay()
    assert log.on_disk == "a......."


def test_later_writes_win(log: WriteLog) -> None:
    log.write(0, "aaa").write(1, "b").flush().replay()
    assert log.on_disk == "aba....."


def test_discarded_sectors_read_as_zeros_when_durable(log: WriteLog) -> None:
    log.write(0, "abcd").discard(1, 2).flush().discard(0, 1).replay()
    assert log.on_disk == "a00d...."


def test_tearing_keeps_some_unflushed_writes_the_same_for_the_same_seed(tmp_path: Path) -> None:
    found = set()
    for seed in range(20):
        for attempt in ("first", "second"):
            directory = tmp_path / f"{seed}-{attempt}"
            directory.mkdir()
            log = WriteLog(directory).write(0, "f").flush()
            for sector in range(1, 8):
                log.write(sector, "u")
            replayed = log.replay(tear=seed)
            assert log.on_disk[0] == "f"
            assert log.on_disk.count("u") == 7 - replayed.lost
            found.add((seed, log.on_disk))
    assert len(found) == 20  # one outcome for each seed
    assert len({outcome for _, outcome in found}) > 5


def test_a_write_whosedata_is_cut_off_was_never_answered(log: WriteLog) -> None:
    replayed = log.write(0, "a").flush().write(2, "bbbb", FUA).cut_off(2).replay()
    assert log.on_disk == "a......."
    assert replayed.writes == 1


def test_writes_flushed_after_a_gap_are_kept(log: WriteLog) -> None:
    replayed = log.write(0, "a").gap(5).write(2, "b").flush().write(3, "c").replay()
    assert log.on_disk == "a.b....."
    assert replayed == Replayed(writes=3, lost=1, flushes=1, gaps=1)


def test_data_behind_a_gap_that_looks_like_a_header_is_not_taken_for_one(log: WriteLog) -> None:
    log.write(0, "a").flush().gap(2)
    # A sector such as a filesystem may hold: it reads as a write of one sector to sector 5.
    log.entry(5, 1, FUA)
    log.data += b"\xff" * SECTOR * 2
    log.write(2, "b", FUA).replay()
    assert log.on_disk == "a.b....."


def test_a_gap_to_the_end_is_the_end(log: WriteLog) -> None:
    assert log.write(0, "a").flush().gap(3).replay() == Replayed(writes=1, lost=0, flushes=1, gaps=1)
    assert log.on_disk == "a......."


def test_a_machine_that_never_opened_its_disk_loses_no_data(tmp_path: Path) -> None:
    log, disk = tmp_path / "writes.log", tmp_path / "base.raw"
    log.write_bytes(b"")
    disk.write_bytes(b"x" * SECTOR)
    assert replay(log, disk) == Replayed(0, 0, 0, 0)


def test_before_the_first_flush_the_log_has_no_superblock(log: WriteLog) -> None:
    log.write(0, "a", FUA).write(1, "b")
    log.data[:SECTOR] = bytes(SECTOR)
    assert log.replay() == Replayed(writes=2, lost=1, flushes=0, gaps=0)
    assert log.on_disk == "a......."


def test_another_file_is_not_read_as_a_write_log(tmp_path: Path) -> None:
    log, disk = tmp_path / "writes.log", tmp_path / "base.raw"
    log.write_bytes(b"something else" * 100)
    disk.write_bytes(b"x" * SECTOR)
    with pytest.raises(LogError, match="not a write log"):
        replay(log, disk)
