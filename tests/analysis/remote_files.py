"""Writes remote segments as their owners do: events of the metadata topic, in both encodings, and objects in a
store."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from analysis.replicafiles.remote_metadata import STATES, TOPIC
from tests.analysis.segment_files import batch, record

TOPIC_ID = UUID(int=7)


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text_id(identity: UUID) -> str:
    return base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")


def _kafka_id(topic: str, partition: int, identity: UUID) -> bytes:
    name = uvarint(len(topic) + 1) + topic.encode()
    where = name + TOPIC_ID.bytes + struct.pack(">i", partition) + uvarint(0)
    return where + identity.bytes + uvarint(0)


def kafka_started(
    identity: UUID, start: int, end: int, epochs: Sequence[tuple[int, int]], *, topic: str = "log", partition: int = 0
) -> bytes:
    """COPY_SEGMENT_STARTED of Apache Kafka: a RemoteLogSegmentMetadataRecord."""
    entries = b"".join(struct.pack(">iq", epoch, at) + uvarint(0) for epoch, at in epochs)
    numbers = struct.pack(">qqiqq", start, end, 1, 1_000, 2_000)
    tail = uvarint(len(epochs) + 1) + entries + struct.pack(">ibb", 100, 0, 0) + bytes([1, 0, 1, 1])  # one tagged field
    return uvarint(1) + uvarint(0) + uvarint(0) + _kafka_id(topic, partition, identity) + numbers + tail


def kafka_update(identity: UUID, state: str, *, topic: str = "log", partition: int = 0) -> bytes:
    """A RemoteLogSegmentMetadataRecordUpdate of Apache Kafka."""
    tail = struct.pack(">iqbb", 1, 2_000, 0, STATES.index(state)) + uvarint(0)
    return uvarint(1) + uvarint(1) + uvarint(0) + _kafka_id(topic, partition, identity) + tail


def json_started(
    identity: UUID, start: int, end: int, epochs: Sequence[tuple[int, int]], *, topic: str = "log", partition: int = 0
) -> bytes:
    fields = {"base_offset": start, "end_offset": end, "epochs": [list(each) for each in epochs]} | {
        "size": 100,
        "max_timestamp": 1_000,
        "broker": 1,
    }
    return _json(identity, "COPY_STARTED", topic, partition, fields)


def json_update(identity: UUID, state: str, *, topic: str = "log", partition: int = 0) -> bytes:
    return _json(identity, state, topic, partition, {})


def _json(identity: UUID, state: str, topic: str, partition: int, fields: dict[str, object]) -> bytes:
    where = {"topic": topic, "topic_id": text_id(TOPIC_ID), "partition": partition}
    return json.dumps({"format": 2, "state": state, "id": identity.hex, **where, **fields}).encode()


def write_events(data: Path, events: Sequence[bytes]) -> None:
    """The metadata topic on a node, one batch for each event."""
    directory = data / f"{TOPIC}-0"
    directory.mkdir(parents=True, exist_ok=True)
    content = b"".join(batch(offset, 0, [record(0, event)]) for offset, event in enumerate(events))
    (directory / f"{0:020d}.log").write_bytes(content)


def write_object(store: Path, identity: UUID, start: int, content: bytes) -> Path:
    """An object as LocalTieredStorage names it."""
    path = store / f"log-0-{text_id(TOPIC_ID)}" / f"{start:020d}-{text_id(identity)}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
