"""The segments of tiered partitions over time: local, local and remote, remote only, deleted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from analysis.evidence.run_directory import moment
from analysis.page.run_facts import NumberedEvents
from history.journal.timeline import RunClock

MOST_SEGMENTS: Final = 60
"""Segments of one partition that have a row."""
STATES: Final = {
    "local": "local files only, upload started",
    "both": "local and remote",
    "remote": "remote only",
    "deleted": "deleted from remote storage",
}
"""The places of a segment's records, and what each means."""
_COPIED: Final = frozenset({"COPY_FINISHED", "COPY_SEGMENT_FINISHED"})
"""The state of a complete segment, as Brownout's broker and as Apache Kafka name it."""


@dataclass(frozen=True)
class SegmentLife:
    """One remote segment. Times in seconds since the start; infinite if it did not happen."""

    start: int
    end: int
    upload_s: float
    remote_s: float = math.inf
    local_until_s: float = math.inf
    deleted_s: float = math.inf

    def spans(self, end_s: float) -> list[tuple[str, float, float]]:
        """The states with their start and end, one after the other, up to the end of the run."""
        only_s = max(self.local_until_s, self.remote_s) if self.local_until_s < math.inf else math.inf
        starts = [("local", self.upload_s), ("both", self.remote_s), ("remote", only_s), ("deleted", self.deleted_s)]
        states = [(state, at_s) for state, at_s in starts if at_s < min(end_s, math.inf)]
        ends = [min((later for _, later in states[place + 1 :]), default=end_s) for place in range(len(states))]
        return [(state, at_s, stop) for (state, at_s), stop in zip(states, ends, strict=True) if at_s < stop]


@dataclass(frozen=True)
class PartitionSegments:
    """The segments of one partition, in order of their offsets. `left_out`: segments without a row."""

    name: str
    segments: tuple[SegmentLife, ...]
    left_out: int


def segments_of(events: NumberedEvents, clock: RunClock) -> tuple[PartitionSegments, ...]:
    """The segments of each partition with remote segments. A segment is remote only when no replica has it in its own
    files: the lowest local start of all replicas is past it."""
    lives: dict[tuple[str, int], dict[str, SegmentLife]] = {}
    local_starts: dict[tuple[str, int], dict[str, int]] = {}
    for at_s, node, event in _ordered(events, clock):
        place = str(event.get("topic")), int(event.get("partition", -1))
        if event["event"] == "remote_segment":
            states = lives.setdefault(place, {})
            id_ = str(event.get("id"))
            borders = int(event.get("base_offset", -1)), int(event.get("end_offset", -1))
            states[id_] = _after(states.get(id_, SegmentLife(*borders, at_s)), str(event.get("state")), at_s)
        elif event["event"] == "replica_starts" and type(event.get("local_start_offset")) is int:
            starts = local_starts.setdefault(place, {})
            starts[node] = event["local_start_offset"]
            lowest, states = min(starts.values()), lives.get(place, {})
            for id_, life in states.items():
                if life.end < lowest and life.local_until_s == math.inf:
                    states[id_] = replace(life, local_until_s=at_s)
    return tuple(
        PartitionSegments(f"{topic}-{number}", tuple(ordered[:MOST_SEGMENTS]), max(len(ordered) - MOST_SEGMENTS, 0))
        for (topic, number), states in sorted(lives.items())
        if (ordered := sorted(states.values(), key=lambda life: (life.start, life.upload_s)))
    )


def _after(life: SegmentLife, state: str, at_s: float) -> SegmentLife:
    """The segment after an event of the metadata; each state counts from its first event."""
    if state in _COPIED:
        return replace(life, remote_s=min(life.remote_s, at_s))
    if "DELETE" in state:
        return replace(life, deleted_s=min(life.deleted_s, at_s))
    return life


def _ordered(events: NumberedEvents, clock: RunClock) -> list[tuple[float, str, Mapping[str, Any]]]:
    rows = [
        (clock.of_wall(moment(event)), node, event)
        for node, numbered in events.items()
        for _, event in numbered
        if event["event"] in ("remote_segment", "replica_starts")
    ]
    return sorted(rows, key=lambda row: row[0])
