"""JSON lines that any client may write: their meaning, and lines that are not operations."""

import json
import re
from pathlib import Path

import pytest

from history.errors import UNFINISHED
from history.journal.writer import Journal
from history.reader import read_run
from history.record.schemas import CAS, FAIL, INF, INFO, MISMATCH, OK, READ, WRITE
from history.record.shapes import LOG, REGISTER
from history.record.writer import OperationWriter

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
EXAMPLES = [block.strip() for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)]

WRITTEN = '{"f": "write", "key": "k", "value": 5, "type": "ok", "inv": 10, "ret": 20}'
APPENDED = '{"f": "append", "topic": "t", "partition": 0, "value": 5, "type": "ok", "inv": 10, "ret": 20}'
INVOKED = '{"type": "invoke", "id": 1, "f": "write", "key": "k", "value": 5, "inv": 10}'

COMPLETED = '{"type": "ok", "id": 1, "ret": 11}'
WALL = "1792678400000000000"


def client(run: Path, *lines: str, name: str = "c", end: str = "\n") -> Path:
    path = run / "history" / "operations" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + end)
    return run


def complaints(run: Path) -> str:
    return "\n".join(read_run(run).defects)


def test_the_examples_of_the_page_are_read_as_documented(tmp_path: Path) -> None:
    wall, registers, logs, killed = EXAMPLES
    client(tmp_path, registers, name="registers")
    client(tmp_path, logs, name="logs")
    client(tmp_path, killed, name="killed")
    with Journal(tmp_path, clock=lambda: 500, wall=lambda: 2.0) as journal:
        journal.run_started()
    client(
        tmp_path, wall, '{"f": "read", "key": "k", "value": null, "type": "ok", "inv": 2005000000, "ret": 2005000001}'
    )
    history = read_run(tmp_path)
    by_client: dict[str, list[dict[str, object]]] = {}
    for row in history.registers.rows.to_pylist():
        by_client.setdefault(row["client"], []).append(row)
    assert [(row["f"], row["type"], row["value"], row["error"]) for row in by_client["registers"]] == [
        (WRITE, OK, 17, ""),
        (READ, OK, 17, ""),
        (READ, OK, None, ""),
        (CAS, OK, None, ""),
        (CAS, FAIL, None, MISMATCH),
        (WRITE, INFO, 20, "timed out"),
        (WRITE, FAIL, 21, "not authorized"),
        (READ, FAIL, None, "connection refused"),
    ]
    assert [(row["expected"], row["new"]) for row in by_client["registers"][3:5]] == [(17, 18), (17, 19)]
    assert by_client["registers"][5]["ret"] == INF
    assert [(row["type"], row["inv"], row["ret"]) for row in by_client["killed"]] == [
        (OK, 3000000, 3100000),
        (INFO, 3200000, INF),
    ]
    assert by_client["killed"][1]["error"] == UNFINISHED
    assert [(row["inv"], row["ret"]) for row in by_client["c"]] == [(3_000_500, 7_000_501)]
    assert history.unfinished == 1
    rows = history.logs.rows.to_pylist()
    assert [(row["offset"], row["lo"], row["hi"], row["values"]) for row in rows] == [
        (0, -1, -1, []),
        (-1, -1, -1, []),
        (0, 1, -1, [0]),
        (-1, 1, 1, []),
    ]
    assert rows[1]["type"] == INFO
    assert rows[3]["phase"] == "final"
    ids = history.registers.rows["id"].to_pylist()
    assert len(set(ids)) == len(ids)


def test_a_torn_last_line_is_reported_and_omitted(tmp_path: Path) -> None:
    client(tmp_path, WRITTEN, '{"f": "wri', end="")
    history = read_run(tmp_path)
    assert history.registers.rows.num_rows == 1
    assert history.torn == [str(tmp_path / "history" / "operations" / "c.jsonl")]


def test_invocations_without_completion_count_as_operations_that_may_have_happened(tmp_path: Path) -> None:
    append = '{"type": "invoke", "id": "a", "f": "append", "topic": "t", "partition": 0, "value": 7, "inv": 11}'
    client(tmp_path, INVOKED, append)
    history = read_run(tmp_path)
    (row,), (appended,) = history.registers.rows.to_pylist(), history.logs.rows.to_pylist()
    assert (row["value"], row["type"], row["inv"], row["ret"]) == (5, INFO, 10, INF)
    assert (appended["value"], appended["type"], appended["ret"]) == (7, INFO, INF)
    assert history.unfinished == 2


BAD = {
    "not JSON": ("{'f': 1}", "not JSON"),
    "went on after a torn line": ('{"f": "wri' + WRITTEN, "starts a new file"),
    "an empty line": ("", "not JSON"),
    "no object": ("[1]", "not an operation"),
    "a field twice": ('{"f": "read", "f": "read"}', "given twice"),
    "no f": ('{"type": "ok"}', '"f" is missing'),
    "unknown f": ('{"f": "swap"}', '"f" is "swap": one of append, cas, end, read, write'),
    "neither shape": ('{"f": "read", "type": "ok"}', 'needs a "key"'),
    "both shapes": ('{"f": "read", "key": "k", "topic": "t"}', "has both"),
    "unknown field": (WRITTEN.replace('"key"', '"colour": 1, "key"'), '"colour" is not a field of a write'),
    "missing field": (WRITTEN.replace('"key": "k", ', ""), '"key" is missing'),
    "missing type": (WRITTEN.replace('"type": "ok", ', ""), '"type" is missing'),
    "unknown type": (WRITTEN.replace('"ok"', '"okay"'), '"type" is "okay": one of ok, fail, info'),
    "ret before inv": (WRITTEN.replace("20", "9"), "returned at 9, before its invocation at 10"),
    "info with ret": (WRITTEN.replace('"ok"', '"info"'), '"ret" is not a field of a write of type "info"'),
    "fail without error": (WRITTEN.replace('"ok"', '"fail"'), '"error" is missing'),
    "mismatch of a write": (WRITTEN.replace('"ok"', '"fail", "error": "mismatch"'), "is for a cas"),
    "text for a number": (WRITTEN.replace("5", '"5"'), '"value" is "5": an integer'),
    "fraction": (WRITTEN.replace("10", "10.5"), '"inv" is 10.5: an integer'),
    "too large": (WRITTEN.replace("5", str(1 << 63)), "an integer in"),
    "write of nil": (WRITTEN.replace("5", "null"), '"value" is null: an integer'),
    "truth for a number": (WRITTEN.replace("5", "true"), '"value" is true: an integer'),
    "a list of outcomes": (
        APPENDED.replace('"type": "ok"', '"type": ["ok"]'),
        '"type" is ["ok"]: one of ok, fail, info',
    ),
    "negative offset": (APPENDED.replace('"ret"', '"offset": -1, "ret"'), '"offset" is -1: an integer in 0'),
    "negative partition": (APPENDED.replace('"partition": 0', '"partition": -1'), '"partition" is -1'),
    "wall clock unannounced": (
        WRITTEN.replace("10", str(2 << 60)).replace("20", str(2 << 60)),
        "is not a time of the run",
    ),
    "an answer that never came": (WRITTEN.replace("20", str(INF)), f"ret {INF} is not a time of the run"),
    "an append with this error": (APPENDED.replace("20", str(INF)), f"ret {INF} is not a time of the run"),
    "records out of order": (
        '{"f": "read", "topic": "t", "partition": 0, "from": 0, "records": [[1, 1], [0, 0]], "type": "ok", "inv": 1,'
        ' "ret": 2}',
        '"records" must rise',
    ),
    "id never invoked": ('{"type": "ok", "id": 9, "ret": 3}', "id 9 was never invoked"),
    "invocation without id": (INVOKED.replace('"id": 1, ', ""), 'needs an "id"'),
    "invocation with ret": (INVOKED.replace('"inv"', '"ret": 3, "inv"'), '"ret" is not a field'),
    "half a character": (WRITTEN.replace('"k"', '"\\ud800"'), "not valid text"),
    "late clock": ('{"clock": "monotonic"}', "on the first line"),
}


@pytest.mark.parametrize(("line", "complaint"), BAD.values(), ids=BAD)
def test_an_invalid_line_is_refused_with_file_and_line(tmp_path: Path, line: str, complaint: str) -> None:
    good = '{"f": "write", "key": "k", "value": 4, "type": "ok", "inv": 1, "ret": 2}'
    run = client(tmp_path, good, line, good.replace("4", "6"))
    assert re.search(rf"c\.jsonl:2: .*{re.escape(complaint)}", complaints(run))
    assert read_run(run).registers.rows["value"].to_pylist() == [4, 6]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([INVOKED, INVOKED], ":2: id 1 was invoked before"),
        (
            [INVOKED, '{"type": "ok", "id": 1, "ret": 11}', '{"type": "ok", "id": 1, "ret": 11}'],
            ":3: id 1 was completed",
        ),
        ([INVOKED, '{"type": "ok", "id": 1, "value": 6, "ret": 11}'], ':2: "value" is 6, but operation 1 was invoked'),
        ([WRITTEN, WRITTEN], ":2: value 5 was written before, by c.jsonl:1"),
        (['{"clock": "wall"}'], ':1: a wall clock needs "error_ns"'),
        (['{"clock": "wall", "error_ns": 5}'], ":1: wall-clock times cannot be placed"),
        (['{"clock": "sun"}'], ':1: "clock" is "sun"'),
        (['{"clock": "monotonic", "zone": 1}'], ':1: "zone" is not a field of the first line'),
    ],
)
def test_lines_that_contradict_each_other_are_refused(tmp_path: Path, lines: list[str], complaint: str) -> None:
    assert complaint in complaints(client(tmp_path, *lines))


@pytest.mark.parametrize(("set_s", "defective"), [(0, False), (0.5, False), (-0.5, False), (3, True)])
def test_a_wall_clock_that_was_set_meanwhile_may_be_off_by_as_much(
    tmp_path: Path, set_s: float, defective: bool
) -> None:
    walls = iter((2.0, 2.0 + set_s, 2.0))
    with Journal(tmp_path, clock=lambda: 0, wall=lambda: next(walls)) as journal:
        journal.run_started()
        journal.note("set")
        journal.client("c", process=0, role="reader", session=1, producers=(0, 0))
    read = '{"f": "read", "key": "k", "value": null, "type": "ok", "inv": 5000000000, "ret": 5000000001}'
    run = client(tmp_path, '{"clock": "wall", "error_ns": 7}', read)
    (row,) = read_run(run).registers.rows.to_pylist()
    off = 7 + round(abs(set_s) * 1e9)
    assert (row["inv"], row["ret"]) == (max(3_000_000_000 - off, 0), 3_000_000_001 + off)
    assert ("its clock may be 3 s off" in complaints(run)) == defective


def test_an_inexact_clock_never_moves_an_answer_to_never(tmp_path: Path) -> None:
    clock = '{"clock": "monotonic", "error_ns": 7}'
    run = client(tmp_path, clock, *(WRITTEN.replace("5", f"{off}").replace("20", f"{INF - off}") for off in (7, 8)))
    assert f"c.jsonl:2: ret {INF - 7} is not a time of the run" in complaints(run)
    assert read_run(run).registers.rows["ret"].to_pylist() == [INF - 1]


@pytest.mark.parametrize("topic", ["/../../../../outside", "..", ".", "a/b", "t\\u0000", "t" * 250, "täglich"])
@pytest.mark.parametrize(
    "line", ['{"f": "end", "end": 0, "type": "ok", "ret": 2', '{"f": "end", "type": "invoke", "id": 1']
)
def test_an_invalid_topic_name_is_refused(tmp_path: Path, line: str, topic: str) -> None:
    run = client(tmp_path, f'{line}, "inv": 1, "topic": "{topic}", "partition": 0}}')
    assert "a topic's name is needed" in complaints(run)
    assert read_run(run).logs.rows.num_rows == 0


def test_a_file_with_an_invalid_first_line_is_refused_whole(tmp_path: Path) -> None:
    history = read_run(client(tmp_path, '{"clock": "sun"}', WRITTEN))
    assert (history.registers.rows.num_rows, history.may_have_written(5)) == (0, True)


def test_values_are_unique_across_clients_of_all_kinds(tmp_path: Path) -> None:
    with OperationWriter(
        REGISTER, tmp_path / "history" / "operations", client="w", session=0, process=4, producer=0, clock=lambda: 1
    ) as writer:
        writer.end(writer.start("write", key="k"), "ok")
    taken = WRITTEN.replace("5", "0")
    assert "c.jsonl:1: value 0 was written before, by w" in complaints(client(tmp_path, taken))
    client(tmp_path, WRITTEN)
    client(tmp_path, WRITTEN.replace("5", "6"), name="d")
    assert read_run(tmp_path).registers.rows["process"].to_pylist() == [4, 5, 6]


def test_a_producers_values_belong_to_one_client(tmp_path: Path) -> None:
    writer = OperationWriter(LOG, tmp_path / "history" / "operations", client="p", session=0, process=0, producer=0)
    writer.end(writer.start("append", topic="t", partition=0), "ok", offset=0)
    writer.close()
    run = client(tmp_path, APPENDED)
    assert re.search(r"c\.jsonl:1: value 5 belongs to producer 0 .* whose values p appends", complaints(run))
    client(tmp_path, APPENDED.replace("5", str(1 << 32)))
    assert read_run(tmp_path).logs.rows.num_rows == 2


@pytest.mark.parametrize(
    "line",
    [
        {"f": "write", "value": 5, "type": "ok", "ret": 20},
        {"f": "read", "value": None, "type": "ok", "ret": 20},
        {"f": "read", "type": "fail", "error": "lost", "ret": 20},
        {"f": "cas", "expected": None, "new": 6, "type": "info"},
        {"f": "cas", "expected": 5, "new": 6, "type": "fail", "error": "mismatch", "ret": 20},
    ],
)
def test_an_operation_on_a_register_may_name_the_endpoint_that_was_asked(
    tmp_path: Path, line: dict[str, object]
) -> None:
    run = client(tmp_path, json.dumps(line | {"key": "k", "inv": 10, "endpoint": "10.0.0.1:2379"}))
    assert "c.jsonl:" not in complaints(run)
    assert read_run(run).registers.rows["endpoint"].to_pylist() == ["10.0.0.1:2379"]


def test_an_endpoint_is_a_text_of_an_operation_on_a_register(tmp_path: Path) -> None:
    run = client(tmp_path, WRITTEN.replace('"inv"', '"endpoint": 9, "inv"'))
    assert 'c.jsonl:1: "endpoint" is 9: a text that is not empty is needed' in complaints(run)
    run = client(tmp_path, APPENDED.replace('"inv"', '"endpoint": "n1:9", "inv"'), name="d")
    assert 'd.jsonl:1: "endpoint" is not a field of a append' in complaints(run)


def test_a_name_for_the_client_may_be_given(tmp_path: Path) -> None:
    client(tmp_path, json.dumps({"clock": "monotonic", "client": "etcd-3"}), WRITTEN)
    assert read_run(tmp_path).registers.rows["client"].to_pylist() == ["etcd-3"]
