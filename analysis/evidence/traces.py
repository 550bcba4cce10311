"""Reads a node's trace (`events.jsonl`) as evidence: its events process by process, and whether it is complete.

A process numbers its events from 0 (`seq`), so a gap is visible. An unreadable line is acceptable only as the last line
of a process that was killed while writing it. A process first reports that it started. A node that was stopped cleanly
reports that last.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from history import strict_json
from history.regular_files import read_bytes

Event = Mapping[str, Any]

FIRST_WORD: Final = "broker_started"
LAST_WORD: Final = "broker_stopped"

_ALWAYS: Final = ("node", "seq", "wall")
_INTEGERS: Final[Mapping[str, tuple[str, ...]]] = {
    "quorum_restored": ("epoch", "leader", "voted"),
    "quorum_persisted": ("epoch", "leader", "voted"),
    "quorum_vote": ("epoch", "candidate"),
    "quorum_role": ("epoch", "leader"),
    "quorum_high_watermark": ("offset", "epoch"),
    "quorum_leader_change": ("offset", "epoch", "leader"),
    "quorum_snapshot": ("offset", "epoch"),
}
"""The required fields of the quorum's events."""
_NULLABLE: Final[Mapping[str, tuple[str, ...]]] = {"quorum_high_watermark": ("digest",)}
"""Required fields that may be null: a process that starts from a snapshot knows no digest of what precedes it."""
_LISTS: Final[Mapping[str, tuple[str, ...]]] = {"quorum_leader_change": ("voters", "granting")}
"""Fields with lists of numbers, which may be missing."""


@dataclass(frozen=True)
class Trace:
    """`processes`: the events of each process of the node, in order; each event also has its `line` in the file.
    `doubts`: what is missing or cannot be read, as sentences."""

    node: str
    processes: tuple[tuple[Event, ...], ...]
    doubts: tuple[str, ...] = ()

    @property
    def ends_in_order(self) -> bool:
        """Whether the last process reported that it was stopped."""
        return bool(self.processes) and self.processes[-1][-1]["event"] == LAST_WORD


def read_trace(path: Path, node: str, *, stopped: bool) -> Trace:
    """Read the trace of a node; `stopped`: the journal says that it was stopped cleanly."""
    try:
        lines = read_bytes(path).split(b"\n")
    except OSError:
        return Trace(node, (), (f"{node} left no trace",))
    processes: list[list[Event]] = []
    doubts: list[str] = []
    torn = 0
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        event = _event(line)
        if event is None:
            doubts += _unexplained(node, torn)
            torn = number
            continue
        if event["seq"] == 0:
            processes.append([])
        else:
            doubts += _unexplained(node, torn)
            due = processes[-1][-1]["seq"] + 1 if processes else 0
            if event["seq"] != due and not torn:
                doubts.append(f"the trace of {node} goes from event {due - 1} to event {event['seq']} at line {number}")
            if not processes:
                processes.append([])
        torn = 0
        processes[-1].append({**event, "line": number})
    if not processes:
        doubts.append(f"the trace of {node} is empty")
    processes, repetitions = _each_once(processes)
    doubts += [f"the trace of {node} has the same process twice, again from line {line} on" for line in repetitions]
    trace = Trace(node, tuple(map(tuple, processes)))
    for events in trace.processes:
        if events[0]["event"] != FIRST_WORD and events[0]["seq"] == 0:
            line = events[0]["line"]
            doubts.append(f"the trace of {node} has a process, from line {line} on, that does not say that it started")
    if processes and stopped:
        doubts += _unexplained(node, torn)
        if not trace.ends_in_order:
            doubts.append(f"the trace of {node} ends early: the node was stopped, but its trace does not say so")
    return replace(trace, doubts=tuple(doubts))


def _each_once(processes: list[list[Event]]) -> tuple[list[list[Event]], list[int]]:
    """The processes without repetitions, and the first line of each repetition. A process starts once; a repeated
    process must not count as evidence that the node forgot what happened between."""
    distinct: list[list[Event]] = []
    repetitions: list[int] = []
    openings: set[str] = set()
    for events in processes:
        opening = json.dumps({key: value for key, value in events[0].items() if key not in ("line", "seen")})
        if opening in openings:
            repetitions.append(events[0]["line"])
        else:
            distinct.append(events)
        openings.add(opening)
    return distinct, repetitions


def _unexplained(node: str, torn: int) -> list[str]:
    return [f"line {torn} of the trace of {node} cannot be read"] if torn else []


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None if it is not an event or lacks a required field."""
    try:
        event = strict_json.decode(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    needed = (*_ALWAYS, *_INTEGERS.get(event["event"], ()))
    nullable = _NULLABLE.get(event["event"], ())
    lists = [event[key] for key in _LISTS.get(event["event"], ()) if key in event]
    if not all(isinstance(members, list) and all(type(member) is int for member in members) for members in lists):
        return None
    is_whole = all(type(event.get(key)) is int for key in needed) and type(event.get("seen", 0)) is int
    return event if is_whole and all(type(event.get(key, "")) in (int, type(None)) for key in nullable) else None
