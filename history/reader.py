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

from history.journal import FILE_NAME
from history.schemas import ACKS_ALL, APPEND, FAULTS, INF, INFO, OPERATIONS, PHASE_MAIN, PHASES, RESERVATIONS
from history.services import FatalLine, ServiceExit, fatal_lines, service_exits

UNFINISHED = "unfinished: announced by its producer, never completed"


class HistoryError(Exception):
    """A run's record cannot be read; the message names the file."""


@dataclass(frozen=True)
class History:
    """A run's record.

    `operations` has the schema `history.schemas.OPERATIONS`; its last `unfinished` rows are the info appends that
    stand for announced and never completed values. `torn` names the files whose tail was lost.
    """

    operations: pa.Table
    reservations: pa.Table
    faults: pa.Table
    phases: pa.Table
    journal: list[dict[str, Any]]
    unfinished: int = 0
    torn: list[str] = field(default_factory=list)

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
        table = _read_stream(path, torn)
        reservations, left = _unfinished(path.with_suffix(".reserved"), table, torn)
        unfinished += left.num_rows
        tables.append(table)
        blocks.append(reservations)
        tables.append(left)
    # Completed rows first, so that the unfinished ones are the table's tail.
    operations = pa.concat_tables([*tables[0::2], *tables[1::2], OPERATIONS.empty_table()]).unify_dictionaries()
    journal = _read_lines(directory / FILE_NAME, torn)
    return History(
        operations=operations.combine_chunks(),
        reservations=pa.concat_tables([*blocks, RESERVATIONS.empty_table()]),
        faults=_faults(journal),
        phases=_phases(journal),
        journal=journal,
        unfinished=unfinished,
        torn=torn,
    )


def _read_stream(path: Path, torn: list[str]) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            if not stream.schema.equals(OPERATIONS):
                raise HistoryError(f"{path}: not the schema of operations; was it written by another version?")
            batches.extend(stream)
    except (pa.ArrowInvalid, OSError):
        torn.append(str(path))
    return pa.Table.from_batches(batches, schema=OPERATIONS)


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
