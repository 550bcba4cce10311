"""Writes a simulated run as a text in order of time: events of each node, messages, faults."""

import heapq
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from analysis.evidence.run_directory import node_events, node_names
from history import strict_json
from history.journal.writer import FILE_NAME as JOURNAL
from history.regular_files import open_regular, read_text
from orchestrator.worlds.simulation.files import MESSAGES
from simulator.cluster import BEGINNING_NS
from simulator.messages import Said

TRACE: Final = "trace.txt"
_ALWAYS: Final = frozenset({"event", "node", "seq", "wall", "on", "topic", "partition"})
_NS: Final = 1e9
_SHOWN: Final = ("fault_invoked", "fault_injected", "fault_healed", "phase", "note")


class Line(NamedTuple):
    """An event, in virtual seconds."""

    at_s: float
    order: int
    text: str


def narrate(run_dir: Path) -> Path:
    """Write `trace.txt` into a run's directory; returns its path. Leaves out periodic messages without content
    (heartbeats, empty fetches); `messages.jsonl` has those, too. Raises `OSError`, `ValueError`."""
    lines = heapq.merge(*(sorted(part) for part in (_of_run(run_dir), _of_nodes(run_dir), _of_messages(run_dir))))
    path = run_dir / TRACE
    with path.open("w", encoding="utf-8") as file:
        file.write("# seconds of virtual time; n1 -> n2: a request, n1 => n2: a response, at the time it was sent\n")
        for line in lines:
            file.write(f"{line.at_s:12.6f}  {line.text}\n")
    return path


def _of_run(run_dir: Path) -> Iterator[Line]:
    text = read_text(run_dir / "history" / JOURNAL)
    for number, entry in enumerate(map(strict_json.decode, text.splitlines())):
        if entry["event"] in _SHOWN:
            yield Line(entry["t"] / _NS, number, f"----  {_action(entry)}")


def _action(entry: Mapping[str, Any]) -> str:
    match entry["event"]:
        case "phase":
            return f"{entry['name']} starts"
        case "fault_invoked":
            return f"fault {entry['id']}: {entry['sentence'] or entry['kind']}"
        case "fault_injected":
            return f"fault {entry['id']} is {entry['status']}: {entry['proof']}"
        case "fault_healed":
            return f"fault {entry['id']} is healed"
        case _:
            return str(entry["text"])


def _of_nodes(run_dir: Path) -> Iterator[Line]:
    for node in node_names(run_dir):
        for number, event in enumerate(node_events(run_dir, node)):
            yield Line((event["wall"] - BEGINNING_NS) / _NS, number, f"{node:<4}  {_event(event)}")


def _event(event: Mapping[str, Any]) -> str:
    place = f" {event['topic']}-{event['partition']}" if "partition" in event else ""
    details = ", ".join(f"{name} {value}" for name, value in event.items() if name not in _ALWAYS)
    return f"{event['event']}{place}{': ' if details else ''}{details}"


def _of_messages(run_dir: Path) -> Iterator[Line]:
    path = run_dir / MESSAGES
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Said)
    with io.BufferedReader(open_regular(path)) as file:
        for number, raw in enumerate(file):
            message = decoder.decode(raw)
            if message.routine and message.arrived_s is not None:
                continue
            arrow = "=>" if message.answer else "->"
            delay = (
                "never arrived" if message.arrived_s is None else f"{(message.arrived_s - message.sent_s) * 1e3:.3f} ms"
            )
            yield Line(
                message.sent_s,
                number,
                f"{message.source} {arrow} {message.target}  {message.what} {message.text} ({delay})",
            )
