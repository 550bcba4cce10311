"""Reads topics, their settings and the leaders of their partitions from the metadata log of a KRaft quorum.

Written from the schemas of Apache Kafka's metadata records and independent of the broker under test. A partition's
leader epoch is not in the record of a change: it rises by one with each change that names a leader, or that none leads.
If the start of the log was deleted, a snapshot replaces it, and earlier changes are unknown.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from analysis.replicafiles import batches
from analysis.replicafiles.keyed_records import keyed_records
from analysis.replicafiles.kraft import PARTITION, TOPIC
from analysis.replicafiles.log import ReplicaFileError
from history.kafka.flexible_messages import FlexibleReader
from history.regular_files import read_bytes

NO_LEADER: Final = -1

_FRAME: Final = 1
_TOPIC, _PARTITION, _CONFIG, _PARTITION_CHANGE, _REMOVE_TOPIC = 2, 3, 4, 5, 9  # the numbers of records
_TOPIC_RESOURCE: Final = 2
_LEADER_TAG, _REPLICAS_TAG = 1, 2  # tagged fields of a change
_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_Apply = Callable[[FlexibleReader, int], None]


@dataclass
class PartitionMetadata:
    """`replicas`: node ids. `epoch`: the current leader epoch. `leaders`: by leader epoch the node that was elected,
    `NO_LEADER` if none was; earlier epochs than the first one are not known."""

    replicas: tuple[int, ...]
    epoch: int
    leaders: dict[int, int]


@dataclass
class TopicMetadata:
    """A topic that exists. `settings`: those that differ from the brokers'. `partitions`: by number."""

    name: str
    id: str
    settings: dict[str, str] = field(default_factory=dict)
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


@dataclass
class ClusterMetadata:
    """The topics by name, in the state at the log's end. `doubts`: what could not be read."""

    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    _by_id: dict[str, TopicMetadata] = field(default_factory=dict)

    def apply(self, value: bytes) -> None:
        """One record. Raises ValueError, IndexError or struct.error for a malformed one."""
        reader = FlexibleReader(value)
        if (frame := reader.varint()) != _FRAME:
            raise ValueError(f"frame version {frame}")
        number, version = reader.varint(), reader.varint()
        appliers: Mapping[int, _Apply] = {
            _TOPIC: self._topic,
            _PARTITION: self._partition,
            _CONFIG: self._config,
            _PARTITION_CHANGE: self._change,
            _REMOVE_TOPIC: self._remove,
        }
        if number in appliers:
            appliers[number](reader, version)

    def _topic(self, reader: FlexibleReader, _: int) -> None:
        name, identity = reader.text(), reader.uuid()
        settings = self.topics[name].settings if name in self.topics else {}
        self.topics[name] = self._by_id[identity] = TopicMetadata(name, identity, settings)

    def _partition(self, reader: FlexibleReader, _: int) -> None:
        number, identity = reader.number(">i"), reader.uuid()
        replicas = reader.array(lambda: reader.number(">i"))
        for _ in range(3):  # in sync, removed, added
            reader.array(lambda: reader.number(">i"))
        leader, epoch = reader.number(">i"), reader.number(">i")
        if identity in self._by_id:
            self._by_id[identity].partitions[number] = PartitionMetadata(tuple(replicas), epoch, {epoch: leader})

    def _config(self, reader: FlexibleReader, _: int) -> None:
        if reader.number(">b") != _TOPIC_RESOURCE:
            return
        topic, name, value = reader.text(), reader.text(), reader.compact_bytes()
        # A new topic's settings may precede its own record.
        settings = self.topics.setdefault(topic, TopicMetadata(topic, "")).settings
        settings.pop(name, None)
        if value is not None:
            settings[name] = value.decode()

    def _change(self, reader: FlexibleReader, _: int) -> None:
        number, identity = reader.number(">i"), reader.uuid()
        tags = reader.tags()
        partition = self._by_id[identity].partitions.get(number) if identity in self._by_id else None
        if partition is None:
            return
        if _REPLICAS_TAG in tags:
            inner = FlexibleReader(tags[_REPLICAS_TAG])
            partition.replicas = tuple(inner.array(lambda: inner.number(">i")))
        if _LEADER_TAG in tags:
            partition.epoch += 1
            partition.leaders[partition.epoch] = FlexibleReader(tags[_LEADER_TAG]).number(">i")

    def _remove(self, reader: FlexibleReader, _: int) -> None:
        topic = self._by_id.pop(reader.uuid(), None)
        if topic is not None and self.topics.get(topic.name) is topic:
            del self.topics[topic.name]


def read_cluster_metadata(data: Path) -> ClusterMetadata:
    """The metadata on a node, from its collected data directory."""
    metadata = ClusterMetadata()
    try:
        for value in _values(data / f"{TOPIC}-{PARTITION}"):
            metadata.apply(value)
    except (ReplicaFileError, OSError, ValueError, IndexError, struct.error) as error:
        metadata.doubts.append(f"the metadata log cannot be read: {type(error).__name__}: {error}")
    return metadata


def _values(directory: Path) -> Iterator[bytes]:
    """The values of the records in their order: those of a snapshot if the log's start was deleted, and of the log."""
    segments = sorted(directory.glob("[0-9]*.log"))
    first = int(segments[0].stem) if segments else 0
    snapshots = sorted((int(name[1]), path) for path in directory.iterdir() if (name := _SNAPSHOT.fullmatch(path.name)))
    done = 0
    if first or not segments:
        usable = [snapshot for snapshot in snapshots if snapshot[0] >= first] or snapshots[-1:]
        if usable:
            done, path = usable[0]
            yield from (value for _, value in _records(path, 0))
    for path in segments:
        yield from (value for offset, value in _records(path, int(path.stem)) if offset >= done)


def _records(path: Path, base: int) -> Iterator[tuple[int, bytes]]:
    """The offsets and values of a file's records, up to its first damaged batch, which other checkers report."""
    data = read_bytes(path)
    for record in keyed_records(data, batches.scan(data, 0, base).table):
        if record.value is not None:
            yield record.offset, record.value
