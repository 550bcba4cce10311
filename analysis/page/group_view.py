"""What a run's page shows about its consumer group: partitions held by members, commits, and lag over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from analysis.page.run_clock import RunClock
from history.groups import Commit, GroupRecords
from history.schemas import INF

MOST_POINTS: Final = 120
MOST_PARTITIONS: Final = 64
WIDTH, HEIGHT = 240, 36
"""Size of a lag plot in its own units."""


@dataclass(frozen=True)
class MemberHolding:
    """A member's time with a partition, in seconds since the start."""

    member: str
    partition: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class PartitionCommits:
    """A partition of the group: the number of acknowledged commits, the last committed and the last delivered offset
    (-1: none), the largest lag in records, and the lag over time as points of an SVG polyline."""

    partition: int
    commits: int
    unanswered: int
    committed: int
    delivered: int
    largest_lag: int
    points: str


@dataclass(frozen=True)
class GroupView:
    """`assignments`: how often a member was given partitions. `left_out`: partitions without a row."""

    members: tuple[str, ...]
    assignments: int
    holdings: tuple[MemberHolding, ...]
    partitions: tuple[PartitionCommits, ...]
    left_out: int


def group_view(groups: GroupRecords, clock: RunClock, end_s: float) -> GroupView | None:
    """The view of a group; None if no member recorded anything."""
    if not groups.members:
        return None
    holdings = (
        MemberHolding(
            each.member,
            each.partition,
            clock.of_monotonic(each.since),
            end_s if each.until >= INF else clock.of_monotonic(each.until),
        )
        for each in groups.held
    )
    numbers = sorted(groups.partitions)
    return GroupView(
        members=groups.members,
        assignments=groups.assignments,
        holdings=tuple(sorted(holdings, key=lambda each: (each.member, each.start_s, each.partition))),
        partitions=tuple(_partition(number, groups, clock, end_s) for number in numbers[:MOST_PARTITIONS]),
        left_out=max(len(numbers) - MOST_PARTITIONS, 0),
    )


def _partition(number: int, groups: GroupRecords, clock: RunClock, end_s: float) -> PartitionCommits:
    commits = [each for each in groups.commits if each.partition == number]
    lags = lag_over_time(
        [(each.at, each.last + 1) for each in groups.deliveries if each.partition == number],
        [each for each in commits if each.acknowledged],
    )
    acknowledged = [each for each in commits if each.acknowledged]
    ends = [each.last for each in groups.deliveries if each.partition == number]
    return PartitionCommits(
        partition=number,
        commits=len(acknowledged),
        unanswered=len(commits) - len(acknowledged),
        committed=max((each.offset for each in acknowledged), default=-1),
        delivered=max(ends, default=-1),
        largest_lag=max((lag for _, lag in lags), default=0),
        points=_points([(clock.of_monotonic(at), lag) for at, lag in lags], end_s),
    )


def lag_over_time(delivered: Sequence[tuple[int, int]], commits: Sequence[Commit]) -> list[tuple[int, int]]:
    """After each delivery and each acknowledged commit: the number of records between the highest delivered offset and
    the highest committed offset. Times in ns."""
    changes = [(at, end, 0) for at, end in delivered] + [(each.ret, 0, each.offset) for each in commits]
    lags: list[tuple[int, int]] = []
    end = committed = 0
    for at, given, offset in sorted(changes):
        end, committed = max(end, given), max(committed, offset)
        lags.append((at, max(end - committed, 0)))
    return lags


def _points(lags: Sequence[tuple[float, int]], end_s: float) -> str:
    """The largest lag of each part of the run as points `x,y`, from left to right."""
    highest = max((lag for _, lag in lags), default=0) or 1
    parts: dict[int, int] = {}
    for at_s, lag in lags:
        part = min(max(int(at_s / max(end_s, 1e-3) * MOST_POINTS), 0), MOST_POINTS)
        parts[part] = max(parts.get(part, 0), lag)
    room = HEIGHT - 4
    scaled = ((part / MOST_POINTS * WIDTH, 2 + room - lag / highest * room) for part, lag in sorted(parts.items()))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in scaled)
