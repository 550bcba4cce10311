"""The reader returns the calls that a client of a user's own workload recorded, for every end of the client."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from history.checksummed_lines import text_of
from history.errors import UNFINISHED
from history.reader import History, read_run
from history.record.arrow_stream import BatchReader, BatchWriter
from history.record.operation_tables import read_index
from history.record.schemas import CALL, CALLS, FAIL, INF, INFO, OK, QUERY
from history.record.shapes import FREE
from history.record.writer import OperationWriter


class Clock:
    """Every look at it is 10 ns later."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


def writer(run: Path, **options: Any) -> OperationWriter:
    directory = run / "history" / "operations"
    return OperationWriter(FREE, directory, client="c", session=1, process=3, clock=Clock(), **options)


def rows(history: History) -> list[dict[str, Any]]:
    return history.of(FREE).rows.to_pylist()  # type: ignore[no-any-return]


def test_a_clean_run_reads_back_whole(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        client.end(client.start("call", function="put", key="a", argument='{"x": 1}'), "ok", result="null")
        client.end(client.start("query", function="get", key="a"), "ok", result="[1]", endpoint="n1:1")
        client.new_session()
        client.end(client.start("call", function="put"), "fail", error="no quorum")
        client.phase = "final"
        client.end(client.start("call", function="put"), "info", error="timed out")
        client.end(client.start("query", function="get"), "fail", error="timed out")
    history = read_run(tmp_path, tables=tmp_path / "tables")
    names = ("f", "function", "key", "argument", "type", "result", "session", "phase")
    assert [tuple(row[name] for name in names) for row in rows(history)] == [
        (CALL, "put", "a", '{"x": 1}', OK, "null", 1, "main"),
        (QUERY, "get", "a", "null", OK, "[1]", 1, "main"),
        (CALL, "put", "", "null", FAIL, None, 2, "main"),
        (CALL, "put", "", "null", INFO, None, 2, "final"),
        (QUERY, "get", "", "null", FAIL, None, 2, "final"),
    ]
    assert [row["id"] for row in rows(history)] == [3 << 32 | number for number in range(5)]
    assert (history.unfinished, history.torn, history.size) == (0, [], 5)
    assert sum(group.rows for group in read_index(FREE, tmp_path / "tables")) == 5


def test_a_run_without_calls_has_no_tables_of_them(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    read_run(tmp_path, tables=tmp_path / "tables")
    assert not [*(tmp_path / "tables").glob("calls*")]
    assert read_index(FREE, tmp_path / "tables") == []


def test_a_killed_client_leaves_the_calls_that_it_announced(tmp_path: Path) -> None:
    client = writer(tmp_path)
    client.end(client.start("call", function="put", key="a"), "ok", result="1")
    client.flush()
    client.end(client.start("call", function="put", key="b", argument="2"), "ok", result="1")  # not yet in the file
    client.start("query", function="get")
    client.new_session()
    client.start("call", function="drop", argument='"é"')
    done, *left = rows(read_run(tmp_path))
    assert done["type"] == OK
    names = ("f", "function", "key", "argument", "session", "type", "ret", "result", "error")
    assert [tuple(row[name] for name in names) for row in left] == [
        (CALL, "put", "b", "2", 1, INFO, INF, None, UNFINISHED),
        (CALL, "drop", "", '"é"', 2, INFO, INF, None, UNFINISHED),
    ]


def test_any_mix_of_outcomes_reads_back_in_any_size_of_segments(tmp_path: Path) -> None:
    for seed in range(20):
        random, run = Random(seed), tmp_path / str(seed)
        client, sent = writer(run, segment_rows=random.randint(1, 9)), []
        for number in range(random.randint(0, 40)):
            kind, outcome = random.choice(("call", "query")), random.choice(("ok", "fail", "info"))
            outcome = "fail" if (kind, outcome) == ("query", "info") else outcome
            argument = json.dumps([random.choice(("", "x", "\x00", "ü" * 100)), number])
            invocation = client.start(kind, function=random.choice(("f", "g")), argument=argument)
            if random.random() < 0.1:
                sent += [(argument, INFO)] if kind == "call" else []
                continue
            client.end(invocation, outcome, result=argument if outcome == "ok" else None, error="why")
            sent.append((argument, {"ok": OK, "fail": FAIL, "info": INFO}[outcome]))
        client.close()
        history = read_run(run, tables=run / "tables")
        assert sorted((row["argument"], row["type"]) for row in rows(history)) == sorted(sent)
        assert [defect for defect in history.defects if "journal" not in defect] == []


def _rewritten(run: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    stream = run / "history" / "operations" / "c-1.calls"
    content = [row for batch in BatchReader(stream, CALLS).batches() for row in batch.to_pylist()]
    change(content)
    stream.unlink()
    sink = BatchWriter(stream, CALLS, clock=Clock())
    for row in content:
        sink.add([row[name] for name in CALLS.names])
    sink.close()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another function": ({"function": "drop"}, "1 operation with a different announcement"),
    "another argument": ({"argument": "3"}, "1 operation with a different announcement"),
    "another key": ({"key": "b"}, "1 operation with a different announcement"),
    "an id of no announcement": ({"id": 99}, "1 operation without announcement"),
    "a result of a failure": ({"type": FAIL, "error": "x"}, "it was not answered, but has a result"),
    "an answer without a result": ({"result": None}, "it was answered without a result"),
    "another kind of operation": ({"f": 0}, "it is not call or query"),
    "an open query": ({"f": QUERY, "type": INFO, "ret": INF, "result": None}, "a query has an answer or none"),
    "the id of another": ({"id": 3 << 32 | 1}, "its id is another row's"),
    "no process": ({"process": -1}, "its process is not a client's number"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_row_that_was_changed_is_a_defect(tmp_path: Path, name: str) -> None:
    change, problem = CHANGES[name]
    with writer(tmp_path) as client:
        for argument in ("1", "2"):
            client.end(client.start("call", function="put", key="a", argument=argument), "ok", result="0")
    _rewritten(tmp_path, lambda content: content[0].update(change))
    defects = [*read_run(tmp_path).defects]
    assert any(problem in defect for defect in defects), defects


WRONG_LINES: dict[str, dict[str, Any]] = {
    "half a character": {"argument": "\ud800"},
    "an argument of another type": {"argument": {"x": 1}},
    "a field more": {"value": 1},
    "a query": {"f": QUERY},
    "a negative time": {"inv": -1},
}


@pytest.mark.parametrize("name", WRONG_LINES)
def test_an_announcement_that_is_damaged_is_a_defect(tmp_path: Path, name: str) -> None:
    writer(tmp_path).start("call", function="put", argument="1")
    path = tmp_path / "history" / "operations" / "c-1.called"
    head, line = (json.loads(each) for each in path.read_text().splitlines())
    contents = [{key: value for key, value in each.items() if key not in ("n", "crc")} for each in (head, line)]
    path.write_bytes(text_of([contents[0], contents[1] | WRONG_LINES[name]]))
    defects = [*read_run(tmp_path).defects]
    assert any("are not invocations" in defect for defect in defects), defects
