"""Reads the disk of a KRaft quorum's member: the metadata log, the quorum-state file, snapshots, and its identity.

Written from the formats' specification and independent of the broker under test, whose files it reads. What is missing
or invalid is a sentence in `doubts`; nothing is raised.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replicafiles import batches, kafka
from analysis.replicafiles.log import NO_VALUE, ReplicaLog
from history import strict_json
from history.kafka.flexible_messages import FlexibleReader
from history.kafka.record_batches import CONTROL, HEADER, batches_in, records_in
from history.regular_files import read_bytes, read_text

TOPIC: Final = "__cluster_metadata"
PARTITION: Final = 0
NO_NODE: Final = -1
"""The id in files that name no leader, or no vote."""

_LEADER_CHANGE: Final = (2, 3)  # the type of the control record: Apache Kafka's, and KIP-595's
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_ROWS: Final = 1 << 12
"""The batches that are objects of Python at once."""
_DIGESTED: Final = struct.Struct(">qqiI")
_ID_KEYS: Final = ("node.id", "broker.id")
_KEY: Final = struct.Struct(">hh")


class LeaderChange(NamedTuple):
    """The control record that opens a leader's epoch: `leader`, the voters, and those that voted for it (node ids)."""

    offset: int
    epoch: int
    leader: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


class QuorumStateFile(NamedTuple):
    """A quorum-state file. `leader`, `voted`: node ids, or `NO_NODE`; `voters`: empty if the file lists none."""

    epoch: int
    leader: int
    voted: int
    voters: tuple[int, ...]


@dataclass(frozen=True)
class Digests:
    """The digests of a log's batches by the offset at which each ends, in two columns: a long log has many."""

    offset: npt.NDArray[np.int64]
    digest: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, digests: Mapping[int, int]) -> "Digests":
        offsets = sorted(digests)
        return cls(np.array(offsets, np.int64), np.array([digests[offset] for offset in offsets], np.uint32))

    def at(self, offsets: Iterable[int]) -> dict[int, int]:
        """Those of these offsets at which a batch ends, each with its digest."""
        wanted_offsets = np.array(sorted(offset for offset in offsets if 0 <= offset < 1 << 63), np.int64)
        place = np.searchsorted(self.offset, wanted_offsets)
        is_there = place < len(self.offset)
        is_there[is_there] = self.offset[place[is_there]] == wanted_offsets[is_there]
        return dict(zip(wanted_offsets[is_there].tolist(), self.digest[place[is_there]].tolist(), strict=True))


@dataclass(frozen=True)
class MetadataReplica:
    """One node's part of the quorum. `log` has no values: its records are not clients'.

    `digests`: for each offset at which a batch ends, the digest of all batches up to there; none for a log whose start
    was deleted. `committed`: an offset up to which the log is certainly committed, from its snapshots; -1 without any.
    """

    node: str
    id: int | None = None
    log: ReplicaLog | None = None
    leader_changes: tuple[LeaderChange, ...] = ()
    digests: Digests = field(default_factory=lambda: Digests.of({}))
    state: QuorumStateFile | None = None
    committed: int = -1
    doubts: tuple[str, ...] = ()


def read_metadata(node: str, data: Path) -> MetadataReplica:
    """A node's metadata from its collected data directory."""
    doubts: list[str] = []
    directory = data / f"{TOPIC}-{PARTITION}"
    replica = MetadataReplica(
        node,
        id=_node_id(node, data / "meta.properties", doubts),
        log=_log(node, directory, doubts),
        state=_state(node, directory / "quorum-state", doubts),
        committed=max((int(match[1]) for match in _snapshots(directory)), default=-1),
    )
    if replica.log is not None and replica.log.start > max(replica.committed, 0):
        doubts.append(f"the metadata log of {node} starts at {replica.log.start}, and no snapshot has what was before")
    changes, digests = _batches(node, directory, doubts)
    return replace(replica, leader_changes=changes, digests=digests, doubts=tuple(doubts))


def _snapshots(directory: Path) -> Iterator[re.Match[str]]:
    for path in directory.glob("*.checkpoint"):
        match = _SNAPSHOT.fullmatch(path.name)
        if match is not None:
            yield match


def _node_id(node: str, path: Path, doubts: list[str]) -> int | None:
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError):
        doubts.append(f"{node} has no meta.properties that can be read")
        return None
    node_ids = [line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() in _ID_KEYS]
    if len(node_ids) != 1 or not node_ids[0].isdecimal():
        doubts.append(f"meta.properties of {node} does not say which node it is")
        return None
    return int(node_ids[0])


def _log(node: str, directory: Path, doubts: list[str]) -> ReplicaLog | None:
    if not any(directory.glob("[0-9]*.log")):
        doubts.append(f"{node} has no metadata log")
        return None
    log = kafka.read_replica(node, TOPIC, PARTITION, directory)
    if log.is_whole and not len(log.offset) and not _is_replaced(directory, log.end):
        doubts.append(f"the metadata log of {node} is empty")
    log = replace(log, value=np.full(len(log.offset), NO_VALUE, np.int64))
    if not len(log.offset):
        return log
    first = np.flatnonzero(np.diff(log.epoch, prepend=-1) > 0)
    epochs = tuple(zip(log.epoch[first].tolist(), log.offset[first].tolist(), strict=True))
    if log.epochs is None:
        # `log.doubts` reports it; without an entry for each epoch the missing ones would look like a contradiction.
        return replace(log, epochs=epochs)
    moved = {int(match[1]) for match in _snapshots(directory)}
    if log.epochs and log.start < log.epochs[0][1] and log.epochs[0][1] in moved:
        # The log starts where a snapshot ends. So does its oldest epoch; its first records may still be in a segment.
        epoch, start = log.epochs[0]
        older = tuple(entry for entry in epochs if entry[0] <= epoch and entry[1] <= start)
        return replace(log, epochs=(*older, *log.epochs[1:]) if older else log.epochs)
    return log


def _is_replaced(directory: Path, end: int) -> bool:
    """Whether a snapshot has everything before an empty log: it ends there, and is whole itself."""
    for match in _snapshots(directory):
        if int(match[1]) == end:
            data = read_bytes(directory / match[0])
            table, position, _, _ = batches.scan(data, 0, 0)
            return len(table) > 0 and position == len(data)
    return False


def _state(node: str, path: Path, doubts: list[str]) -> QuorumStateFile | None:
    try:
        content = strict_json.decode(read_bytes(path))
        leader, epoch, voted = (_integer(content[key]) for key in ("leaderId", "leaderEpoch", "votedId"))
        voters = tuple(_integer(voter["voterId"]) for voter in content.get("currentVoters") or ())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        doubts.append(f"the quorum-state file of {node} cannot be understood: {type(error).__name__}: {error}")
        return None
    return QuorumStateFile(epoch, leader, voted, voters)


def _integer(value: Any) -> int:
    if type(value) is not int or value < NO_NODE:
        raise ValueError(f"{value!r} is not a valid number")
    return value


def _batches(node: str, directory: Path, doubts: list[str]) -> tuple[tuple[LeaderChange, ...], Digests]:
    """The leader changes and the digests of a log, from its batches."""
    changes: list[LeaderChange] = []
    digests: list[Digests] = []
    digest, expected = 0, None
    for segment in sorted(directory.glob("[0-9]*.log")):
        data, base = read_bytes(segment), int(segment.stem)
        if expected is not None and base != expected:
            break
        table, position, expected, _ = batches.scan(data, 0, base)
        digest_of: dict[int, int] = {}
        for row in (row for start in range(0, len(table), _ROWS) for row in table[start : start + _ROWS].tolist()):
            digest = zlib.crc32(
                _DIGESTED.pack(row[batches.BASE], row[batches.NEXT], row[batches.EPOCH], row[batches.CRC]), digest
            )
            digest_of[row[batches.NEXT]] = digest
            if row[batches.ATTRIBUTES] & CONTROL:
                start = row[batches.RECORDS_AT] - HEADER.size
                try:
                    changes += _leader_changes(data[start : row[batches.END_AT]])
                except (ValueError, IndexError, struct.error):
                    doubts.append(f"a control record at offset {row[batches.BASE]} of {node} cannot be understood")
        digests.append(Digests.of(digest_of))
        if position < len(data):
            break
    if not digests or not (directory / f"{0:020d}.log").exists():
        return tuple(changes), Digests.of({})
    columns = [
        np.concatenate(column) for column in zip(*((column.offset, column.digest) for column in digests), strict=True)
    ]
    return tuple(changes), Digests(*columns)


def _leader_changes(batch: bytes) -> Iterator[LeaderChange]:
    """The leader changes in a control batch. Raises ValueError, IndexError or struct.error for a malformed one."""
    for header, content in batches_in(batch):
        for record in records_in(header, content):
            if _KEY.unpack_from(record.key or b"")[1] in _LEADER_CHANGE:
                reader = FlexibleReader(record.value or b"")
                version, leader = reader.number(">h"), reader.number(">i")
                voters, granting = _voters(reader, version), _voters(reader, version)
                yield LeaderChange(record.offset, header.epoch, leader, voters, granting)


def _voters(reader: FlexibleReader, version: int) -> tuple[int, ...]:
    """A compact array of voters; from version 1 on each also has the id of its directory."""

    def voter() -> int:
        node = reader.number(">i")
        if version >= 1:
            reader.uuid()
        return node

    return tuple(reader.array(lambda: reader.tagged(voter)))
