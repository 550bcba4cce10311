"""Tables over all runs of a store, for queries: `<store>/.tables/{runs,checks,faults,anomalies,seconds}.parquet`.

Each row has the key of its run: `campaign`, `run`, `evidence` (the digest of the analyzed files) and `analysis` (the
revision of the code). The table `runs` has a column for each field of `RunRow`, and what verdict.json says. The tables
are made from the campaigns' summaries, the runs' verdicts and their `tables/seconds.parquet`, never from older tables,
so a damaged or foreign table has no influence. A table is replaced atomically, and its pages have checksums.

Theory of operation. A task writes the rows of 256 runs into files of its own, one for each table, and sends only
sentences back. The driver merges these files, one after another, in the order of the runs. So memory is bounded by a
task's rows, and tables that Spark wrote are byte for byte those of a single process.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import asdict, fields

from analysis.engines.task_map import TaskMap, in_sequence
from analysis.run_row import Int64, RunRow
from analysis.verdict import VERDICT_FILE, Verdict
from history.regular_files import read_bytes, remove
from history.seconds import SECONDS, SECONDS_FILE
from orchestrator.campaign.store import Store, locked
from orchestrator.campaign.store_index import read_index, with_settings

FOLDER: Final = ".tables"
RUNS_FILE: Final = "runs.parquet"
RUNS_PER_TASK: Final = 256

KEY: Final = [(name, pa.string()) for name in ("campaign", "run", "evidence", "analysis")]
TEXTS: Final = pa.list_(pa.string())
_TYPES: Final = {str: pa.string(), bool: pa.bool_(), float: pa.float64(), Int64: pa.int64(), tuple[str, ...]: TEXTS}
"""Of the fields of a row; all others are mappings, whose columns have JSON."""
_MAPPINGS: Final = {field.name: field.type for field in fields(RunRow) if field.type not in _TYPES}
RUNS: Final = pa.schema([
    *KEY,
    *((field.name, _TYPES.get(field.type, pa.string())) for field in fields(RunRow) if field.name not in dict(KEY)),
    ("stored_verdict", pa.string()), ("stored_met", pa.bool_()), ("stored_reasons", TEXTS), ("finished", pa.bool_()),
    ("codes", TEXTS),
])  # fmt: skip
CHECKS: Final = pa.schema(
    [*KEY, ("check", pa.string()), ("verdict", pa.string()), ("detail", pa.string()), ("s", pa.float64())]
)
FAULTS: Final = pa.schema([
    *KEY, ("fault", pa.string()), ("kind", pa.string()), ("targets", TEXTS), ("status", pa.string()),
    ("start_s", pa.float64()), ("end_s", pa.float64()),
])  # fmt: skip
ANOMALIES: Final = pa.schema([
    *KEY, ("anomaly", pa.string()), ("promise", pa.string()), ("topic", pa.string()), ("partition", pa.int64()),
    ("count", pa.int64()), ("sentence", pa.string()),
])  # fmt: skip
SECONDS_OF_RUNS: Final = pa.schema([*KEY, *SECONDS])
_SCHEMAS: Final = {
    "runs": RUNS,
    "checks": CHECKS,
    "faults": FAULTS,
    "anomalies": ANOMALIES,
    "seconds": SECONDS_OF_RUNS,
}
_DRAFT: Final = ".draft"
_INT64: Final = range(-(1 << 63), 1 << 63)


def read_rows(path: Path) -> tuple[RunRow, ...]:
    """The rows of a table of runs. Raises `OSError`, and `ValueError` for a table that is damaged or of another
    version."""
    try:
        file = _parquet_file(path)
        if not file.schema_arrow.equals(RUNS):
            raise ValueError("its columns are not those of this version")
        rows = file.read(list(RunRow.__struct_fields__)).to_pylist()
    except pa.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return tuple(map(_parsed, rows))


def _parsed(columns: Mapping[str, Any]) -> RunRow:
    decoded = {name: msgspec.json.decode(columns[name] or "", type=kind) for name, kind in _MAPPINGS.items()}
    return msgspec.convert({**columns, **decoded}, RunRow)


def write_tables(store: Store, spread: TaskMap = in_sequence) -> tuple[Path, list[str]]:
    """Writes all tables; returns their directory, and a sentence for each run whose verdict or seconds are left out.

    `spread`: this process or Spark, whose workers see the store at the same path; the files are equal. Raises OSError;
    `UsageError` when another process writes them; RuntimeError when a task on Spark fails.
    """
    with _drafting(store.root) as draft:
        tasks = list(_tasks(store, draft))
        left_out = [sentence for sentences in spread(_write_parts, tasks) for sentence in sentences]
        for name, schema in _SCHEMAS.items():
            merged = draft / f"{name}.parquet"
            _write_table(merged, schema, (_parquet_file(_part(draft, name, task.number)).read() for task in tasks))
            _replace(merged)
    return store.root / FOLDER, left_out


@contextlib.contextmanager
def _drafting(store: Path) -> Iterator[Path]:
    """A directory for drafts of tables, under the lock of the store's tables. Raises `OSError`, and `UsageError` when
    another process writes them."""
    folder = store / FOLDER
    folder.mkdir(exist_ok=True)
    with locked(os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), f"{folder}: writing tables"):
        draft = folder / _DRAFT
        remove(draft)  # of a process that was killed
        draft.mkdir()
        try:
            yield draft
        finally:
            remove(draft)


def _replace(draft: Path) -> None:
    """Make the draft of a table the table, atomically. Raises `OSError`."""
    target = draft.parent.parent / draft.name
    if target.is_dir():
        remove(target)
    draft.rename(target)


def _write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a table with checksums. Raises `OSError`."""
    with (
        open(path, "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in tables:
            writer.write_table(table)


def _parquet_file(path: Path) -> pq.ParquetFile:
    """A table that verifies its checksums when it is read. Raises `OSError` and `ArrowException`."""
    # Arrow opens only names in UTF-8.
    return pq.ParquetFile(pa.BufferReader(read_bytes(path)), page_checksum_verification=True)


@dataclass(frozen=True)
class _Task:
    """Some runs of a store, each with whether its row has settings. Their rows become one file of each table in the
    directory `draft`."""

    number: int
    store: Path
    draft: Path
    runs: Sequence[tuple[RunRow, bool]]


def _tasks(store: Store, draft: Path) -> Iterator[_Task]:
    """The first run of each cell that counts has settings: to read those of all runs would take a minute."""
    cells, marked = set[tuple[str, str]](), list[tuple[RunRow, bool]]()
    for row in (row for campaign in read_index(store.root) for row in campaign.runs):
        cell = (row.campaign, row.cell)
        marked.append((row, row.counts and cell not in cells))
        cells |= {cell} if row.counts else set()
    for start in range(0, len(marked), RUNS_PER_TASK):
        yield _Task(start, store.root, draft, marked[start : start + RUNS_PER_TASK])


def _write_parts(task: _Task) -> list[str]:
    """Writes the files of a task; returns a sentence for each run whose verdict or seconds are left out."""
    left_out: list[str] = []
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _SCHEMAS}
    seconds: list[pa.Table] = []
    for shown, has_settings in task.runs:
        run = task.store / shown.campaign / shown.run
        row = _columns(with_settings(task.store, shown) if has_settings else shown)
        rows["runs"].append(row)
        try:
            verdict = Verdict.read(run / VERDICT_FILE, any_form=True)
            row |= _storable(_stored(verdict))
            of_run = {name: _storable(list(rows_of(verdict))) for name, rows_of in _ROWS.items()}
        except (OSError, ValueError, OverflowError) as error:
            left_out.append(f"{run}: its verdict cannot be read: {error}")
            continue
        key = {name: row[name] for name, _ in KEY}
        for name, own_rows in of_run.items():
            rows[name] += [key | columns for columns in own_rows]
        try:
            seconds.append(_seconds(run, key))
        except (OSError, ValueError, pa.ArrowException) as error:
            left_out.append(f"{run / 'tables' / SECONDS_FILE} cannot be read: {str(error).splitlines()[0]}")
    tables = {name: pa.Table.from_pylist(rows[name], schema) for name, schema in _SCHEMAS.items()}
    tables["seconds"] = pa.concat_tables([tables["seconds"], *seconds])
    for name, table in tables.items():
        _write_table(_part(task.draft, name, task.number), _SCHEMAS[name], [table])
    return left_out


def _part(draft: Path, name: str, number: int) -> Path:
    return draft / f"{name}-{number}.parquet"


def _columns(row: RunRow) -> dict[str, Any]:
    columns: dict[str, Any] = _storable(asdict(row))
    return columns | {name: json.dumps(columns[name]) for name in _MAPPINGS}


def _storable(value: Any) -> Any:
    """The value with texts as tables have them. Raises `OverflowError` for an integer of more than 64 bits."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, list | tuple):
        return [_storable(element) for element in value]
    if isinstance(value, int) and value not in _INT64:
        raise OverflowError("it has a number of more than 64 bits")
    return {name: _storable(content) for name, content in value.items()} if isinstance(value, Mapping) else value


def as_text(name: str) -> str:
    """The name as tables have it: bytes that are not UTF-8 are escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _stored(verdict: Verdict) -> dict[str, Any]:
    return {
        "evidence": verdict.evidence,
        "analysis": verdict.analysis,
        "stored_verdict": verdict.verdict,
        "stored_met": verdict.met,
        "stored_reasons": verdict.reasons,
        "finished": verdict.finished,
        "codes": verdict.codes,
    }


def _checks(verdict: Verdict) -> Iterator[dict[str, Any]]:
    for check in verdict.checks:
        yield {"check": check.name, "verdict": check.verdict, "detail": check.detail, "s": check.seconds}


def _faults(verdict: Verdict) -> Iterator[dict[str, Any]]:
    for fault in verdict.faults:
        texts = {"fault": fault.get("id"), "kind": fault.get("kind"), "status": fault.get("status")}
        named = {name: None if value is None else str(value) for name, value in texts.items()}
        times = {name: _number(fault.get(name)) for name in ("start_s", "end_s")}
        yield {**named, **times, "targets": [str(target) for target in fault.get("targets") or ()]}


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _anomalies(verdict: Verdict) -> Iterator[dict[str, Any]]:
    for anomaly in verdict.anomalies:
        names = ("promise", "topic", "partition", "count", "sentence")
        yield {"anomaly": anomaly.name, **{name: getattr(anomaly, name) for name in names}}


_ROWS: Final = {"checks": _checks, "faults": _faults, "anomalies": _anomalies}


def _seconds(run: Path, key: Mapping[str, str]) -> pa.Table:
    """The run's seconds, each row with the run's key."""
    table = _parquet_file(run / "tables" / SECONDS_FILE).read().cast(SECONDS)
    keys = [pa.repeat(pa.scalar(key[name], kind), table.num_rows) for name, kind in KEY]
    return pa.Table.from_arrays([*keys, *table.columns], schema=SECONDS_OF_RUNS)
