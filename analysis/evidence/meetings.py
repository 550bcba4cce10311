"""What the seed of a run drew, and what the run met, in one line: as the journal shows it of any system and world.

A drawn run is worth what it meets. `conditions` are those that many bugs need and few runs have. `explore` counts
them, and more of simulated brokers, whose traces show more (`orchestrator/search/coverage.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from analysis.evidence.run_directory import NodeEvents, RunDescription, moment
from history.journal.timeline import CONFIRMED, DOWN, FaultSpan, RunClock
from installation.counted import counted

if TYPE_CHECKING:
    from history.reader import History  # it loads Arrow

DURING: Final = "during another"
POWERLESS: Final = "that left a majority without power"
ELECTION: Final = "election"
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
    meetings = met(history.faults, timeouts_s, description.topology.nodes, sum(at_s >= main_s for at_s in elections))
    drawn = [
        counted(description.topology.nodes, "node"),
        *(f"{name} {seconds:.1f} s" for name, seconds in timeouts_s.items()),
    ]
    return f"profile {description.profile}: {', '.join(drawn)}; met: {', '.join(meetings) or 'nothing'}"


def met(spans: Iterable[FaultSpan], timeouts_s: Mapping[str, float], nodes: int, elections: int) -> list[str]:
    """The confirmed faults by kind, and the conditions that were met, each with its number. `elections`: the number of
    leaders that were elected under load."""
    confirmed = [span for span in spans if span.status == CONFIRMED]
    kinds = Counter(span.kind for span in confirmed)
    texts = [f"{kind} {number}" for kind, number in sorted(kinds.items())]
    texts += [
        f"{counted(number, 'fault')} {name}"
        for name, number in conditions(confirmed, timeouts_s, nodes).items()
        if number
    ]
    return texts + ([counted(elections, ELECTION)] if elections else [])


def conditions(spans: Sequence[FaultSpan], timeouts_s: Mapping[str, float], nodes: int) -> Mapping[str, int]:
    """The number of faults that met each condition. `timeouts_s`: by name."""
    down = [span for span in spans if span.process_state == DOWN]
    of_majority = [span for span in down if 2 * len(_targets_at(span, down)) > nodes]
    powerless = [span for span in of_majority if span.kind.startswith("power-loss")]
    return {
        **{
            f"longer than {name}": sum(span.end_s - span.start_s > seconds for span in spans)
            for name, seconds in timeouts_s.items()
        },
        DURING: sum(any(_is_during(span, other) for other in spans) for span in spans),
        POWERLESS: len(powerless),
        "that left a majority down": len(of_majority) - len(powerless),
    }


def _targets_at(span: FaultSpan, spans: Sequence[FaultSpan]) -> frozenset[str]:
    """The targets of all spans in force when this one starts, itself included."""
    return frozenset(name for other in spans if other is span or _is_during(span, other) for name in other.targets)


def _is_during(span: FaultSpan, other: FaultSpan) -> bool:
    return other is not span and other.start_s <= span.start_s < other.end_s
