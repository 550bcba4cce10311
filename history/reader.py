"""Reads a run's record back, whole or torn.

A run that was killed in the middle reads like any other: torn tails are dropped, and every value that a producer
announced without completing it becomes an append that may have happened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.batches import read_batches
from history.errors import UNFINISHED, HistoryError
from history.journal import FILE_NAME
from history.jsonlines import Known, Recorded, read_lines
from history.registers import STREAM_SUFFIX, read_registers
from history.schemas import (
    ACKS_ALL,
    APPEND,
    CAS,
    FAULTS,
    INF,
    INFO,
    OPERATIONS,
    PHASE_MAIN,
    PHASES,
    REGISTERS,
    RESERVATIONS,
    WRITE,
)
from history.services import FatalLine, ServiceExit, fatal_lines, service_exits
from history.values import SESSION_SHIFT


@dataclass(frozen=True)
class History:
    """A run's record.

    `operations` has the schema `history.schemas.OPERATIONS`, `registers` has `REGISTERS`. The last rows of each, in sum
    `unfinished`, are the info operations that stand for what was announced and never completed. `torn` names the files
    whose tail was lost.
    """

    operations: pa.Table
    reservations: pa.Table
    faults: pa.Table
    phases: pa.Table
    journal: list[dict[str, Any]]
    unfinished: int = 0
    torn: list[str] = field(default_factory=list)
    registers: pa.Table = field(default_factory=REGISTERS.empty_table)

    @property
    def service_exits(self) -> list[ServiceExit]:
        """The ends of the system's processes that the run did not cause."""
        return service_exits(self.journal)

    @property
    def fatal_lines(self) -> list[FatalLine]:
        """The lines that the system declares fatal and that its processes logged."""
        return fatal_lines(self.journal)


def read_run(run: Path | str) -> History:
    """Reads `<run>/history/`. Raises HistoryError when the directory or a file in it is not a run's record."""
    directory = Path(run) / "history"
    if not directory.is_dir():
        raise HistoryError(f"{directory} does not exist: {run} is not a run, or it stopped before its first operation")
    torn: list[str] = []
    tables: list[pa.Table] = []
    blocks: list[pa.Table] = []
    unfinished = 0
    for path in sorted((directory / "operations").glob("*.arrows")):
        table = read_batches(path, OPERATIONS, torn)
        reservations, appends = _unfinished(path.with_suffix(".reserved"), table, torn)
        unfinished += appends.num_rows
        tables.append(table)
        blocks.append(reservations)
        tables.append(appends)
    journal = _read_lines(directory / FILE_NAME, torn)
    pairs = [read_registers(path, torn) for path in sorted((directory / "operations").glob("*" + STREAM_SUFFIX))]
    completed, left = [done for done, _ in pairs], [rest for _, rest in pairs]
    lines = Recorded()
    if any((directory / "operations").glob("*.jsonl")):
        known = _known([*tables, *completed, *left])
        lines = read_lines(directory / "operations", journal, known, torn)
    operations, of_registers, left_operations, left_registers = lines.tables()
    unfinished += left_operations.num_rows + left_registers.num_rows + sum(each.num_rows for each in left)
    return History(
        # Completed rows first, so that the unfinished ones are the table's tail.
        operations=_whole([*tables[0::2], operations, *tables[1::2], left_operations], OPERATIONS),
        reservations=pa.concat_tables([*blocks, RESERVATIONS.empty_table()]),
        faults=_faults(journal),
        phases=_phases(journal),
        journal=journal,
        unfinished=unfinished,
        torn=torn,
        registers=_whole([*completed, of_registers, *left, left_registers], REGISTERS),
    )


def _whole(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([*tables, schema.empty_table()]).unify_dictionaries().combine_chunks()


def _known(tables: list[pa.Table]) -> Known:
    """What Arrow files have taken already, that no JSON lines may take again."""
    known = Known(values={}, producers={}, process=0)
    for table in tables:
        f = table["f"]
        for code, column in ((APPEND, "value"), (WRITE, "value"), (CAS, "new")):
            rows = table.filter(pc.equal(f, code))
            if not rows.num_rows:
                continue
            client = rows["client"][0].as_py()
            written = rows[column].to_numpy()
            known.values |= dict.fromkeys(written.tolist(), client)
            if code == APPEND:
                known.producers |= dict.fromkeys(np.unique(written >> 32).tolist(), client)
        if table.num_rows:
            known.process = max(known.process, pc.max(table["process"]).as_py() + 1)
    return known


def _read_lines(path: Path, torn: list[str]) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    if lines.pop():
        torn.append(str(path))
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise HistoryError(f"{path}: a line is not JSON ({error}); the file is damaged before its tail") from error


def _unfinished(path: Path, completed: pa.Table, torn: list[str]) -> tuple[pa.Table, pa.Table]:
    """The blocks a client announced, and an info append for each announced value that has no completion."""
    lines = _read_lines(path, torn)
    blocks = [line for line in lines if "first" in line]
    if not blocks:
        return RESERVATIONS.empty_table(), OPERATIONS.empty_table()
    who = lines[0]
    names = ("topic", "partition", "first", "count", "t")
    columns: dict[str, Any] = {name: [block[name] for block in blocks] for name in names}
    columns |= {"client": [who["client"]] * len(blocks), "process": [who["process"]] * len(blocks)}
    count = np.array(columns["count"], np.int64)
    start = np.cumsum(count) - count
    values = np.repeat(np.array(columns["first"], np.int64) - start, count) + np.arange(count.sum())
    block = np.repeat(np.arange(len(blocks)), count)
    done = [completed.filter(pc.equal(completed["f"], APPEND))["value"].to_numpy()]
    done += [np.arange(line["unused"], line["unused"] + line["count"]) for line in lines if "unused" in line]
    left = ~np.isin(values, np.concatenate(done))
    return pa.table(columns, RESERVATIONS), _info_appends(who, blocks, block[left], values[left])


def _info_appends(
    who: dict[str, Any], blocks: list[dict[str, Any]], block: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> pa.Table:
    n = len(values)
    nothing = pa.ListArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), pa.array([], pa.int64()))
    topics = [blocks[i]["topic"] for i in block]
    columns: dict[str, Any] = {
        "process": np.full(n, who["process"], np.int32),
        "session": (values >> SESSION_SHIFT).astype(np.int32),
        "client": [who["client"]] * n,
        "f": np.full(n, APPEND, np.int8),
        "topic": topics,
        "partition": np.array([each["partition"] for each in blocks], np.int32)[block],
        "type": np.full(n, INFO, np.int8),
        "inv": np.array([each["t"] for each in blocks], np.int64)[block],
        "ret": np.full(n, INF, np.int64),
        "offset": np.full(n, -1, np.int64),
        "hi": np.full(n, -1, np.int64),
        "lo": np.full(n, -1, np.int64),
        "value": values,
        "offsets": nothing,
        "values": nothing,
        "acks": np.full(n, ACKS_ALL, np.int8),
        "phase": [PHASE_MAIN] * n,
        "error": [UNFINISHED] * n,
    }
    return pa.table({each.name: pa.array(columns[each.name]).cast(each.type) for each in OPERATIONS}, OPERATIONS)


def _faults(journal: list[dict[str, Any]]) -> pa.Table:
    rows: dict[str, dict[str, Any]] = {}
    for line in journal:
        event = line.get("event", "")
        if not event.startswith("fault_"):
            continue
        row = rows.setdefault(line["id"], {"id": line["id"], "status": "inconclusive", "evidence": {}})
        row[event.removeprefix("fault_")] = line["t"]
        row["evidence"] = {**row["evidence"], **line.get("evidence", {})}
        row |= {
            name: line[name]
            for name in ("kind", "targets", "parameters", "sentence", "proof", "status")
            if name in line
        }
    for row in rows.values():
        row["parameters"] = json.dumps(row.get("parameters", {}), default=str)
        row["evidence"] = json.dumps(row["evidence"], default=str)
    return pa.Table.from_pylist(list(rows.values()), FAULTS)


def _phases(journal: list[dict[str, Any]]) -> pa.Table:
    starts = [(line["name"], line["t"]) for line in journal if line.get("event") == "phase"]
    ends = [t for _, t in starts[1:]] + [None]
    return pa.Table.from_pylist(
        [{"name": name, "start": t, "end": end} for (name, t), end in zip(starts, ends, strict=False)], PHASES
    )
