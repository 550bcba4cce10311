"""Computes what a power cut leaves on a disk that has a volatile write cache.

Theory of operation. QEMU's `blklogwrites` filter records every write and flush that the guest sends to the disk, in the
format of Linux's dm-log-writes: a superblock, then entries, each a sector of header and, for writes, the data. After a
cut the log is replayed onto the disk's state at the machine's start: writes before the last flush are applied, and
writes through the cache (FUA); of the rest, nothing, or a random part.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8

_MAGIC = 0x6A736677736872
_SUPERBLOCK = struct.Struct("<QQQI")  # magic, version, number of entries, sector size
_HEADER = struct.Struct("<QQQQ")  # sector, number of sectors, flags, bytes of data that follow for marks
_USUAL_SECTOR = 512
_KNOWN_FLAGS = FLUSH | FUA | DISCARD | MARK
_CHUNK = 1 << 20


@dataclass(frozen=True)
class WriteLogEntry:
    """One request of the guest: `offset` and `length` on the disk; `data`: position of its bytes in the log, or -1."""

    offset: int
    length: int
    flags: int
    data: int

    @property
    def writes(self) -> bool:
        """Whether it changes the disk."""
        return self.length > 0 and not self.flags & MARK


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. `lost`: logged writes that were not applied. `gaps`: places in the log that a killed QEMU
    left empty, for requests that it had not completed."""

    writes: int
    lost: int
    flushes: int
    gaps: int


class LogError(Exception):
    """The file is not a write log."""


def replay(log: Path, disk: Path, tear: Random | None = None) -> Replayed:
    """Apply a log to the disk image that it started on. Without `tear`, everything after the last flush is lost; with
    it, each of those writes survives with probability 1/2. Raises `LogError`, `OSError`."""
    size = disk.stat().st_size
    with log.open("rb") as source, disk.open("r+b") as target:
        entries, gaps = _read(source.fileno(), size)
        last_flush = max((number for number, entry in enumerate(entries) if entry.flags & FLUSH), default=-1)
        writes = lost = 0
        for number, entry in enumerate(entries):
            if not entry.writes:
                continue
            writes += 1
            # A flush that carries data flushes the writes before it, not its own data.
            durable = number < last_flush or entry.flags & FUA
            if not durable and (tear is None or tear.random() < 0.5):
                lost += 1
            else:
                _apply(entry, source.fileno(), target.fileno())
    return Replayed(writes, lost, sum(1 for entry in entries if entry.flags & FLUSH), gaps)


def _read(log: int, disk_size: int) -> tuple[list[WriteLogEntry], int]:
    """All complete entries in order, and the number of gaps between them."""
    first = os.pread(log, _SUPERBLOCK.size, 0)
    if len(first) < _SUPERBLOCK.size:
        return [], 0  # the machine ended before it opened its disk
    magic, version, _, sector = _SUPERBLOCK.unpack(first)
    if not any(first):
        magic, version, sector = _MAGIC, 1, _USUAL_SECTOR  # QEMU writes the superblock only with the first flush
    if magic != _MAGIC or version != 1 or not 512 <= sector <= 65536:
        raise LogError(f"not a write log: magic {magic:#x}, version {version}, sector size {sector}")
    scan = _Scan(log, os.fstat(log).st_size, sector, disk_size)
    return list(scan.entries()), scan.gaps


class _Scan:
    """Reads a log. Requests are logged concurrently, so a kill can leave a gap for a request that was not written yet,
    with complete (and flushed) entries after it: reading continues at the next possible entry."""

    def __init__(self, log: int, log_size: int, sector: int, disk_size: int) -> None:
        self._log = log
        self._log_size = log_size
        self._sector = sector
        self._disk_size = disk_size
        self.gaps = 0

    def entries(self) -> Iterator[WriteLogEntry]:
        position = self._sector
        while position + self._sector <= self._log_size:
            entry = self._entry_at(position)
            if entry is None:
                self.gaps += 1
                resumed = self._next_after(position)
                if resumed is None:
                    return
                position = resumed
                continue
            end = self._end(position, entry)
            if end > self._log_size:
                return  # its data is incomplete, so the request was not completed
            yield entry
            position = end

    def _entry_at(self, position: int) -> WriteLogEntry | None:
        """The entry whose header is at this position; None at the end of the log."""
        raw = os.pread(self._log, self._sector, position)
        if len(raw) < self._sector or raw.count(0, _HEADER.size) != self._sector - _HEADER.size:
            return None
        sector, count, flags, extra = _HEADER.unpack_from(raw)
        offset, length = sector * self._sector, count * self._sector
        if not (flags or count) or flags & ~_KNOWN_FLAGS or extra or offset + length > self._disk_size:
            return None
        has_data = count and not flags & (DISCARD | MARK)
        return WriteLogEntry(offset, length, flags, position + self._sector if has_data else -1)

    def _end(self, position: int, entry: WriteLogEntry) -> int:
        return position + self._sector + (entry.length if entry.data >= 0 else 0)

    def _next_after(self, position: int) -> int | None:
        """The next position from which entries follow each other to the log's end or the next gap."""
        for candidate in range(position + self._sector, self._log_size - self._sector + 1, self._sector):
            entry = self._entry_at(candidate)
            if entry is None:
                continue
            end = self._end(candidate, entry)
            # Data may look like a header; the entries after it are then invalid.
            if end >= self._log_size or self._entry_at(end) is not None or not any(self._peek(end)):
                return candidate
        return None

    def _peek(self, position: int) -> bytes:
        return os.pread(self._log, _HEADER.size, position)


def _apply(entry: WriteLogEntry, log: int, disk: int) -> None:
    done = 0
    while done < entry.length:
        size = min(_CHUNK, entry.length - done)
        data = bytes(size) if entry.data < 0 else os.pread(log, size, entry.data + done)
        if len(data) < size:
            raise LogError(f"the log ends within an entry at {entry.data}")
        os.pwrite(disk, data, entry.offset + done)
        done += size
