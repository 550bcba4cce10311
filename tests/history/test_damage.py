"""Damaged bytes of a record never become a believed row, and each loss is reported."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from history.checksummed_lines import LineWriter, read_lines, text_of
from history.journal.reader import read_journal
from history.journal.writer import Journal
from history.reader import read_run
from history.record.arrow_stream import BatchReader, BatchWriter
from history.record.schemas import END, INF, OPERATIONS, REGISTERS
from history.record.validation import RowErrors, error_sentences, valid_part, wrong_operations, wrong_registers

ROWS = 30
STEP = 17  # of the bits that are tried


def stream(path: Path) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = [
        (n, 1, "c", 0, f"k{n % 3}", 0, n, n + 1, n, None, None, "main", "", "n1:9") for n in range(ROWS)
    ]
    writer = BatchWriter(path, REGISTERS, clock=lambda: 0)
    for row in rows:
        writer.add(row)
        if row[0] % 10 == 9:
            writer.flush()
    writer.close()
    return rows


def read(path: Path) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
    reader = BatchReader(path, REGISTERS)
    rows = [tuple(row.values()) for batch in reader.batches() for row in batch.to_pylist()]
    return rows, tuple(reader.defects)


def test_no_bit_of_a_stream_changes_a_row_unseen(tmp_path: Path) -> None:
    path = tmp_path / "s"
    rows = stream(path)
    assert read(path) == (rows, ())
    data = path.read_bytes()
    for bit in range(0, len(data) * 8, STEP):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found, defects = read(path)
        assert found == rows[: len(found)]
        assert defects or found == rows


def test_a_stream_that_is_cut_anywhere_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "s"
    rows = stream(path)
    data = path.read_bytes()
    for size in range(0, len(data) - 8, STEP):  # the last 8 bytes are Arrow's own end, and say no more than ours
        path.write_bytes(data[:size])
        found, defects = read(path)
        assert found == rows[: len(found)]
        assert defects


def test_bytes_after_the_end_mark_are_a_defect(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stream(path)
    path.write_bytes(path.read_bytes() + b"more")
    assert read(path)[1] == ("it goes on behind its end mark",)


def test_no_bit_of_a_line_changes_it_unseen(tmp_path: Path) -> None:
    path = tmp_path / "l"
    contents = [{"event": "note", "t": n} for n in range(4)]
    path.write_bytes(data := text_of(contents))
    assert [line for _, line in read_lines(path).contents] == contents
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found = read_lines(path)
        assert all(line in contents for _, line in found.contents)
        assert found.defects or found.torn


def test_a_file_with_a_torn_line_keeps_the_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_bytes(text_of([{"a": 1}, {"a": 2}])[:-5])
    writer = LineWriter(path, continues=True)
    writer.write({"a": 3})
    writer.close()
    found = read_lines(path)
    assert [line for _, line in found.contents] == [{"a": 1}, {"a": 3}]
    assert found.defects == ("line 2 is damaged",)


def test_a_journal_that_is_continued_is_one_journal(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with Journal(tmp_path) as journal:
            journal.note(text)
    found = read_journal(tmp_path / "history" / "journal.jsonl")
    assert ([line["text"] for line in found.lines], found.defects) == (["one", "two"], ())


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"event": 3},
        {"event": "note"},
        {"event": "note", "text": 5},
        {"event": "phase", "name": "lunch"},
        {"event": "assignment", "replicas": [1]},
        {"event": "client_ended", "client": "c", "exit_code": "0", "files": {}},
        {"event": "fault_invoked", "id": "f", "kind": "kill", "targets": "n1", "parameters": {}},
        {"event": "service_exit", "node": "n1", "exit_code": "1", "signal": None, "last_words": ""},
        {"event": "note", "text": "late", "t": INF},
        {"event": "note", "text": "never", "wall": float("nan")},
        {"event": "note", "text": "never", "wall": 10**400},
    ],
    ids=json.dumps,
)
def test_an_impossible_line_is_omitted_and_reported(tmp_path: Path, line: dict[str, object]) -> None:
    good = {"t": 1, "wall": 1.0, "event": "note", "text": "good"}
    (tmp_path / "journal.jsonl").write_bytes(text_of([good, {"t": 2, "wall": 2.0, **line}, good]))
    found = read_journal(tmp_path / "journal.jsonl")
    assert found.lines == (good, good)
    (defect,) = found.defects
    assert defect.startswith("journal.jsonl: line 2 ")


@pytest.mark.parametrize(
    "wrong", [{"targets": 5}, {"kind": ["kill"]}, {"sentence": 1}, {"parameters": []}], ids=json.dumps
)
def test_the_fields_of_every_line_of_a_fault_are_checked(tmp_path: Path, wrong: dict[str, object]) -> None:
    begun: dict[str, object] = {
        "event": "fault_invoked",
        "id": "f1",
        "kind": "kill",
        "targets": ["n1"],
        "parameters": {},
    }
    healed: dict[str, object] = {"event": "fault_healed", "id": "f1", "evidence": {}, **wrong}
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "journal.jsonl").write_bytes(
        text_of({"t": t, "wall": 1.0, **line} for t, line in enumerate((begun, healed)))
    )
    history = read_run(tmp_path)
    assert history.faults[0].targets == ("n1",)
    assert any("line 2 is a fault_healed with " in defect for defect in history.journal_defects)


GOOD: dict[str, Any] = dict.fromkeys(OPERATIONS.names, 1) | {
    "f": 0,
    "type": 0,
    "inv": 0,
    "ret": 5,
    "hi": -1,
    "lo": -1,
    "offsets": [],
    "values": [],
    "client": "c",
    "topic": "log",
    "phase": "main",
    "error": "",
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"f": 9}, "not append, read or end"),
        ({"f": 3}, "not append, read or end"),
        ({"type": 7}, "its type is not ok"),
        ({"process": -3}, "its process is not a client's number"),
        ({"inv": -1}, "its invocation is not a time"),
        ({"inv": INF, "ret": INF + 1}, "its invocation is not a time"),
        ({"inv": 6}, "it returned before its invocation"),
        ({"ret": INF}, "its return is not a time"),
        ({"type": 2}, "its outcome is unknown, but it has a return"),
        ({"f": END, "type": 2, "ret": INF}, "a query has an answer or none"),
        ({"partition": -1}, "its partition is negative"),
        ({"topic": "/../../../../outside"}, "its topic has a name that no topic can have"),
        ({"topic": ".."}, "its topic has a name that no topic can have"),
        ({"topic": ""}, "its topic has a name that no topic can have"),
        ({"offset": -2}, "its offset is not an offset"),
        ({"hi": INF}, "its upper bound is not an offset"),
        ({"lo": 4, "hi": 3}, "its lower bound is above"),
        ({"value": -1}, "is not the value of an append"),
        ({"f": 1, "offsets": [1], "values": []}, "not as many offsets as values"),
        ({"f": 1, "offsets": [-1], "values": [3]}, "a record at an invalid offset"),
    ],
)
def test_an_impossible_row_is_omitted_and_reported(change: dict[str, Any], why: str) -> None:
    table = pa.Table.from_pylist([GOOD, GOOD | change, GOOD], OPERATIONS)
    errors: RowErrors = {}
    kept = valid_part(table, wrong_operations, errors, 0)
    assert kept.num_rows == 2
    assert any(defect.startswith("row 1: ") and why in defect for defect in error_sentences(errors))
    again: RowErrors = {}
    assert valid_part(kept, wrong_operations, again, 0).num_rows == 2
    assert again == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"f": 0}, "not read, write or cas"),
        ({"ret": 0}, "it returned before its invocation"),
        ({"value": None}, "a write without a value"),
        ({"f": 4}, "a cas without a new value"),
        ({"error": "mismatch", "type": 1}, "only a failed cas can mismatch"),
        ({"id": 0}, "its id is another row's"),
    ],
)
def test_an_impossible_register_row_is_omitted_and_reported(change: dict[str, Any], why: str) -> None:
    rows = [
        {"id": n, "process": 1, "client": "c", "f": 3, "key": "k", "type": 0, "inv": 1, "ret": 2, "value": n}
        | {"expected": None, "new": None, "phase": "main", "error": "", "endpoint": ""}
        for n in range(3)
    ]
    rows[1] |= change
    errors: RowErrors = {}
    kept = valid_part(pa.Table.from_pylist(rows, REGISTERS), wrong_registers, errors, 100)
    assert kept.num_rows == 2
    assert any(defect.startswith("row 101: ") and why in defect for defect in error_sentences(errors))
