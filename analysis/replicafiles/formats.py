"""The formats of replica files that are known, by the name that `run.toml` gives (`[replicas] format`).

A new format is a module beside this one with the functions of `ReplicaFormat`, and a line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from analysis.replicafiles import kafka, kafka_nodes
from analysis.replicafiles.log import ReplicaLog

Key = tuple[str, int]

NONE: Final = "none"
"""The name for a system whose replicas are not read: there is nothing to compare."""


class ReadPartition(Protocol):
    """Reads a node's replica of one partition; `compacted`: it may have lost records to later ones of their keys."""

    def __call__(self, node: str, key: Key, data: Path, *, compacted: bool = False) -> ReplicaLog: ...


@dataclass(frozen=True)
class ReplicaFormat:
    """How to read replicas from a node's collected data directory.

    `partitions`: those of which it holds a replica. `read`: a node's replica of one of them. `survey`: what speaks
    against the directories as a whole, as sentences, by the nodes' names in the order of their numbers.
    `survey_earlier`: what speaks against earlier dumps of the directories, given with those of the end.
    `mark_interval_s`: how often a service with such settings writes its high watermarks down. `may_delete`,
    `compacts`, `preallocates`: whether the service, with such settings, may delete the beginning of a log while a run
    lasts, may remove records that later ones of their keys replace, and may leave zeros behind its end. None of them
    raises for what the files contain.
    """

    partitions: Callable[[Path], list[Key]]
    read: ReadPartition
    survey: Callable[[Mapping[str, Path]], list[str]]
    survey_earlier: Callable[[Mapping[str, Path], Mapping[str, Path]], list[str]]
    mark_interval_s: Callable[[Mapping[str, str]], float]
    may_delete: Callable[[Mapping[str, str]], bool]
    compacts: Callable[[Mapping[str, str]], bool]
    preallocates: Callable[[Mapping[str, str]], bool]


FORMATS: Final[Mapping[str, ReplicaFormat]] = {
    "kafka": ReplicaFormat(
        kafka.partitions,
        kafka.read_partition,
        kafka_nodes.survey,
        kafka_nodes.survey_earlier,
        kafka.mark_interval_s,
        kafka.may_delete,
        kafka.compacts,
        kafka.preallocates,
    ),
}
