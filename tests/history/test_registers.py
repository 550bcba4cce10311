"""The reader returns the operations that a client of registers recorded, for every end of the client."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from history.errors import UNFINISHED
from history.reader import read_run
from history.record.arrow_stream import BatchWriter
from history.record.operation_tables import (
    IndexedGroup,
    TablesError,
    has_tables,
    read_index,
    remove_tables,
    write_index,
    write_operations,
)
from history.record.schemas import (
    CAS,
    FAIL,
    INF,
    INFO,
    MISMATCH,
    OK,
    READ,
    REGISTERS,
    REGISTERS_WITHOUT_ENDPOINTS,
    WRITE,
    RegisterColumns,
)
from history.record.shapes import LOG, REGISTER, Shape
from history.record.values import encode_value
from history.record.writer import OperationWriter


class Clock:
    """Every look at it is 10 ns later."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


def writer(run: Path, name: str = "c", process: int = 3) -> OperationWriter:
    directory = run / "history" / "operations"
    return OperationWriter(
        REGISTER, directory, client=name, session=1, process=process, producer=process, clock=Clock()
    )


def rewrite(stream: Path, at: int, change: dict[str, object]) -> None:
    """A row of a whole stream becomes another."""
    with pa.ipc.open_stream(stream) as source:
        rows = source.read_all().to_pylist()
    rows[at] |= change
    stream.unlink()
    sink = BatchWriter(stream, REGISTERS, clock=Clock())
    for row in rows:
        sink.add(tuple(row[name] for name in REGISTERS.names))
    sink.close()


def test_a_clean_run_reads_back_whole(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        written = client.start("write", key="k")
        client.end(written, "ok")
        client.end(client.start("read", key="k"), "ok", value=written.value)
        client.end(client.start("read", key="other"), "ok", value=None)
        client.end(client.start("cas", key="k", expected=None), "fail", error=MISMATCH)
        swap = client.start("cas", key="k", expected=written.value)
        client.end(swap, "ok")
        client.end(client.start("write", key="k"), "fail", error="no quorum")
        client.phase = "final"
        client.end(client.start("write", key="k"), "info", error="timed out")
    history = read_run(tmp_path)
    rows = history.registers.rows.to_pylist()
    value = encode_value(1, 3, 0)
    assert [(row["f"], row["type"], row["value"], row["expected"], row["new"], row["error"]) for row in rows] == [
        (WRITE, OK, value, None, None, ""),
        (READ, OK, value, None, None, ""),
        (READ, OK, None, None, None, ""),
        (CAS, FAIL, None, None, value + 1, MISMATCH),
        (CAS, OK, None, value, value + 2, ""),
        (WRITE, FAIL, value + 3, None, None, "no quorum"),
        (WRITE, INFO, value + 4, None, None, "timed out"),
    ]
    assert [row["id"] for row in rows] == [3 << 32 | n for n in range(7)]
    assert all(row["inv"] < row["ret"] for row in rows)
    assert (rows[-1]["ret"], rows[-1]["phase"]) == (INF, "final")
    assert (history.unfinished, history.torn, history.logs.rows.num_rows) == (0, [], 0)
    assert all(record.announced for record in history.records)


def test_a_killed_client_leaves_only_its_announced_operations(tmp_path: Path) -> None:
    client = writer(tmp_path)
    client.end(client.start("write", key="a"), "ok")
    client.flush()
    swap = client.start("cas", key="b", expected=None)
    client.end(swap, "ok")  # still in memory when the process dies
    client.start("read", key="b")
    client.start("write", key="c")
    history = read_run(tmp_path)
    done, *left = history.registers.rows.to_pylist()
    assert done["type"] == OK
    assert [(row["f"], row["key"], row["type"], row["ret"], row["error"]) for row in left] == [
        (CAS, "b", INFO, INF, UNFINISHED),
        (WRITE, "c", INFO, INF, UNFINISHED),
    ]
    assert (left[0]["inv"], left[0]["new"], left[0]["id"]) == (swap.inv, swap.value, swap.id)
    assert history.unfinished == 2


def test_a_torn_announcement_is_unsent_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    writer(tmp_path).start("write", key="a")
    path = tmp_path / "history" / "operations" / "c-1.invoked"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    history = read_run(tmp_path)
    assert history.registers.rows.num_rows == 0
    assert str(path) in history.torn
    path.write_bytes(whole.replace(b'"inv"', b'"when"'))
    assert "c-1.invoked: line 2 is damaged" in list(read_run(tmp_path).defects)


@pytest.mark.parametrize(
    ("change", "count", "defect"),
    [
        ({"value": encode_value(1, 3, 9)}, 1, "with a different announcement"),
        ({"key": "other"}, 1, "with a different announcement"),
        ({"inv": 1}, 1, "with a different announcement"),
        ({"phase": "final"}, 1, "with a different announcement"),
        ({"f": READ}, 1, "with a different announcement"),
        ({"id": 9}, 1, "without announcement"),
    ],
    ids=["value", "key", "invocation", "phase", "kind", "id"],
)
def test_a_write_counts_only_as_announced(change: dict[str, object], count: int, defect: str, tmp_path: Path) -> None:
    """The recorded end proves nothing, so the announced write may have happened."""
    with writer(tmp_path) as client:
        written = client.start("write", key="k")
        client.end(written, "ok")
        client.end(client.start("read", key="k"), "ok", value=written.value)
    rewrite(tmp_path / "history" / "operations" / "c-1.registers", 0, change)
    history = read_run(tmp_path)
    assert f"c-1.registers: it has {count} operation {defect}" in list(history.defects)
    read, left = history.registers.rows.to_pylist()
    assert (read["f"], read["value"]) == (READ, written.value)
    assert (left["id"], left["f"], left["key"], left["value"], left["inv"]) == (
        written.id,
        written.f,
        "k",
        written.value,
        written.inv,
    )
    assert (left["type"], left["ret"], left["error"]) == (INFO, INF, UNFINISHED)
    assert [record.announced for record in history.records if "registers" in record.files[0]] == [False]


@pytest.mark.parametrize(("column", "value"), [("expected", 7), ("new", encode_value(1, 3, 9))])
def test_a_compare_and_set_counts_only_as_announced(column: str, value: int, tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        swap = client.start("cas", key="k", expected=None)
        client.end(swap, "ok")
    rewrite(tmp_path / "history" / "operations" / "c-1.registers", 0, {column: value})
    history = read_run(tmp_path)
    assert "c-1.registers: it has 1 operation with a different announcement" in list(history.defects)
    (left,) = history.registers.rows.to_pylist()
    assert (left["f"], left["expected"], left["new"], left["type"]) == (CAS, None, swap.value, INFO)


def test_an_operation_ends_once_and_in_its_own_way(tmp_path: Path) -> None:
    client = writer(tmp_path)
    written = client.start("write", key="k")
    with pytest.raises(ValueError, match="failed without an error"):
        client.end(written, "fail", error="")
    with pytest.raises(KeyError, match="offset"):
        client.end(written, "ok", offset=3)
    with pytest.raises(ValueError, match="write of c was not announced"):
        client.add("write", "ok", inv=1, ret=2, key="k")
    with pytest.raises(ValueError, match="returned at 1, before its invocation at 2"):
        client.add("read", "ok", inv=2, ret=1, key="k")
    client.end(written, "ok")
    with pytest.raises(ValueError, match="is not under way"):
        client.end(written, "ok")
    client.close()
    with pytest.raises(ValueError, match="is closed"):
        client.start("read", key="k")
    with pytest.raises(FileExistsError):
        writer(tmp_path)
    reader = OperationWriter(REGISTER, tmp_path, client="r", session=1, process=0)
    with pytest.raises(ValueError, match="has no producer number"):
        reader.start("write", key="k")


def test_each_outcome_has_the_endpoint_that_was_asked(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        client.end(client.start("write", key="k"), "ok", endpoint="n1:1")
        client.end(client.start("cas", key="k", expected=7), "fail", error=MISMATCH, endpoint="n2:1")
        client.end(client.start("write", key="k"), "fail", error="no quorum", endpoint="n3:1")
        client.end(client.start("write", key="k"), "info", error="timed out", endpoint="n1:1")
        client.end(client.start("read", key="k"), "ok", value=None)
        client.start("write", key="k")
    endpoints = read_run(tmp_path).registers.rows["endpoint"].to_pylist()
    assert endpoints == ["n1:1", "n2:1", "n3:1", "n1:1", "", ""]


def record(run: Path, shape: Shape = REGISTER) -> None:
    """A few operations in two segments, and one that was not completed."""
    directory, numbers = run / "history" / "operations", {"session": 1, "process": 3, "producer": 3}
    with OperationWriter(shape, directory, client="c", clock=Clock(), segment_rows=2, **numbers) as client:
        for _ in range(3):
            client.end(client.start("write", key="k"), "ok")
        client.start("write", key="k")


def test_a_record_of_a_version_without_endpoints_is_read(tmp_path: Path) -> None:
    record(tmp_path / "now")
    whole = read_run(tmp_path / "now").registers.rows
    fields = [(field.name, Any, field.default) for field in msgspec.structs.fields(RegisterColumns)[:-1]]
    row = msgspec.defstruct("EarlierRow", fields)
    record(tmp_path / "then", replace(REGISTER, row=row, columns=REGISTERS_WITHOUT_ENDPOINTS))
    assert read_run(tmp_path / "then").registers.rows.equals(whole)
    before = whole.drop_columns(["endpoint"])
    assert REGISTER.current(before).equals(whole)


def test_a_file_is_ordered_by_key_and_row_groups_end_with_keys(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        for number in range(30):
            client.end(client.start("write", key=f"k{number % 4}"), "ok")
    history = read_run(tmp_path)
    groups = write_operations(sized(9, 16), history.registers.rows, tmp_path, "c-1")
    assert [(each.rows, each.lowest, each.highest) for each in groups] == [(16, "k0", "k1"), (14, "k2", "k3")]
    written = pq.ParquetFile(tmp_path / groups[0].path).read().cast(REGISTERS)
    assert sorted(written["id"].to_pylist()) == history.registers.rows["id"].to_pylist()
    rows = written.select(["key", "inv"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["key"], row["inv"]))


def test_a_key_with_many_operations_has_row_groups_of_its_own(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        for number in range(50):
            client.end(client.start("write", key="a" if number < 5 else "b" if number < 45 else "c"), "ok")
    groups = write_operations(sized(4, 16), read_run(tmp_path).registers.rows, tmp_path, "c-1")
    keys = [(each.rows, each.lowest, each.highest) for each in groups]
    assert keys == [(5, "a", "a"), (16, "b", "b"), (16, "b", "b"), (8, "b", "b"), (5, "c", "c")]


def sized(least_rows: int, most_rows: int = 1 << 16) -> Shape:
    return replace(REGISTER, least_rows=least_rows, most_rows=most_rows)


ROW = REGISTER.table([(9, 0, "c", READ, "k", OK, 0, 1, None, None, None, "main", "", "")])


def indexed(tables: Path) -> list[IndexedGroup]:
    rows = REGISTER.table(
        [(n, 0, "c", READ, f"k{n}", OK, n, n + 1, None, None, None, "main", "", "") for n in range(6)]
    )
    groups = write_operations(sized(2), rows, tables, "c-1")
    write_index(REGISTER, groups, tables)
    return groups


def test_the_index_of_registers_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert not has_tables(REGISTER, tmp_path)
    groups = indexed(tmp_path)
    assert [(each.row_group, each.rows, each.lowest, each.highest) for each in groups] == [
        (0, 2, "k0", "k1"),
        (1, 2, "k2", "k3"),
        (2, 2, "k4", "k5"),
    ]
    assert read_index(REGISTER, tmp_path) == groups
    assert has_tables(REGISTER, tmp_path)
    remove_tables(REGISTER, tmp_path)
    assert not list(tmp_path.iterdir())


def _replaced(tables: Path) -> None:
    write_index(LOG, [], tables / "other")
    (tables / "other" / "index.parquet").rename(tables / "registers.parquet")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda tables: (tables / "registers.parquet").unlink(), "tables/registers.parquet is missing"),
        (lambda tables: (tables / "registers.parquet").write_bytes(b"x"), "tables/registers.parquet cannot be read"),
        (lambda tables: (tables / "registers/c-1.parquet").unlink(), "tables/registers/c-1.parquet is missing"),
        (
            lambda tables: write_operations(REGISTER, ROW, tables, "c-2"),
            "c-2.parquet is not in tables/registers",
        ),
        (
            lambda tables: write_operations(REGISTER, ROW, tables, "c-1"),
            "has row groups of .1. rows, but",
        ),
        (_replaced, "tables/registers.parquet has other columns"),
    ],
)
def test_an_index_of_registers_that_disagrees_with_its_files_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], complaint: str
) -> None:
    indexed(tmp_path)
    damage(tmp_path)
    with pytest.raises(TablesError, match=complaint):
        read_index(REGISTER, tmp_path)
