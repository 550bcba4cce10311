"""The cost of a compressed batch in the turn that opens it, also of a refused one."""

import cramjam
import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.log.validation import BYTES_PER_RECORD, BatchClaims, admit, bytes_examined
from broker.protocol.compression import MOST_BLOCKS, MOST_OPENED_BYTES
from tests.broker.clients.poison import record

ZSTD, SNAPPY = 4, 2
JAVA = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
EMPTY_BLOCK = b"\0\0\0\1" + bytes(cramjam.snappy.compress_raw(b""))
TOO_MUCH = bytes(cramjam.zstd.compress(bytes(MOST_OPENED_BYTES + 1)))


def examined(codec: int, data: bytes) -> tuple[int, ErrorCode]:
    """How many bytes a batch of one record counts for, and how it is refused, if it is."""
    before, code = bytes_examined(), ErrorCode.NONE
    try:
        admit(BatchClaims(0, codec, 0, 0, 0, -1, -1, -1, 1), memoryview(data))
    except ProtocolError as refused:
        code = refused.code
    return bytes_examined() - before, code


@pytest.mark.parametrize(
    ("codec", "data", "least", "code"),
    [
        (ZSTD, TOO_MUCH, MOST_OPENED_BYTES, ErrorCode.MESSAGE_TOO_LARGE),
        (ZSTD, TOO_MUCH[:-1], MOST_OPENED_BYTES, ErrorCode.INVALID_RECORD),
        (ZSTD, bytes(cramjam.zstd.compress(record(0)))[:-1], MOST_OPENED_BYTES, ErrorCode.INVALID_RECORD),
        (ZSTD, bytes(cramjam.zstd.compress(b"")) * 1000, 1000, ErrorCode.INVALID_RECORD),
        (SNAPPY, JAVA + EMPTY_BLOCK * MOST_BLOCKS, MOST_BLOCKS * BYTES_PER_RECORD, ErrorCode.INVALID_RECORD),
        (SNAPPY, JAVA + EMPTY_BLOCK * (MOST_BLOCKS + 1), MOST_OPENED_BYTES, ErrorCode.INVALID_RECORD),
        (ZSTD, bytes(cramjam.zstd.compress(record(0, bytes(1 << 20)))), 1 << 20, ErrorCode.NONE),
    ],
)
def test_decompressed_bytes_are_counted_for_any_result(codec: int, data: bytes, least: int, code: ErrorCode) -> None:
    counted, found = examined(codec, data)
    assert found == code
    assert counted >= least + BYTES_PER_RECORD


def test_accepted_records_are_counted_with_little_overhead() -> None:
    counted, _ = examined(ZSTD, bytes(cramjam.zstd.compress(record(0, bytes(1 << 20)))))
    assert counted < 1.01 * (1 << 20)
