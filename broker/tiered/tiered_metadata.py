"""This broker's view of `__remote_log_metadata`: reads the partitions that it needs, and appends events.

Theory of operation. A broker needs a partition of the topic if it has a replica of a log whose events are there, or if
it leads that partition (then it deletes the remote segments of deleted topics). It reads such a partition like a
consumer, from its leader and only below the high watermark, and keeps the manifests of all logs in it. A new replica
thus needs nothing that is not read already, and every broker computes the same manifests from the same committed
records. What an event has done is known once it was read back; `publish` waits for that.

An answer is used only if the leader gave it under its lease. The end of the partition at the time of a request is
therefore the end of all events that were committed before; `caught_up` waits for an answer to a later request.

The state is written to a snapshot after `SNAPSHOT_EVERY` records and at a stop, so that a restart reads only the rest.
If the partition does not have the snapshot's last record (its epoch differs), it is read from its start.

The manifests of all logs whose events are in one partition of `__remote_log_metadata`, and their snapshot. Pure.

A snapshot is the state after the records below `offset`; it names the metadata topic by its id, and the epoch of the
last record, by which a leader detects that the records were not its own. Its first line is the CRC of the rest: local
a snapshot decides which records are deleted, so damage must not look like another state.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from crc32c import crc32c

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.ports import Disk
from broker.protocol.decoder import DecodeError
from broker.protocol.records import CorruptBatch, UnsupportedCompression, iter_batches, read_records
from broker.protocol.uuids import id_text, parse_id
from broker.tiered.manifest import Manifest
from broker.tiered.metadata_log import MetadataAnswer, MetadataLog, Position, PublishError
from broker.tiered.metadata_topic import batch_of, metadata_partition
from broker.tiered.remote_storage_rules import METADATA_TOPIC
from broker.tiered.segments import (
    FORMAT,
    MetadataFormatError,
    SegmentEvent,
    SegmentState,
    TieredSegment,
    digests_of,
    fields_of,
)
from broker.trace import Tracer

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
        given_up = [
            [id_text(key[0]), key[1], list(manifests.given_up)] for key, manifests in self if manifests.given_up
        ]
        body = json.dumps({**content, "segments": segments, "given_up": given_up}, separators=(",", ":")).encode()
        return b"%08x\n%b" % (crc32c(body), body)

    @classmethod
    def restored(cls, data: bytes, topic_id: bytes) -> "Manifests | None":
        """The state of a snapshot; None for a damaged one, or one of another topic of the name."""
        checksum, _, body = data.partition(b"\n")
        if checksum != b"%08x" % crc32c(body):
            return None
        try:
            content = json.loads(body)
            if content["format"] != FORMAT or content["topic_id"] != id_text(topic_id):
                return None
            snapshot = cls()
            snapshot.offset, snapshot.epoch = int(content["offset"]), int(content["epoch"])
            segments: dict[Key, list[TieredSegment]] = {}
            for fields in content["segments"]:
                segment = _segment_of(fields)
                segments.setdefault(segment.partition.key, []).append(segment)
            given_up = {(parse_id(topic), int(index)): ids for topic, index, ids in content["given_up"]}
        except (ValueError, KeyError, TypeError):
            return None
        keys = segments.keys() | given_up.keys()
        snapshot._manifests = {key: Manifest(segments.get(key, ()), given_up.get(key, ())) for key in sorted(keys)}
        return snapshot


def _segment_of(fields: Mapping[str, Any]) -> TieredSegment:
    """A segment of a snapshot. Raises `ValueError`, `KeyError` or `TypeError`."""
    segment = SegmentEvent.from_fields(fields).segment
    if segment is None:
        raise ValueError(f"the segment {fields['id']} has no metadata")
    objects = digests_of(fields["objects"]) if fields["objects"] else ()
    return replace(segment, state=SegmentState(fields["state_now"]), objects=objects)


IDLE_S = 0.25
"""Pause between two reads when no task waits for one."""
HURRY_S = 0.005
"""The same when a task waits: the leader may not have committed its event yet."""
SNAPSHOT_EVERY = 1_000
SNAPSHOT_FILE: Final = "remote-log-metadata-{}.snapshot"


@dataclass
class _Reading:
    """One partition of the topic. `confirmed_at`: when the request was sent whose answer showed that everything was
    read, in loop time; -inf: it was not read to its end yet."""

    manifests: Manifests = field(default_factory=Manifests)
    confirmed_at: float = float("-inf")
    snapshot_at: int = 0


class TieredMetadata:
    """Call `apply` when the metadata have changed, and `need` with the logs that this broker has replicas of."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        disk: Disk,
        log: MetadataLog,
        wall_ms: Callable[[], int],
        tracer: Tracer,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = log
        self._wall_ms = wall_ms
        self._tracer = tracer
        self._say = say
        self._patience_s = 2 * log.timeout_s
        self._image = MetadataImage()
        self._topic_id: bytes | None = None
        self._readings: dict[int, _Reading] = {}
        self._wanted: set[int] = set()
        self._hurry = asyncio.Event()
        self._news = asyncio.Condition()
        self._refused: str | None = None

    # -- what is needed -----------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """The number of the topic's partitions; 0 while it does not exist."""
        topic = self._image.topics.get(METADATA_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def apply(self, image: MetadataImage, logs: Iterable[Key]) -> None:
        """Follow the metadata. `logs`: with remote storage and a replica on this broker."""
        self._image = image
        topic = image.topics.get(METADATA_TOPIC)
        topic_id = None if topic is None else topic.id
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._readings.clear()
        count = self.partitions
        node_id = self._config.node_id
        led = (
            {index for index, partition in topic.partitions.items() if partition.leader == node_id}
            if topic is not None
            else set()
        )
        self._wanted = led | {metadata_partition(key, count) for key in logs if count}

    def manifest(self, key: Key) -> Manifest:
        """The manifest of a log, as far as its events were read."""
        reading = self._reading_of(key)
        return Manifest() if reading is None else reading.manifests.of(key)

    def is_read(self, key: Key) -> bool:
        """Whether the events of a log were read to their end since this process started."""
        reading = self._reading_of(key)
        return reading is not None and reading.confirmed_at > float("-inf")

    def unreadable(self, key: Key) -> str:
        """Why the manifest of a log may lack events: a record that this version cannot read; empty: it lacks none.
        Nothing may be deleted then, neither remotely nor locally."""
        reading = self._reading_of(key)
        return "" if reading is None else reading.manifests.unreadable

    @property
    def unreadable_partitions(self) -> int:
        """The number of partitions of the topic with a record that this version cannot read."""
        return sum(bool(reading.manifests.unreadable) for reading in self._readings.values())

    def led_manifests(self) -> list[tuple[Key, Manifest]]:
        """The manifests in the partitions of the topic that this broker leads and has read to the end."""
        topic = self._image.topics.get(METADATA_TOPIC)
        if topic is None:
            return []
        node_id = self._config.node_id
        led = [index for index, reading in topic.partitions.items() if reading.leader == node_id]
        read = [self._readings[index] for index in led if index in self._readings]
        return [manifest for reading in read if reading.confirmed_at > float("-inf") for manifest in reading.manifests]

    def _reading_of(self, key: Key) -> _Reading | None:
        return self._readings.get(metadata_partition(key, self.partitions)) if self.partitions else None

    # -- events -------------------------------------------------------------------------------------------------

    async def publish(self, event: SegmentEvent) -> bool:
        """Append an event, and wait until it was read back; returns whether the segment is in that state then.

        Raises `PublishError` if that is not known in time.
        """
        index = metadata_partition(event.partition.key, self.partitions) if self.partitions else -1
        leader = self._leader(index)
        if leader < 0:
            raise PublishError(f"{METADATA_TOPIC}-{index} has no leader, or does not exist yet")
        offset = await self._log.append(leader, index, batch_of(event, self._wall_ms()))
        try:
            async with asyncio.timeout(self._patience_s):
                await self._until(lambda: self._offset(index) > offset)
        except TimeoutError:
            raise PublishError(f"{METADATA_TOPIC}-{index}: offset {offset} was not read back") from None
        segment = self.manifest(event.partition.key).get(event.id)
        return (None if segment is None else segment.state) in (event.state, *_gone(event))

    async def caught_up(self, key: Key) -> None:
        """Return once all events of a log that were committed before the call were read. Raises `PublishError` if that
        takes too long."""
        since = _now()
        try:
            async with asyncio.timeout(self._patience_s):
                await self._until(
                    lambda: (reading := self._reading_of(key)) is not None and reading.confirmed_at >= since
                )
        except TimeoutError:
            raise PublishError(f"{METADATA_TOPIC} could not be read to its end") from None

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._news:
            while not condition():
                self._hurry.set()
                await self._news.wait()

    def _offset(self, index: int) -> int:
        reading = self._readings.get(index)
        return -1 if reading is None else reading.manifests.offset

    def _leader(self, index: int) -> int:
        state = self._image.partition(METADATA_TOPIC, index)
        return -1 if state is None else state.leader

    # -- reading ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read, as long as the broker runs. Raises `OSError` of the disk."""
        while True:
            await self._read_all()
            async with self._news:
                self._news.notify_all()
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._hurry.wait()
                await asyncio.sleep(HURRY_S)
            except TimeoutError:
                pass
            self._hurry.clear()

    async def _read_all(self) -> None:
        await self._adjust()
        by_leader: dict[int, list[int]] = {}
        for index in sorted(self._readings):
            by_leader.setdefault(self._leader(index), []).append(index)
        by_leader.pop(-1, None)
        await asyncio.gather(*(self._read_from(leader, indexes) for leader, indexes in by_leader.items()))

    async def _adjust(self) -> None:
        """Start to read what is needed now, each partition from its snapshot."""
        for index in [it for it in self._readings if it not in self._wanted]:
            await self._write_snapshot(index)
            self._readings.pop(index, None)
        topic_id = self._topic_id
        if topic_id is not None:
            for index in sorted(self._wanted - self._readings.keys()):
                manifests = self._stored(index, topic_id) or Manifests()
                self._readings[index] = _Reading(manifests, snapshot_at=manifests.offset)

    async def _read_from(self, leader: int, indexes: list[int]) -> None:
        """One request to a leader of some partitions."""
        topic_id, sent_at = self._topic_id, _now()
        if topic_id is None:
            return
        readings = {index: self._readings[index] for index in indexes}
        positions = [Position(index, it.manifests.offset, it.manifests.epoch) for index, it in readings.items()]
        for answer in await self._log.read(leader, topic_id, positions):
            reading = readings.get(answer.partition)
            if reading is not None and self._readings.get(answer.partition) is reading:
                await self._take(answer, reading, sent_at)

    async def _take(self, answer: MetadataAnswer, reading: _Reading, sent_at: float) -> None:
        index = answer.partition
        if answer.reread:
            self._tracer.emit("remote_metadata_reread", partition=index, offset=reading.manifests.offset)
            self._readings[index] = _Reading()
            return
        was_readable = not reading.manifests.unreadable
        for reason in reading.manifests.replay(answer.records):
            self._tracer.emit("remote_metadata_refused", partition=index, reason=reason)
        if was_readable and reading.manifests.unreadable:
            self._say(
                f"{METADATA_TOPIC}-{index}: {reading.manifests.unreadable}; no segment whose events are there is "
                "deleted, until all brokers run a version that reads it"
            )
        if 0 <= answer.high_watermark <= reading.manifests.offset:
            reading.confirmed_at = sent_at
        else:
            self._hurry.set()
        if reading.manifests.offset - reading.snapshot_at >= SNAPSHOT_EVERY:
            await self._write_snapshot(index)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def _stored(self, index: int, topic_id: bytes) -> Manifests | None:
        path = SNAPSHOT_FILE.format(index)
        if not self._disk.exists(path):
            return None
        file = self._disk.open(path)
        try:
            restored = Manifests.restored(file.read(0, file.size()), topic_id)
        finally:
            file.close()
        if restored is None:
            self._tracer.emit("remote_metadata_reread", partition=index, offset=0)
        return restored

    async def _write_snapshot(self, index: int) -> None:
        reading, topic_id = self._readings.get(index), self._topic_id
        if reading is not None and reading.manifests.unreadable:
            return  # a later version reads the record itself
        if reading is not None and topic_id is not None and reading.manifests.offset > reading.snapshot_at:
            reading.snapshot_at = reading.manifests.offset
            await self._disk.replace_file(SNAPSHOT_FILE.format(index), reading.manifests.snapshot(topic_id))

    async def stop(self) -> None:
        """Write all snapshots. Raises `OSError`."""
        for index in sorted(self._readings):
            await self._write_snapshot(index)

    # -- the topic ----------------------------------------------------------------------------------------------

    async def create_topic(self, controller: int | None) -> None:
        """Create the topic if it does not exist. A refusal is traced once per reason; the caller tries again later."""
        if METADATA_TOPIC in self._image.topics or controller is None:
            return
        reason = await self._log.create(controller, self._config)
        if reason is not None and reason != self._refused:
            self._tracer.emit("remote_metadata_topic_refused", reason=reason)
        self._refused = reason


def _gone(event: SegmentEvent) -> tuple[None, ...]:
    """Without the segment, its deletion is finished."""
    return (None,) if event.state.value.startswith("DELETE") else ()


def _now() -> float:
    return asyncio.get_running_loop().time()
