"""What the seed of a run drew, and what the run met, in one line: as the journal shows it of any system and world.

A drawn run is worth what it meets. `met` counts conditions that many bugs need and few runs have. `explore` has more of
them for simulated brokers, whose traces show more (`orchestrator/search/coverage.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analysis.evidence.run_directory import NodeEvents, RunDescription, moment
from history.journal.timeline import CONFIRMED, DOWN, FaultSpan, RunClock
from history.reader import History
from installation.counted import counted

ELECTION = "election"
"""The name of a log event (`[log] events` of system.toml), and of a time-out."""


def drawn_line(description: RunDescription, history: History, events: NodeEvents) -> str:
    """The profile, the drawn cluster, and what the run met; empty for a run that drew nothing."""
    if not description.profile:
        return ""
    timeouts_s = {name: seconds * description.time_scale for name, seconds in description.timeouts_s.items()}
    clock = RunClock.of_journal(history.journal)
    main_s = min((clock.of_monotonic(phase.start) for phase in history.phases if phase.name == "main"), default=0.0)
    elections = [clock.of_monotonic(line["t"]) for line in history.journal if line.get("name") == ELECTION]
    elections += [
        clock.of_wall(moment(event))
        for of_node in events.values()
        for event in of_node
        if event["event"] == "quorum_role" and event.get("role") == "leader"
    ]
    meetings = met(history.faults, timeouts_s, description.nodes, sum(at_s >= main_s for at_s in elections))
    drawn = [counted(description.nodes, "node"), *(f"{name} {seconds:.1f} s" for name, seconds in timeouts_s.items())]
    return f"profile {description.profile}: {', '.join(drawn)}; met: {', '.join(meetings) or 'nothing'}"


def met(spans: Iterable[FaultSpan], timeouts_s: Mapping[str, float], nodes: int, elections: int) -> list[str]:
    """The confirmed faults by kind, and the conditions that were met, each with its number. `timeouts_s`: by name;
    `elections`: the number of leaders that were elected under load."""
    made = [span for span in spans if span.status == CONFIRMED]
    down = [span for span in made if span.process_state == DOWN]
    ends_of_majority = [span for span in down if 2 * len(_targets_at(span, down)) > nodes]
    power_losses = sum(span.kind.startswith("power-loss") for span in ends_of_majority)
    during = sum(any(_is_during(span, other) for other in made) for span in made)
    conditions = [
        *((_longer(made, seconds), "fault", f" longer than {name}") for name, seconds in timeouts_s.items()),
        (during, "fault", " during another"),
        (power_losses, "time", " a majority without power"),
        (len(ends_of_majority) - power_losses, "time", " a majority down otherwise"),
        (elections, "election", ""),
    ]
    kinds = Counter(span.kind for span in made)
    return [f"{kind} {number}" for kind, number in sorted(kinds.items())] + [
        counted(number, noun) + rest for number, noun, rest in conditions if number
    ]


def _longer(spans: Sequence[FaultSpan], seconds: float) -> int:
    return sum(span.end_s - span.start_s > seconds for span in spans)


def _targets_at(span: FaultSpan, spans: Sequence[FaultSpan]) -> frozenset[str]:
    """The targets of all spans in force when this one starts, itself included."""
    return frozenset(name for each in spans if each is span or _is_during(span, each) for name in each.targets)


def _is_during(span: FaultSpan, other: FaultSpan) -> bool:
    return other is not span and other.start_s <= span.start_s < other.end_s
