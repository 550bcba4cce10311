"""Seeded fault schedules that know the cluster.

A schedule is drawn once from the seed and never looks at the cluster: it says when, what kind, for how long, and which
*role* to aim at. Only when a fault is due is the role turned into nodes, by the cluster as it then is. So the same seed
gives the same schedule, whatever the cluster does in the meantime.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from nemeses.fault import KINDS, PARTITIONS, POWER_LOSSES, Direction, Fault, Kind

Role = Literal["any", "leader", "controller", "follower", "last-isr"]

# Leaders and controllers are where the protocol can go wrong, so they are aimed at more often than chance would.
_ROLES: tuple[Role, ...] = ("leader", "leader", "controller", "follower", "last-isr", "any")
_DIRECTIONS: tuple[Direction, ...] = ("both", "both", "out", "in")
_TORN_SHARE = 0.5
# Smallest and largest; small values are as likely as large ones, for both are where mistakes are found.
_JUMP_S = (2.0, 3600.0)
_DELAY_MS = (20.0, 500.0)
_LOSS_PERCENT = (1.0, 50.0)


class ScheduleError(ValueError):
    """A schedule that cannot be drawn as asked; the message names the remedy."""


@dataclass(frozen=True)
class ClusterView:
    """The cluster as lately seen. Partitions are (topic, number); nodes are names. What is unknown is absent."""

    nodes: tuple[str, ...]
    leaders: Mapping[tuple[str, int], str] = field(default_factory=dict)
    isr: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    controller: str | None = None


@dataclass(frozen=True)
class FaultPlan:
    """A fault to come: `at` and `duration_s` in seconds (from the start of the main phase), aimed at a role.

    `draw` in [0, 1) settles every choice that is left when the role is turned into nodes.
    """

    kind: Kind
    at: float
    duration_s: float
    role: Role
    draw: float
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def heals_at(self) -> float:
        return self.at + self.duration_s

    def resolve(self, view: ClusterView) -> Fault:
        """The fault itself, for the cluster as it is now. Raises `ScheduleError` when the view has no nodes."""
        if not view.nodes:
            raise ScheduleError(f"{self.kind}: the cluster has no nodes to aim at")
        chooser = Random(self.draw)
        parameters = {"duration_s": self.duration_s, "role": self.role, **self.parameters}
        return Fault(self.kind, _targets(self.kind, self.role, view, chooser), self.at, parameters)


@dataclass(frozen=True)
class Schedule:
    """Faults in the order of their times. No two overlap unless the schedule was drawn to let them."""

    seed: int
    plans: tuple[FaultPlan, ...]

    def __iter__(self) -> Iterator[FaultPlan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)


def plan_schedule(
    seed: int,
    kinds: Sequence[Kind],
    *,
    total_s: float,
    interval_s: tuple[float, float],
    duration_s: tuple[float, float],
    overlap: bool = False,
) -> Schedule:
    """Draw the faults of `total_s` seconds: pauses between faults from `interval_s`, lengths from `duration_s`.

    Every kind comes once, in random order, before any comes again; each fault is healed before `total_s`. With
    `overlap` the next pause is counted from a fault's beginning, not its heal. Raises `ScheduleError` for an unknown
    kind, an empty range, or a time too short for one fault of each kind.
    """
    _check(kinds, total_s, interval_s, duration_s, overlap)
    if not kinds:
        return Schedule(seed, ())
    rng = Random(seed)
    order = rng.sample(list(dict.fromkeys(kinds)), len(set(kinds)))
    first = [(rng.uniform(*interval_s), rng.uniform(*duration_s)) for _ in order]
    plans: list[FaultPlan] = []
    now = 0.0
    for kind, (pause, length) in zip(order, _squeeze(first, total_s, interval_s, duration_s, overlap), strict=True):
        plan = _draw(rng, kind, now + pause, length)
        plans.append(plan)
        now = plan.at if overlap else plan.heals_at
    while True:
        pause, length = rng.uniform(*interval_s), rng.uniform(*duration_s)
        plan = _draw(rng, rng.choice(order), now + pause, length)
        if plan.heals_at > total_s:
            return Schedule(seed, tuple(plans))
        plans.append(plan)
        now = plan.at if overlap else plan.heals_at


def _check(
    kinds: Sequence[Kind],
    total_s: float,
    interval_s: tuple[float, float],
    duration_s: tuple[float, float],
    overlap: bool,
) -> None:
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ScheduleError(f"unknown fault {unknown[0]!r}; use some of: {', '.join(KINDS)}")
    for key, (low, high) in (("interval_s", interval_s), ("duration_s", duration_s)):
        if not 0 <= low <= high:
            raise ScheduleError(f"{key}: [{low}, {high}] is not a range; give the smaller number first, none negative")
    if interval_s[1] + duration_s[1] <= 0:
        raise ScheduleError("interval_s and duration_s are both 0: faults would never end; give one of them a length")
    if overlap and interval_s[1] <= 0:
        raise ScheduleError("interval_s is 0 and faults may overlap: all would begin at once; give it a length")
    needed = _span([(interval_s[0], duration_s[0])] * len(set(kinds)), overlap)
    if needed > total_s:
        raise ScheduleError(
            f"{len(set(kinds))} kinds of fault need at least {needed:g} s, but the main phase lasts {total_s:g} s; "
            "lengthen it, shorten interval_s or duration_s, or list fewer faults"
        )


def _span(steps: Sequence[tuple[float, float]], overlap: bool) -> float:
    """When the last of these (pause, length) steps has healed."""
    if not overlap:
        return sum(pause + length for pause, length in steps)
    now = latest = 0.0
    for pause, length in steps:
        now += pause
        latest = max(latest, now + length)
    return latest


def _squeeze(
    steps: list[tuple[float, float]],
    total_s: float,
    interval_s: tuple[float, float],
    duration_s: tuple[float, float],
    overlap: bool,
) -> list[tuple[float, float]]:
    """Shorten the drawn steps evenly towards their minima until they fit, so that every kind gets its turn."""
    if _span(steps, overlap) <= total_s:
        return steps
    low = [(interval_s[0], duration_s[0])] * len(steps)

    def between(share: float) -> list[tuple[float, float]]:
        return [(a + share * (p - a), b + share * (d - b)) for (p, d), (a, b) in zip(steps, low, strict=True)]

    # The span grows with the share, and fits at 0 (checked before): bisect for the largest share that fits.
    fits, too_long = 0.0, 1.0
    for _ in range(40):
        middle = (fits + too_long) / 2
        fits, too_long = (middle, too_long) if _span(between(middle), overlap) <= total_s else (fits, middle)
    return between(fits)


def _draw(rng: Random, kind: Kind, at: float, duration_s: float) -> FaultPlan:
    # Every fault draws the same number of values, so that changing one kind does not reshuffle all that follow it.
    role, draw = rng.choice(_ROLES), rng.random()
    direction, torn, tear = rng.choice(_DIRECTIONS), rng.random() < _TORN_SHARE, rng.getrandbits(32)
    parameters: dict[str, Any] = {}
    if kind in PARTITIONS:
        parameters["direction"] = direction
    if kind in POWER_LOSSES:
        parameters["tear"] = tear if torn else None
    if kind == "partition-leader":
        role = "leader"
    if kind in ("power-loss-all", "partition-halves"):
        role = "any"
    return FaultPlan(kind, at, duration_s, role, draw, parameters | _strength(kind, draw))


def _strength(kind: Kind, draw: float) -> dict[str, Any]:
    """How hard a fault hits, of the kinds that have a measure; from the fault's own draw and nothing else."""
    rng = Random(f"strength {draw!r}")
    if kind == "clock-jump":
        return {"jump_s": round(rng.choice((-1, 1)) * _spread(rng, _JUMP_S), 3)}
    if kind == "packet-delay":
        delay_ms = round(_spread(rng, _DELAY_MS), 1)
        return {"delay_ms": delay_ms, "jitter_ms": round(delay_ms * rng.uniform(0, 0.5), 1)}
    if kind == "packet-loss":
        return {"percent": round(_spread(rng, _LOSS_PERCENT), 1)}
    return {}


def _spread(rng: Random, between: tuple[float, float]) -> float:
    """A number whose logarithm is even between these two."""
    return math.exp(rng.uniform(*map(math.log, between)))


def _targets(kind: Kind, role: Role, view: ClusterView, chooser: Random) -> tuple[str, ...]:
    if kind == "power-loss-all":
        return view.nodes
    if kind == "partition-halves":
        shuffled = chooser.sample(sorted(view.nodes), len(view.nodes))
        return tuple(sorted(shuffled[: len(shuffled) // 2]))
    return (chooser.choice(_candidates(role, view)),)


def _candidates(role: Role, view: ClusterView) -> list[str]:
    """The nodes that play a role now, sorted; all nodes when nobody is seen to play it."""
    leaders = set(view.leaders.values())
    found: set[str] = set()
    if role == "leader":
        found = leaders
    elif role == "controller" and view.controller is not None:
        found = {view.controller}
    elif role == "follower":
        found = set(view.nodes) - leaders
    elif role == "last-isr":
        # A partition's only in-sync replica; where there is none, a member of the smallest in-sync set.
        smallest = min((len(members) for members in view.isr.values() if members), default=0)
        found = {name for members in view.isr.values() if len(members) == smallest for name in members}
    return sorted(found & set(view.nodes)) or sorted(view.nodes)
