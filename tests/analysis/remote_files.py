"""Writes remote segments as their owners do: events of the metadata topic, in both encodings, and objects in a
store."""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from analysis.replicafiles import batches
from analysis.replicafiles.remote_metadata import BROWNOUT_OBJECTS, STATES, TOPIC
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
    identity: UUID,
    start: int,
    end: int,
    epochs: Sequence[tuple[int, int]],
    *,
    topic: str = "log",
    partition: int = 0,
    content: bytes = b"",
) -> bytes:
    """COPY_SEGMENT_STARTED of Apache Kafka: a RemoteLogSegmentMetadataRecord. `content`: the segment's records."""
    entries = b"".join(struct.pack(">iq", epoch, at) + uvarint(0) for epoch, at in epochs)
    latest, size = (_latest(content, start)[0], len(content)) if content else (1_000, 100)
    numbers = struct.pack(">qqiqq", start, end, 1, latest, 2_000)
    tail = (
        uvarint(len(epochs) + 1) + entries + struct.pack(">ibb", size, 0, 0) + bytes([1, 0, 1, 1])
    )  # one tagged field
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
    digest = {"size": 100, "sha256": "0" * 64}
    objects = {"objects": dict.fromkeys(BROWNOUT_OBJECTS, digest)} if state == "COPY_FINISHED" else {}
    return _json(identity, state, topic, partition, objects)


def _json(identity: UUID, state: str, topic: str, partition: int, fields: Mapping[str, object]) -> bytes:
    where = {"topic": topic, "topic_id": text_id(TOPIC_ID), "partition": partition}
    return json.dumps({"format": 2, "state": state, "id": identity.hex, **where, **fields}).encode()


def write_events(data: Path, events: Sequence[bytes]) -> None:
    """The metadata topic on a node, one batch for each event."""
    directory = data / f"{TOPIC}-0"
    directory.mkdir(parents=True, exist_ok=True)
    content = b"".join(batch(offset, 0, [record(0, event)]) for offset, event in enumerate(events))
    (directory / f"{0:020d}.log").write_bytes(content)


def write_object(
    store: Path, identity: UUID, start: int, content: bytes, lineage: Sequence[tuple[int, int]] = ()
) -> Path:
    """The objects of a segment as LocalTieredStorage names them; returns that of its records. `lineage`: the leader
    epochs of the log up to the segment's end."""
    path = store / f"log-0-{text_id(TOPIC_ID)}" / f"{start:020d}-{text_id(identity)}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.with_suffix(".index").write_bytes(b"")
    latest, offset = _latest(content, start)
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", latest, offset - start))
    checked = struct.pack(">i", 0)
    path.with_suffix(".snapshot").write_bytes(struct.pack(">hI", 1, crc32c(checked)) + checked)
    text = "".join(f"{epoch} {at}\n" for epoch, at in lineage)
    path.with_suffix(".leader_epoch_checkpoint").write_text(f"0\n{len(lineage)}\n{text}")
    return path


def _latest(content: bytes, start: int) -> tuple[int, int]:
    """The largest timestamp of some batches, and the last offset of the batch that has it."""
    table = batches.scan(content, 0, start).table
    if not len(table):
        return -1, start
    row = table[int(table[:, batches.LATEST].argmax())]
    return int(row[batches.LATEST]), int(row[batches.NEXT]) - 1
