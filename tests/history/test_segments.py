"""A client's record in several segments reads like one stream, and no segment is lost, torn or exchanged unnoticed."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.engines.task_map import WorkerProcesses
from history.reader import read_run
from history.record.arrow_stream import BatchWriter, segment_path
from history.record.client_files import belongs, left_by
from history.record.client_reader import (
    ClientRecording,
    StreamRecord,
    read_recordings,
)
from history.record.operation_tables import IndexedGroup, read_index, write_operations
from history.record.operations import Operations
from history.record.schemas import REGISTERS
from history.record.shapes import LOG, REGISTER, Shape
from history.record.writer import OperationWriter

ROWS = 25
PER_SEGMENT = 10


def record(
    directory: Path, *, closes: bool = True, per_segment: int = PER_SEGMENT, flush_every_ns: int = 1 << 40
) -> Path:
    """The record of a client with 25 operations, half of them appends; the file of its segment 0."""
    clock = iter(range(1, 1 << 30))
    writer = OperationWriter(
        LOG,
        directory,
        client="c",
        session=1,
        process=3,
        producer=5,
        clock=lambda: next(clock),
        flush_every_ns=flush_every_ns,
        segment_rows=per_segment,
    )
    for n in range(ROWS):
        if n % 2:
            writer.end(writer.start("append", topic="log", partition=n % 3), "ok", offset=n)
        else:
            writer.add("end", "ok", inv=n, ret=n + 1, topic="log", partition=0, lo=n, hi=n)
    writer.flush()
    if closes:
        writer.close()
    return directory / "c-1.arrows"


def read(first: Path) -> ClientRecording:
    numbers = [0] + [n for n in range(1, 9) if segment_path(first, n).exists()]
    (part,) = read_recordings(LOG, [StreamRecord(first, numbers)])
    return part


def test_segments_have_the_rows_of_one_stream_in_its_order(tmp_path: Path) -> None:
    whole, several = record(tmp_path / "a", per_segment=1_000), record(tmp_path / "b")
    assert [path.name for path in sorted((tmp_path / "b").glob("*.arrows"))] == [
        "c-1.1.arrows",
        "c-1.2.arrows",
        "c-1.arrows",
    ]
    assert read(several).completed.to_pylist() == read(whole).completed.to_pylist()
    assert (read(several).defects, read(several).torn, read(several).closed) == ([], [], True)


def test_a_record_that_ends_with_a_segment_has_no_empty_one(tmp_path: Path) -> None:
    first = record(tmp_path, per_segment=ROWS)
    assert not segment_path(first, 1).exists()
    assert (read(first).completed.num_rows, read(first).defects) == (ROWS, [])


def test_a_killed_client_loses_no_closed_segment(tmp_path: Path) -> None:
    first = record(tmp_path, closes=False)
    segment_path(first, 2).write_bytes(b"")
    part = read(first)
    assert part.torn == [str(segment_path(first, 2))]
    assert part.completed.num_rows == 2 * PER_SEGMENT
    assert part.left.filter(part.left["offset"].to_numpy() == -1).num_rows == part.left.num_rows > 0


def copied(source: int, target: int) -> Callable[[Path], None]:
    def change(first: Path) -> None:
        shutil.copy(segment_path(first, source), segment_path(first, target))

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda first: segment_path(first, 2).unlink(), "but its client recorded"),
        (lambda first: segment_path(first, 1).unlink(), "c-1.1.arrows is missing"),
        (lambda first: first.unlink(), "c-1.arrows: it cannot be read (No such file or directory)"),
        (lambda first: segment_path(first, 1).write_bytes(b"x"), "c-1.1.arrows: what follows its first 0 rows is lost"),
        (copied(0, 1), "c-1.1.arrows: what follows its first 0 rows is lost: it is damaged there"),
        (copied(1, 0), "c-1.arrows: what follows its first 0 rows is lost: it is damaged there"),
    ],
    ids=["the last is missing", "one is missing", "the first is missing", "one is torn", "0 for 1", "1 for 0"],
)
def test_a_segment_that_is_not_the_written_one_is_a_defect(
    tmp_path: Path, change: Callable[[Path], None], why: str
) -> None:
    first = record(tmp_path)
    change(first)
    assert any(why in defect for defect in read(first).defects)


def test_a_distant_segment_number_needs_no_extra_memory(tmp_path: Path) -> None:
    first = record(tmp_path / "history" / "operations")
    segment_path(first, 999_999_999).write_bytes(first.read_bytes())
    assert "c-1.999999998.arrows is missing" in list(read_run(tmp_path).defects)


def test_every_segment_is_among_the_files_of_a_client(tmp_path: Path) -> None:
    record(tmp_path)
    assert list(left_by(tmp_path, "c")) == ["c-1.1.arrows", "c-1.2.arrows", "c-1.arrows", "c-1.reserved"]
    assert not belongs("c-1.0.arrows", "c")
    assert not belongs("c-1.1.reserved", "c")
    assert not belongs("c-1-1.1.arrows", "c")


def test_a_registers_record_has_segments_too(tmp_path: Path) -> None:
    with OperationWriter(REGISTER, tmp_path, client="r", session=1, process=1, producer=1, segment_rows=4) as writer:
        for _ in range(10):
            writer.end(writer.start("read", key="k"), "ok")
    (part,) = read_recordings(REGISTER, [StreamRecord(tmp_path / "r-1.registers", [0, 1, 2])])
    assert (part.completed.num_rows, part.defects) == (10, [])
    with pytest.raises(FileExistsError):
        BatchWriter(tmp_path / "r-1.registers", REGISTERS, clock=lambda: 0)


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["in tables only", "in memory too"])
@pytest.mark.parametrize("closes", [True, False])
def test_the_tables_agree_with_a_direct_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, closes: bool
) -> None:
    first = record(tmp_path / "history" / "operations", closes=closes)
    other = first.with_name("x.jsonl")
    other.write_text(
        '{"f": "end", "topic": "log", "partition": 0, "type": "ok", "inv": 1, "ret": 2, "end": 3}\n', encoding="utf-8"
    )
    monkeypatch.setattr("history.reader.MOST_BYTES_KEPT", kept)
    tables = tmp_path / "tables"
    here, there = read_run(tmp_path), read_run(tmp_path, tables=tables)
    assert isinstance(there.logs.source, Path) == (kept == 0)
    assert sorted_rows(there.logs.rows) == sorted_rows(here.logs.rows) == sorted_rows(Operations(LOG, tables).rows)
    assert (list(there.defects), there.unfinished) == (list(here.defects), here.unfinished)
    names = {path.name for path in tables.glob("operations/*/*/*.parquet")}
    assert names >= {"c-1-0.parquet", "c-1-1.parquet", "c-1-2.parquet", "+lines-0.parquet"}
    assert ("c-1+unfinished.parquet" in names) != closes
    assert sum(pq.read_table(tables / "seconds.parquet")["operations"].to_pylist()) == here.logs.rows.num_rows


def test_tables_that_lost_rows_are_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = record(tmp_path)

    def loses(shape: Shape, rows: pa.Table, tables: Path, piece: str) -> list[IndexedGroup]:
        return write_operations(shape, rows.slice(1), tables, piece)

    monkeypatch.setattr("history.record.client_reader.write_operations", loses)
    (part,) = read_recordings(LOG, [StreamRecord(first, [0, 1, 2])], tables=tmp_path / "tables")
    assert [defect for defect in part.defects if "but its tables have 22" in defect]


@pytest.mark.parametrize("shape", [replace(LOG, piece_rows=1), replace(LOG, piece_bytes=1)], ids=["rows", "bytes"])
def test_a_stream_that_never_rotated_is_read_in_pieces(tmp_path: Path, shape: Shape) -> None:
    first = record(tmp_path, per_segment=1_000, flush_every_ns=1)
    whole = read(first)
    tables = tmp_path / "tables"
    (part,) = read_recordings(shape, [StreamRecord(first)], tables=tables)
    assert len(list(tables.rglob("*.parquet"))) > 3
    assert part.completed.to_pylist() == whole.completed.to_pylist()
    assert part.believed == whole.believed


@pytest.mark.thorough
def test_segments_read_in_several_processes_give_the_same(tmp_path: Path) -> None:
    record(tmp_path / "history" / "operations")
    here = read_run(tmp_path, tables=tmp_path / "here")
    there = read_run(tmp_path, tables=tmp_path / "there", each=WorkerProcesses(2))
    assert there.logs.rows.to_pylist() == here.logs.rows.to_pylist()
    assert read_index(LOG, tmp_path / "there") == read_index(LOG, tmp_path / "here")
    assert list(there.defects) == list(here.defects)
