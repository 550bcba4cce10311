"""Converts the faults of a run into a schedule with their moments, and into the steps of a script."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history.journal.timeline import HEALED, INVOKED, RunClock, fault_spans, phases_of
from history.journal.writer import FILE_NAME as JOURNAL
from history.journal.writer import SCHEDULE_START
from nemeses import INJECTED_BY, KINDS, Choice, Files, Parameter, Schedule
from orchestrator.errors import UsageError

StepTable = dict[str, Any]
"""A step of a campaign's `[[nemesis.step]]`."""

FaultTable = dict[str, Any]
"""A fault of a campaign's `[[nemesis.fault]]`."""

_PLACES: Final = 3  # of seconds


@dataclass(frozen=True)
class InjectedFault:
    """An injected fault: its targets and parameters, its start and end in seconds since the start of the load."""

    kind: str
    targets: tuple[str, ...]
    begin_s: float
    end_s: float
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class InjectedFaults:
    """The faults of one run in the order of their starts, and the duration of its load."""

    faults: tuple[InjectedFault, ...]
    lasted_s: float


def injected_faults_of(run_dir: Path) -> InjectedFaults:
    """The faults of a run's main phase, by its journal. Raises `UsageError` without a main phase or with a damaged
    journal."""
    journal = _journal(run_dir / "history" / JOURNAL)
    main = next((phase for phase in phases_of(journal) if phase.name == "main"), None)
    if main is None or main.end is None:
        raise UsageError(f"{run_dir}: the run did not reach the end of its load, so it has no complete schedule")
    load = RunClock(main.start)
    lasted_s = load.of_monotonic(main.end)
    faults = [
        InjectedFault(
            fault.kind,
            fault.targets,
            load.of_monotonic(fault.line(INVOKED)["t"]),
            fault.end_s if HEALED in fault.lines else lasted_s,
            fault.line(INVOKED)["parameters"],
        )
        for fault in fault_spans(journal, load)
    ]
    return InjectedFaults(tuple(sorted(faults, key=lambda fault: fault.begin_s)), lasted_s)


def _journal(path: Path) -> tuple[Mapping[str, Any], ...]:
    from history.journal.reader import read_journal  # imports Arrow

    read = read_journal(path)
    if read.defects:
        raise UsageError(f"{path}: cannot be read: {'; '.join(read.defects)}; take another run")
    return read.lines


def moments_of(run_dir: Path, schedule: Schedule, *, overlap: bool) -> list[FaultTable]:
    """The schedule of a run as tables that repeat it. Each fault that was injected has its targets, so that they stay
    when other faults are removed. `overlap`: whether its faults started at their times; otherwise each was delayed by
    the injections and heals before it, and has the time at which it started. Raises `UsageError` for a run that has no
    faults and for a damaged journal."""
    journal = _journal(run_dir / "history" / JOURNAL)
    start = next((line for line in journal if line.get("event") == "note" and line.get("text") == SCHEDULE_START), None)
    if start is None:
        raise UsageError(f"{run_dir}: the run ended before its first fault, or an earlier version of Brownout made it")
    spans = {
        (span.kind, span.line(INVOKED)["parameters"].get("duration_s")): span
        for span in fault_spans(journal, RunClock(start["t"]))
    }
    tables: list[FaultTable] = []
    planned_end_s = healed_s = 0.0
    for plan in schedule:
        span = spans.get((plan.kind, plan.duration_s))
        pause_s, planned_end_s = plan.at - planned_end_s, plan.heals_at
        at_s = plan.at if overlap else healed_s + pause_s
        targets = {"aim": plan.aim, "draw": plan.draw} if span is None else {"nodes": list(span.targets)}
        if span is not None:
            healed_s = span.end_s
        if overlap or span is not None:
            parameters = {name: value for name, value in plan.parameters.items() if value is not None}
            table = {"fault": plan.kind, "at_s": at_s, "duration_s": plan.duration_s, **targets}
            tables.append({**table, "parameters": parameters} if parameters else table)
    return tables


def injected_by(moments: Sequence[FaultTable], lasted_s: float) -> InjectedFaults:
    """The faults that a schedule injects in a load of this duration, without those whose targets are not known."""
    return InjectedFaults(
        tuple(
            InjectedFault(
                moment["fault"],
                tuple(moment["nodes"]),
                moment["at_s"],
                moment["at_s"] + moment["duration_s"],
                moment.get("parameters", {}),
            )
            for moment in moments
            if "nodes" in moment
        ),
        lasted_s,
    )


def steps_of(injected: InjectedFaults, nodes: Sequence[str]) -> list[StepTable]:
    """The script: starts and heals each fault at its time, with waits between, to the end of the load. Raises
    `UsageError` for a fault that no script can inject."""
    events: list[tuple[float, int, list[StepTable]]] = []
    for number, fault in enumerate(injected.faults):
        begins, ends = _begin_and_end(fault, nodes)
        events += [(fault.begin_s, 2 * number, begins), (fault.end_s, 2 * number + 1, ends)]
    steps: list[StepTable] = []
    now_s = 0.0
    for at_s, _, tables in sorted(events, key=lambda event: event[:2]):
        steps += [*_wait(at_s - now_s), *tables]
        now_s = max(now_s, at_s)
    return [*steps, *_wait(injected.lasted_s - now_s)]


def asked_for(at_s: float, requested: InjectedFaults, happened: InjectedFaults) -> float:
    """The time in a script that corresponds to `at_s` in its run: faults and heals take time, and each step waits for
    the previous one."""
    late_s = 0.0
    for wanted_s, came_s in zip(_edges(requested), _edges(happened), strict=False):
        if came_s > at_s:
            break
        late_s = came_s - wanted_s
    return max(0.0, at_s - late_s)


def _edges(injected: InjectedFaults) -> list[float]:
    """The times at which faults started and ended; for faults that go from node to node, those of each node."""
    edges: list[float] = []
    for fault in injected.faults:
        times = 1 if KINDS[fault.kind].takes == "groups" else len(fault.targets)
        edges += [fault.begin_s, fault.end_s] * times
    return sorted(edges)


def _wait(seconds: float) -> Iterator[StepTable]:
    if (rounded := round(seconds, _PLACES)) > 0:
        yield {"do": "wait", "seconds": rounded}


def _begin_and_end(fault: InjectedFault, nodes: Sequence[str]) -> tuple[list[StepTable], list[StepTable]]:
    kind = KINDS[fault.kind]
    if kind.takes == "groups":
        injection = kind.injected_by or KINDS["partition-one"].injected_by
        between = _between(fault, nodes)
        return [{"do": injection, **between}], [{"do": "heal", "between": between["between"]}]
    injection = kind.injected_by or next(
        (injected.injected_by for injected in INJECTED_BY.values() if kind.name.startswith(injected.name)), ""
    )
    if not injection:
        raise UsageError(f"{fault.kind}: no step starts this fault, so no campaign of steps can inject it")
    parameters = {
        parameter.name: fault.parameters[parameter.name]
        for parameter in kind.parameters
        if _is_scripted(parameter, fault.parameters)
    }
    parameters |= {
        parameter.name: True
        for parameter in kind.parameters
        if isinstance(parameter, Choice) and parameter.scripted and fault.parameters.get(parameter.name) is not None
    }
    begins = [{"do": injection, "node": node, **parameters} for node in fault.targets]
    return begins, [{"do": INJECTED_BY[injection].healed_by, "node": node} for node in fault.targets]


def _is_scripted(parameter: object, values: Mapping[str, Any]) -> bool:
    return isinstance(parameter, Parameter | Files) and values.get(parameter.name) is not None


def _between(fault: InjectedFault, nodes: Sequence[str]) -> dict[str, Any]:
    """The two groups of nodes between which no packets passed, or none from the first to the second."""
    pairs = {tuple(pair) for pair in fault.parameters.get("pairs") or ()}
    if pairs:
        first, second = (sorted({pair[end] for pair in pairs}) for end in (0, 1))
        if set(first) & set(second):  # both ways: the targets are one side
            first, second = list(fault.targets), [node for node in second if node not in fault.targets]
            return {"between": [first, second]}
        return {"between": [first, second], "one_way": True}
    inside, outside = list(fault.targets), [node for node in nodes if node not in fault.targets]
    match fault.parameters.get("direction", "both"):
        case "out":
            return {"between": [inside, outside], "one_way": True}
        case "in":
            return {"between": [outside, inside], "one_way": True}
        case _:
            return {"between": [inside, outside]}
