"""JSON lines read by columns give the strict reader's result, and bad lines are refused in its words."""

import json
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from history.record.jsonl_columns import LineColumns, columns_of
from history.record.jsonl_reader import TakenNames, read_lines
from history.record.schemas import APPEND as APPENDED
from history.record.shapes import LOG, REGISTER, Shape
from history.record.values import encode_value
from history.value_runs import ValueRuns

JOURNAL: list[dict[str, Any]] = [{"event": "run_started", "t": 5_000, "wall": 1_700_000_000.0}]


def operation(rng: random.Random, value: int) -> dict[str, Any]:
    """A random valid operation on a log."""
    f, kind = rng.choice(["append", "read", "end"]), rng.choice(["ok", "ok", "ok", "fail", "info"])
    inv = rng.randrange(10**9)
    line: dict[str, Any] = {"f": f, "type": kind, "topic": rng.choice("ab"), "partition": rng.randrange(3), "inv": inv}
    some = {name: choice for name, choice in (("session", 2), ("phase", "final")) if rng.random() < 0.3}
    first = rng.randrange(50)
    if f == "append":
        line |= {"value": value, **({"acks": rng.choice([-1, 0, 1])} if rng.random() < 0.3 else {})}
    elif f == "read":
        line["from"] = first
    if kind == "info":
        return line | some | ({"error": 'a "timeout"'} if rng.random() < 0.5 else {})
    line["ret"] = inv + rng.randrange(1_000)
    if kind == "fail":
        return line | some | {"error": "refused é"}
    if f == "append" and rng.random() < 0.8:
        line["offset"] = first
    if f == "end":
        line["end"] = first
    if f == "read":
        count = rng.randrange(4)
        line["records"] = [[first + 2 * n, rng.randrange(-5, 10**15)] for n in range(count)]
        if rng.random() < 0.5:
            line |= {"lo": first, "hi": first + 20}
    return line | some


def lines(seed: int, count: int = 30) -> list[bytes]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        line = list(operation(rng, encode_value(1, 7, number)).items())
        rng.shuffle(line)
        found.append(json.dumps(dict(line), ensure_ascii=False).encode())
    return found


def later(line: bytes, by: int) -> bytes:
    fields = json.loads(line)
    times = {name: fields[name] + by for name in ("inv", "ret") if name in fields}
    return json.dumps(fields | times, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Read:
    """What a file gives: its `content`, and the `pieces` of operations on logs as they were handed on."""

    content: dict[str, Any]
    pieces: list[pa.Table]


def read(path: Path, *, by_columns: bool, monkeypatch: pytest.MonkeyPatch, piece: int = 1 << 25) -> Read:
    """`piece`: the bytes that are read at once."""
    known = TakenNames(producers={1 << 16 | 9: "other.jsonl"}, process=3)
    known.runs["other"] = ValueRuns.of(np.array([99]))
    known.runs["arrow"] = ValueRuns.of(np.arange(encode_value(1, 5, 0), encode_value(1, 5, 9)))
    taken: dict[Shape, list[pa.Table]] = {LOG: [], REGISTER: []}
    with monkeypatch.context() as patch:
        patch.setattr("history.record.jsonl_reader._AT_ONCE", piece)
        if not by_columns:
            patch.setattr("history.record.jsonl_reader.columns_of", lambda *_, **__: None)
        found = read_lines([path], JOURNAL, known, lambda shape, rows: taken[shape].append(rows))
    pieces, registers = taken[LOG], taken[REGISTER]
    rows = [row for piece in pieces for row in piece.to_pylist()]
    written = [row["value"] for row in rows if row["f"] == APPENDED]
    content = {name: getattr(found, name) for name in ("defects", "torn", "counts", "producers", "announced", "vague")}
    of_registers = [row for piece in registers for row in piece.to_pylist()]
    content["tables"] = [rows, of_registers, *(found.table(shape).to_pylist() for shape in taken)]
    content["known"] = (
        known.producers,
        known.process,
        [known.claim_one(path, value) for value in [99, *written]],
    )
    return Read(content, pieces)


def both(path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> Read:
    """What the file gives, checked to be what the strict reader gives, also when it is read in small pieces."""
    path.write_bytes(data)
    found = read(path, by_columns=True, monkeypatch=monkeypatch)
    assert found.content == read(path, by_columns=False, monkeypatch=monkeypatch).content
    assert found.content == read(path, by_columns=True, monkeypatch=monkeypatch, piece=200).content
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "first",
    [b"", b'{"clock": "monotonic", "error_ns": 500, "client": "me"}\n', b'{"clock": "wall", "error_ns": 1000}\n'],
    ids=["no clock", "monotonic", "wall"],
)
def test_valid_lines_are_read_by_columns_as_by_the_strict_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, first: bytes
) -> None:
    valid = lines(seed)
    if b"wall" in first:
        behind = 1_700_000_000 * 10**9 - 5_000
        valid = [later(line, behind) for line in valid]
    path = tmp_path / "me.jsonl"
    by_columns: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("history.record.jsonl_reader.columns_of", partial(counted, by_columns))
        content = both(path, first + b"\n".join(valid) + b"\n", monkeypatch).content
    assert by_columns[0] == len(valid)  # the first reading is of one piece
    assert content["defects"] == {"me.jsonl": []}
    assert content["counts"] == {"me.jsonl": len(valid)}


def counted(rows: list[int], lines: bytes, **about: Any) -> LineColumns | None:
    found = columns_of(lines, **about)
    rows.append(0 if found is None else found.rows.num_rows)
    return found


READ = b'{"f": "read", "type": "ok", "topic": "a", "partition": 0, "inv": 1, "ret": 2, "from": 0, "records": %s}'
END = b'{"f": "end", "type": "ok", "topic": "a", "partition": 0, "inv": 1, "ret": 2, "end": 3}'
APPEND = b'{"f": "append", "type": "ok", "topic": "a", "partition": 0, "inv": 1, "ret": 2, "value": %s}'

BAD = [
    END.replace(b'"end": 3', b'"end": 3, "end": 3'),
    END.replace(b'"end": 3', b'"end": 3, "\\u0065nd": 4'),
    END.replace(b"3", b"null"),
    END.replace(b"3", b"3.0"),
    END.replace(b"3", b"3e0"),
    END.replace(b"3", b"03"),
    END.replace(b"3", b"+3"),
    END.replace(b"3", b'"3"'),
    END.replace(b"3", b"true"),
    END.replace(b"3", b"-1"),
    END.replace(b"3", b"NaN"),
    END.replace(b"3", b"-Infinity"),
    END.replace(b"3", str(2**63).encode()),
    END.replace(b"3", str(2**60).encode()),
    END.replace(b"3", b"[3]"),
    END.replace(b'"a"', b'""'),
    END.replace(b'"a"', b'".."'),
    END.replace(b'"a"', b'"\xff"'),
    END.replace(b'"a"', b'"\\ud800"'),
    END.replace(b'"a"', b'"a\x01"'),
    END.replace(b'"a"', b"'a'"),
    END.replace(b'"inv": 1', b'"inv": 3'),
    END.replace(b'"inv": 1', b'"inv": %d' % (2**62)),
    END.replace(b'"ret": 2, ', b""),
    END.replace(b"}", b', "lo": 1}'),
    END.replace(b"}", b', "extra": 1}'),
    END.replace(b"}", b', "phase": ""}'),
    END.replace(b"}", b', "error": "x"}'),
    END.replace(b"}", b",}"),
    END.replace(b"}", b"} // said"),
    END.replace(b"}", b"} x"),
    END.replace(b'"ok"', b'"maybe"'),
    END.replace(b'"end",', b'"poll",'),
    END + END,
    END + b"\n",
    b"\n" + END,
    b"  ",
    b" " + b"\n" + END + END,
    b"\xef\xbb\xbf" + END,
    b"[]",
    b"3",
    b'"text"',
    b"[" * 100_000,
    END[:-9],
    READ % b"3",
    READ % b"[3]",
    READ % b"[[1]]",
    READ % b"[[1, 2, 3]]",
    READ % b"[[1, 2], null]",
    READ % b"[[1, 2], [1, 3]]",
    READ % b"[[2, 2], [1, 3]]",
    READ % b"[[-1, 2]]",
    READ % b"[[1, 2.5]]",
    READ % b"[[1, -9223372036854775808]]",
    (READ % b"[]").replace(b"}", b', "lo": 4, "hi": 3}'),
    APPEND % b"-1",
    APPEND % b"99",
    APPEND % str(encode_value(1, 5, 3)).encode(),
    APPEND % str(encode_value(1, 9, 3)).encode(),
    APPEND % str(encode_value(1, 7, 0)).encode() + b"\n" + APPEND % str(encode_value(1, 7, 0)).encode(),
    (APPEND % b"5").replace(b'"ok"', b'"fail"'),
    (APPEND % b"5").replace(b'"ok"', b'"info"'),
    (APPEND % b"5").replace(b"}", b', "acks": 128}'),
    (APPEND % b"5").replace(b'"ok"', b'"fail"').replace(b"}", b', "error": "mismatch"}'),
]
OTHERS = [  # valid, but outside of the columns reader's subset or at its border
    END + b"\r",
    b" " + END + b" ",
    END.replace(b"3", b"-0"),
    END.replace(b"3", str(2**60 - 1).encode()),
    END.replace(b'"a"', b'"\\u0061"'),
    END.replace(b"}", b', "phase": "null"}'),
    b'{"f": "read", "type": "ok", "key": "k", "inv": 1, "ret": 2, "value": null}',
    b'{"f": "end", "type": "invoke", "id": 1, "topic": "a", "partition": 0, "inv": 1}',
    READ % b"[[1, 2], [3, -9223372036854775807]]",
    APPEND % str(encode_value(1, 7, 0)).encode(),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda line: repr(line[:100]))
@pytest.mark.parametrize("at", [0, 2])
def test_bad_lines_are_refused_in_the_words_of_the_strict_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes, at: int
) -> None:
    good = [(APPEND % str(encode_value(1, 7, 40 + n)).encode()) for n in range(3)]
    found = both(tmp_path / "me.jsonl", b"\n".join([*good[:at], bad, *good[at:], b""]), monkeypatch)
    assert found.content["defects"]["me.jsonl"]


@pytest.mark.parametrize("other", OTHERS, ids=lambda line: repr(line[:100]))
def test_both_readers_agree_on_other_valid_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: bytes) -> None:
    found = both(tmp_path / "me.jsonl", b"\n".join([END, other, END, b""]), monkeypatch)
    assert found.content["defects"]["me.jsonl"] == []


@pytest.mark.parametrize("data", [b"", b"\n", END, b'{"clock": "sun"}\n' + END + b"\n", b'{"clock": "monotonic"}\n'])
def test_both_readers_agree_on_files_at_the_border(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    both(tmp_path / "me.jsonl", data, monkeypatch)


def test_both_readers_agree_on_any_changed_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    data = b"\n".join(lines(3, 4)) + b"\n"
    for _ in range(150):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] = rng.choice(b'0123456789"\\{}[]:,. \n\r\tabcetf-+\xff\x00')
        both(tmp_path / "me.jsonl", bytes(changed), monkeypatch)


def test_values_of_a_foreign_history_may_repeat(tmp_path: Path) -> None:
    path = tmp_path / "me.jsonl"
    path.write_bytes(b"\n".join([APPEND % b"5", APPEND % b"5", b""]))
    known = TakenNames({}, 0, unique=False)
    pieces: list[pa.Table] = []
    found = read_lines([path], [], known, lambda _, rows: pieces.append(rows))
    assert [table.num_rows for table in pieces] == [2]
    assert (known.of_lines, known.of_columns, known.producers, found.defects) == ({}, {}, {}, {"me.jsonl": []})


def test_a_file_is_handed_on_in_pieces_and_repeated_values_name_the_line_of_another_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "me.jsonl"
    appends = [APPEND % str(encode_value(1, 7, number)).encode() for number in [*range(100), 41]]
    path.write_bytes(b"\n".join([*appends, b""]))
    found = read(path, by_columns=True, monkeypatch=monkeypatch, piece=1 << 10)
    assert len(found.pieces) > 5
    assert max(piece.num_rows for piece in found.pieces) < 20
    assert [row["value"] for piece in found.pieces for row in piece.to_pylist()] == [
        encode_value(1, 7, number) for number in range(100)
    ]
    (defect,) = found.content["defects"]["me.jsonl"]
    assert defect.startswith(f"me.jsonl:101: value {encode_value(1, 7, 41)} was written before, by me.jsonl:42: ")


@pytest.mark.parametrize(
    "earlier",
    [
        b'{"f": "append", "type": "invoke", "id": 1, "topic": "a", "partition": 0, "inv": 1, "value": %d}',
        b'{"f": "read", "type": "ok", "key": "k", "inv": 1, "ret": 2, "value": %d}',
        b'{"f": "append", "type": "ok", "topic": "a", "partition": 0, "value": %d}',
    ],
    ids=["an invocation without an end", "a read of a register", "an invalid append"],
)
@pytest.mark.parametrize("appended", [1, 2])
def test_a_value_repeated_in_another_piece_is_refused_with_the_line_that_claimed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bytes, appended: int
) -> None:
    value = encode_value(1, 7, 0)
    lines = [earlier % value, *([END] * 5), *([APPEND % str(value).encode(), END] * appended)]
    both(tmp_path / "me.jsonl", b"\n".join([*lines, b""]), monkeypatch)


def test_a_value_of_another_file_that_was_read_by_columns_is_refused_with_its_line(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, numbers in ((first, range(5)), (second, [3])):
        path.write_bytes(b"".join(APPEND % str(encode_value(1, 7, number)).encode() + b"\n" for number in numbers))
    found = read_lines([first, second], [], TakenNames({}, 0), lambda *_: None)
    (defect,) = found.defects["b.jsonl"]
    assert "was written before, by a.jsonl:4: " in defect
