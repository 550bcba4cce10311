"""Snapshots of the metadata log (KIP-630): what all records below an offset come to, in a file of its own.

`<end offset>-<epoch>.checkpoint` has Kafka's format: a control batch with a header, batches of records, a control batch
with a footer; offsets count from 0. A file that has the name is whole: it is written or fetched as `.part`, made
durable, and renamed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.descriptors import opening
from broker.errors import ErrorCode, StartupError
from broker.log.log import PartitionLog
from broker.ports import Disk
from broker.protocol.records import BatchHeader, CorruptBatch, Record, build_batch, read_records, stamp, validate_batch
from broker.quorum.effects import ReadSnapshot
from broker.quorum.messages import OffsetAndEpoch, SnapshotResponse
from broker.quorum.voter_records import named_voters
from broker.quorum.voters import VoterSet

HEADER_TYPE, FOOTER_TYPE = 3, 4  # of control records, as Apache Kafka numbers them
RECORDS_IN_A_BATCH = 500
CHECKED_FOR_S = 10.0
"""For so long one that was found whole counts as whole. Rot is slow; whoever asks for its beginning again and again
must not have all of it read each time, while the quorum waits."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART = ".part"
_KEY = struct.Struct(">hh")  # version, type
_HEADER = struct.Struct(">hqB")  # version, timestamp of the last record that it covers, no tagged fields
_FOOTER = struct.Struct(">hB")


class Piece(NamedTuple):
    """Bytes of a snapshot, and how many it has altogether."""

    data: bytes
    size: int


class SnapshotContent(NamedTuple):
    """What a snapshot says: the records of the state, and who voted."""

    records: list[bytes]
    voters: VoterSet | None


class Snapshots:
    """The snapshots in the directory of the metadata log. Raises `OSError` of the disk."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._whole: OffsetAndEpoch | None = None
        self._whole_until = 0.0

    def latest(self) -> OffsetAndEpoch | None:
        """The newest snapshot that is whole; None without one."""
        matches = [_NAME.fullmatch(name) for name in self._disk.list(self._directory)]
        found = [(int(match[1]), int(match[2])) for match in matches if match]
        return OffsetAndEpoch(max(found)[1], max(found)[0]) if found else None

    async def write_durably(
        self, snapshot: OffsetAndEpoch, records: Sequence[bytes], voters: bytearray | None, timestamp_ms: int
    ) -> None:
        """Make a snapshot of the records that the state comes to, and of the control batch that names the voters."""
        part = self._path(snapshot) + _PART
        file = self._disk.open(part, create=True)
        try:
            file.truncate(0)
            file.append(_content(snapshot.epoch, records, voters, timestamp_ms))
        finally:
            file.close()
        await self.finish(snapshot)

    def read(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int, *, now: float) -> Piece | None:
        """Bytes from `position` on; None when there is no such snapshot.

        Raises `CorruptBatch` instead of the first ones where not all of it is what was written, as was seen at most
        `CHECKED_FOR_S` before `now`: whoever takes it over lets go of its log for it.
        """
        try:
            file = self._disk.open(self._path(snapshot))
        except FileNotFoundError:
            return None
        try:
            if position == 0 and not (snapshot == self._whole and now < self._whole_until):
                _check(file.read(0, file.size()))
                self._whole, self._whole_until = snapshot, now + CHECKED_FOR_S
            return Piece(file.read(position, max_bytes), file.size())
        finally:
            file.close()

    def answer(self, response: SnapshotResponse, asked: ReadSnapshot, now: float) -> SnapshotResponse:
        """An answer with the bytes that are asked for. Raises as `read` does."""
        piece = self.read(asked.snapshot, asked.position, asked.max_bytes, now=now)
        if piece is None:
            return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        return replace(response, data=piece.data, size=piece.size)

    def append(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Bytes that were fetched; those at 0 begin the file anew."""
        file = self._disk.open(self._path(snapshot) + _PART, create=True)
        try:
            file.truncate(position)
            file.append([data])
        finally:
            file.close()

    def check(self, snapshot: OffsetAndEpoch) -> None:
        """Raises `CorruptBatch` where what was fetched is not whole; it has no name yet, and replaces nothing."""
        path = self._path(snapshot) + _PART
        try:
            _check(self._content_of(path))
        except CorruptBatch as error:
            raise CorruptBatch(
                f"{path}: what was fetched is damaged: {error}; nothing was replaced by it: start this broker again"
            ) from error

    async def finish(self, snapshot: OffsetAndEpoch) -> None:
        """The file is whole: give it its name, durably. To be begun anew where its file cannot be opened."""
        path = self._path(snapshot)
        file = self._disk.open(path + _PART)
        try:
            await file.sync()
        finally:
            file.close()
        self._disk.rename(path + _PART, path)
        self._whole = None  # of that name there may have been another
        await self._disk.sync_directory(self._directory)

    def load(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """What a snapshot says. Raises `StartupError` for a file that is damaged."""
        path = self._path(snapshot)
        data = self._content_of(path)
        try:
            records = _records(data)
            named = [voters for _, voters in named_voters(data)]
            return SnapshotContent(records, named[-1] if named else None)
        except CorruptBatch as error:
            raise StartupError(f"{path}: is damaged: {error}; {self._remedy}") from error

    async def restore(self, log: PartitionLog) -> OffsetAndEpoch | None:
        """The newest snapshot, and the log brought to where it ends: a crash may have come between the two.

        A log that reaches beyond it continues it only if its record before has the snapshot's epoch and those behind it
        no older one. Another leader's tail, or what a crash has left of its segments, would be taken for records of
        that epoch.

        Raises `StartupError` for a log whose beginning a snapshot had replaced that is gone: without it this node would
        vote, and lead, as if nothing had come before. No crash leaves that, the snapshot is durable before.
        """
        snapshot = self.latest()
        if snapshot is None:
            if log.log_start_offset > 0:
                raise StartupError(
                    f"{self._directory}: the log begins at offset {log.log_start_offset}, and the snapshot of what "
                    f"came before is missing; restore it, or {self._remedy}"
                )
            return None
        known = log.epochs.epoch_at(snapshot.offset - 1)  # -1: the log begins behind that record
        reaches = log.log_start_offset <= snapshot.offset <= log.log_end_offset
        older = log.log_end_offset > snapshot.offset and log.last_epoch < snapshot.epoch
        if not reaches or older or known not in (-1, snapshot.epoch):
            await log.truncate_fully_and_start_at(snapshot.offset)
        await log.advance_start(snapshot.offset)
        await know_epoch(log, snapshot)
        return snapshot

    async def remove_older(self, snapshot: OffsetAndEpoch) -> None:
        """Remove all snapshots but this one, and what was never finished."""
        kept = self._path(snapshot).rpartition("/")[2]
        for name in await opening(lambda: self._disk.list(self._directory)):
            if name != kept and _NAME.fullmatch(name.removesuffix(_PART)):
                self._disk.unlink(f"{self._directory}/{name}")

    @property
    def _remedy(self) -> str:
        return (
            f"remove this broker's whole {self._directory} if the other voters are well: it is fetched anew, and this "
            "disk counts as a new one"
        )

    def _content_of(self, path: str) -> bytes:
        file = self._disk.open(path)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def _path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


async def know_epoch(log: PartitionLog, snapshot: OffsetAndEpoch | None) -> None:
    """The epoch in which a log goes on behind its snapshot, if it has one; while it is empty no batch tells."""
    if snapshot is not None and log.last_epoch < snapshot.epoch:
        await log.epochs.assign_durably(snapshot.epoch, snapshot.offset)


def _content(epoch: int, records: Sequence[bytes], voters: bytearray | None, timestamp_ms: int) -> list[bytes]:
    header = Record(0, timestamp_ms, _KEY.pack(0, HEADER_TYPE), _HEADER.pack(0, timestamp_ms, 0))
    footer = Record(0, timestamp_ms, _KEY.pack(0, FOOTER_TYPE), _FOOTER.pack(0, 0))
    groups = [records[at : at + RECORDS_IN_A_BATCH] for at in range(0, len(records), RECORDS_IN_A_BATCH)]
    batches = [build_batch([header], control=True), *([] if voters is None else [bytes(voters)])]
    batches += [build_batch([Record(0, timestamp_ms, None, value) for value in group]) for group in groups]
    batches.append(build_batch([footer], control=True))
    stamped, offset = [], 0
    for batch in map(bytearray, batches):
        stamp(batch, 0, offset, epoch)
        stamped.append(bytes(batch))
        offset = validate_batch(batch).next_offset
    return stamped


def _records(data: bytes) -> list[bytes]:
    """The data records. Raises `CorruptBatch`."""
    found = [read_records(data, position) for position, header in _batches(data) if not header.is_control]
    return [record.value or b"" for records in found for record in records]


def _check(data: bytes) -> None:
    """Raises `CorruptBatch` for what is no whole snapshot."""
    for _ in _batches(data):
        pass


def _batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """All batches with their positions. Raises `CorruptBatch` unless each is intact and a footer ends the file."""
    position, last_control = 0, -1
    while position < len(data):
        header = validate_batch(data, position)
        last_control = -1
        if header.is_control:
            last_control = _KEY.unpack_from(read_records(data, position)[0].key or b"\0\0\0\0")[1]
        yield position, header
        position += header.size
    if last_control != FOOTER_TYPE:
        raise CorruptBatch("it has no footer")
