"""The clock of a run's page: seconds since the start of the run, and the wall clock for hovering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

NS: Final = 1_000_000_000


@dataclass(frozen=True)
class RunClock:
    """The zero of a run in two clocks: `origin_ns` of the clients' monotonic clock, `wall_ns` of the wall clock."""

    origin_ns: int = 0
    wall_ns: int = 0

    @classmethod
    def of_journal(cls, journal: Iterable[Mapping[str, Any]]) -> RunClock:
        """From the first journal line that has both clocks; zero without one."""
        for line in journal:
            if "t" in line and "wall" in line:
                return cls(int(line["t"]), round(float(line["wall"]) * NS))
        return cls()

    def of_monotonic(self, t: int) -> float:
        """Seconds since the start, from nanoseconds of the monotonic clock."""
        return (t - self.origin_ns) / NS

    def of_wall(self, wall_ns: int) -> float:
        """Seconds since the start, from nanoseconds of the wall clock."""
        return (wall_ns - self.wall_ns) / NS

    def wall_text(self, at_s: float) -> str:
        """The wall clock in UTC, with milliseconds; empty if the run did not record it or the time is out of range."""
        if not self.wall_ns:
            return ""
        try:
            return datetime.fromtimestamp(self.wall_ns / NS + at_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
        except (OverflowError, OSError, ValueError):
            return ""
