"""The read lease: until when no other broker can have taken over the leadership of this broker's partitions.

Theory of operation. A leader may answer consumers only while no other leader can exist; otherwise a leader that was cut
off or suspended would return stale data. The controller grants the lease with its answer to a heartbeat.
`lifecycle` counts the lease from the moment at which it *sent* that heartbeat. The controller counts the session from
the moment at which it *received* it, which is later. The lease is shorter than the session, and the controller
waits for its end even where a broker looks dead (`failure_detector`, `controller.sessions`, which also allow for clocks
of different speed). The lease is measured with the event loop's monotonic clock, so changes of the wall clock have no
effect. Fetches of consumers, offset lookups and group coordinators check `valid` before they answer. Replication does
not: the leader epoch protects it. `lifecycle` gives the lease up when the controller reports this broker as fenced, and
before it asks to leave the cluster.
"""

from __future__ import annotations

import asyncio

OVER = float("-inf")


class Lease:
    """A span of the event loop's clock. It starts when the controller grants it, and ends automatically."""

    def __init__(self) -> None:
        self._until_s = OVER

    def valid(self) -> bool:
        """Whether no other broker can have taken over from this one yet."""
        return asyncio.get_running_loop().time() < self._until_s

    def renew(self, until_s: float) -> None:
        """The lease lasts until this time of the loop's clock, in seconds, replacing the former end."""
        self._until_s = until_s

    def give_up(self) -> None:
        """The lease ends now: from here on another broker may lead."""
        self._until_s = OVER
