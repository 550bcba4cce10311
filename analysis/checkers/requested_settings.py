"""The settings of the workload and the topic: what they ask for must show in the files.

A setting of the workload or of the topic that changes what is on disk has a row in a table. A row yields what the files
show instead, as the end of a sentence. Settings that leave nothing are checked where they can be: those of nodes by the
checker of configuration files, acks of appends by the record of operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.metadata_quorum import KRAFT
from analysis.checkers.replicas import FILES
from analysis.doubt import Reason
from analysis.evidence.run_directory import topic_settings_in
from analysis.verdict import NOT_APPLICABLE, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.replicafiles.batches import BatchTraits
    from analysis.replicafiles.cluster_metadata import TopicMetadata

NOT_SHOWN: Final = Reason(
    "setting-not-shown", "The files do not show what a setting of the workload or of the topic asks for."
)
NONE: Final = "none"


@dataclass(frozen=True)
class TraitsTask:
    """A replica: the partition and the node's collected data directory."""

    key: tuple[str, int]
    data: Path


def check(run: CheckedRun) -> Outcome:
    """Compare the settings with the replicas' files and with the metadata log."""
    description = run.description
    if not description.has_replica_files or not run.plan.replicas:
        return Outcome(NOT_APPLICABLE, "the files of this system's replicas cannot be read")
    brokers = [description.node_settings.get(name, {}) for names in run.plan.replicas.values() for name in names]
    requested = Requested(description.traced_settings, description.workload.topic_settings, brokers)
    numbers = {name: number for number, name in enumerate(description.node_names, 1)}
    shown = Shown(
        traits=_traits(run),
        topic=_topic(run) if description.metadata.format == KRAFT else None,
        weak=_weak(run),
        replicas={key[1]: frozenset(numbers[name] for name in names) for key, names in run.plan.replicas.items()},
        changed=topic_settings_in(description.steps),
    )
    doubts = list(contradictions(requested, shown))
    if description.metadata.format == KRAFT and shown.topic is None:
        doubts.append(f"no node's metadata log has the topic {description.workload.topic}")
    count = len(requested.workload) + len(requested.topic)
    if doubts:
        return Outcome(UNKNOWN, f"{counted(count, 'setting')}, not all of them shown", doubts=NOT_SHOWN.say(doubts))
    return Outcome(PASS, f"{counted(count, 'setting')} of workload and topic as the files show")


def _traits(run: CheckedRun) -> Mapping[tuple[str, int], BatchTraits]:
    """The traits of each replica, by node and partition."""
    nodes = {node: (run.directory / "nodes" / node / "data").resolve() for node in run.plan.nodes}
    places = [(node, key) for key, names in run.plan.replicas.items() for node in names if nodes[node].is_dir()]
    tasks = [TraitsTask(key, nodes[node]) for node, key in places]
    traits = run.spread(sum(_weight(task) for task in tasks))(_read, tasks, [_weight(task) for task in tasks])
    return {(node, key[1]): replica_traits for (node, key), replica_traits in zip(places, traits, strict=True)}


def _weight(task: TraitsTask) -> int:
    from analysis.engines.replica_parts import BYTES_PER_ROW
    from analysis.replicafiles.kafka import segments_of

    return sum(path.stat().st_size for path in segments_of(task.key, task.data)) // BYTES_PER_ROW


def _read(task: TraitsTask) -> BatchTraits:
    from analysis.replicafiles.batches import read_traits
    from analysis.replicafiles.kafka import segments_of

    return read_traits(segments_of(task.key, task.data))


def _topic(run: CheckedRun) -> TopicMetadata | None:
    """The topic by the node whose metadata log knows most elections."""
    from analysis.replicafiles.cluster_metadata import read_cluster_metadata

    places = [run.directory / "nodes" / node / "data" for node in run.plan.nodes]
    described = [
        read_cluster_metadata(place).topics.get(run.description.workload.topic) for place in places if place.is_dir()
    ]
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


PRODUCER_CODEC: Final = ("", "producer")
"""Values of `compression.type` with which a topic keeps the codec of the producers."""


@dataclass(frozen=True)
class Shown:
    """What a run shows. `traits`: of each replica, by node and partition. `topic`: as the metadata log has it, None for
    a system without one. `weak`: appends with another acks than all, by partition. `replicas`: the nodes' numbers, by
    partition of the plan. `changed`: the settings of the topic that a script changed."""

    traits: Mapping[tuple[str, int], BatchTraits]
    topic: TopicMetadata | None
    weak: Mapping[int, int]
    replicas: Mapping[int, frozenset[int]]
    changed: Mapping[str, str]


@dataclass(frozen=True)
class Requested:
    """What a run asks for. `workload`: its settings that leave traces, without those that its kind does not have.
    `topic`: settings of the topic. `brokers`: those of each broker."""

    workload: Mapping[str, Any]
    topic: Mapping[str, str]
    brokers: Sequence[Mapping[str, str]]

    def of_topic(self, name: str, of_broker: str) -> frozenset[str]:
        """The values of a topic's setting: its own, or those of the brokers; empty if none is stated."""
        if name in self.topic:
            return frozenset({self.topic[name]})
        return frozenset(broker[of_broker] for broker in self.brokers if of_broker in broker)


Row = Callable[[Any, Requested, Shown], Iterator[str]]


def _idempotent(value: bool, _: Requested, shown: Shown) -> Iterator[str]:
    """KIP-98: a batch of an idempotent producer has the producer's id. Appends with acks other than all have none."""
    for (node, partition), traits in sorted(shown.traits.items()):
        without = traits.records[False]
        if value and traits.older:
            yield f"log of partition {partition} on {node} has records in a format without producer ids"
        elif value and without > shown.weak.get(partition, 0):
            yield f"{without:,} records of partition {partition} on {node} are in batches without a producer id"
        elif not value and traits.records[True]:
            yield f"{traits.records[True]:,} records of partition {partition} on {node} have a producer id"


def _compression(value: str, requested: Requested, shown: Shown) -> Iterator[str]:
    """A client leaves a batch uncompressed that compression does not shrink."""
    if not requested.of_topic("compression.type", "compression.type") <= frozenset(PRODUCER_CODEC):
        return
    for (node, partition), traits in sorted(shown.traits.items()):
        if other_codecs := traits.codecs.keys() - {value, "none"}:
            yield f"partition {partition} on {node} has batches of {', '.join(sorted(other_codecs))}"
        elif value != "none" and traits.compressible:
            yield f"partition {partition} on {node} has uncompressed batches that compression shrinks"


def _batch_records(value: int, _: Requested, shown: Shown) -> Iterator[str]:
    for (node, partition), traits in sorted(shown.traits.items()):
        if traits.largest > value > 0:
            yield f"partition {partition} on {node} has a batch of {traits.largest:,} records"


def _compression_type(value: str, _: Requested, shown: Shown) -> Iterator[str]:
    codec = "none" if value == "uncompressed" else value
    for (node, partition), traits in sorted(shown.traits.items()):
        if value not in PRODUCER_CODEC and (other_codecs := traits.codecs.keys() - {codec}):
            yield f"partition {partition} on {node} has batches of {', '.join(sorted(other_codecs))}"


def _timestamp_type(value: str, _: Requested, shown: Shown) -> Iterator[str]:
    stamps = value == "LogAppendTime"
    for (node, partition), traits in sorted(shown.traits.items()):
        if mismatches := traits.stamped[not stamps]:
            by = "clients" if stamps else "brokers"
            yield f"{mismatches:,} batches of partition {partition} on {node} have timestamps of {by}"


def _segment_bytes(value: str, _: Requested, shown: Shown) -> Iterator[str]:
    for (node, partition), traits in sorted(shown.traits.items()):
        if value.isdecimal() and traits.segment_bytes > int(value):
            yield f"partition {partition} on {node} has a segment of {traits.segment_bytes:,} bytes"


OF_WORKLOAD: Final[Mapping[str, Row]] = {
    "idempotent": _idempotent,
    "compression": _compression,
    "batch_records": _batch_records,
}
OF_TOPIC: Final[Mapping[str, tuple[str, Row]]] = {
    "compression.type": ("compression.type", _compression_type),
    "message.timestamp.type": ("log.message.timestamp.type", _timestamp_type),
    "segment.bytes": ("log.segment.bytes", _segment_bytes),
}
"""By the topic's setting: the brokers' setting that is its default, and what must show."""


def contradictions(requested: Requested, shown: Shown) -> Iterator[str]:
    """What the logs and the metadata log do not show as it was asked for: sentences."""
    for name, row in OF_WORKLOAD.items():
        if name in requested.workload:
            value = requested.workload[name]
            yield from (
                f"the workload has {name} = {_told(value)}, but {reason}" for reason in row(value, requested, shown)
            )
    for name, (of_broker, row) in OF_TOPIC.items():
        values = requested.of_topic(name, of_broker)
        if len(values) == 1 and name not in shown.changed:
            (value,) = values
            yield from (f"the topic has {name} = {value}, but {reason}" for reason in row(value, requested, shown))
    yield from _in_metadata(requested, shown)


def _in_metadata(requested: Requested, shown: Shown) -> Iterator[str]:
    """Every setting of the topic, the number of its partitions, and their replicas are in the metadata log."""
    topic = shown.topic
    if topic is None:
        return
    for name, value in sorted((dict(requested.topic) | dict(shown.changed)).items()):
        setting = topic.settings.get(name)
        if setting not in {value, requested.topic.get(name, value)}:
            yield f"the topic has {name} = {value}, but the metadata log has {'none' if setting is None else setting}"
    if missing := sorted(shown.replicas.keys() ^ topic.partitions.keys()):
        yield f"the plan has {len(shown.replicas)} partitions, but the metadata log differs in {missing}"
        return
    for number, planned in sorted(shown.replicas.items()):
        placed = frozenset(topic.partitions[number].replicas)
        if placed != planned:
            yield (
                f"partition {number} is planned on nodes {sorted(planned)}, but the metadata log has it on "
                f"{sorted(placed)}"
            )


def _told(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


CHECKER: Final = Checker(
    "requested settings",
    "Do the files show what the settings of the workload and of the topic ask for?",
    8,
    (),
    check,
    (NOT_SHOWN,),
    may_rest=lambda description: description.replicas.format == NONE or not description.workload.partitions,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, FILES)),
)
