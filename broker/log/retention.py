"""Decides which segments retention removes, by age and by the log's size. Pure.

Only whole segments are removed, from the oldest on and without a gap, and only committed ones: nothing at or past the
high watermark. The last segment is removed too once all of it has expired; the log starts a new one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

NO_LIMIT = -1


class RetainedSegment(Protocol):
    """The properties that matter: bytes, the offset behind its last record, its largest timestamp (ms, -1: none)."""

    @property
    def size(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


def expired_below(
    segments: Sequence[RetainedSegment], high_watermark: int, now_ms: int, *, retention_ms: int, retention_bytes: int
) -> int | None:
    """The offset below which everything has expired; None if nothing has. `now_ms` -1: unknown time."""
    surplus = sum(segment.size for segment in segments) - retention_bytes if retention_bytes != NO_LIMIT else 0
    expired_end: int | None = None
    for segment in segments:
        is_last = segment is segments[-1]
        old = (
            retention_ms != NO_LIMIT
            and now_ms >= 0
            and segment.max_timestamp >= 0
            and now_ms - segment.max_timestamp > retention_ms
        )
        large = not is_last and 0 < segment.size <= surplus
        if not segment.size or segment.next_offset > high_watermark or not (old or large):
            break
        surplus -= segment.size
        expired_end = segment.next_offset
    return expired_end
