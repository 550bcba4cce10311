"""The limits that every run of a world has, as sentences. The gate demands them of each stored run of the world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_REMOTE: Final = (
    "services write their trace into their node's memory, from where it is copied: the last moments before a power cut "
    "may be missing",
)

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "namespaces": (
        "all nodes share one kernel and one real-time clock: clock faults and kernel crashes are not exercised",
        "a power cut loses what the kernel holds in memory; the disk itself has no volatile cache to lose",
        "nodes share one page cache: a sync of the whole machine, or 30 s, put what was not synced on every disk",
    ),
    "process": (
        "no power loss: a killed service keeps what the kernel holds in memory, so a missing fsync is not seen",
        "no partitions: all services share one loopback network",
        "all services share one kernel, one filesystem and one clock",
    ),
    "simulation": (
        "simulated: time, network and disks are a model of real ones; the brokers' code is the real one",
        "clients are simulated too: librdkafka is not exercised",
        "power-loss-all cuts all nodes at once in a random schedule only: in variations and reduced campaigns, nodes "
        "lose their power one after another",
    ),
    "vagrant": _REMOTE,
    "inventory": _REMOTE,
}
