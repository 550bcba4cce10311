"""The state of a replica of a partition at the oracles' last check."""

from dataclasses import dataclass, field
from typing import Any

from broker.replica.partition import Partition
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.machine_view import MachineView


@dataclass
class ObservedReplica:
    """A replica of a partition at the last check. `partition`: the live process's, None without one. `flushes`: it
    counts as in sync only for what is on its disk. `rose_in`: the least possible leader epoch of the last rise of its
    high watermark. `counted`: for each follower the end of its log that this leader counts, and the epoch; `supposed`:
    for each follower its state when this leader was asked what it would count; `asked`: the role in which it was asked
    what it would answer, and whether it was recovering; `producers_of`: the log, its number of truncations, and the
    role, when its producers were checked; `restarted_at`: the offset at which its process has restarted the log, else
    0; `point_seen`: the recovery point on its disk and the log's number of truncations when the two were compared."""

    machine: MachineView
    copy: CopiedLog
    partition: Partition | None = None
    seen: tuple[Any, ...] = ()
    high_watermark: int = 0
    rose_in: int = -1
    epoch: int = -1
    start: int = 0
    flushes: bool = False
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)
    supposed: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    asked: tuple[object, bool] = (None, False)
    borders: tuple[object, ...] = ()
    """The role and the borders of the log for which this leader was asked where a follower would start."""
    producers_of: tuple[Any, ...] = ()
    restarted_at: int = 0
    point_seen: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def alive(self) -> Partition | None:
        """The partition, once its process has recovered what is on the disk."""
        return self.partition if self.machine.running else None
