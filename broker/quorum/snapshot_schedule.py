"""Decides when this node writes the next snapshot of the metadata log (KIP-630, KIP-876): by bytes, or by time.

Every node, voter or observer, decides on its own. Time alone triggers no snapshot: something must have been applied
since the last one. An idle cluster still commits records that prove the leadership; without the limit of time the next
start would read all of them.
"""

from __future__ import annotations

from broker.config import BrokerConfig


class SnapshotSchedule:
    """Counts applied bytes. `now` is the loop's time in seconds. `taken` restarts the count."""

    def __init__(self, after_bytes: int, interval_s: float) -> None:
        """`interval_s` 0: only the bytes count."""
        self._after_bytes = after_bytes
        self._interval_s = interval_s
        self._since = 0.0
        self._bytes = 0
        self._has_more = False
        self._demanded = False

    @classmethod
    def of(cls, config: BrokerConfig) -> SnapshotSchedule:
        interval_s = config.metadata_log_max_snapshot_interval_ms / 1000
        return cls(config.metadata_log_max_record_bytes_between_snapshots, interval_s)

    def applied(self, size: int) -> None:
        """A batch with `size` bytes of records, possibly 0, was applied."""
        self._bytes += size
        self._has_more = True

    def demand(self) -> None:
        """Request a snapshot at once, because the current one is damaged."""
        self._demanded = True

    def taken(self, now: float) -> None:
        """A snapshot of everything applied exists, or this node starts."""
        self._since = now
        self._bytes = 0
        self._has_more = self._demanded = False

    def is_due(self, now: float) -> bool:
        """Whether to write a snapshot now."""
        deadline = self.or_earlier(None)
        return self._demanded or self._bytes >= self._after_bytes or (deadline is not None and now >= deadline)

    def or_earlier(self, deadline: float | None) -> float | None:
        """The given deadline, or the time of the next snapshot if that is earlier."""
        if not self._has_more or not self._interval_s:
            return deadline
        due = self._since + self._interval_s
        return due if deadline is None else min(due, deadline)
