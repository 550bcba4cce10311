"""What a fault may destroy: one vocabulary for fault kinds, for the simulated disk, for oracles and for checkers.

Each kind of fault declares the damage that it may do to its targets. The journal carries the declaration with the
fault. Every exemption of an oracle or a checker names the damage that it excuses, and nothing else excuses a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final


class Damage(StrEnum):
    """What a fault may destroy on each of its targets. Nothing on other nodes is destroyed."""

    PROGRESS = "progress"
    """The node is down or stands still while the fault is in force."""
    SPEED = "speed"
    """The node is late while the fault is in force, or ends by itself because of it."""
    MEMORY = "memory"
    """What a process of the node had in memory."""
    UNSYNCED = "unsynced-bytes"
    """What was written to the node's disk and not synced."""
    SYNCED = "synced-bytes"
    """Some bytes of the node's partition logs, although they were synced."""
    DISK = "whole-disk"
    """The whole disk of the node. It comes back empty."""
    NEWER_STATE = "newer-state"
    """What was written to the node's disk since an older state of it, which returns."""
    TIME_OF_DAY = "time-of-day"
    """The node's time of day is wrong."""
    CLOCK_PACE = "clock-pace"
    """The node's clocks run at another pace, within the bound that leases allow for."""
    ELAPSED_TIME = "elapsed-time"
    """The node's time since boot lacks an interval, so that a lease may seem valid after its end."""
    PACKETS = "packets"
    """Packets between the node and others are lost, late, doubled, reordered, or answered with a reset."""


OTHER_DISK: Final = frozenset({Damage.DISK, Damage.NEWER_STATE})
"""The node's disk is another one than the one that it wrote to."""


def suffered(journal: Iterable[Mapping[str, Any]], node: str, damage: frozenset[Damage]) -> int:
    """How many faults on a node may have done one of these kinds of damage, by what the journal says of each."""
    return sum(
        line.get("event") == "fault_invoked"
        and node in line.get("targets", ())
        and not damage.isdisjoint(line.get("may_destroy", ()))
        for line in journal
    )
