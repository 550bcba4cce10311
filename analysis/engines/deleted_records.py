"""Looks for deleted records in a run's reads: a task for some row groups of each partition with answered deletions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.core.deletion_rules import AnsweredStarts, ReadAgain, ReplicaStart
from analysis.core.offset_ranges import Key, RowGroup
from analysis.core.range_evidence import batches_of
from analysis.core.rows import DamagedError, rows_of
from analysis.engines.row_groups import read_row_groups, row_groups_of
from analysis.engines.task_map import TaskMap
from analysis.evidence.deletions import Deletions
from analysis.replicafiles.kafka import LOG_STARTS, log_start, read_remote, segments_of
from analysis.replicafiles.log import ReplicaFileError


@dataclass(frozen=True)
class DeletedReadsTask:
    """Row groups of a partition, and what was answered there."""

    key: Key
    groups: tuple[RowGroup, ...]
    answered: AnsweredStarts

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def look(self) -> ReadAgain | DamagedError | None:
        """The reads of these rows that show deleted records."""
        try:
            return self.answered.shown_again(rows_of(read_row_groups(self.groups)))
        except DamagedError as error:
            return error


def reads_again(tables: Path, deletions: Deletions, spread: TaskMap, *, from_fetches: bool) -> Mapping[Key, ReadAgain]:
    """By partition, the reads that show deleted records. `from_fetches`: as of `AnsweredStarts`. Raises
    DamagedError."""
    tasks = list(_tasks(row_groups_of(tables), deletions, from_fetches))
    by_partition: dict[Key, ReadAgain] = {}
    for task, result in zip(tasks, spread(DeletedReadsTask.look, tasks, [task.rows for task in tasks]), strict=True):
        if isinstance(result, DamagedError):
            raise result
        if result is not None:
            earlier = by_partition.get(task.key, result._replace(reads=0))
            earliest = min(earlier, result, key=lambda read: read.inv)
            by_partition[task.key] = earliest._replace(reads=earlier.reads + result.reads)
    return by_partition


def _tasks(
    groups: Mapping[Key, Sequence[RowGroup]], deletions: Deletions, from_fetches: bool
) -> Iterator[DeletedReadsTask]:
    for key, start in sorted(deletions.answered.items()):
        requests = [request for request in deletions.requests if request.partition == key[1]]
        answered = AnsweredStarts.of(requests, from_fetches=from_fetches)
        for batch in batches_of(group for group in groups.get(key, ()) if group.overlaps(0, start)):
            yield DeletedReadsTask(key, tuple(batch), answered)


# ---- Where the logs of replicas start in the end, by their nodes' files.


def final_starts(
    places: Mapping[str, Path],
    replicas: Mapping[Key, Iterable[str]],
    answered: Mapping[Key, int],
    *,
    store: Path | None,
    at_s: float,
) -> tuple[list[ReplicaStart], list[str]]:
    """The starts, and the files that could not be read, as sentences. `places`: the nodes' data directories;
    `replicas`: the nodes of each partition; `answered`: the starts that deletions were answered with; `store`: the
    directory of remote objects, None without any; `at_s`: when the nodes stopped, in seconds of the run."""
    starts, doubts = list[ReplicaStart](), list[str]()
    for key, nodes in sorted(replicas.items()):
        remote = read_remote(places, store, key) if store is not None else None
        for node in nodes:
            place = places[node]
            segments = segments_of(key, place) if place.is_dir() else []
            if not segments:
                continue  # the checker of replicas reports that the replica is missing
            first = int(segments[0].stem)
            try:
                start = log_start(key, place, first, remote)
            except ReplicaFileError as error:
                doubts.append(f"{node} has a damaged {error}")
                continue
            if start < answered.get(key, 0) and not (place / LOG_STARTS).is_file():
                doubts.append(f"{node} has no {LOG_STARTS}, so the start of {key[0]}-{key[1]} is not known there")
                continue
            size = sum(segment.stat().st_size for segment in segments)
            for remote_segment in remote.finished if remote is not None else ():
                size += remote_segment.size if start <= remote_segment.start < first else 0
            starts.append(ReplicaStart(node, key, start, at_s, size))
    return starts, doubts
