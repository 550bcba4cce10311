"""Counts of a run in progress: each look adds the operations since the last one, for any end of a file."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from history.reader import read_run
from history.record.arrow_stream import BatchWriter
from history.record.growing_operations import GrowingOperations, OperationCounts
from history.record.schemas import FAIL, INF, OK, OPERATIONS, REGISTERS, REGISTERS_WITHOUT_ENDPOINTS
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun

MS = 1_000_000
SECOND = 1_000 * MS
JOURNAL = [{"event": "run_started", "t": 0, "wall": 1_000.0}]


def row(schema: pa.Schema, number: int, client: str) -> tuple[Any, ...]:
    """A row in which only times and outcome matter: one per 100 ms, every fourth failed, every ninth never returned."""
    texts = {"client": client, "topic": "log", "key": "k", "phase": "main", "error": "", "endpoint": ""}
    filler: dict[str, Any] = {**dict.fromkeys(schema.names, 0), **texts, "offsets": [], "values": []}
    inv = number * 100 * MS
    filler |= {"inv": inv, "ret": INF if number % 9 == 0 else inv + MS, "type": FAIL if number % 4 == 0 else OK}
    return tuple(filler[name] for name in schema.names)


def stream(path: Path, schema: pa.Schema) -> None:
    writer = BatchWriter(path, schema, clock=lambda: 0, segment_rows=64)
    for number in range(50):
        writer.add(row(schema, number, "ab"[number % 2]))
        if number % 7 == 0:
            writer.flush()
    writer.close()


def lines(path: Path, first: Sequence[dict[str, Any]], *, with_ids: bool) -> None:
    """The same operations as those of `stream`."""
    found = [*first]
    for number in range(50):
        inv = number * 100 * MS
        asked = {"f": "append", "topic": "log", "partition": 0, "value": number, "inv": inv}
        answered: dict[str, Any] = {"type": "fail", "error": "no"} if number % 4 == 0 else {"type": "ok"}
        answered |= {"ret": inv + MS}
        if with_ids:
            found += [{"id": number, "type": "invoke", **asked}]
        if number % 9:
            found += [{"id": number, **answered} if with_ids else asked | answered]
        elif not with_ids:
            found += [asked | {"type": "info", "error": "lost"}]
    path.write_text("".join(json.dumps(each) + "\n" for each in found))


RECORDS: dict[str, Callable[[Path], None]] = {
    "c-1.arrows": lambda path: stream(path, OPERATIONS),
    "c-1.registers": lambda path: stream(path, REGISTERS),
    "earlier-1.registers": lambda path: stream(path, REGISTERS_WITHOUT_ENDPOINTS),
    "c.jsonl": lambda path: lines(path, [], with_ids=False),
    "ids.jsonl": lambda path: lines(path, [{"clock": "monotonic", "client": "c"}], with_ids=True),
}
ANSWERED = [number for number in range(50) if number % 9]


def by_second(counts: OperationCounts) -> tuple[list[int], list[int]]:
    return [counts.acknowledged(each) for each in range(6)], [counts.failed(each) for each in range(6)]


def expected() -> tuple[list[int], list[int]]:
    """The operations that returned, by second and outcome."""
    is_ok = {number: number % 4 != 0 for number in ANSWERED}
    of_second = [[number for number in ANSWERED if number // 10 == each] for each in range(6)]
    acknowledged = [sum(is_ok[number] for number in some) for some in of_second]
    return acknowledged, [len(some) - count for some, count in zip(of_second, acknowledged, strict=True)]


@pytest.mark.parametrize("name", RECORDS)
def test_every_place_where_a_file_may_end_gives_the_same_counts(name: str, tmp_path: Path) -> None:
    RECORDS[name](tmp_path / name)
    data = (tmp_path / name).read_bytes()
    growing = tmp_path / "growing"
    growing.mkdir()
    for step in (401, 1_777, len(data)):
        (growing / name).write_bytes(b"")
        operations = GrowingOperations(growing, 0, 900)
        with (growing / name).open("ab", buffering=0) as file:
            for start in range(0, len(data), step):
                file.write(data[start : start + step])
                assert operations.look(JOURNAL)
        assert by_second(operations.counts) == expected()
        assert operations.counts.total == sum(expected()[0])
        assert operations.counts.newest == 49 * 100 * MS + MS


@pytest.mark.parametrize("name", RECORDS)
def test_a_look_reads_only_new_bytes(name: str, tmp_path: Path) -> None:
    RECORDS[name](tmp_path / name)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    operations = GrowingOperations(tmp_path, 0, 900)
    operations.look(JOURNAL)
    understood = operations.counts.total
    with (tmp_path / name).open("r+b") as file:
        file.write(bytes(len(data) // 4))
        file.seek(0, 2)
        file.write(data[len(data) // 2 :])
    assert operations.look(JOURNAL)
    assert operations.counts.total == sum(expected()[0]) > understood > 0


@pytest.mark.parametrize("stored", [StoredRun, StoredRegisters])
def test_the_counts_are_those_of_the_record(stored: Any, tmp_path: Path) -> None:
    run = stored(tmp_path / "run").write()
    operations = GrowingOperations(run / "history" / "operations", 0, 900)
    assert operations.look(JOURNAL)
    history = read_run(run, tables=tmp_path / "tables")
    outcomes = [*history.parts("type")]
    assert operations.counts.total == sum((part["type"].to_numpy() == OK).sum() for part in outcomes) > 0


@pytest.mark.parametrize("change", ["shorter", "another", "gone"])
def test_a_file_that_was_replaced_is_noticed(change: str, tmp_path: Path) -> None:
    path = tmp_path / "c-1.arrows"
    stream(path, OPERATIONS)
    operations = GrowingOperations(tmp_path, 0, 900)
    assert operations.look(JOURNAL)
    if change == "another":
        stream(tmp_path / "draft", OPERATIONS)
        (tmp_path / "draft").rename(path)
    elif change == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    assert not operations.look(JOURNAL)


def test_only_lines_with_operations_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines(path, [{"clock": "monotonic"}], with_ids=True)
    path.write_bytes(path.read_bytes() + b'{"f": "append"}\n\xff\n[]\n{"id": 7, "type": "ok"}\n{"type": "invoke"}\n')
    operations = GrowingOperations(tmp_path, 0, 900)
    assert operations.look(JOURNAL)
    assert by_second(operations.counts) == expected()


@pytest.mark.parametrize("name", ["c-1.arrows", "c-1.registers", "c.jsonl"])
@pytest.mark.parametrize("content", [b"\xff" * 5_000, b"\0" * 5_000, b'{"clock": "sundial"}\n{}\n', b""])
def test_a_file_without_a_record_counts_zero_operations(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    operations = GrowingOperations(tmp_path, 0, 900)
    assert operations.look(JOURNAL)
    assert operations.look(JOURNAL)
    assert (operations.counts.total, operations.counts.newest) == (0, -1)


def test_a_stream_of_other_columns_counts_zero_operations(tmp_path: Path) -> None:
    stream(tmp_path / "c-1.arrows", REGISTERS)
    operations = GrowingOperations(tmp_path, 0, 900)
    assert operations.look(JOURNAL)
    assert operations.counts.total == 0


@pytest.mark.parametrize("share", [0.5, 0.99, 1.0])
def test_a_latency_is_that_of_the_operations_within_its_bound(share: float) -> None:
    took = np.random.default_rng(1).integers(2_000, 5 * SECOND, 5_000)
    counts = OperationCounts(0, 900)
    counts.add(np.full(len(took), 10 * SECOND) - took, np.full(len(took), 10 * SECOND), np.ones(len(took), np.bool_))
    exact = float(np.quantile(took, share, method="inverted_cdf")) / MS
    assert counts.latency_ms(10, share) == pytest.approx(exact, rel=0.023)
    assert counts.latency_ms(9, share) is None


def test_the_kept_state_does_not_grow_with_the_run() -> None:
    counts = OperationCounts(0, 3)
    for second in range(100):
        at = np.full(5, second * SECOND)
        counts.add(at, at + MS, np.ones(5, np.bool_))
    assert counts.total == 500
    assert [counts.acknowledged(second) for second in range(94, 100)] == [0, 0, 5, 5, 5, 5]
