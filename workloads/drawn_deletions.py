"""When a producer deletes records, and up to which offset: pure, seeded code that gets the time as argument.

A producer names an offset up to which its own records are acknowledged. So each request is within the log, and the
journal has its offset: what may be missing afterwards is known exactly.
"""

from random import Random
from typing import Final

from workloads.pacing import Pacer
from workloads.settings import ClientSettings

ALL_SHARE: Final = 0.25
"""Share of the requests that delete all that the producer knows to be acknowledged."""
DELETION_TIMEOUT_S: Final = 3.0
"""The timeout of a request under load."""


class DrawnDeletions:
    """The deletions of one producer under load."""

    def __init__(self, settings: ClientSettings, start_s: float) -> None:
        every_s = settings.parameters.get("deletes_every_s", 0.0)
        self._rng = Random(f"{settings.seed}/deletions")
        self._pacer = Pacer(1 / every_s, self._rng, start_s=start_s) if every_s else None
        self._acknowledged: dict[int, int] = {}
        self._requested: dict[int, int] = {}

    def acknowledged(self, partition: int, offset: int) -> None:
        """A record of the producer was acknowledged at an offset, -1 if that is unknown."""
        self._acknowledged[partition] = max(self._acknowledged.get(partition, 0), offset + 1)

    def take(self, now_s: float) -> tuple[int, int] | None:
        """The partition and the offset of a request that is due now; None without one."""
        if self._pacer is None or not self._pacer.take(now_s):
            return None
        deletable = {place: end for place, end in self._acknowledged.items() if end > self._requested.get(place, 0)}
        if not deletable:
            return None
        partition = self._rng.choice(sorted(deletable))
        end = deletable[partition]
        deletes_all = self._rng.random() < ALL_SHARE
        offset = end if deletes_all else self._rng.randint(self._requested.get(partition, 0), end)
        self._requested[partition] = offset
        return partition, offset
