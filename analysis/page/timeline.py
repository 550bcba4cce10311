"""Who led which partition when, for a page's timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.evidence.run_directory import moment
from analysis.page.run_clock import RunClock
from installation.sanitize import brief

MOST_TURNS: Final = 20_000
LONGEST_NAME: Final = 60
NumberedEvents = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]


def leader_turns(
    events: NumberedEvents, clock: RunClock, end_s: float, ends: Sequence[tuple[float, str]] = ()
) -> list[tuple[str, float, float, str, int]]:
    """Who led which partition from when to when: partition, start and end in seconds, node, epoch. A turn ends with
    the next leader's, when the node becomes a follower, or when its process ends. `ends`: ends of processes that the
    node could not record, as time and node."""
    changes: list[tuple[float, str, str, str, int]] = []
    for node, rows in events.items():
        led: set[str] = set()
        recorded = [(clock.of_wall(moment(event)), event) for _, event in rows]
        killed = [(at_s, {"event": "broker_stopped"}) for at_s, ended in ends if ended == node]
        for at_s, event in sorted([*recorded, *killed], key=lambda change: change[0]):
            if event["event"] == "partition_role":
                where = _where(event)
                leads = event.get("role") == "leader"
                if leads or where in led:
                    changes.append((at_s, where, node, "leads" if leads else "follows", _epoch(event)))
                led = led | {where} if leads else led - {where}
            elif event["event"] in ("broker_started", "broker_stopped"):
                changes += [(at_s, where, node, "down", -1) for where in led]
                led = set()
    turns: list[tuple[str, float, float, str, int]] = []
    current: dict[str, tuple[float, str, int]] = {}
    for at_s, where, node, what, epoch in sorted(changes):
        held = current.get(where)
        if held is not None and (what == "leads" or held[1] == node):
            turns.append((where, held[0], at_s, held[1], held[2]))
            del current[where]
        if what == "leads":
            current[where] = (at_s, node, epoch)
    turns += [(where, start, max(end_s, start), node, epoch) for where, (start, node, epoch) in current.items()]
    return sorted(turns, key=lambda turn: (turn[0], turn[1]))


def _where(event: Mapping[str, Any]) -> str:
    return brief(f"{event.get('topic')}-{event.get('partition')}", LONGEST_NAME)


def _epoch(event: Mapping[str, Any]) -> int:
    epoch = event.get("leader_epoch", -1)
    return epoch if type(epoch) is int else -1
