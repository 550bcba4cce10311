"""The read lease: until when no other broker can have taken over a leadership of this broker.

Theory of operation. The controller grants the lease with each answer to a heartbeat, for a time that starts when the
broker *sent* that heartbeat. It elects no successor before the lease has ended by any clock (`controller.sessions`).
A leader answers reads only while the lease is valid; so no answer is older than what another leader has acknowledged.
Fetches of consumers, offset lookups and group coordinators check `valid` before they answer. Replication does not:
the leader epoch protects it. The event loop's monotonic clock measures the lease, so changes of the wall clock have
no effect.

The broker gives the lease up in three cases: when it is fenced, before it asks to leave, and before the event loop
closes a connection of its heartbeats that the kernel still has. It also resets such a connection (`server.client`). So
an orderly end of one is a proof: the kernel of the broker's host closed it because the process is gone, and no lease is
left (`server.failure_detector`). An answer to a heartbeat that was sent before the lease was given up does not renew
it.
"""

import asyncio

OVER = float("-inf")


class Lease:
    """A span of the event loop's clock. It starts when the controller grants it, and ends without any action."""

    def __init__(self) -> None:
        self._until_s = OVER
        self._term = 0

    @property
    def term(self) -> int:
        """Changes whenever the lease is given up."""
        return self._term

    @property
    def ends_at(self) -> float:
        """A time of the loop's clock, in seconds; the past if no lease is left."""
        return self._until_s

    def valid(self) -> bool:
        """Whether no other broker can have taken over from this one yet."""
        return asyncio.get_running_loop().time() < self._until_s

    def renew(self, until_s: float, term: int) -> None:
        """The lease lasts until this time of the loop's clock, in seconds, and no longer. `term`: as it was when the
        heartbeat was sent; nothing happens when the lease was given up since."""
        if term == self._term:
            self._until_s = until_s

    def give_up(self) -> None:
        """From now on another broker may lead."""
        self._until_s = OVER
        self._term += 1
