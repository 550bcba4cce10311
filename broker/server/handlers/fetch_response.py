"""Encodes the Fetch response by hand: its records are slices of log files that are sent without being read."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from broker.errors import ErrorCode
from broker.log.reading import Slice
from broker.protocol.schema import NO_ID
from broker.replica.reads import PartitionRead
from broker.server.reply import Part, Reply

READ_BELOW = 1 << 15  # bytes; smaller slices are cheaper to copy into the response than to send with a separate call

_HEADER = Struct(">ii")  # length of the frame, correlation id
_TOP = Struct(">ihi")  # throttle time, error, session id
_INT32 = Struct(">i")
_PARTITION = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_PARTITION_V4 = Struct(">ihqq")
_DIVERGING = Struct(">BBBiqB")  # one tag, number 0, its size; epoch, end offset, no tags
_NULL_ABORTED = b"\0"
_NO_ABORTED = b"\1"


class TopicAnswer(NamedTuple):
    """The answers for one topic, which is identified by its id from version 13 on."""

    name: str
    partitions: Sequence[PartitionRead]
    topic_id: bytes = NO_ID


def fetch_reply(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicAnswer],
    *,
    read_committed: bool = False,
    error: ErrorCode = ErrorCode.NONE,
) -> Reply:
    """A whole Fetch response (versions 4 to 17) without session, with the length field of its frame."""
    writer = _Writer(version, correlation_id, read_committed)
    writer.top(error, len(topics))
    for topic in topics:
        writer.topic(topic)
    return writer.finish()


class _Writer:
    """Collects bytes and slices of files in wire order."""

    def __init__(self, version: int, correlation_id: int, read_committed: bool) -> None:
        self._version = version
        self._flexible = version >= 12
        if self._flexible:
            self._aborted = _NO_ABORTED if read_committed else _NULL_ABORTED
        else:
            self._aborted = _INT32.pack(0 if read_committed else -1)
        self._bytes = bytearray(_HEADER.pack(0, correlation_id))
        self._first = self._bytes
        self._parts: list[Part] = []
        self._length = -4  # the frame's length field does not count itself

    def top(self, error: ErrorCode, topics: int) -> None:
        if self._flexible:
            self._bytes.append(0)  # the header's tagged fields
        self._bytes += _TOP.pack(0, error, 0) if self._version >= 7 else _INT32.pack(0)
        self._count(topics)

    def topic(self, topic: TopicAnswer) -> None:
        if self._version >= 13:
            self._bytes += topic.topic_id
        else:
            name = topic.name.encode()
            if self._flexible:
                self._bytes += uvarint(len(name) + 1)
            else:
                self._bytes += len(name).to_bytes(2, "big")
            self._bytes += name
        self._count(len(topic.partitions))
        for partition in topic.partitions:
            self._partition(partition)
        if self._flexible:
            self._bytes.append(0)

    def finish(self) -> Reply:
        if self._flexible:
            self._bytes.append(0)
        self._cut()
        _INT32.pack_into(self._first, 0, self._length)
        return self._parts

    def _partition(self, answer: PartitionRead) -> None:
        out = self._bytes
        high_watermark, length = answer.high_watermark, answer.size
        if self._version >= 5:
            out += _PARTITION.pack(
                answer.partition, answer.error, high_watermark, high_watermark, answer.log_start_offset
            )
        else:
            out += _PARTITION_V4.pack(answer.partition, answer.error, high_watermark, high_watermark)
        out += self._aborted
        if self._version >= 11:
            out += _INT32.pack(-1)  # no preferred read replica
        out += uvarint(length + 1) if self._flexible else _INT32.pack(length)
        for part in answer.slices:
            self._slice(part)
        if answer.remote:
            self._cut()
            self._parts += answer.remote
            self._length += answer.size
        if self._flexible:
            self._tags(answer)

    def _tags(self, answer: PartitionRead) -> None:
        out = self._bytes
        if answer.diverging is None:
            out.append(0)
        else:
            out += _DIVERGING.pack(1, 0, 13, *answer.diverging, 0)

    def _slice(self, part: Slice) -> None:
        if part.length < READ_BELOW:
            data = part.file.read(part.position, part.length)
            if len(data) == part.length:
                self._bytes += data
                return
        self._cut()
        self._parts.append(part)
        self._length += part.length

    def _cut(self) -> None:
        """End the current run of bytes: it becomes one part of the reply."""
        if self._bytes:
            self._parts.append(self._bytes)
            self._length += len(self._bytes)
            self._bytes = bytearray()

    def _count(self, number: int) -> None:
        self._bytes += uvarint(number + 1) if self._flexible else _INT32.pack(number)


def uvarint(value: int) -> bytes:
    """An unsigned variable-length integer (LEB128)."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
