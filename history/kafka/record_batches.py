"""Record batches of message format 2, read one at a time: for oracles, control records and dumps.

The layout is that of Apache Kafka (kafka.apache.org, "Message Format"; KIP-98). Offsets and sequences are those of the
batch's first record. The CRC-32C covers everything after it, so not the base offset and the leader epoch. A whole
replica is read as columns (`analysis.replicafiles.batches`), which is faster for many records.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from history.kafka.compression import CODECS, DamagedSetError, LargeSetError, decompressed
from history.kafka.flexible_messages import FlexibleReader

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
LENGTH_FROM: Final = 12
"""The length counts everything behind itself."""
CRC_FROM: Final = 21
"""The CRC covers everything from the attributes on."""
MAGIC: Final = 2
COMPRESSION: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
VOTERS_TYPE: Final = 6
"""The type of the control record with the quorum's voters (KIP-853, `KRAFT_VOTERS`)."""


class DamagedBatchError(ValueError):
    """Bytes that are not a whole batch; the message says why."""


class Header(NamedTuple):
    """The fields of a header, in their order."""

    base: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    sequence: int
    records: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_FROM

    @property
    def next(self) -> int:
        return self.base + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


class ReadRecord(NamedTuple):
    """A record. `offset` is absolute; `timestamp`: in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def batches_in(content: bytes) -> Iterator[tuple[Header, bytes]]:
    """The consecutive batches, each with its bytes. Raises `DamagedBatchError` at the first invalid frame."""
    position = 0
    while position < len(content):
        if len(content) - position < HEADER.size:
            raise DamagedBatchError(f"{len(content) - position} bytes are not a header")
        header = Header._make(HEADER.unpack_from(content, position))
        end = position + header.size
        if header.magic != MAGIC or header.size < HEADER.size or end > len(content):
            remaining_bytes = len(content) - position
            raise DamagedBatchError(
                f"a header with magic {header.magic} and a size of {header.size}, where {remaining_bytes} are"
            )
        yield header, content[position:end]
        position = end


def flaw_of(header: Header, batch: bytes, *, compacted: bool = False) -> str | None:
    """The contradiction in the bytes of a batch; None without one. `compacted`: it may have lost records."""
    offsets = header.last_delta + 1
    if offsets < 1 or not (0 if compacted else offsets) <= header.records <= offsets:
        return f"it counts {header.records} records, and its last offset delta is {header.last_delta}"
    crc = crc32c(memoryview(batch)[CRC_FROM:])
    return None if crc == header.crc else f"its CRC-32C is {crc:08x}, and it says {header.crc:08x}"


def records_in(header: Header, batch: bytes) -> Iterator[ReadRecord]:
    """The records of a batch. Raises `DamagedBatchError`."""
    data = batch[HEADER.size :]
    if codec := header.attributes & COMPRESSION:
        if codec not in CODECS:
            raise DamagedBatchError(f"the batch at offset {header.base}: codec {codec} is unknown")
        try:
            data = decompressed(codec, data)
        except (DamagedSetError, LargeSetError) as error:
            raise DamagedBatchError(f"the batch at offset {header.base} {error or 'is too large'}") from None
    reader = FlexibleReader(data)
    try:
        for _ in range(header.records):
            size = reader.zigzag()
            end = reader.at + size
            reader.at += 1  # the record's attributes
            time, offset = header.first_timestamp + reader.zigzag(), header.base + reader.zigzag()
            key, value = reader.zigzag_bytes(), reader.zigzag_bytes()
            if not reader.at <= end <= len(data):
                raise ValueError(f"the record at {offset} exceeds its length")
            yield ReadRecord(offset, header.max_timestamp if header.attributes & APPEND_TIME else time, key, value)
            reader.at = end
    except (IndexError, ValueError) as error:
        raise DamagedBatchError(f"the batch at offset {header.base}: {error}") from None


def voters_in(header: Header, batch: bytes) -> tuple[int, ...] | None:
    """The ids of the voters that a control batch names; None if it names none."""
    if not header.is_control:
        return None
    for record in records_in(header, batch):
        if record.key is not None and struct.unpack(">hh", record.key)[1] == VOTERS_TYPE:
            return tuple(sorted(_voters(FlexibleReader(record.value or b"", 2))))  # after its version
    return None


def _voters(reader: FlexibleReader) -> list[int]:
    return reader.array(lambda: reader.tagged(lambda: _voter(reader)))


def _voter(reader: FlexibleReader) -> int:
    """A voter of a VotersRecord: its id, directory, endpoints and supported versions."""
    voter = reader.number(">i")
    reader.uuid()
    reader.array(lambda: reader.tagged(lambda: (reader.text(), reader.text(), reader.number(">H"))))
    reader.tagged(lambda: reader.take(4))
    return voter
