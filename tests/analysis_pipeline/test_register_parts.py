"""An analysis reads operations on registers part by part: from tables that reading the clients' records has written."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest

from analysis.engines.task_map import WorkerProcesses
from analysis.evidence.load import goes_on, load_of
from analysis.pipeline import analyze, statistics
from analysis.plots.data import view_of
from history import reader
from history.reader import History, read_run
from history.record import operation_tables, operations
from history.record.operation_tables import TablesError, write_operations
from history.record.operations import Operations
from history.record.shapes import REGISTER, Shape
from history.record.writer import OperationWriter
from tests.analysis.register_histories import table
from tests.analysis_pipeline.register_tables import many_keys, stored
from tests.analysis_pipeline.stored_registers import KEYS, StoredRegisters

READ = {"f": "read", "key": "k0", "value": None, "type": "ok", "inv": 1_000_000_000, "ret": 9_000_000_000}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PART_ROWS", 7)
    monkeypatch.setattr(operation_tables, "PART_ROWS", 7)


def rows_of(history: History) -> list[str]:
    return sorted(map(repr, history.registers.rows.to_pylist()))


@pytest.mark.usefixtures("small_parts")
def test_parts_are_all_operations_on_registers(tmp_path: Path) -> None:
    rows = table(many_keys(random.Random("parts"), 6, hot=30))
    tables = stored(tmp_path, rows, pieces=3, least_rows=1, most_rows=5) / "tables"
    empty = History((), [])
    here, there = (replace(empty, recorded=(Operations(REGISTER, source),)) for source in (rows, tables))
    for history in (here, there):
        parts = list(history.registers.parts("id", "key", "inv"))
        assert all(0 < part.num_rows <= 7 and part.column_names == ["id", "key", "inv"] for part in parts)
        found = sorted(row["id"] for part in parts for row in part.to_pylist())
        assert found == rows["id"].to_pylist()
        assert history.registers.size == rows.num_rows
    assert rows_of(here) == rows_of(there)
    assert statistics(here, view_of(here, {})) == statistics(there, view_of(there, {}))
    assert load_of(here) == load_of(there)
    assert [goes_on(here, moment) for moment in range(0, 500, 50)] == [
        goes_on(there, moment) for moment in range(0, 500, 50)
    ]
    assert list(empty.registers.parts("id")) == []


def two_clients(run: Path, *, closes: bool = True) -> Path:
    """The records of two clients in several segments, one of them with an unfinished write, and one in JSON lines."""
    directory = run / "history" / "operations"
    for process in (1, 2):
        client = OperationWriter(
            REGISTER, directory, client=f"c{process}", session=1, process=process, producer=process, segment_rows=4
        )
        for number in range(9):
            client.end(client.start("write", key=f"k{number % 3}"), "ok")
        if not closes:
            client.start("write", key="k1")
            client.flush()
        client.close()
    (directory / "x.jsonl").write_text('{"f": "read", "key": "k1", "value": null, "type": "ok", "inv": 1, "ret": 2}\n')
    return run


@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["in tables only", "in memory too"])
@pytest.mark.parametrize("closes", [True, False])
def test_the_tables_of_registers_agree_with_a_direct_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, closes: bool
) -> None:
    run, tables = two_clients(tmp_path, closes=closes), tmp_path / "tables"
    monkeypatch.setattr(reader, "MOST_BYTES_KEPT", kept)
    here, there = read_run(run), read_run(run, tables=tables)
    assert isinstance(there.registers.source, Path) == (kept == 0)
    assert rows_of(there) == rows_of(here)
    assert there.registers.size == here.registers.size == 19 + 2 * (not closes)
    assert (list(there.defects), there.unfinished) == (list(here.defects), here.unfinished)
    assert (there.written.first.tolist(), there.written.last.tolist()) == (
        here.written.first.tolist(),
        here.written.last.tolist(),
    )
    names = {path.name for path in (tables / "registers").iterdir()}
    more = set() if closes else {"c1-1+unfinished.parquet", "c2-1+unfinished.parquet"}
    pieces = {f"c{client}-1-{segment}.parquet" for client in (1, 2) for segment in range(3)}
    assert names == {*pieces, "+lines-0.parquet", *more}
    assert sum(pq.read_table(tables / "seconds.parquet")["operations"].to_pylist()) == here.registers.size


def test_worker_processes_read_the_records_of_registers_alike(tmp_path: Path) -> None:
    run = two_clients(tmp_path)
    here = read_run(run, tables=tmp_path / "here")
    there = read_run(run, tables=tmp_path / "there", each=WorkerProcesses(2))
    assert rows_of(there) == rows_of(here)
    for path in (tmp_path / "here").glob("registers*/*"):
        assert (tmp_path / "there" / "registers" / path.name).read_bytes() == path.read_bytes()
    index = "registers.parquet"
    assert (tmp_path / "there" / index).read_bytes() == (tmp_path / "here" / index).read_bytes()


def test_tables_of_registers_that_lost_rows_are_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two_clients(tmp_path)

    def loses(shape: Shape, rows: Any, *where: Any) -> Any:
        return write_operations(shape, rows.slice(1), *where)

    monkeypatch.setattr("history.record.client_reader.write_operations", loses)
    defects = list(read_run(run, tables=tmp_path / "tables").defects)
    assert "c1-1.registers: it has 9 operations, but its tables have 6" in defects


@pytest.mark.usefixtures("small_parts")
def test_an_analysis_reads_parts_only_and_gives_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter of operations in memory at one time: the operations of a part."""
    run = StoredRegisters(tmp_path / "run", elsewhere=(READ,)).write()
    expected = analyze(run, engine="in-process", plots=False)
    assert expected.verdict == "pass"
    read: list[int] = []
    parts = operation_tables.read_parts

    def counted(*arguments: Any) -> Iterator[Any]:
        for part in parts(*arguments):
            read.append(part.num_rows)
            yield part

    def refused(*_: object) -> NoReturn:
        raise AssertionError("all operations on registers are read at once")

    monkeypatch.setattr(reader, "MOST_BYTES_KEPT", 0)
    monkeypatch.setattr(operations, "read_parts", counted)
    monkeypatch.setattr(Operations, "rows", property(refused))
    monkeypatch.setattr("history.record.client_reader.write_operations", small_groups)
    monkeypatch.setattr("history.record.client_reader.write_operations", small_groups)
    found = analyze(run, engine="in-process", plots=True)
    assert (found.verdict, found.reasons, found.stats) == (expected.verdict, expected.reasons, expected.stats)
    assert found.checks[0].detail == expected.checks[0].detail
    assert max(read) <= 7
    assert sum(read) > 3 * len(KEYS)


def small_groups(shape: Shape, rows: Any, tables: Path, piece: str) -> Any:
    return write_operations(replace(shape, least_rows=1, most_rows=5), rows, tables, piece)


def test_tables_that_are_damaged_make_the_run_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two_clients(tmp_path)
    monkeypatch.setattr(reader, "MOST_BYTES_KEPT", 0)
    history = read_run(run, tables=tmp_path / "tables")
    assert history.registers.size == 19
    for path in (tmp_path / "tables" / "registers").iterdir():
        content = path.read_bytes()
        path.write_bytes(content[:4] + b"\xff" * 400 + content[404:])
    with pytest.raises(TablesError, match="is damaged"):
        list(history.registers.parts("f", "inv", "value"))


@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["in tables only", "in memory too"])
def test_a_value_that_two_clients_wrote_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """It identifies no write, so the operations cannot be checked."""
    monkeypatch.setattr(reader, "MOST_BYTES_KEPT", kept)
    write = {"f": "write", "key": "k0", "type": "ok", "inv": 1_030_000_000, "ret": 1_030_000_001}
    run = StoredRegisters(tmp_path / "run", elsewhere=(write | {"value": 1000 << 32},)).write()
    with OperationWriter(
        REGISTER,
        run / "history" / "operations",
        client="other",
        session=0,
        process=7,
        producer=1000,
        clock=lambda: 1_040_000_000,
    ) as client:
        client.end(client.start("write", key="k1"), "ok")
    history = read_run(run)
    assert history.written.repeated == 0, "the line is left out"
    stranger = run / "history" / "operations" / "other-0.registers"
    for suffix in (".registers", ".invoked"):
        path = stranger.with_suffix(suffix)
        path.with_name(f"another-0{suffix}").write_bytes(path.read_bytes())
    verdict = analyze(run, engine="in-process", plots=False)
    (check,) = [check for check in verdict.checks if check.name == "registers"]
    assert check.verdict == "unknown"
    assert check.detail == f"the operations cannot be checked: two of them write {1000 << 32}"
