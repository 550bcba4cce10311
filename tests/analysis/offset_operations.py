"""Operations on the offsets of partition 0, or another one, as clients record them."""

from collections.abc import Sequence

from history.record.offset_record import COMMIT, DELIVER, FETCH, LOOKUP, SIGHT, OffsetOperation
from history.record.schemas import INF


def commit(offset: int, inv: int, ret: int = INF, client: str = "a") -> OffsetOperation:
    return OffsetOperation(COMMIT, client, 0, inv, ret, offset)


def fetched(offset: int, inv: int, ret: int) -> OffsetOperation:
    return OffsetOperation(FETCH, "r", 0, inv, ret, offset)


def delivered(first: int, last: int, at: int, client: str = "a", partition: int = 0) -> OffsetOperation:
    return OffsetOperation(DELIVER, client, partition, at, at, last, first)


def lookup(timestamp: int, offset: int, inv: int, client: str = "consumer-2", partition: int = 0) -> OffsetOperation:
    """It takes 5 ns."""
    return OffsetOperation(LOOKUP, client, partition, inv, inv + 5, offset, timestamp=timestamp)


def sight(first: int, timestamps: Sequence[int], at: int, client: str = "consumer-1") -> OffsetOperation:
    return OffsetOperation(SIGHT, client, 0, at, at, first=first, timestamps=tuple(timestamps))
