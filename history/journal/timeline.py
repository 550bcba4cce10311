"""The time axis of a run, from its journal: the clock with the run's zero, the phases, and the span of each fault.

`fault_spans` is the only place that pairs the journal's lines of a fault.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from history.fault_looks import FaultGroup

NS: Final = 1_000_000_000
CONFIRMED: Final = "confirmed"
PREVENTED: Final = "prevented"
DOWN: Final = "down"
SUSPENDED: Final = "suspended"
PROCESS_STATES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("crash-point", "disk-wipe", "kill", "power-loss", "power-loss-all", "stop"), DOWN),
    **dict.fromkeys(("pause", "stall", "clock-freeze"), SUSPENDED),
}
"""By kind of fault, for those that end or suspend the processes of their targets: the state while it is in force."""
Line = Mapping[str, Any]


@dataclass(frozen=True)
class RunClock:
    """The zero of a run in two clocks, in nanoseconds."""

    origin_ns: int = 0
    """In the clients' monotonic clock."""
    wall_ns: int = 0
    """In the wall clock."""

    @classmethod
    def of_journal(cls, journal: Iterable[Line]) -> "RunClock":
        """From the first journal line that has both clocks; zero without one."""
        for line in journal:
            if "t" in line and "wall" in line:
                return cls(int(line["t"]), round(float(line["wall"]) * NS))
        return cls()

    def of_monotonic(self, t: int) -> float:
        """Seconds since the start, from nanoseconds of the monotonic clock."""
        return (t - self.origin_ns) / NS

    def of_wall(self, wall_ns: int) -> float:
        """Seconds since the start, from nanoseconds of the wall clock."""
        return (wall_ns - self.wall_ns) / NS

    def wall_text(self, at_s: float) -> str:
        """The wall clock in UTC, with milliseconds; empty if the run did not record it or the time is out of range."""
        if not self.wall_ns:
            return ""
        try:
            return datetime.fromtimestamp(self.wall_ns / NS + at_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
        except (OverflowError, OSError, ValueError):
            return ""


class RunPhase(NamedTuple):
    """A phase of the run, in nanoseconds of CLOCK_MONOTONIC."""

    name: str
    start: int
    end: int | None
    """None: the last phase of an interrupted run."""


def phases_of(journal: Iterable[Line]) -> tuple[RunPhase, ...]:
    """The phases in the lines of a journal, in order: each ends with the start of the next one."""
    starts = [(line["name"], line["t"]) for line in journal if line.get("event") == "phase"]
    ends = (*(t for _, t in starts[1:]), None)
    return tuple(RunPhase(name, start, end) for (name, start), end in zip(starts, ends, strict=False))


INVOKED: Final = "fault_invoked"
INJECTED: Final = "fault_injected"
HEALED: Final = "fault_healed"
FAULT_EVENTS: Final = (INVOKED, INJECTED, HEALED)


@dataclass(frozen=True)
class FaultSpan:
    """A fault of a run, in seconds since the start of the run."""

    kind: str
    targets: tuple[str, ...]
    start_s: float
    """When it was injected, or invoked if its injection is not on record."""
    end_s: float = math.inf
    """When it was healed; infinite without a heal."""
    status: str = "inconclusive"
    """That of the heal, else that of the injection."""
    group: str = ""
    """With `mark`: its look in plots, in the words of `history.fault_looks`. Empty in old records."""
    mark: str = ""
    id: str = ""
    sentence: str = ""
    """What it did."""
    proof: str = ""
    """The main evidence: that of the heal, else that of the injection."""
    lines: Mapping[str, Sequence[tuple[int, Line]]] = field(default_factory=dict)
    """Its lines in the journal by event, each with its position. The first line of an event counts."""

    @classmethod
    def of(cls, lines: Mapping[str, Sequence[tuple[int, Line]]], clock: RunClock) -> "FaultSpan":
        """From the journal's lines, with the invocation."""
        invoked, injected, healed = (lines[event][0][1] if event in lines else {} for event in FAULT_EVENTS)
        return cls(
            kind=invoked.get("kind", "?"),
            targets=tuple(invoked.get("targets", ())),
            start_s=clock.of_monotonic((injected or invoked)["t"]),
            end_s=clock.of_monotonic(healed["t"]) if healed else math.inf,
            status=healed.get("status") or injected.get("status") or "inconclusive",
            group=invoked.get("group", ""),
            mark=invoked.get("mark", ""),
            id=invoked["id"],
            sentence=invoked.get("sentence", ""),
            proof=healed.get("proof") or injected.get("proof") or "",
            lines=lines,
        )

    @property
    def name(self) -> str:
        return f"{self.kind} {', '.join(self.targets)}".strip()

    @property
    def is_prevented(self) -> bool:
        """Whether another fault in force prevented its injection, so that nothing was done."""
        return self.line(INJECTED).get("status") == PREVENTED

    @property
    def process_state(self) -> str:
        """The state of its targets' processes while it is in force; empty if they run. A fault of a user's own that
        destroys their memory ends them."""
        ends = self.group == FaultGroup.OWN and "memory" in self.line(INVOKED).get("may_destroy", ())
        return DOWN if ends else PROCESS_STATES.get(self.kind, "")

    @property
    def evidence(self) -> dict[str, Any]:
        """All evidence, also that of the heal."""
        return {**self.line(INJECTED).get("evidence", {}), **self.line(HEALED).get("evidence", {})}

    def line(self, event: str) -> Line:
        """The line of an event; empty without one."""
        return self.lines[event][0][1] if event in self.lines else {}

    def at(self, event: str, otherwise: int) -> int:
        """When an event happened, CLOCK_MONOTONIC ns."""
        return int(self.line(event).get("t", otherwise))

    def position(self, event: str, otherwise: int) -> int:
        """The position of the line of an event in the journal."""
        return self.lines[event][0][0] if event in self.lines else otherwise

    def may_have_done(self, damage: Set[str], node: str) -> bool:
        """Whether it may have done one of these kinds of damage (`history.damage`) to a node."""
        return node in self.targets and not damage.isdisjoint(self.line(INVOKED).get("may_destroy", ()))


def fault_spans(journal: Iterable[Line], clock: RunClock | None = None) -> tuple[FaultSpan, ...]:
    """The faults in the lines of a journal, in the order of their invocations. A line of a fault that was not invoked
    before is a defect of the journal, and left out here."""
    lines: dict[str, dict[str, list[tuple[int, Line]]]] = {}
    for position, line in enumerate(journal):
        event = line.get("event")
        if event == INVOKED:
            lines.setdefault(line["id"], {})
        if event in FAULT_EVENTS and line["id"] in lines:
            lines[line["id"]].setdefault(event, []).append((position, line))
    return tuple(FaultSpan.of(of_fault, clock or RunClock()) for of_fault in lines.values())
