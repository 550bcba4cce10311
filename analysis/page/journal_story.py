"""What the journal contributes to a run's page: items of the story, the steps with their reasons, ended processes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from analysis.page.story import StoryItem, StoryKind
from history.journal.service_events import (
    ELECTION,
    ENDED,
    FATAL_LINE,
    LOG_EVENT,
    SERVICE_EXIT,
    STOOD_STILL,
    service_exits,
)
from history.journal.timeline import DOWN, HEALED, INJECTED, SUSPENDED, FaultSpan, RunClock, fault_spans
from history.journal.writer import FILE_NAME

FILE: Final = f"history/{FILE_NAME}"
_NAMED_STEP: Final = re.compile(r"step \d+ \((?P<what>.*?)\)(?P<result>.*)", re.DOTALL)
_REPEATED: Final = re.compile(r"\b(?P<answer>\w[\w -]*)(?:, (?P=answer)\b){3,}")
"""The same answer four times or more, as after a step that produces many records."""
_K = StoryKind
LEADER: Final = "leader"


@dataclass
class StepRecord:
    """A step of a script: what it did and why, its times in seconds (`end_s` None: it did not end), its result."""

    number: int
    what: str
    why: str
    start_s: float
    end_s: float | None = None
    result: str = ""


@dataclass(frozen=True)
class EndedProcess:
    """A process of the system that ended or stopped responding without a fault; `last_words`: the tail of its log."""

    at_s: float
    node: str
    how: str
    last_words: str


def journal_items(journal: Iterable[Mapping[str, Any]], clock: RunClock) -> Iterator[StoryItem]:
    """The items of a journal's lines. A line's number is its position in the file. A node with an election in its log
    is the leader until another one has an election, or its process ends or is suspended."""
    leader = ""
    for item in _items(list(journal), clock):
        if item.role == LEADER and leader not in ("", item.lane):
            yield replace(item, lane=leader, text=f"no longer the leader: {item.lane} is", rank=2, role="up")
        if item.role:
            leader = item.lane if item.role == LEADER else "" if item.lane == leader else leader
        yield item


def _items(lines: Sequence[Mapping[str, Any]], clock: RunClock) -> Iterator[StoryItem]:
    faults = {fault.id: fault for fault in fault_spans(lines, clock)}
    for line in lines:
        event, at_s, number = line["event"], clock.of_monotonic(line.get("t", 0)), int(line.get("n", 0))
        if event == "phase":
            yield StoryItem(at_s, "", _K.STEP, f"phase {line.get('name')}", FILE, number, 2)
        elif event == "note" and "step" in line and "why" in line:
            reason = f": {line['why']}" if line["why"] else ""
            yield StoryItem(at_s, "", _K.STEP, f"{line.get('text')}{reason}", FILE, number, 2)
        elif event == "note" and "step" in line and "text" in line:
            text = _counted(str(line["text"]))
            step_text = text if text.startswith("step ") else f"step {line['step']}: {text}"
            yield StoryItem(at_s, "", _K.STEP, step_text, FILE, number, 2)
        elif event in (INJECTED, HEALED) and line["id"] in faults:
            yield from _fault_items(faults[line["id"]], line, at_s, number)
        elif event == "node":
            started = line.get("what") == "started"
            role = "up" if started else DOWN if line.get("what") == "stopped" else ""
            text = f"the run loop: {line.get('what')}"
            yield StoryItem(at_s, str(line.get("node")), _K.PROCESS, text, FILE, number, 2, role=role)
        elif event == SERVICE_EXIT:
            (exit_,) = service_exits([line])
            role = SUSPENDED if exit_.way == STOOD_STILL else DOWN
            text = f"the process {exit_.way} {exit_.how}"
            yield StoryItem(at_s, exit_.node, _K.PROCESS, text, FILE, number, 0, role=role)
        elif event == FATAL_LINE:
            text = f"fatal log line: {line.get('line')}"
            yield StoryItem(at_s, str(line.get("node")), _K.LOG_LINE, text, FILE, number, 0)
        elif event == LOG_EVENT:
            elected, text = line.get("name") == ELECTION, f"{line.get('name')}: {line.get('line')}"
            kind, role = (_K.ELECTION, LEADER) if elected else (_K.LOG_LINE, "")
            yield StoryItem(at_s, str(line.get("node")), kind, text, FILE, number, 1, role=role)


def _fault_items(fault: FaultSpan, line: Mapping[str, Any], at_s: float, number: int) -> Iterator[StoryItem]:
    """The item of the fault, and for each target whose process it suspends or ends, the item of its role. `line`: that
    of its injection or its heal."""
    starts, name, targets = line["event"] == INJECTED, fault.id, ", ".join(fault.targets)
    lane, proof = fault.targets[0] if len(fault.targets) == 1 else "", str(line.get("proof", ""))
    if fault.is_prevented:
        if starts:
            text = f"fault {name} is not made: {fault.kind} on {targets} ({proof})"
            yield StoryItem(at_s, lane, _K.FAULT, text, FILE, number, 1)
        return
    shown_fault = f"{fault.kind} on {targets}" if targets else fault.kind
    if starts:
        details = "; ".join(filter(None, (fault.sentence, proof)))
        text = f"fault {name} starts: {shown_fault} ({details})" if details else f"fault {name} starts: {shown_fault}"
        yield StoryItem(at_s, lane, _K.FAULT, text, FILE, number, 1, starts=name)
    else:
        yield StoryItem(at_s, lane, _K.FAULT, f"fault {name} is healed: {shown_fault}", FILE, number, 1, ends=name)
    if role := fault.process_state:
        text = f"the process is {'running again' if not starts else 'ended' if role == DOWN else 'suspended'}"
        for target in fault.targets:
            shown_role = role if starts else "up"
            yield StoryItem(at_s, target, _K.PROCESS, f"{text} (fault {name})", FILE, number, 1, role=shown_role)


def _counted(text: str) -> str:
    """The text with each run of equal answers as one answer and their number."""
    return _REPEATED.sub(lambda run: f"{run['answer']} ({run[0].count(',') + 1} times)", text)


def steps_of(journal: Iterable[Mapping[str, Any]], clock: RunClock) -> list[StepRecord]:
    """The steps in order of their start. A step without an end did not finish."""
    steps: dict[int, StepRecord] = {}
    for line in journal:
        number = line.get("step")
        if type(number) is not int:
            continue
        at_s = clock.of_monotonic(line.get("t", 0))
        record = steps.get(number)
        if line["event"] == "step_done":
            if record is not None:
                record.end_s = at_s
        elif line["event"] == "note":
            text = _counted(str(line.get("text", "")))
            named = _NAMED_STEP.fullmatch(text)
            if record is None:
                steps[number] = StepRecord(number, named["what"] if named else text, str(line.get("why", "")), at_s)
            else:
                result = named["result"].lstrip(": ") if named else text
                record.result = "; ".join(filter(None, (record.result, result)))
    return list(steps.values())


def ended_processes(journal: Iterable[Mapping[str, Any]], clock: RunClock) -> list[EndedProcess]:
    """The exits that the run did not cause, with the tail of the process's log, at most 2 KB."""
    return [
        EndedProcess(
            clock.of_monotonic(service_exit.t),
            service_exit.node,
            f"{service_exit.way} {service_exit.how}" if service_exit.way != ENDED else f"ended {service_exit.how}",
            service_exit.last_words,
        )
        for service_exit in service_exits(journal)
    ]
