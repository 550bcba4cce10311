"""A replica of a partition, as the oracles saw it last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker.replica.partition import Partition
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.machine_view import MachineView


@dataclass
class ObservedReplica:
    """A replica of a partition as it was seen last. `partition`: that of the process that lives now, None where it has
    none. `flushes`: it counts as in sync only for what is on its disk. `rose_in`: the leader epoch in which its high
    watermark rose last, at the least. `counted`: of each follower where its log ends by what this one counts as a
    leader, and in which epoch; `supposed`: of each, what it was like when this leader was asked what it would count;
    `asked`: the role in which it was asked what it would answer, and whether it was recovering; `producers_of`: the
    log, how often it had been cut, and the role, when its producers were looked at; `anew`: where its process has begun
    the log anew, if it has."""

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
    producers_of: tuple[Any, ...] = ()
    anew: int = 0

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def alive(self) -> Partition | None:
        """The partition, once its process has recovered what is on the disk."""
        return self.partition if self.machine.running else None
