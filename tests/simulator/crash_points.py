"""Crashes at every I/O operation of a scenario: each run ends one process at one operation that belongs to remote
storage."""

from dataclasses import dataclass

from broker.tiered.remote_storage_rules import METADATA_TOPIC
from simulator.cluster import SimulatedCluster
from simulator.crash_points import CrashPoint

NEVER = 1 << 62


@dataclass(frozen=True)
class Place:
    """The operation with this number, from 0, and how the process ends there."""

    number: int
    crash: str


def armed(cluster: SimulatedCluster, topic: str, place: Place | None) -> CrashPoint:
    """A crash point for all machines, which counts from now on; without a place it never strikes."""
    files = (f"{topic}-", METADATA_TOPIC, "remote-log-metadata-", "log-start")

    def is_counted(operation: str, subject: str) -> bool:
        return operation in ("put", "delete") or subject.startswith(files)

    number, crash = (NEVER, "kill-after") if place is None else (place.number + 1, place.crash)
    point = CrashPoint(number, crash, is_counted)
    cluster.crash_points.arm(point, *cluster.machines)
    return point
