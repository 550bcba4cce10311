"""What a run's settings leave in the logs and in the metadata log: a table of the setting and what must show.

A setting of the workload or of the topic that changes what is on disk has a row. A row yields what the files show
instead, as the end of a sentence. Settings that leave nothing are checked where they can be: those of nodes by the
checker of configuration files, acks of appends by the record of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analysis.replicafiles.batch_traits import BatchTraits
from analysis.replicafiles.cluster_metadata import TopicMetadata

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
