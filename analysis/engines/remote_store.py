"""Compares the segments in remote storage with the replicas, partition by partition: tasks that an engine maps.

A task decodes the replicas and the segments of a partition and applies the rules of `analysis.core.remote_rules`. It
returns anomalies and the number of segments, so no record leaves the worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analysis.core import remote_rules as rules
from analysis.core.anomaly import Anomaly
from analysis.core.explain import Key
from analysis.core.remote_object_rules import wrong_objects
from analysis.engines.replica_parts import BYTES_PER_ROW
from analysis.engines.task_map import TaskMap
from analysis.replicafiles.kafka import read_partition, read_remote, segments_of
from analysis.replicafiles.remote_objects import read_objects


@dataclass(frozen=True)
class StoreTask:
    """A partition: the data directories of all nodes, the nodes with a replica, and the
    directory of the objects. `intact`: the nodes whose replica lacks only what it removed; `keeps_committed`: no
    replica can have lost a committed record; `forgets_producers`: a replica may forget a producer. `deleted_to`:
    records of lower offsets may have been deleted, INF without a bound."""

    key: Key
    nodes: Mapping[str, Path]
    replicas: tuple[str, ...]
    store: Path
    intact: frozenset[str]
    keeps_committed: bool
    forgets_producers: bool
    deleted_to: int = 0

    @cached_property
    def rows(self) -> int:
        """About how many records the replicas have."""
        places = [self.nodes[name] for name in self.replicas if name in self.nodes]
        files = [file for place in places for file in segments_of(self.key, place)]
        return sum(file.stat().st_size for file in files) // BYTES_PER_ROW


@dataclass(frozen=True)
class StoreFindings:
    """The complete segments of some partitions, and what is wrong with them."""

    segments: int
    anomalies: tuple[Anomaly, ...]


def compare_store(tasks: Sequence[StoreTask], spread: TaskMap) -> StoreFindings:
    """The findings of all partitions, in the order of the tasks."""
    heaviest_first = sorted(range(len(tasks)), key=lambda number: -tasks[number].rows)
    unordered = spread(_compare, [tasks[number] for number in heaviest_first], [tasks[n].rows for n in heaviest_first])
    of_number = dict(zip(heaviest_first, unordered, strict=True))
    results = [of_number[number] for number in range(len(tasks))]
    return StoreFindings(
        sum(findings.segments for findings in results),
        tuple(anomaly for findings in results for anomaly in findings.anomalies),
    )


def _compare(task: StoreTask) -> StoreFindings:
    remote = read_remote(task.nodes, task.store, task.key)
    if remote is None:
        return StoreFindings(0, ())
    logs = [
        read_partition(name, task.key, task.nodes[name], remote=remote) for name in task.replicas if name in task.nodes
    ]
    anomalies = [*rules.incomplete(remote), *rules.differing(remote, logs)]
    objects = [read_objects(segment, remote.objects.get(segment.id, {})) for segment in remote.finished]
    anomalies += wrong_objects(objects, logs, forgets_producers=task.forgets_producers, deleted_to=task.deleted_to)
    anomalies += rules.removed([log for log in logs if log.node in task.intact], remote, task.deleted_to)
    anomalies += rules.uncommitted(remote, logs) if task.keeps_committed else ()
    return StoreFindings(len(remote.finished), tuple(anomalies))
