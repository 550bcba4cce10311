"""The segments of a record of registers and the rows that a task has in memory do not change what is read."""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from history.checksummed_lines import read_lines, text_of
from history.record import announcements
from history.record.client_reader import ClientRecording, StreamRecord, read_recordings
from history.record.shapes import REGISTER
from history.record.writer import NO_VALUE, Invocation, OperationWriter
from history.value_runs import ValueRuns

SEEDS = 12


def record(directory: Path, seed: int, segment_rows: int) -> Path:
    """The record of a client with concurrent operations, some of them never completed; its segment 0."""
    chance = random.Random(f"pieces {seed}")
    clock = itertools.count(1)
    writer = OperationWriter(
        REGISTER,
        directory,
        client="c",
        session=1,
        process=3,
        producer=5,
        clock=lambda: next(clock),
        segment_rows=segment_rows,
    )
    under_way: list[Invocation] = []
    for _ in range(chance.randrange(60)):
        key = f"k{chance.randrange(3)}"
        swap = {"expected": chance.choice([None, 1])}
        columns = {"read": {}, "write": {}, "cas": swap}
        function = chance.choice(list(columns))
        under_way.append(writer.start(function, key=key, **columns[function]))
        while under_way and chance.random() < 0.6:
            end(writer, under_way.pop(chance.randrange(len(under_way))), chance)
    writer.close()
    return directory / "c-1.registers"


def end(writer: OperationWriter, invocation: Invocation, chance: random.Random) -> None:
    if chance.random() < 0.2:
        writer.end(invocation, "info", error="timeout")
    elif chance.random() < 0.2:
        writer.end(invocation, "fail", error="refused")
    else:
        writer.end(invocation, "ok", **({"value": 7} if invocation.value == NO_VALUE else {}))


def damage(first: Path, seed: int) -> None:
    """Removes, changes, repeats and moves announcements; each line remains intact."""
    chance = random.Random(f"damage {seed}")
    path = first.with_suffix(".invoked")
    header, *lines, closing = (content for _, content in read_lines(path).contents)
    kept: list[dict[str, Any]] = []
    for line in lines:
        kind = chance.randrange(8)
        if kind == 0:
            continue
        changed: dict[int, dict[str, Any]] = {1: {"key": "other"}, 2: {"expected": 99}, 3: {"phase": 7}, 4: {"f": 1}}
        kept.append(line | changed.get(kind, {}))
        if kind == 5:
            kept.append(line | {"inv": 1})
    if kept and chance.random() < 0.5:
        kept.insert(0, kept.pop())
    path.write_bytes(text_of([header, *kept, closing]))


def read(first: Path, piece_rows: int, tables: Path | None = None) -> ClientRecording:
    shape = replace(REGISTER, piece_rows=piece_rows)
    numbers = sorted(int(path.name.split(".")[1]) for path in first.parent.glob("c-1.*.registers"))
    (part,) = read_recordings(shape, [StreamRecord(first, [0, *numbers])], tables=tables)
    return part


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def runs_of(values: ValueRuns) -> list[tuple[int, int]]:
    return list(zip(values.first.tolist(), values.last.tolist(), strict=True))


def facts_of(part: ClientRecording) -> dict[str, Any]:
    counted = [each for each in part.defects if ": it has " not in each]
    return {
        "completed": rows_of(part.completed),
        "left": rows_of(part.left),
        "used": runs_of(part.used),
        "believed": part.believed,
        "defects": counted,
        "understood": part.understood,
        "closed": part.closed,
        "last process": part.last_process,
    }


@pytest.mark.parametrize("is_damaged", [False, True], ids=["whole", "damaged"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_segmentation_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, is_damaged: bool
) -> None:
    found = []
    for number, (segment_rows, piece_rows, group_rows) in enumerate(
        [(1 << 20, 1 << 17, 1 << 14), (1 << 20, 1, 1), (3, 1 << 17, 2), (5, 2, 3), (1, 1, 1)]
    ):
        monkeypatch.setattr(announcements, "GROUP_ROWS", group_rows)
        first = record(tmp_path / str(number), seed, segment_rows)
        if is_damaged:
            damage(first, seed)
        part = read(first, piece_rows, tmp_path / f"tables-{number}")
        found.append(facts_of(part))
        assert sum(each.rows for each in part.groups) == part.completed.num_rows + part.left.num_rows
        assert not (tmp_path / f"tables-{number}" / "invoked").exists()
    assert all(each == found[0] for each in found)
    assert is_damaged or (found[0]["defects"], found[0]["understood"]) == ([], True)


def test_a_row_of_another_segment_with_the_same_id_is_a_defect(tmp_path: Path) -> None:
    directory = tmp_path / "a"
    writer = OperationWriter(REGISTER, directory, client="c", session=1, process=3, producer=5, segment_rows=1)
    for _ in range(2):
        writer.end(writer.start("write", key="k"), "ok")
        writer._started = 0  # as a client would that starts again and continues the same record
    writer.close()
    part = read(directory / "c-1.registers", 1)
    assert "c-1.registers: an id is that of several rows" in part.defects
    assert "c-1.invoked: 1 of its lines invoke an id again" in part.defects
    assert not part.understood


def test_an_invocation_with_half_a_character_is_invalid(tmp_path: Path) -> None:
    with OperationWriter(REGISTER, tmp_path, client="c", session=1, process=3, producer=5) as writer:
        writer.end(writer.start("write", key="k"), "ok")
    path = tmp_path / "c-1.invoked"
    header, line, closing = (content for _, content in read_lines(path).contents)
    path.write_bytes(text_of([header, line | {"key": "\ud800"}, closing]))
    part = read(tmp_path / "c-1.registers", 1)
    assert "c-1.invoked: 1 of its lines are not invocations" in part.defects
    assert "c-1.registers: it has 1 operation without announcement" in part.defects
