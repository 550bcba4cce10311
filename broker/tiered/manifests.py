"""The manifests of all logs whose events are in one partition of `__remote_log_metadata`, and their snapshot. Pure.

A snapshot is the state after the records below `offset`; it names the metadata topic by its id, and the epoch of the
last record, by which a leader detects that the records were not its own. Its first line is the CRC of the rest: local
a snapshot decides which records are deleted, so damage must not look like another state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from crc32c import crc32c

from broker.protocol.decoder import DecodeError
from broker.protocol.records import CorruptBatch, UnsupportedCompression, iter_batches, read_records
from broker.protocol.uuids import id_text, parse_id
from broker.tiered.manifest import Manifest
from broker.tiered.segments import (
    FORMAT,
    MetadataFormatError,
    SegmentEvent,
    SegmentState,
    TieredSegment,
    digests_of,
    fields_of,
)

Key = tuple[bytes, int]


class Manifests:
    """The result of the records below `offset` of one partition; `epoch` is that of the last one, -1 without any.
    `unreadable`: the first record that is not an event in this version's format, as a sentence; empty: none is."""

    def __init__(self) -> None:
        self.offset = 0
        self.epoch = -1
        self.unreadable = ""
        self._manifests: dict[Key, Manifest] = {}

    def of(self, key: Key) -> Manifest:
        """The manifest of a log; an empty one for a log without events."""
        return self._manifests.setdefault(key, Manifest())

    def __iter__(self) -> Iterator[tuple[Key, Manifest]]:
        return iter(tuple(self._manifests.items()))

    def replay(self, data: bytes) -> list[str]:
        """Apply fetched batches; returns what was wrong with records that had to be skipped."""
        wrong: list[str] = []
        for position, header in iter_batches(data):
            if header.next_offset <= self.offset:
                continue
            try:
                records = () if header.is_control else read_records(data, position)
            except (DecodeError, CorruptBatch, UnsupportedCompression) as error:
                wrong.append(f"offset {header.base_offset}: {error}")
                records = ()
            for record in records:
                if record.offset >= self.offset:
                    wrong += self._replay(record.offset, record.value or b"")
            self.offset, self.epoch = header.next_offset, header.leader_epoch
        self.unreadable = self.unreadable or next(iter(wrong), "")
        return wrong

    def _replay(self, offset: int, value: bytes) -> Iterator[str]:
        try:
            event = SegmentEvent.decode(value)
        except MetadataFormatError as error:
            yield f"offset {offset}: {error}"
            return
        self.of(event.partition.key).apply(event)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self, topic_id: bytes) -> bytes:
        """The text of the snapshot."""
        segments = [
            {
                **SegmentEvent.started(segment).to_fields(),
                "state_now": segment.state.value,
                "objects": fields_of(segment.objects),
            }
            for _, manifest in self
            for segment in manifest
        ]
        content = {"format": FORMAT, "topic_id": id_text(topic_id), "offset": self.offset, "epoch": self.epoch}
        given_up = [[id_text(key[0]), key[1], list(it.given_up)] for key, it in self if it.given_up]
        body = json.dumps({**content, "segments": segments, "given_up": given_up}, separators=(",", ":")).encode()
        return b"%08x\n%b" % (crc32c(body), body)

    @classmethod
    def restored(cls, data: bytes, topic_id: bytes) -> Manifests | None:
        """The state of a snapshot; None for a damaged one, or one of another topic of the name."""
        checksum, _, body = data.partition(b"\n")
        if checksum != b"%08x" % crc32c(body):
            return None
        try:
            content = json.loads(body)
            if content["format"] != FORMAT or content["topic_id"] != id_text(topic_id):
                return None
            found = cls()
            found.offset, found.epoch = int(content["offset"]), int(content["epoch"])
            segments: dict[Key, list[TieredSegment]] = {}
            for fields in content["segments"]:
                segment = _segment_of(fields)
                segments.setdefault(segment.partition.key, []).append(segment)
            given_up = {(parse_id(topic), int(index)): ids for topic, index, ids in content["given_up"]}
        except (ValueError, KeyError, TypeError):
            return None
        keys = segments.keys() | given_up.keys()
        found._manifests = {key: Manifest(segments.get(key, ()), given_up.get(key, ())) for key in sorted(keys)}
        return found


def _segment_of(fields: Mapping[str, Any]) -> TieredSegment:
    """A segment of a snapshot. Raises `ValueError`, `KeyError` or `TypeError`."""
    segment = SegmentEvent.from_fields(fields).segment
    if segment is None:
        raise ValueError(f"the segment {fields['id']} has no metadata")
    objects = digests_of(fields["objects"]) if fields["objects"] else ()
    return replace(segment, state=SegmentState(fields["state_now"]), objects=objects)
