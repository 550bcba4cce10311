"""When this node writes the next snapshot of the metadata log (KIP-630, KIP-876): after so many bytes, or so much time.

Every node, voter or observer, decides for itself. Time alone writes nothing: what is applied must go beyond the last
snapshot. An idle cluster still commits records that prove who leads; without the limit of time the next start would
read all of them.
"""

from __future__ import annotations

from broker.config import BrokerConfig


class SnapshotSchedule:
    """Counts what is applied; `now` is the loop's time in seconds. `taken` begins the count."""

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
        """A batch with `size` bytes of records was applied; they may be none."""
        self._bytes += size
        self._has_more = True

    def demand(self) -> None:
        """A snapshot is wanted at once: the one that there is was found damaged."""
        self._demanded = True

    def taken(self, now: float) -> None:
        """There is a snapshot of all that was applied, or this node starts."""
        self._since = now
        self._bytes = 0
        self._has_more = self._demanded = False

    def is_due(self, now: float) -> bool:
        """Whether a snapshot is to be written now."""
        deadline = self.or_earlier(None)
        return self._demanded or self._bytes >= self._after_bytes or (deadline is not None and now >= deadline)

    def or_earlier(self, deadline: float | None) -> float | None:
        """A deadline of something else, or the time at which a snapshot is due, if that comes first."""
        if not self._has_more or not self._interval_s:
            return deadline
        due = self._since + self._interval_s
        return due if deadline is None else min(due, deadline)
