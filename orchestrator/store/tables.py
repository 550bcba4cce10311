"""Tables over all runs of a store, for queries: `<store>/.tables/{runs,checks,faults,anomalies,seconds}.parquet`.

Each row has the key of its run: `campaign`, `run`, `evidence` (the digest of the analyzed files) and `analysis` (the
revision of the code). The table `runs` has a column for each field of `RunRow`, and what verdict.json says. The tables
are made from the campaigns' summaries, the runs' verdicts and their `tables/seconds.parquet`, never from older tables,
so a damaged or foreign table has no influence. A table is replaced atomically, and its pages have checksums.

Theory of operation. A task writes the rows of 256 runs into files of its own, one for each table, and sends only
sentences back. The driver merges these files, one after another, in the order of the runs. So memory is bounded by a
task's rows, and tables that Spark wrote are byte for byte those of a single process.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_origin

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import asdict, fields

from analysis.engines.task_map import TaskMap, in_sequence
from analysis.run_row import RunRow
from analysis.verdict import VERDICT_FILE, Verdict
from history.columns import schema_of
from history.field_types import Int64
from history.record.operations import OF_ALL_SHAPES
from history.regular_files import read_bytes, remove
from history.seconds import SECONDS, SECONDS_FILE, SecondColumns
from orchestrator.store.directories import Store, locked
from orchestrator.store.index import IndexedCampaign, read_index, with_settings

# ---- The columns of the tables over all runs of a store. The text of a column is in docs/tables.md, too.


class RunKey(msgspec.Struct):
    """The run of a row. The last two are null in the table `runs` if its verdict cannot be read."""

    campaign: str
    """The name of the campaign's directory."""
    run: str
    """The name of the run's directory."""
    evidence: str
    """The digest of the analyzed files."""
    analysis: str
    """The revision of the code that analyzed them."""


class StoredColumns(msgspec.Struct):
    """What the run's verdict.json says; null if it cannot be read."""

    stored_verdict: str
    """`pass`, `fail` or `unknown`."""
    stored_met: bool
    """Whether the verdict is the expected one."""
    stored_reasons: tuple[str, ...]
    """The reasons of that verdict."""
    finished: bool
    """Whether the analysis has finished."""
    codes: tuple[str, ...]
    """The codes of the reasons of an unknown verdict."""


class CheckColumns(msgspec.Struct):
    """One row for each check of a run."""

    check: str
    """The name of the check."""
    verdict: str
    """`pass`, `fail` or `unknown`."""
    detail: str
    """What it found."""
    s: float
    """Its duration in seconds."""


class FaultColumns(msgspec.Struct):
    """One row for each fault of a run."""

    fault: str
    """The fault's name in the run."""
    kind: str
    """The kind of fault."""
    targets: tuple[str, ...]
    """The nodes that it hit."""
    status: str
    """`confirmed` by evidence, or why not."""
    start_s: float
    """When it was injected, in seconds since the start of the run."""
    end_s: float
    """When it was healed, in seconds since the start of the run."""


class AnomalyColumns(msgspec.Struct):
    """One row for each anomaly of a run."""

    anomaly: str
    """The name of the anomaly."""
    promise: str
    """The promise that it breaks."""
    topic: str
    """The topic, if it concerns one."""
    partition: Int64
    """The partition, if it concerns one."""
    count: Int64
    """How often it occurred."""
    sentence: str
    """What happened, in one sentence."""


class LeftOut(msgspec.Struct, frozen=True):
    """A run whose rows are absent from some tables, and why."""

    campaign: str
    """The name of the campaign's directory."""
    run: str
    """The name of the run's directory; empty if runs of the campaign may be missing."""
    tables: tuple[str, ...]
    """The tables that lack rows."""
    reason: str
    """Why they lack them."""

    def sentence(self, store: Path) -> str:
        """The run and the reason."""
        return f"{store / self.campaign / self.run}: {self.reason}"


def _of_runs(*declared: type[msgspec.Struct]) -> pa.Schema:
    """These columns, after those that name the run."""
    schemas = [schema_of(columns, nullable=True) for columns in declared]
    return pa.unify_schemas([schema_of(RunKey, nullable=True), *schemas])


MAPPINGS: Final = {field.name: field.type for field in fields(RunRow) if get_origin(field.type) is Mapping}
"""Fields of a row of a run whose columns have JSON."""
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "runs": _of_runs(RunRow, StoredColumns),
    "checks": _of_runs(CheckColumns),
    "faults": _of_runs(FaultColumns),
    "anomalies": _of_runs(AnomalyColumns),
    "seconds": pa.schema([*schema_of(RunKey, nullable=True), *schema_of(SecondColumns)]),
}
"""The tables that `brownout list --tables` writes."""
OPERATIONS_OF_RUNS: Final = pa.schema([*schema_of(RunKey, nullable=True), *OF_ALL_SHAPES])
LEFT_OUT: Final = schema_of(LeftOut)


FOLDER: Final = ".tables"
RUNS_FILE: Final = "runs.parquet"
RUNS_PER_TASK: Final = 256
_DRAFT: Final = ".draft"
_INT64: Final = range(-(1 << 63), 1 << 63)


def read_rows(path: Path) -> tuple[RunRow, ...]:
    """The rows of a table of runs. Raises `OSError`, and `ValueError` for a table that is damaged or of another
    version."""
    try:
        file = _parquet_file(path)
        if not file.schema_arrow.equals(SCHEMAS["runs"]):
            raise ValueError("its columns are not those of this version")
        rows = file.read(list(RunRow.__struct_fields__)).to_pylist()
    except pa.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return tuple(map(_parsed, rows))


def _parsed(columns: Mapping[str, Any]) -> RunRow:
    decoded = {name: msgspec.json.decode(columns[name] or "", type=kind) for name, kind in MAPPINGS.items()}
    return msgspec.convert({**columns, **decoded}, RunRow)


def write_tables(store: Store, spread: TaskMap = in_sequence) -> tuple[Path, list[str]]:
    """Writes all tables; returns their directory, and a sentence for each run whose verdict or seconds are left out.

    `spread`: this process or Spark, whose workers see the store at the same path; the files are equal. Raises OSError;
    `UsageError` when another process writes them; RuntimeError when a task on Spark fails.
    """
    with _drafting(store.root) as draft:
        runs = list(runs_to_read(read_index(store.root)))
        starts = range(0, len(runs), RUNS_PER_TASK)
        tasks = [_Task(start, store.root, draft, runs[start : start + RUNS_PER_TASK]) for start in starts]
        left_out = [sentence for sentences in spread(_write_parts, tasks) for sentence in sentences]
        for name, schema in SCHEMAS.items():
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
class RunToRead:
    """A run whose tables are made. `has_settings`: its row has the settings of its run.toml."""

    row: RunRow
    has_settings: bool


def runs_to_read(campaigns: Iterable[IndexedCampaign]) -> Iterator[RunToRead]:
    """The first run of each cell that counts has settings: to read those of all runs would take a minute."""
    cells = set[tuple[str, str]]()
    for row in (row for campaign in campaigns for row in campaign.runs):
        cell = (row.campaign, row.cell)
        yield RunToRead(row, row.counts and cell not in cells)
        cells |= {cell} if row.counts else set()


@dataclass(frozen=True)
class _Task:
    """Some runs of a store. Their rows become one file of each table in the directory `draft`."""

    number: int
    store: Path
    draft: Path
    runs: Sequence[RunToRead]


def _write_parts(task: _Task) -> list[str]:
    """Writes the files of a task; returns a sentence for each run whose verdict or seconds are left out."""
    stored = read_verdicts(task.store, task.runs)
    seconds, without_seconds = read_seconds(stored.readable)
    for name, table in {**stored.tables, "seconds": seconds}.items():
        _write_table(_part(task.draft, name, task.number), SCHEMAS[name], [table])
    return [run.sentence(task.store) for run in (*stored.left_out, *without_seconds)]


@dataclass(frozen=True)
class RunOfStore:
    """A run whose verdict can be read. `key`: the columns that name it, as tables have them."""

    directory: Path
    key: Mapping[str, str]

    def left_out(self, table: str, reason: str) -> LeftOut:
        """The rows of the run that one table lacks, and why."""
        return LeftOut(self.directory.parent.name, self.directory.name, (table,), reason)


@dataclass(frozen=True)
class VerdictTables:
    """The tables that are made from verdicts, by name; the runs whose verdict can be read, and the others."""

    tables: Mapping[str, pa.Table]
    readable: Sequence[RunOfStore]
    left_out: Sequence[LeftOut]


def read_verdicts(store: Path, runs: Iterable[RunToRead]) -> VerdictTables:
    """The tables of runs, checks, faults and anomalies. A run whose verdict cannot be read has a row in the first."""
    readable: list[RunOfStore] = []
    left_out: list[LeftOut] = []
    rows: dict[str, list[dict[str, Any]]] = {"runs": [], **{name: [] for name in _ROWS}}
    for shown, has_settings in ((run.row, run.has_settings) for run in runs):
        run = store / shown.campaign / shown.run
        row = _columns(with_settings(store, shown) if has_settings else shown)
        rows["runs"].append(row)
        try:
            verdict = Verdict.read(run / VERDICT_FILE, any_form=True)
            row |= _storable(_stored(verdict))
            of_run = {name: _storable(list(rows_of(verdict))) for name, rows_of in _ROWS.items()}
        except (OSError, ValueError, OverflowError) as error:
            reason = f"its verdict cannot be read: {error}"
            left_out.append(LeftOut(shown.campaign, shown.run, (*_ROWS, "seconds", "operations"), reason))
            continue
        readable.append(RunOfStore(run, {name: row[name] for name in RunKey.__struct_fields__}))
        for name, own_rows in of_run.items():
            rows[name] += [{**readable[-1].key, **columns} for columns in own_rows]
    tables = {name: pa.Table.from_pylist(rows[name], SCHEMAS[name]) for name in rows}
    return VerdictTables(tables, readable, left_out)


def read_seconds(runs: Iterable[RunOfStore]) -> tuple[pa.Table, list[LeftOut]]:
    """The seconds of runs, and the runs whose seconds cannot be read."""
    tables, left_out = [SCHEMAS["seconds"].empty_table()], list[LeftOut]()
    for run in runs:
        try:
            tables.append(_seconds(run))
        except (OSError, ValueError, pa.ArrowException) as error:
            reason = f"tables/{SECONDS_FILE} cannot be read: {str(error).splitlines()[0]}"
            left_out.append(run.left_out("seconds", reason))
    return pa.concat_tables(tables), left_out


def _part(draft: Path, name: str, number: int) -> Path:
    return draft / f"{name}-{number}.parquet"


def _columns(row: RunRow) -> dict[str, Any]:
    columns: dict[str, Any] = _storable(asdict(row))
    return columns | {name: json.dumps(columns[name]) for name in MAPPINGS}


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


def _seconds(run: RunOfStore) -> pa.Table:
    """The run's seconds, each row with the run's key."""
    return with_key(_parquet_file(run.directory / "tables" / SECONDS_FILE).read().cast(SECONDS), run.key)


def with_key(rows: pa.Table, key: Mapping[str, str]) -> pa.Table:
    """The rows, each with these columns before its own."""
    keys = [pa.repeat(pa.scalar(text, pa.string()), rows.num_rows) for text in key.values()]
    schema = pa.schema([*((name, pa.string()) for name in key), *rows.schema])
    return pa.Table.from_arrays([*keys, *rows.columns], schema=schema)
