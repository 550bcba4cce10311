"""Rows of foreign histories are written in parts, and the texts of their values are found by number."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from history.foreign import jepsen_edn, json_lines, numbered_texts, operation_files, porcupine, register_rows
from history.foreign.history import ForeignError, ForeignHistory
from history.foreign.numbered_texts import NumberedTexts, TextFile
from history.record import jsonl_reader
from history.record.operations import Operations
from history.record.shapes import SHAPES
from tests.analysis.foreign_files import edn, polls, sends

EVENT = "INFO  jepsen.util - {}\t:{}\t:write\t{}\n"
EVENTS = "".join(EVENT.format(number % 3, kind, number) for number in range(9) for kind in ("invoke", "ok"))
CAS = EVENTS + "INFO  jepsen.util - 1\t:invoke\t:cas\t[7 3]\nINFO  jepsen.util - 1\t:fail\t:cas\t[7 3]\n"
KEYED = edn(*((0, kind, "write", f"[{key} {key}]") for key in "bacadae" for kind in ("invoke", "ok")))
SENT = edn(*sends("3 0 a", "3 1 b", "4 7 c", "3 4 d"), *polls("{3 [[0 a] [1 b]]}", "{4 [[7 c]]}", "{3 [[4 d] [6 e]]}"))
APPENDS = [
    f'{{"f": "append", "type": "ok", "topic": "t", "partition": {number % 2}, "value": {value}, '
    f'"offset": {number // 2}, "inv": {number}, "ret": {number + 5}}}'
    for number, value in enumerate((5, 6, 7, 40, 9, 8))
]
READ = (
    '{"f": "read", "type": "ok", "topic": "t", "partition": 0, "from": 0, "records": [[0, 5], [1, 7], [2, 77]], '
    '"inv": 50, "ret": 60}'
)
WRITES = [
    f'{{"f": "write", "type": "ok", "key": "k{number % 3}", "value": {number}, "inv": 1, "ret": 2}}'
    for number in range(9)
]


def of_lines(path: Path, directory: Path) -> ForeignHistory:
    return json_lines.read([path], None, directory)


Reader = Callable[[Path, Path], ForeignHistory]
HISTORIES: dict[str, tuple[Reader, str]] = {
    "writes of Porcupine": (porcupine.read, EVENTS),
    "a compare-and-set of Porcupine": (porcupine.read, CAS),
    "registers of Jepsen": (jepsen_edn.read, KEYED),
    "logs of Jepsen": (jepsen_edn.read, SENT),
    "lines of a log": (of_lines, "\n".join([*APPENDS, READ, ""])),
    "lines of registers": (of_lines, "\n".join([*WRITES, ""])),
}


def stored(history: ForeignHistory) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[int, str]]:
    """The operations in the file's order, those of the tables, and the texts of the values."""
    directory = history.directory
    tables = Operations(SHAPES[history.model], directory / operation_files.TABLES).rows
    rows = pq.read_table(directory / operation_files.OPERATIONS_FILE)
    assert rows.num_rows == tables.num_rows == history.rows
    key = "offset" if history.model == "log" else "id"
    ordered = sorted(tables.to_pylist(), key=lambda row: (row["inv"], row[key]))
    return rows.to_pylist(), ordered, dict(history.names)


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_a_history_that_is_written_in_parts_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at_once: int
) -> None:
    reader, text = HISTORIES[name]
    path = tmp_path / "history"
    path.write_text(text)
    found = []
    for directory in (tmp_path / "whole", tmp_path / "parts"):
        directory.mkdir()
        found.append(stored(reader(path, directory)))
        for module in (register_rows, jepsen_edn, jsonl_reader):
            monkeypatch.setattr(module, "OBJECT_ROWS", at_once)
        monkeypatch.setattr(operation_files, "PART_ROWS", at_once)
        monkeypatch.setattr("history.foreign.value_places._LEAST_RUNS", at_once)
        monkeypatch.setattr(numbered_texts, "_LEAST_RECENT", at_once)
        monkeypatch.setattr(jsonl_reader, "_AT_ONCE", at_once << 7)
    whole, parts = found
    assert parts == whole
    assert whole[0]
    assert {*tmp_path.joinpath("parts").iterdir()} >= {tmp_path / "parts" / "operations.parquet"}


def test_values_of_a_log_have_numbers_in_ascending_order(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    path.write_text("\n".join([*APPENDS, READ, ""]))
    history = of_lines(path, tmp_path)
    texts = ("5", "6", "7", "8", "9", "40", "77")
    assert dict(history.names) == {(number + 1) << 32: text for number, text in enumerate(texts)}
    shown = [[history.names[each] for each in row["values"]] for row in stored(history)[0]]
    assert [each for each in shown if each] == [["5", "7", "77"]]
    assert not [*tmp_path.glob("*.arrow")]


def test_a_value_that_is_appended_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    path.write_text("\n".join([*APPENDS, APPENDS[3], APPENDS[1], ""]))
    with pytest.raises(ForeignError, match="value 6 is appended twice"):
        of_lines(path, tmp_path)


def test_texts_are_numbered_in_order_of_appearance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_texts, "_LEAST_RECENT", 3)
    long = "a text that is longer than a key"
    texts = ["b", "", None, "b\0", "a", long, f"{long}!", "\U0001d11e", "b", None, *map(str, range(40)), "a", "7", long]
    numbered = NumberedTexts(tmp_path)
    found = [number for at in range(0, len(texts), 4) for number in numbered.places(texts[at : at + 4]).tolist()]
    expected: dict[str, int] = {}
    for text in filter(lambda each: each is not None, texts):
        expected.setdefault(str(text), len(expected) + 1)
    assert found == [0 if text is None else expected[text] for text in texts]
    assert dict(numbered.texts()) == {number: text for text, number in expected.items()}


def test_numbers_without_a_value_have_no_name(tmp_path: Path) -> None:
    file = TextFile(tmp_path, 10, group_texts=1)
    for text in ("7", "9"):
        file.add(pa.array([text]))
    names = file.texts()
    assert dict(names) == {10: "7", 20: "9"}
    assert (len(names), 10 in names, 15 in names, 30 in names, 0 in names, -10 in names) == (2, True, *([False] * 4))
    assert pq.read_table(tmp_path / "values.parquet").to_pylist() == [
        {"number": 10, "text": "7"},
        {"number": 20, "text": "9"},
    ]


def test_a_history_without_values_has_no_file_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "etcd.log"
    path.write_text(
        "INFO  jepsen.util - 1\t:invoke\t:read\tnil\nINFO  jepsen.util - 1\t:ok\t:read\tnil\n", encoding="utf-8"
    )
    assert dict(porcupine.read(path, tmp_path).names) == {}
    assert not (tmp_path / "values.parquet").exists()
    assert np.array_equal(NumberedTexts(tmp_path).places([None]), [0])
