"""Holds the identities in the nodes' files against the metadata log, which names them too.

A node's `meta.properties` has the id of its disk, and `partition.metadata` the id of a replica's topic. Both could be
changed in all files of a node together. But a broker registers with the id of its disk, and a topic is created with its
id: the records of both are in the metadata log or in a snapshot of it. The trace of a node has the id of its disk too.
Brokers with a metadata log write the ids of their cluster and of each topic, so that a file without one was changed.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analysis.replicafiles.checkpoints import read_properties
from analysis.replicafiles.kafka import all_partitions, partitions, segments_of
from analysis.replicafiles.kraft import record_values
from analysis.replicafiles.log import ReplicaFileError

RESTORED: Final = "quorum_restored"
DIRECTORY: Final = "directory"

_FRAME: Final = 1
_REGISTER_BROKER: Final = 0
_TOPIC: Final = 2
"""The version of a metadata record's frame, and the numbers of two records, in its first bytes. The version of the
record follows, and then the broker's number (4 bytes), or the topic's name (with its length) and id."""
_BODY_AT: Final = 3
_NUMBER_BYTES: Final = 4


def unknown_identities(
    nodes: Mapping[str, Path], traces: Mapping[str, Sequence[Mapping[str, Any]]], *, traced: bool
) -> Iterator[str]:
    """Sentences: identities that the metadata log or the trace of the node does not have. `nodes`: the collected data
    directory of each; `traces`: the events of each. A system without traces may register its brokers without the ids of
    their disks; then no node's id is in the log."""
    records = [value for directory in nodes.values() for value in record_values(directory)]
    disks = {node: _property(directory / "meta.properties", "=", "directory.id") for node, directory in nodes.items()}
    brokers = [node for node, directory in nodes.items() if partitions(directory) and disks[node]]
    strange = [node for node in brokers if not _is_registered(nodes[node], disks[node], records)]
    for node in strange if traced or len(strange) < len(brokers) else ():
        yield f"{node} has the directory.id {disks[node]}, with which no broker of its number was registered"
    for node, events in traces.items():
        given = [event.get(DIRECTORY) for event in events if event["event"] == RESTORED]
        if given and given[-1] != disks.get(node):
            yield f"{node} has the directory.id {disks.get(node) or 'none'}, but its trace says {given[-1] or 'none'}"
    for (topic, identity), where in sorted(_topics(nodes).items()):
        if not _is_created(topic, identity, records):
            yield f"{where} is of the topic with the id {identity}, with which no topic of that name was created"
    yield from _unidentified(nodes)


def _unidentified(nodes: Mapping[str, Path]) -> Iterator[str]:
    """Brokers without the id of their cluster, and replicas with records but without the id of their topic."""
    for node, data in nodes.items():
        held = all_partitions(data)
        if held and not _property(data / "meta.properties", "=", "cluster.id"):
            yield f"meta.properties of {node} has no cluster.id"
        for topic, partition in held:
            if _has_records(data, topic, partition) and not _topic_id(data, topic, partition):
                yield f"{topic}-{partition} on {node} has records, but its partition.metadata has no topic_id"


def _has_records(data: Path, topic: str, partition: int) -> bool:
    return any(segment.stat().st_size for segment in segments_of((topic, partition), data))


def _is_registered(data: Path, disk: str, records: Sequence[bytes]) -> bool:
    number = _property(data / "meta.properties", "=", "node.id")
    if not number.isdecimal():
        return False
    own = int(number).to_bytes(_NUMBER_BYTES, "big")
    bodies = [body[_NUMBER_BYTES:] for body in _bodies(records, _REGISTER_BROKER) if body.startswith(own)]
    return any(_raw(disk) in body for body in bodies)


def _is_created(topic: str, identity: str, records: Sequence[bytes]) -> bool:
    name = topic.encode()
    return any(body[1:].startswith(name + _raw(identity)) for body in _bodies(records, _TOPIC))


def _bodies(records: Sequence[bytes], number: int) -> Iterator[bytes]:
    return (value[_BODY_AT:] for value in records if value[:2] == bytes((_FRAME, number)))


def _raw(identity: str) -> bytes:
    """The 16 bytes of an id; another text is in no record."""
    try:
        return urlsafe_b64decode(identity + "==")
    except (binascii.Error, ValueError):
        return identity.encode(errors="replace")


def _topics(nodes: Mapping[str, Path]) -> dict[tuple[str, str], str]:
    """The names and ids of topics, each with one replica that has it."""
    found: dict[tuple[str, str], str] = {}
    for node, data in nodes.items():
        for topic, partition in all_partitions(data):
            if said := _topic_id(data, topic, partition):
                found.setdefault((topic, said), f"{topic}-{partition} on {node}")
    return found


def _topic_id(data: Path, topic: str, partition: int) -> str:
    return _property(data / f"{topic}-{partition}" / "partition.metadata", ":", "topic_id")


def _property(path: Path, separator: str, key: str) -> str:
    """Empty if the file does not say it; the checker of replicas reports a damaged file."""
    try:
        return (read_properties(path, separator) or {}).get(key, "")
    except ReplicaFileError:
        return ""
