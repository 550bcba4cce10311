"""Seeded fault schedules that know the cluster.

A schedule is drawn once from the seed and never looks at the cluster: for each fault it has the time, the kind, the
duration and an *aim*. When a fault is due, the current state of the cluster turns the aim into nodes. Therefore the
same seed gives the same schedule, whatever the cluster does in the meantime.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nemeses.fault import Fault
from nemeses.kind import RandomDraw
from nemeses.parameters import Direction
from nemeses.registry import KINDS, AnyKind
from nemeses.targeting import Aim, ClusterView

# Protocols fail at leaders and controllers, so schedules aim at them more often than at random nodes.
_AIMS: tuple[Aim, ...] = ("leader", "leader", "controller", "follower", "last-isr", "any")
_DIRECTIONS: tuple[Direction, ...] = ("both", "both", "out", "in")
_TORN_SHARE = 0.5
MOST_FAULTS = 100_000  # about a week of faults of a few seconds each


class ScheduleError(ValueError):
    """A schedule that cannot be drawn; the message names the remedy."""


@dataclass(frozen=True)
class FaultPlan:
    """A future fault: `at` and `duration_s` in seconds (from the start of the main phase), with an aim.

    `draw` in [0, 1) decides all remaining choices when the aim is turned into nodes. `targets`: the nodes, where they
    are known beforehand; the aim then has no meaning.
    """

    kind: str
    at: float
    duration_s: float
    aim: Aim
    draw: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ()

    @property
    def heals_at(self) -> float:
        return self.at + self.duration_s

    def resolve(self, view: ClusterView, known: Mapping[str, AnyKind] = KINDS) -> Fault:
        """The fault for the current cluster. `known`: the kinds by name. Raises `ScheduleError` when the view has no
        nodes."""
        if self.targets:
            parameters = {"duration_s": self.duration_s, **self.parameters}
            return Fault(self.kind, self.targets, self.at, parameters)
        if not view.nodes:
            raise ScheduleError(f"{self.kind}: the cluster has no nodes to aim at")
        chooser = Random(self.draw)
        parameters = {"duration_s": self.duration_s, "aim": self.aim, **self.parameters}
        return Fault(self.kind, known[self.kind].targets(self.aim, view, chooser), self.at, parameters)


@dataclass(frozen=True)
class Schedule:
    """Faults in the order of their times. They overlap only if the schedule was drawn with `overlap`."""

    seed: int
    plans: tuple[FaultPlan, ...]

    def __iter__(self) -> Iterator[FaultPlan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def without(self, quiet_s: Sequence[tuple[float, float]]) -> "Schedule":
        """The schedule without the faults that would be in force in these times (from, to); the first fault of each
        kind stays."""
        plans, kinds = list[FaultPlan](), set[str]()
        for plan in self.plans:
            disturbs = any(plan.at < end and start < plan.heals_at for start, end in quiet_s)
            if plan.kind not in kinds or not disturbs:
                plans.append(plan)
            kinds.add(plan.kind)
        return Schedule(self.seed, tuple(plans))


def plan_schedule(
    seed: int,
    kinds: Sequence[str],
    *,
    total_s: float,
    interval_s: tuple[float, float],
    duration_s: tuple[float, float],
    overlap: bool = False,
    known: Mapping[str, AnyKind] = KINDS,
) -> Schedule:
    """Draw the faults of `total_s` seconds: pauses between faults from `interval_s`, lengths from `duration_s`.

    Every kind occurs once, in random order, before any occurs again; each fault is healed before `total_s`. With
    `overlap` the next pause is counted from a fault's start, not its heal. `known`: the kinds by name. Raises
    `ScheduleError` for an unknown kind, an empty range, a time too short for one fault of each kind, or one for more
    than `MOST_FAULTS`.
    """
    if unknown := sorted(set(kinds) - set(known)):
        raise ScheduleError(f"unknown fault {unknown[0]!r}; use some of: {', '.join(known)}")
    _check(kinds, total_s, interval_s, duration_s, overlap)
    if not kinds:
        return Schedule(seed, ())
    rng = Random(seed)
    order = rng.sample(list(dict.fromkeys(kinds)), len(set(kinds)))
    steps = [(rng.uniform(*interval_s), rng.uniform(*duration_s)) for _ in order]
    plans: list[FaultPlan] = []
    now = 0.0
    for kind, (pause, length) in zip(order, _squeeze(steps, total_s, interval_s, duration_s, overlap), strict=True):
        plan = _draw(rng, known[kind], now + pause, length)
        plans.append(plan)
        now = plan.at if overlap else plan.heals_at
    while True:
        pause, length = rng.uniform(*interval_s), rng.uniform(*duration_s)
        plan = _draw(rng, known[rng.choice(order)], now + pause, length)
        if plan.heals_at > total_s:
            return Schedule(seed, tuple(plans))
        plans.append(plan)
        now = plan.at if overlap else plan.heals_at


def _check(
    kinds: Sequence[str],
    total_s: float,
    interval_s: tuple[float, float],
    duration_s: tuple[float, float],
    overlap: bool,
) -> None:
    for key, (low, high) in (("interval_s", interval_s), ("duration_s", duration_s)):
        if not 0 <= low <= high:
            raise ScheduleError(f"{key}: [{low}, {high}] is not a range; give the smaller number first, none negative")
    if interval_s[1] + duration_s[1] <= 0:
        raise ScheduleError("interval_s and duration_s are both 0: faults would never end; give one of them a length")
    if overlap and interval_s[1] <= 0:
        raise ScheduleError("interval_s is 0 and faults may overlap: all would start at once; give it a length")
    step_s = (sum(interval_s) + (0.0 if overlap else sum(duration_s))) / 2
    if kinds and total_s > MOST_FAULTS * step_s:
        raise ScheduleError(
            f"{total_s:g} s with a fault each {step_s:g} s result in more than {MOST_FAULTS:,} faults; lengthen "
            f"{'interval_s' if overlap else 'interval_s or duration_s'}, or shorten the main phase"
        )
    needed = _span([(interval_s[0], duration_s[0])] * len(set(kinds)), overlap)
    if needed > total_s:
        raise ScheduleError(
            f"{len(set(kinds))} kinds of fault need at least {needed:g} s, but the main phase lasts {total_s:g} s; "
            "lengthen it, shorten interval_s or duration_s, or list fewer faults"
        )


def _span(steps: Sequence[tuple[float, float]], overlap: bool) -> float:
    """The time at which the last of these (pause, length) steps has healed."""
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


def _draw(rng: Random, kind: AnyKind, at: float, duration_s: float) -> FaultPlan:
    # Every fault draws the same number of values, so that a change of one kind does not change the faults after it.
    aim, draw = rng.choice(_AIMS), rng.random()
    direction, torn, tear = rng.choice(_DIRECTIONS), rng.random() < _TORN_SHARE, rng.getrandbits(32)
    parameters = kind.draw(RandomDraw(draw, direction, tear if torn else None))
    return FaultPlan(kind.name, at, duration_s, kind.aim or aim, draw, parameters)
