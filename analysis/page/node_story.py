"""The items of a story that nodes recorded: their trace events, and the lines of their logs with a time."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from analysis.evidence.run_directory import moment
from analysis.page.run_facts import rule_words, segment_text
from analysis.page.story import StoryItem, StoryKind
from history.journal.timeline import DOWN, NS, RunClock
from installation.sanitize import brief, plain

LONGEST_LINE: Final = 400
_K = StoryKind
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


def log_items(node: str, lines: Iterable[tuple[int, str]], clock: RunClock) -> Iterator[StoryItem]:
    """The lines of a node's log that start with a time, which is taken as UTC. Kafka, etcd and Redis write one."""
    file = f"nodes/{node}/service.log"
    for number, line in lines:
        wall = time_of(line)
        if wall is not None:
            text = brief(line.strip(), LONGEST_LINE)
            yield StoryItem(clock.of_wall(wall), node, StoryKind.LOG_LINE, text, file, number, _rank_of_line(line))


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


_SEVERE: Final = re.compile(r"\b(ERROR|FATAL|WARN|error|warn|panic|fatal)\b")


def _rank_of_line(line: str) -> int:
    return 2 if _SEVERE.search(line, 0, 200) else 4
