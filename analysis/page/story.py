"""Merges what clients, nodes and the run loop recorded into one list in order of time: the story around an anomaly.

Theory of operation. Readers of the run's files produce `StoryItem`s on one clock, each with its file and line.
`story_of` keeps the items between the first and the last moment of interest (the witness's operations), with `MARGIN_S`
on both sides. Log lines are kept only within `MARGIN_S` of a moment or of a turn. If too many items remain, the least
important ones go first, and of these the ones farthest from every moment. The number of items left out is stated by
kind.

Roles of nodes and faults in force are computed over all items before any is left out, so that each row shows the state
of every lane at its time even where the item that caused it is not shown.

This module is pure: it reads no file.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from analysis.evidence.run_directory import moment
from analysis.page.run_facts import rule_words, segment_text
from history.journal.service_events import (
    ELECTION,
    ENDED,
    FATAL_LINE,
    LOG_EVENT,
    SERVICE_EXIT,
    STOOD_STILL,
    service_exits,
)
from history.journal.timeline import DOWN, HEALED, INJECTED, NS, SUSPENDED, FaultSpan, RunClock, fault_spans
from history.journal.writer import FILE_NAME
from installation.sanitize import brief, plain

MARGIN_S: Final = 2.0
MOST_ROWS: Final = 250
GAP_S: Final = 0.5
"""A pause between two rows that is shown as a row of its own, in seconds."""
TURN: Final = 1
"""Items of this rank or less are turns: they may have caused the anomaly."""


class StoryKind(StrEnum):
    """What an item is about, in the words of the page's filter."""

    OPERATION = "operation"
    FAULT = "fault"
    STEP = "step"
    PROCESS = "process"
    ELECTION = "election"
    TRUNCATION = "truncation"
    MEMBERSHIP = "in-sync set"
    WATERMARK = "high watermark"
    METADATA = "metadata quorum"
    LOG_LINE = "log line"
    OTHER = "other"


class ArrowPart(StrEnum):
    """A part of an arrow between two lanes: where it starts, what it crosses, and its head with its direction."""

    NONE = ""
    START_RIGHTWARD = "from-here-right"
    START_LEFTWARD = "from-here-left"
    CROSSES = "crosses"
    HEAD_RIGHTWARD = "to-here-right"
    HEAD_LEFTWARD = "to-here-left"


@dataclass(frozen=True)
class StoryItem:
    """One recorded fact. `at_s`: seconds since the start. `lane`: the node or client, empty for the run itself. `file`
    (relative to the run's directory) and `line` (from 1, 0 unknown): where it is recorded. `rank`: importance, 0 is
    highest. `role`: the lane's role from this time on, empty for no change. `starts` and `ends`: the id of the fault
    that it starts or ends. `sender` and `receiver`: the lanes between which its records went, empty if unknown."""

    at_s: float
    lane: str
    kind: StoryKind
    text: str
    file: str
    line: int
    rank: int
    role: str = ""
    starts: str = ""
    ends: str = ""
    sender: str = ""
    receiver: str = ""


@dataclass(frozen=True)
class StoryRow:
    """A shown item with the role of each lane and the faults in force at its time. `gap_s`: the pause before it, 0 if
    it is short. `arrow`: for each lane, the part of the message's arrow that crosses it, see `ArrowPart`."""

    item: StoryItem
    roles: tuple[str, ...]
    faults: frozenset[str]
    gap_s: float
    arrow: tuple[ArrowPart, ...] = ()


@dataclass(frozen=True)
class Story:
    """`lanes`: the columns of the space-time plot. `faults`: the ids of the faults in force during the story, in order
    of their start. `left_out`: number of items in the story's time that are not shown, by kind."""

    lanes: tuple[str, ...]
    faults: tuple[str, ...]
    rows: tuple[StoryRow, ...]
    left_out: Mapping[StoryKind, int]


def story_of(
    items: Iterable[StoryItem], *, lanes: Sequence[str], moments: Sequence[float], most: int = MOST_ROWS
) -> Story:
    """The story around `moments` (seconds, of the witness's operations). Without a moment, turns decide; without a turn
    either, the whole run is shown."""
    ordered = sorted(items, key=lambda item: (item.at_s, item.rank))
    turns = sorted(item.at_s for item in ordered if item.rank <= TURN)
    focus = sorted(moments) or turns
    begin_s, end_s = (focus[0] - MARGIN_S, focus[-1] + MARGIN_S) if focus else (float("-inf"), float("inf"))
    near = sorted([*focus, *turns])
    candidates = [
        number
        for number, item in enumerate(ordered)
        if begin_s <= item.at_s <= end_s
        and (item.kind is not StoryKind.LOG_LINE or item.rank <= TURN or _distance(item.at_s, near) <= MARGIN_S)
    ]
    important = sorted(candidates, key=lambda n: (ordered[n].rank, _distance(ordered[n].at_s, focus), n))
    chosen = set(important[:most])
    rows = _rows(ordered, chosen, lanes)
    shown = {fault for row in rows for fault in row.faults}
    started = dict.fromkeys(item.starts for item in ordered if item.starts in shown)
    return Story(
        lanes=tuple(lanes),
        faults=tuple(started),
        rows=tuple(rows),
        left_out=dict(Counter(ordered[number].kind for number in important[most:])),
    )


def _rows(ordered: Sequence[StoryItem], chosen: set[int], lanes: Sequence[str]) -> list[StoryRow]:
    roles: dict[str, str] = {}
    faults: set[str] = set()
    rows: list[StoryRow] = []
    for number, item in enumerate(ordered):
        if item.role:
            roles[item.lane] = item.role
        if item.starts:
            faults.add(item.starts)
        if number in chosen:
            pause = item.at_s - rows[-1].item.at_s if rows else 0.0
            in_force = frozenset(faults)
            roles_of_row = tuple(roles.get(lane, "") for lane in lanes)
            rows.append(StoryRow(item, roles_of_row, in_force, pause if pause >= GAP_S else 0.0, _arrow(item, lanes)))
        faults.discard(item.ends)  # the row of the heal still shows the fault's band
    return rows


def _arrow(item: StoryItem, lanes: Sequence[str]) -> tuple[ArrowPart, ...]:
    """The parts of the item's arrow by lane; empty without a sender and a receiver among the lanes."""
    if item.sender == item.receiver or item.sender not in lanes or item.receiver not in lanes:
        return ()
    start, head = lanes.index(item.sender), lanes.index(item.receiver)
    parts = [ArrowPart.NONE] * len(lanes)
    for between in range(min(start, head) + 1, max(start, head)):
        parts[between] = ArrowPart.CROSSES
    parts[start] = ArrowPart.START_RIGHTWARD if head > start else ArrowPart.START_LEFTWARD
    parts[head] = ArrowPart.HEAD_RIGHTWARD if head > start else ArrowPart.HEAD_LEFTWARD
    return tuple(parts)


def _distance(at_s: float, ordered: Sequence[float]) -> float:
    """Seconds to the nearest of `ordered`; 0 if it is empty."""
    at = bisect_left(ordered, at_s)
    return min((abs(at_s - moment) for moment in ordered[max(at - 1, 0) : at + 1]), default=0.0)


# ---- What the journal contributes to a run's page: items of the story, the steps with their reasons, ended
# processes.

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


# ---- The items of a story that nodes recorded: their trace events, and the lines of their logs with a time.

LONGEST_LINE: Final = 400
# Of each event: the kind of its item, its rank, and its text, a format string over the event's fields.
_EVENTS: Final[Mapping[str, tuple[StoryKind, int, str]]] = {
    "broker_started": (_K.PROCESS, 1, "the process starts (clean shutdown before: {clean_shutdown})"),
    "broker_stopped": (_K.PROCESS, 1, "the process stops"),
    "broker_failed": (_K.PROCESS, 1, "the process fails: {reason}"),
    "registered": (_K.PROCESS, 2, "registers with the controller, broker epoch {broker_epoch}"),
    "fenced": (_K.PROCESS, 2, "is fenced"),
    "unfenced": (_K.PROCESS, 2, "is unfenced"),
    "controller_active": (_K.ELECTION, 2, "becomes the controller, epoch {epoch}"),
    "controller_inactive": (_K.ELECTION, 2, "has stopped being the controller, epoch {epoch}"),
    "session_expired": (_K.ELECTION, 2, "the controller fences {broker}: its session expired"),
    "broker_gone": (_K.ELECTION, 2, "the controller removes {broker}"),
    "quorum_role": (_K.METADATA, 3, "metadata quorum: {role} in epoch {epoch}, leader {leader}"),
    "quorum_vote": (_K.METADATA, 3, "metadata quorum: votes for {candidate} in epoch {epoch}"),
    "partition_role": (_K.ELECTION, 2, "{role} of {where}, leader {leader}, epoch {leader_epoch}, ISR {isr}"),
    "leader_recovered": (_K.ELECTION, 1, "serves {where} after an unclean election, log end {log_end_offset}"),
    "isr_changed": (_K.MEMBERSHIP, 2, "in-sync set of {where} is {isr}"),
    "truncated": (_K.TRUNCATION, 1, "truncates {where} from offset {from_offset} to {to_offset}{rule}"),
    "log_shortened": (_K.TRUNCATION, 1, "recovery shortens {where} to {log_end_offset}, {lost_bytes} bytes removed"),
    "bootstrapped": (_K.TRUNCATION, 1, "drops its log of {where} and starts above remote storage"),
    "partition_set_aside": (_K.TRUNCATION, 1, "sets the files of {where} aside: {reason}"),
    "partition_failed": (_K.PROCESS, 1, "{where} fails: {reason}"),
    "fetched_batches_refused": (_K.OTHER, 2, "refuses fetched batches of {where} from {leader}: {reason}"),
    "high_watermark_checkpointed": (_K.WATERMARK, 3, "writes the high watermark {high_watermark} of {where} to disk"),
    "remote_segment": (_K.OTHER, 3, "declares for {where}: {segment}"),
    "replica_progress": (_K.WATERMARK, 3, "high watermark of {where} is {high_watermark}, log end {log_end_offset}"),
}  # fmt: skip
_UNSHOWN: Final = frozenset({"quorum_high_watermark", "quorum_persisted", "quorum_restored", "quorum_voters",
                             "quorum_leader_change", "quorum_snapshot", "replica_starts"})  # fmt: skip
_NODE_FIELDS: Final = frozenset({"leader", "broker", "candidate", "isr"})
_COMMON_FIELDS: Final = frozenset({"event", "node", "seq", "wall", "seen", "on"})


@dataclass(frozen=True)
class Focus:
    """What a story is about: a partition, or everything if `topic` is empty. `name_of_node`: a node's name by its
    number."""

    topic: str
    partition: int
    name_of_node: Callable[[int], str]

    def concerns(self, event: Mapping[str, Any]) -> bool:
        """Whether the event is about the partition, or about no partition."""
        place = event.get("topic"), event.get("partition")
        return not self.topic or event.get("topic") is None or place == (self.topic, self.partition)


class _Fields(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def event_items(
    node: str, events: Iterable[tuple[int, Mapping[str, Any]]], clock: RunClock, focus: Focus
) -> Iterator[StoryItem]:
    """The items of a node's events, given with the numbers of their lines."""
    file = f"nodes/{node}/events.jsonl"
    watermarks: dict[tuple[Any, Any], Any] = {}
    for number, event in events:
        name = str(event["event"])
        if name in _UNSHOWN or not focus.concerns(event):
            continue
        if name == "replica_progress":
            key, mark = (event.get("topic"), event.get("partition")), event.get("high_watermark")
            if watermarks.get(key, _Fields) == mark:
                continue
            watermarks[key] = mark
        kind, rank, text = _EVENTS.get(name, (_K.OTHER, 3, ""))
        if name == "partition_role" and event.get("role") == "leader":
            rank = 1
        if name == "truncated" and event.get("from_offset") == event.get("to_offset"):
            rank = 4
        yield StoryItem(
            at_s=clock.of_wall(moment(event)),
            lane=node,
            kind=kind,
            text=_text(name, text, event, focus),
            file=file,
            line=number,
            rank=rank,
            role=_role(name, event, focus),
        )


def _text(name: str, template: str, event: Mapping[str, Any], focus: Focus) -> str:
    fields = _Fields({key: _shown(key, value, focus) for key, value in event.items()})
    fields["where"] = f"{event.get('topic')}-{event.get('partition')}"
    if name == "truncated":
        fields["rule"] = f", {rule_words(event)}"
    elif name == "remote_segment":
        fields["segment"] = segment_text(event)
    if template:
        return brief(template.format_map(fields), LONGEST_LINE)
    details = ", ".join(f"{key} {fields[key]}" for key in event if key not in _COMMON_FIELDS)
    return brief(f"{name.replace('_', ' ')}{': ' if details else ''}{details}", LONGEST_LINE)


def _shown(key: str, value: Any, focus: Focus) -> str:
    if key in _NODE_FIELDS and isinstance(value, list):
        return "[" + ", ".join(_shown(key, item, focus) for item in value) + "]"
    if key in _NODE_FIELDS and type(value) is int:
        return "none" if value < 0 else focus.name_of_node(value)
    return plain(value)


def _role(name: str, event: Mapping[str, Any], focus: Focus) -> str:
    if name in ("broker_stopped", "broker_failed"):
        return DOWN
    if name == "broker_started":
        return "up"
    return str(event.get("role", "")) if name == "partition_role" and focus.topic else ""


_TIMES: Final = (
    (re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)[.,](\d{3})"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"(\d{1,2} [A-Z][a-z]{2} \d{4}) (\d\d:\d\d:\d\d)[.,](\d{3})"), "%d %b %Y %H:%M:%S"),
)
_TIME_WITHIN: Final = 80
_SEVERE: Final = re.compile(r"\b(ERROR|FATAL|WARN|error|warn|panic|fatal)\b")


def log_items(node: str, lines: Iterable[tuple[int, str]], clock: RunClock) -> Iterator[StoryItem]:
    """The lines of a node's log that start with a time, which is taken as UTC. Kafka, etcd and Redis write one."""
    file = f"nodes/{node}/service.log"
    for number, line in lines:
        wall = time_of(line)
        if wall is not None:
            text = brief(line.strip(), LONGEST_LINE)
            rank = 2 if _SEVERE.search(line, 0, 200) else 4
            yield StoryItem(clock.of_wall(wall), node, StoryKind.LOG_LINE, text, file, number, rank)


def time_of(line: str) -> int | None:
    """The wall clock in ns that a line of a log states; None without one."""
    for pattern, form in _TIMES:
        if match := pattern.search(line, 0, _TIME_WITHIN):
            try:
                at = datetime.strptime(f"{match[1]} {match[2]}", form).replace(tzinfo=UTC)
            except ValueError:
                return None
            return int(at.timestamp()) * NS + int(match[3]) * 1_000_000
    return None
