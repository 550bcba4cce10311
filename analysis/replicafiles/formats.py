"""The registry of known formats of replica files, by their name in `run.toml` (`[replicas] format`).

A new format is a module in this directory with the functions of `ReplicaFormat`, and a line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from analysis.replicafiles import kafka, kafka_nodes
from analysis.replicafiles.log import ReplicaLog
from analysis.replicafiles.offset_commits import OffsetsLog, read_offsets_logs
from analysis.replicafiles.remote_segments import StoredLog

Key = tuple[str, int]

NONE: Final = "none"
"""The format of a system whose replicas are not read: nothing is compared."""


class ReadPartition(Protocol):
    """Reads a node's replica of one partition; `compacted`: later records may have replaced earlier ones. `remote`: the
    partition's remote segments."""

    def __call__(
        self, node: str, key: Key, data: Path, *, compacted: bool = False, remote: StoredLog | None = None
    ) -> ReplicaLog: ...


class ReadSegments(Protocol):
    """Reads the segments `first` .. `end` - 1 of a log whose segments are all given."""

    def __call__(
        self, segments: Sequence[Path], first: int, end: int, *, compacted: bool = False
    ) -> kafka.SegmentContents: ...


class Assemble(Protocol):
    """Makes a node's replica of one partition, without its records, from the contents of its consecutive segments;
    returns it, and how many of these it consists of."""

    def __call__(
        self,
        node: str,
        key: Key,
        data: Path,
        parts: Sequence[kafka.SegmentContents],
        *,
        remote: StoredLog | None = None,
    ) -> tuple[ReplicaLog, int]: ...


@dataclass(frozen=True)
class ReplicaFormat:
    """How to read replicas from a node's collected data directory.

    `partitions`: those that the directory holds a replica of. `read`: a node's replica of one of them. `segments`,
    `read_segments`, `assemble`: the same in parts: the segment files of one of them, what some of them contain, and the
    replica. `read_remote`: the remote segments of one of them, by the data directories of all nodes and the directory
    of objects. `survey`: defects of the directories as a whole, as sentences; it takes them by the nodes' names in the
    order of their numbers. `survey_earlier`: defects of earlier dumps of the directories, compared with those of the
    end. `mark_interval_s`: how often a service with these settings writes its high watermarks. `may_delete`,
    `compacts`, `preallocates`, `forgets_producers`: whether a service with these settings may delete the start of a log
    during a run, may remove records that later ones with the same key replace, may leave zeros after a log's end, and
    may forget an idempotent producer. `committed_offsets`: the replicas of the offsets topic, by the data directories
    of all nodes. `stores_elsewhere`: whether its remote segments are stored outside the run. No content
    of files makes a function here raise.
    """

    partitions: Callable[[Path], list[Key]]
    read: ReadPartition
    segments: Callable[[Key, Path], list[Path]]
    read_segments: ReadSegments
    assemble: Assemble
    read_remote: Callable[[Mapping[str, Path], Path, Key], StoredLog | None]
    survey: Callable[[Mapping[str, Path]], list[str]]
    survey_earlier: Callable[[Mapping[str, Path], Mapping[str, Path]], list[str]]
    mark_interval_s: Callable[[Mapping[str, str]], float]
    may_delete: Callable[[Mapping[str, str]], bool]
    compacts: Callable[[Mapping[str, str]], bool]
    preallocates: Callable[[Mapping[str, str]], bool]
    forgets_producers: Callable[[Mapping[str, str]], bool]
    committed_offsets: Callable[[Mapping[str, Path]], list[OffsetsLog]]
    stores_elsewhere: Callable[[Mapping[str, str]], bool]


FORMATS: Final[Mapping[str, ReplicaFormat]] = {
    "kafka": ReplicaFormat(
        kafka.partitions,
        kafka.read_partition,
        kafka.segments_of,
        kafka.read_segments,
        kafka.assemble,
        kafka.read_remote,
        kafka_nodes.survey,
        kafka_nodes.survey_earlier,
        kafka.mark_interval_s,
        kafka.may_delete,
        kafka.compacts,
        kafka.preallocates,
        kafka.forgets_producers,
        read_offsets_logs,
        kafka.stores_elsewhere,
    ),
}
