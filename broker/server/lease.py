"""Until when nobody can have taken over from this broker: earned by its lifecycle, asked by its replicas."""

from __future__ import annotations

import asyncio

OVER = float("-inf")


class Lease:
    """A span of the event loop's clock. It begins when the controller grants it, and ends by itself."""

    def __init__(self) -> None:
        self._until_s = OVER

    def valid(self) -> bool:
        """Whether nobody can have taken over from this broker yet."""
        return asyncio.get_running_loop().time() < self._until_s

    def renew(self, until_s: float) -> None:
        """It lasts until this time of the loop's clock, in seconds, and no longer."""
        self._until_s = until_s

    def give_up(self) -> None:
        """From here on somebody else may lead."""
        self._until_s = OVER
