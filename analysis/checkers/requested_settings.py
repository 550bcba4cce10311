"""The settings of the workload and the topic: what they ask for must show in the files.
`analysis/core/requested_settings.py` has the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.metadata_quorum import KRAFT
from analysis.checkers.replicas import FILES
from analysis.doubt import Reason
from analysis.evidence.run_directory import topic_settings_in
from analysis.verdict import NOT_APPLICABLE, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.evidence.run_directory import RunDescription
    from analysis.replicafiles.batch_traits import BatchTraits
    from analysis.replicafiles.cluster_metadata import TopicMetadata

NOT_SHOWN: Final = Reason(
    "setting-not-shown", "The files do not show what a setting of the workload or of the topic asks for."
)
NONE: Final = "none"


@dataclass(frozen=True)
class TraitsTask:
    """A replica: the partition and the node's collected data directory, and the format of its files."""

    key: tuple[str, int]
    data: Path
    format: str


def check(run: CheckedRun) -> Outcome:
    """Compare the settings with the replicas' files and with the metadata log."""
    from analysis.core.requested_settings import Requested, Shown, contradictions
    from analysis.replicafiles.formats import FORMATS

    description = run.description
    if description.replica_format not in FORMATS or not run.plan.replicas:
        return Outcome(NOT_APPLICABLE, "the files of this system's replicas cannot be read")
    brokers = [description.node_settings.get(name, {}) for names in run.plan.replicas.values() for name in names]
    requested = Requested(description.traced_settings, description.topic_settings, brokers)
    numbers = {name: number for number, name in enumerate(description.node_names, 1)}
    shown = Shown(
        traits=_traits(run),
        topic=_topic(run) if description.metadata_format == KRAFT else None,
        weak=_weak(run),
        replicas={key[1]: frozenset(numbers[name] for name in names) for key, names in run.plan.replicas.items()},
        changed=topic_settings_in(description.steps),
    )
    doubts = list(contradictions(requested, shown))
    if description.metadata_format == KRAFT and shown.topic is None:
        doubts.append(f"no node's metadata log has the topic {description.topic}")
    count = len(requested.workload) + len(requested.topic)
    if doubts:
        return Outcome(UNKNOWN, f"{counted(count, 'setting')}, not all of them shown", doubts=NOT_SHOWN.say(doubts))
    return Outcome(PASS, f"{counted(count, 'setting')} of workload and topic as the files show")


def _traits(run: CheckedRun) -> Mapping[tuple[str, int], BatchTraits]:
    """The traits of each replica, by node and partition."""
    nodes = {node: (run.directory / "nodes" / node / "data").resolve() for node in run.plan.nodes}
    places = [(node, key) for key, names in run.plan.replicas.items() for node in names if nodes[node].is_dir()]
    tasks = [TraitsTask(key, nodes[node], run.description.replica_format) for node, key in places]
    traits = run.spread(sum(_weight(task) for task in tasks))(_read, tasks, [_weight(task) for task in tasks])
    return {(node, key[1]): replica_traits for (node, key), replica_traits in zip(places, traits, strict=True)}


def _weight(task: TraitsTask) -> int:
    from analysis.engines.replica_parts import BYTES_PER_ROW
    from analysis.replicafiles.formats import FORMATS

    return sum(path.stat().st_size for path in FORMATS[task.format].segments(task.key, task.data)) // BYTES_PER_ROW


def _read(task: TraitsTask) -> BatchTraits:
    from analysis.replicafiles.batch_traits import read_traits
    from analysis.replicafiles.formats import FORMATS

    return read_traits(FORMATS[task.format].segments(task.key, task.data))


def _topic(run: CheckedRun) -> TopicMetadata | None:
    """The topic by the node whose metadata log knows most elections."""
    from analysis.replicafiles.cluster_metadata import read_cluster_metadata

    places = [run.directory / "nodes" / node / "data" for node in run.plan.nodes]
    described = [read_cluster_metadata(place).topics.get(run.description.topic) for place in places if place.is_dir()]
    topics = [topic for topic in described if topic is not None and topic.partitions]
    return max(topics, key=lambda topic: sum(partition.epoch for partition in topic.partitions.values()), default=None)


def _weak(run: CheckedRun) -> Mapping[int, int]:
    """Appends with another acks than all, by partition; those without a known result, too."""
    import pyarrow.compute as pc

    from history.record.schemas import ACKS_ALL, APPEND

    counts: Counter[int] = Counter()
    for part in run.history.logs.parts("f", "acks", "partition"):
        weak = part.filter(pc.and_(pc.equal(part["f"], APPEND), pc.not_equal(part["acks"], ACKS_ALL)))
        counts.update(weak["partition"].to_pylist())
    return counts


def _is_read(description: RunDescription) -> bool:
    return description.replica_format != NONE and bool(description.partitions)


CHECKER: Final = Checker(
    "requested settings",
    "Do the files show what the settings of the workload and of the topic ask for?",
    8,
    (),
    check,
    (NOT_SHOWN,),
    may_rest=lambda description: not _is_read(description),
    reads="|".join((PLAN, JOURNAL, OPERATIONS, FILES)),
)
