"""Snapshots of the metadata log (KIP-630): a file that represents all records below an offset.

`<end offset>-<epoch>.checkpoint` has Kafka's format: a control batch with a header, batches of records, a control batch
with a footer; offsets count from 0. A file with this name is complete: it is written or fetched as `.part`, made
durable, then renamed.
"""

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

HEADER_TYPE, FOOTER_TYPE = 3, 4  # of control records, in Apache Kafka's numbering
RECORDS_IN_A_BATCH = 500
CHECKED_FOR_S = 10.0
"""How long a successful check of a whole snapshot is valid. Bit rot is slow, and a replica that keeps requesting the
first
bytes must not cause a read of the whole file each time while the quorum waits."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART = ".part"
_KEY = struct.Struct(">hh")  # version, type
_HEADER = struct.Struct(">hqB")  # version, timestamp of the last covered record, no tagged fields
_FOOTER = struct.Struct(">hB")


class Piece(NamedTuple):
    """Bytes of a snapshot, and its total size in bytes."""

    data: bytes
    size: int


class SnapshotContent(NamedTuple):
    """The content of a snapshot: the records of the state, and the voters."""

    records: list[bytes]
    voters: VoterSet | None


class Snapshots:
    """The snapshots in the directory of the metadata log. Raises `OSError` of the disk."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._whole: OffsetAndEpoch | None = None
        self._whole_until = 0.0
        self._fetched_path: str | None = None
        """The unfinished file of the snapshot that this process has fetched bytes of last."""

    def latest(self) -> OffsetAndEpoch | None:
        """The newest complete snapshot; None without one."""
        matches = [_NAME.fullmatch(name) for name in self._disk.list(self._directory)]
        ends = [(int(match[1]), int(match[2])) for match in matches if match]
        return OffsetAndEpoch(max(ends)[1], max(ends)[0]) if ends else None

    async def write_durably(
        self, snapshot: OffsetAndEpoch, records: Sequence[bytes], voters: bytearray | None, timestamp_ms: int
    ) -> None:
        """Write a snapshot from the records of the state and the control batch that names the voters."""
        part = self._path(snapshot) + _PART
        file = self._disk.open(part, create=True)
        try:
            file.truncate(0)
            file.append(_content(snapshot.epoch, records, voters, timestamp_ms))
        finally:
            file.close()
        await self.finish(snapshot)

    def read(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int, *, now: float) -> Piece | None:
        """Bytes from `position` on; None when this snapshot does not exist.

        At position 0, raises `CorruptBatch` if the file is damaged: the reader is going to replace its log by the
        snapshot. A successful check is repeated only after `CHECKED_FOR_S`.
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

    def answer(self, response: SnapshotResponse, request: ReadSnapshot, now: float) -> SnapshotResponse:
        """An answer with the requested bytes. Raises as `read` does."""
        piece = self.read(request.snapshot, request.position, request.max_bytes, now=now)
        if piece is None:
            return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        return replace(response, data=piece.data, size=piece.size)

    def append(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Append fetched bytes; position 0 starts a new file."""
        self._fetched_path = self._path(snapshot) + _PART
        file = self._disk.open(self._fetched_path, create=True)
        try:
            file.truncate(position)
            file.append([data])
        finally:
            file.close()

    def check(self, snapshot: OffsetAndEpoch) -> None:
        """Raise `CorruptBatch` if the fetched file is damaged. It is still a `.part` file and has replaced nothing."""
        path = self._path(snapshot) + _PART
        try:
            _check(self._content_of(path))
        except CorruptBatch as error:
            raise CorruptBatch(
                f"{path}: what was fetched is damaged: {error}; nothing was replaced by it: start this broker again"
            ) from error

    async def finish(self, snapshot: OffsetAndEpoch) -> None:
        """The file is complete: rename it, durably. If the file cannot be opened, the caller may try again."""
        path = self._path(snapshot)
        file = self._disk.open(path + _PART)
        try:
            await file.sync()
        finally:
            file.close()
        self._disk.rename(path + _PART, path)
        self._whole = None  # an earlier file may have had this name
        await self._disk.sync_directory(self._directory)

    def load(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """The content of a snapshot. Raises `StartupError` for a damaged file."""
        path = self._path(snapshot)
        data = self._content_of(path)
        try:
            records = _records(data)
            named = [voters for _, voters in named_voters(data)]
            return SnapshotContent(records, named[-1] if named else None)
        except CorruptBatch as error:
            raise StartupError(f"{path}: is damaged: {error}; {self._remedy}") from error

    async def restore(self, log: PartitionLog) -> OffsetAndEpoch | None:
        """The newest snapshot, after the log was brought to its end: a crash may have separated the two.

        A log that extends beyond the snapshot continues it only if the record before the snapshot's end has the
        snapshot's
        epoch, and the records after it have no older one. Otherwise another leader's tail, or segments that a crash
        left
        over, would count as records of that epoch.

        Raises `StartupError` if the log starts behind records that a snapshot should have and the snapshot is missing.
        Without it this node would vote and lead as if those records had never existed. A crash cannot cause this,
        because
        the snapshot is durable before the log is cut.
        """
        snapshot = self.latest()
        if snapshot is None:
            if log.log_start_offset > 0:
                raise StartupError(
                    f"{self._directory}: the log starts at offset {log.log_start_offset}, and the snapshot of records "
                    f"before it is missing; restore it, or {self._remedy}"
                )
            return None
        known_epoch = log.epochs.epoch_at(snapshot.offset - 1)  # -1: the log starts after that record
        reaches = log.log_start_offset <= snapshot.offset <= log.log_end_offset
        older = log.log_end_offset > snapshot.offset and log.last_epoch < snapshot.epoch
        if not reaches or older or known_epoch not in (-1, snapshot.epoch):
            await log.truncate_fully_and_start_at(snapshot.offset)
        await log.advance_start(snapshot.offset)
        await know_epoch(log, snapshot)
        return snapshot

    async def remove_older(self, snapshot: OffsetAndEpoch) -> None:
        """Remove all other snapshots, and unfinished ones except for the one that is being fetched: this node may take
        a snapshot of its own meanwhile."""
        kept_paths = (self._path(snapshot), self._fetched_path)
        for name in await opening(lambda: self._disk.list(self._directory)):
            path = f"{self._directory}/{name}"
            if path not in kept_paths and _NAME.fullmatch(name.removesuffix(_PART)):
                self._disk.unlink(path)

    @property
    def _remedy(self) -> str:
        return (
            f"remove this broker's whole {self._directory} if the other voters are well: it is fetched again, and "
            "this disk counts as a new one"
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
    """Register the snapshot's epoch in an empty log: it contains no batch that names the epoch."""
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
    batches = [read_records(data, position) for position, header in _batches(data) if not header.is_control]
    return [record.value or b"" for records in batches for record in records]


def _check(data: bytes) -> None:
    """Raise `CorruptBatch` for an incomplete or damaged snapshot."""
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
