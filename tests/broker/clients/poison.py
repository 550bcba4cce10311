"""Batches that no correct producer sends, each with a correct CRC, and Apache Kafka's answer to each.

    python -m tests.broker.clients.poison HOST:PORT

sends them to a broker, which must have the topic `poison` with one partition, and prints its answers. `KAFKA` was made
with it on Apache Kafka 4.1.1 (one node, KRaft, its own defaults).
"""

import gzip
import socket
import struct
import sys
import zlib

from crc32c import crc32c

from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode_exactly
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.protocol.records import varint

TOPIC = "poison"
VERSION = 9
GZIP, SNAPPY, LZ4, ZSTD, UNKNOWN_CODEC = 1, 2, 3, 4, 5
TRANSACTIONAL, CONTROL = 0x10, 0x20
PATIENCE = 120.0
LEAST, MOST = -(1 << 31), (1 << 31) - 1


def record(delta: int, value: bytes = b"value", *, timestamp: int = 0, tail: bytes = b"\0") -> bytes:
    """One record; `tail` is its number of headers and they themselves."""
    body = b"\0" + varint(timestamp) + varint(delta) + varint(-1) + varint(len(value)) + value + tail
    return varint(len(body)) + body


def made(
    payload: bytes,
    *,
    count: int = 2,
    last_delta: int | None = None,
    attributes: int = 0,
    base_offset: int = 0,
    timestamp: int = 0,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
) -> bytes:
    """A batch of these bytes with the given header fields and a correct CRC."""
    delta = count - 1 if last_delta is None else last_delta
    most = timestamp if max_timestamp is None else max_timestamp
    checked = struct.pack(">hiqqqhii", attributes, delta, timestamp, most, *producer, count) + payload
    return struct.pack(">qiibI", base_offset, len(checked) + 9, -1, magic, crc32c(checked)) + checked


def message(magic: int) -> bytes:
    """A message of format 0 or 1, as clients sent them before record batches."""
    body = (
        struct.pack(">bb", magic, 0) + (struct.pack(">q", 0) if magic else b"") + struct.pack(">ii5s", -1, 5, b"value")
    )
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


TWO = record(0) + record(1)
SENT = made(TWO)
BOMB = "gzip: 200 MB of zeros in one record"

POISON: dict[str, bytes] = {
    "a record more than there are": made(TWO, count=3),
    "a record less than there are": made(TWO, count=1),
    "no records": made(b"", count=0),
    "no records, range of one": made(b"", count=0, last_delta=0),
    "count 2^31-1": made(TWO, count=MOST),
    "count -1": made(TWO, count=-1),
    "last offset delta 2^31-1": made(TWO, last_delta=MOST),
    "last offset delta -1": made(TWO, last_delta=-1),
    "last offset delta of one record more": made(TWO, last_delta=2),
    "garbage for records": made(bytes(range(200, 256)) * 3),
    "zeros for records": made(bytes(200)),
    "a record cut short": made(TWO[:-3]),
    "bytes behind the last record": made(TWO + b"more"),
    "a record of negative length": made(varint(-5) + TWO),
    "a record of 2^31-1 bytes": made(varint(MOST) + TWO),
    "a length that never ends": made(b"\xff" * 20 + TWO),
    "a value of negative length": made(record(0) + varint(7) + b"\0\0\2" + varint(-1) + varint(-7) + b"\0\0"),
    "a value longer than its record": made(record(0) + varint(6) + b"\0\0\2" + varint(-1) + varint(50) + b"\0"),
    "a value shorter than its record": made(
        record(0) + varint(9) + b"\0\0\2" + varint(-1) + varint(2) + b"va\0" + b"x"
    ),
    "a count of headers below 0": made(record(0) + record(1, tail=varint(-1))),
    "a count of headers of 2^31-1": made(record(0) + record(1, tail=varint(MOST))),
    "a header without a key": made(record(0) + record(1, tail=varint(1) + varint(-1) + varint(-1))),
    "a header key that is not UTF-8": made(record(0) + record(1, tail=varint(1) + varint(1) + b"\xff" + varint(-1))),
    "offset deltas that are the same": made(record(0) + record(0)),
    "offset deltas that fall": made(record(1) + record(0)),
    "offset deltas with a gap": made(record(0) + record(5)),
    "an offset delta below 0": made(record(-1) + record(1)),
    "an offset delta of 2^31-1": made(record(0) + record(MOST)),
    "control flag": made(TWO, attributes=CONTROL),
    "transactional flag": made(TWO, attributes=TRANSACTIONAL),
    "transactional and control": made(TWO, attributes=TRANSACTIONAL | CONTROL),
    "producer id without sequence": made(TWO, producer=(7, 0, -1)),
    "codec 5": made(TWO, attributes=UNKNOWN_CODEC),
    "codec 7": made(TWO, attributes=7),
    "base offset 5": made(TWO, base_offset=5),
    "base offset -1": made(TWO, base_offset=-1),
    "two batches": SENT + SENT,
    "half a batch": SENT[:-5],
    "a batch and half of one": SENT + SENT[:30],
    "a header and nothing else": SENT[:61],
    "a batch length of 0": SENT[:8] + struct.pack(">i", 0) + SENT[12:],
    "a batch length below 0": SENT[:8] + struct.pack(">i", -1) + SENT[12:],
    "a batch length of 48": SENT[:8] + struct.pack(">i", 48) + SENT[12:],
    "a wrong CRC": SENT[:-1] + bytes([SENT[-1] ^ 1]),
    "magic 3": made(TWO, magic=3),
    "magic -1": made(TWO, magic=-1),
    "a message of format 0": message(0),
    "a message of format 1": message(1),
    "timestamp 2^63-1": made(TWO, timestamp=(1 << 63) - 1),
    "timestamp -2": made(TWO, timestamp=-2),
    "timestamp -2^63": made(TWO, timestamp=-(1 << 63)),
    "a largest timestamp of 2^63-1 that no record has": made(TWO, max_timestamp=(1 << 63) - 1),
    "a timestamp delta that overflows": made(record(0, timestamp=(1 << 63) - 1) + record(1), timestamp=1 << 62),
    "gzip: garbage": made(b"\x9b" * 100, attributes=GZIP),
    "snappy: garbage": made(b"\x9b" * 100, attributes=SNAPPY),
    "lz4: garbage": made(b"\x9b" * 100, attributes=LZ4),
    "zstd: garbage": made(b"\x9b" * 100, attributes=ZSTD),
    "gzip: nothing": made(b"", attributes=GZIP),
    "gzip: cut short": made(gzip.compress(TWO, mtime=0)[:-12], attributes=GZIP),
    "gzip: garbage inside": made(gzip.compress(b"\x9b" * 100, mtime=0), attributes=GZIP),
    "gzip: a record more than there are": made(gzip.compress(TWO, mtime=0), count=3, attributes=GZIP),
    "gzip: a record less than there are": made(gzip.compress(TWO, mtime=0), count=1, attributes=GZIP),
    "gzip: offset deltas that fall": made(gzip.compress(record(1) + record(0), mtime=0), attributes=GZIP),
    "gzip: bytes behind the records": made(gzip.compress(TWO + b"more", mtime=0), attributes=GZIP),
    "gzip: bytes behind the stream": made(gzip.compress(TWO, mtime=0) + b"more", attributes=GZIP),
}
"""Faulty batches by name, without `BOMB`."""


def all_poison() -> dict[str, bytes]:
    """Faulty batches by name, with `BOMB`: it takes a second, so that importing this module does not make it."""
    bomb = gzip.compress(record(0, bytes(200 << 20)), 9, mtime=0)
    return {**POISON, BOMB: made(bomb, count=1, attributes=GZIP)}


HONEST: dict[str, bytes] = {
    "plain": SENT,
    "gzip": made(gzip.compress(TWO, mtime=0), attributes=GZIP),
    "create time and a late record": made(record(0) + record(1, timestamp=-3), timestamp=10),
    "no timestamp": made(TWO, timestamp=-1),
    "a header without a value": made(record(0) + record(1, tail=varint(1) + varint(1) + b"k" + varint(-1))),
    "an empty value": made(record(0, b"") + record(1, b"")),
}
"""What must be taken."""


KAFKA: dict[str, ErrorCode] = {
    "a record more than there are": ErrorCode.INVALID_RECORD,
    "a record less than there are": ErrorCode.INVALID_RECORD,
    "no records": ErrorCode.INVALID_RECORD,
    "no records, range of one": ErrorCode.INVALID_RECORD,
    "count 2^31-1": ErrorCode.INVALID_RECORD,
    "count -1": ErrorCode.INVALID_RECORD,
    "last offset delta 2^31-1": ErrorCode.INVALID_RECORD,
    "last offset delta -1": ErrorCode.INVALID_RECORD,
    "last offset delta of one record more": ErrorCode.INVALID_RECORD,
    "garbage for records": ErrorCode.UNKNOWN_SERVER_ERROR,
    "zeros for records": ErrorCode.INVALID_RECORD,
    "a record cut short": ErrorCode.INVALID_RECORD,
    "bytes behind the last record": ErrorCode.INVALID_RECORD,
    "a record of negative length": ErrorCode.INVALID_RECORD,
    "a record of 2^31-1 bytes": ErrorCode.INVALID_RECORD,
    "a length that never ends": ErrorCode.UNKNOWN_SERVER_ERROR,
    "a value of negative length": ErrorCode.INVALID_RECORD,
    "a value longer than its record": ErrorCode.INVALID_RECORD,
    "a value shorter than its record": ErrorCode.INVALID_RECORD,
    "a count of headers below 0": ErrorCode.INVALID_RECORD,
    "a count of headers of 2^31-1": ErrorCode.INVALID_RECORD,
    "a header without a key": ErrorCode.INVALID_RECORD,
    "a header key that is not UTF-8": ErrorCode.NONE,
    "offset deltas that are the same": ErrorCode.NONE,
    "offset deltas that fall": ErrorCode.NONE,
    "offset deltas with a gap": ErrorCode.NONE,
    "an offset delta below 0": ErrorCode.NONE,
    "an offset delta of 2^31-1": ErrorCode.NONE,
    "control flag": ErrorCode.INVALID_RECORD,
    "transactional flag": ErrorCode.UNSUPPORTED_VERSION,
    "transactional and control": ErrorCode.UNSUPPORTED_VERSION,
    "producer id without sequence": ErrorCode.INVALID_RECORD,
    "codec 5": ErrorCode.UNKNOWN_SERVER_ERROR,
    "codec 7": ErrorCode.UNKNOWN_SERVER_ERROR,
    "base offset 5": ErrorCode.INVALID_RECORD,
    "base offset -1": ErrorCode.INVALID_RECORD,
    "two batches": ErrorCode.INVALID_RECORD,
    "half a batch": ErrorCode.INVALID_RECORD,
    "a batch and half of one": ErrorCode.NONE,
    "a header and nothing else": ErrorCode.INVALID_RECORD,
    "a batch length of 0": ErrorCode.CORRUPT_MESSAGE,
    "a batch length below 0": ErrorCode.CORRUPT_MESSAGE,
    "a batch length of 48": ErrorCode.CORRUPT_MESSAGE,
    "a wrong CRC": ErrorCode.CORRUPT_MESSAGE,
    "magic 3": ErrorCode.CORRUPT_MESSAGE,
    "magic -1": ErrorCode.CORRUPT_MESSAGE,
    "a message of format 0": ErrorCode.INVALID_RECORD,
    "a message of format 1": ErrorCode.INVALID_RECORD,
    "timestamp 2^63-1": ErrorCode.INVALID_TIMESTAMP,
    "timestamp -2": ErrorCode.NONE,
    "timestamp -2^63": ErrorCode.INVALID_TIMESTAMP,
    "a largest timestamp of 2^63-1 that no record has": ErrorCode.NONE,
    "a timestamp delta that overflows": ErrorCode.INVALID_TIMESTAMP,
    "gzip: garbage": ErrorCode.UNKNOWN_SERVER_ERROR,
    "snappy: garbage": ErrorCode.UNKNOWN_SERVER_ERROR,
    "lz4: garbage": ErrorCode.UNKNOWN_SERVER_ERROR,
    "zstd: garbage": ErrorCode.UNKNOWN_SERVER_ERROR,
    "gzip: nothing": ErrorCode.UNKNOWN_SERVER_ERROR,
    "gzip: cut short": ErrorCode.UNKNOWN_SERVER_ERROR,
    "gzip: garbage inside": ErrorCode.INVALID_RECORD,
    "gzip: a record more than there are": ErrorCode.INVALID_RECORD,
    "gzip: a record less than there are": ErrorCode.INVALID_RECORD,
    "gzip: offset deltas that fall": ErrorCode.UNKNOWN_SERVER_ERROR,
    "gzip: bytes behind the records": ErrorCode.INVALID_RECORD,
    "gzip: bytes behind the stream": ErrorCode.NONE,
    BOMB: ErrorCode.NONE,
}
"""What Apache Kafka 4.1.1 answered."""

OTHERWISE: dict[str, ErrorCode] = {
    **dict.fromkeys(
        (
            "garbage for records",
            "a length that never ends",
            "a header key that is not UTF-8",
            "offset deltas that are the same",
            "offset deltas that fall",
            "offset deltas with a gap",
            "an offset delta below 0",
            "an offset delta of 2^31-1",
            "a batch and half of one",
            "gzip: garbage",
            "gzip: nothing",
            "gzip: cut short",
            "gzip: offset deltas that fall",
            "gzip: bytes behind the stream",
        ),
        ErrorCode.INVALID_RECORD,
    ),
    **dict.fromkeys(("codec 5", "codec 7"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    BOMB: ErrorCode.MESSAGE_TOO_LARGE,
}
"""Where this broker refuses what Kafka takes and some consumer cannot read, or names what Kafka calls unknown (-1)."""

OPENED_BY_CRAMJAM = ("snappy: garbage", "lz4: garbage", "zstd: garbage")
"""Refused as INVALID_RECORD where that package is installed, else as UNSUPPORTED_COMPRESSION_TYPE."""


def produce(address: tuple[str, int], records: bytes, topic: str = TOPIC) -> PartitionProduceResponse | None:
    """The answer to one batch, sent on a connection of its own; None when the broker hung up instead."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    request = ProduceRequest(acks=-1, timeout_ms=int(PATIENCE * 1000), topic_data=data)
    with socket.create_connection(address, timeout=PATIENCE) as sock, sock.makefile("rb") as stream:
        sock.sendall(encode_request(request, VERSION, 1, "poisoner"))
        head = stream.read(4)
        if len(head) < 4:
            return None
        frame = stream.read(struct.unpack(">i", head)[0])
    _, position = decode_response_header(APIS[ApiKey.PRODUCE], VERSION, frame)
    return decode_exactly(ProduceResponse, VERSION, frame, position).responses[0].partition_responses[0]


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    for name, records in (HONEST | all_poison()).items():
        response = produce((host, int(port)), records)
        code = "hung up" if response is None else response.error_code
        print(f"{name!r}: {code}  # {response.error_message if response else ''}", flush=True)


if __name__ == "__main__":
    main()
