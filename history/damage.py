"""What a fault may destroy: one vocabulary for fault kinds, the simulated disk, oracles and checkers.

Each kind of fault declares the damage that it may do to its targets. The journal carries the declaration with the
fault. Every exemption of an oracle or a checker names the damage that it excuses, and nothing else excuses a finding.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from history.journal.timeline import fault_spans


class Damage(StrEnum):
    """What a fault may destroy on each of its targets. Nothing on other nodes is destroyed."""

    PROGRESS = "progress"
    """The node is down or suspended while the fault is in force."""
    SPEED = "speed"
    """The node is slow while the fault is in force, or exits because of it."""
    MEMORY = "memory"
    """What a process of the node had in memory."""
    UNSYNCED = "unsynced-bytes"
    """What was written to the node's disk and not synced."""
    SYNCED = "synced-bytes"
    """Some synced bytes of the node's partition logs."""
    DISK = "whole-disk"
    """The whole disk of the node, which is empty afterwards."""
    NEWER_STATE = "newer-state"
    """What was written to the node's disk since an older state, which is restored."""
    TIME_OF_DAY = "time-of-day"
    """The node's time of day is wrong."""
    CLOCK_PACE = "clock-pace"
    """The node's clocks run at a different rate, within the bound that leases allow for."""
    ELAPSED_TIME = "elapsed-time"
    """The node's time since boot skips an interval, so a lease may seem valid after its end."""
    PACKETS = "packets"
    """Packets between the node and others are lost, late, doubled, reordered, or answered with a reset."""


OTHER_DISK: Final = frozenset({Damage.DISK, Damage.NEWER_STATE})
"""The node has a different disk from the one that it wrote to."""


def suffered(journal: Iterable[Mapping[str, Any]], node: str, damage: frozenset[Damage]) -> int:
    """The number of faults on a node that may have done one of these kinds of damage, according to the journal."""
    return sum(span.may_have_done(damage, node) for span in fault_spans(journal))
