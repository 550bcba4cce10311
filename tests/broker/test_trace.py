"""The trace of a node: events are numbered, and a line that a killed process left torn spoils no other."""

import json
from pathlib import Path

from broker.trace import JsonLines, Tracer, Value


def test_events_of_a_process_are_numbered_from_zero() -> None:
    events: list[dict[str, Value]] = []
    tracer = Tracer(3, lambda: 7, events.append)
    tracer.emit("fenced")
    tracer.emit("registered", broker_epoch=5)
    assert events == [
        {"event": "fenced", "node": 3, "seq": 0, "wall": 7},
        {"event": "registered", "node": 3, "seq": 1, "wall": 7, "broker_epoch": 5},
    ]


def test_the_next_process_starts_a_new_line_after_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    JsonLines(str(path))({"event": "fenced"})
    with path.open("ab") as file:
        file.write(b'{"event":"quo')
    JsonLines(str(path))({"event": "broker_started"})
    whole, torn, after = path.read_text().splitlines()
    assert json.loads(whole) == {"event": "fenced"}
    assert torn == '{"event":"quo'
    assert json.loads(after) == {"event": "broker_started"}


def test_a_trace_that_ends_with_a_whole_line_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for name in ("a", "b"):
        JsonLines(str(path))({"event": name})
    assert path.read_text() == '{"event":"a"}\n{"event":"b"}\n'
