"""Tables over all runs of a store, for queries: `<store>/.tables/{runs,checks,faults,anomalies,seconds}.parquet`.

Each row has the key of its run: `campaign`, `run`, `evidence` (the digest of the analyzed files) and `analysis` (the
revision of the code). The tables are made from the campaigns' summaries, the runs' verdicts and their
`tables/seconds.parquet`, never from older tables, so a damaged or foreign table has no influence. A table is replaced
atomically.

Theory of operation. A task writes the rows of 256 runs into files of its own, one for each table, and sends only
sentences back. The driver merges these files, one after another, in the order of the runs. So memory is bounded by a
task's rows, and tables that Spark wrote are byte for byte those of a single process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from analysis.engines.task_map import TaskMap, in_sequence
from analysis.verdict import Verdict
from history.seconds import SECONDS, SECONDS_FILE
from orchestrator.campaign.store import Store
from orchestrator.campaign.store_index import IndexedRun, read_index
from orchestrator.campaign.table_of_runs import (
    FOLDER,
    KEY,
    RUNS,
    TEXTS,
    directory_of,
    drafting,
    grouped,
    parquet_file,
    replace,
    row_of,
    stamp_of,
    stamped,
    storable,
    write_table,
)

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


def write_tables(store: Store, spread: TaskMap = in_sequence) -> tuple[Path, list[str]]:
    """Writes all tables; returns their directory, and a sentence for each run whose verdict or seconds are left out.

    `spread`: this process or Spark, whose workers see the store at the same path; the files are equal. Raises OSError;
    `UsageError` when another process writes them; RuntimeError when a task on Spark fails.
    """
    with drafting(store.root) as draft:
        schemas = _SCHEMAS | {"runs": stamped(stamp_of(store.root))}  # of the state before the first document is read
        tasks = list(_tasks(store, draft))
        left_out = [sentence for some in spread(_write_parts, tasks) for sentence in some]
        for name, schema in schemas.items():
            merged = draft / f"{name}.parquet"
            write_table(merged, schema, (parquet_file(_part(draft, name, task.number)).read() for task in tasks))
            replace(merged)
    return store.root / FOLDER, left_out


@dataclass(frozen=True)
class _Task:
    """Some runs of a store, each with whether its row has settings. Their rows become one file of each table in the
    directory `draft`."""

    number: int
    store: Path
    draft: Path
    runs: tuple[tuple[IndexedRun, bool], ...]


def _tasks(store: Store, draft: Path) -> Iterator[_Task]:
    runs = [run for campaign in read_index(store.root) for run in campaign.runs]
    for number, group in enumerate(grouped(runs)):
        yield _Task(number, store.root, draft, group)


def _write_parts(task: _Task) -> list[str]:
    """Writes the files of a task; returns a sentence for each run whose verdict or seconds are left out."""
    left_out: list[str] = []
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _SCHEMAS}
    seconds: list[pa.Table] = []
    for indexed, has_settings in task.runs:
        run = directory_of(task.store, indexed)
        row, verdict = row_of(task.store, indexed, has_settings=has_settings)
        rows["runs"].append(row)
        try:
            if isinstance(verdict, Exception):
                raise verdict
            of_run = {name: storable(list(rows_of(run, verdict))) for name, rows_of in _ROWS.items()}
        except (OSError, ValueError, OverflowError) as error:
            left_out.append(f"{run}: its verdict cannot be read: {error}")
            continue
        for name, some in of_run.items():
            rows[name] += some
        try:
            seconds.append(_seconds(run, row))
        except (OSError, ValueError, pa.ArrowException) as error:
            left_out.append(f"{run / 'tables' / SECONDS_FILE} cannot be read: {str(error).splitlines()[0]}")
    tables = {name: pa.Table.from_pylist(rows[name], schema) for name, schema in _SCHEMAS.items()}
    tables["seconds"] = pa.concat_tables([tables["seconds"], *seconds])
    for name, table in tables.items():
        write_table(_part(task.draft, name, task.number), _SCHEMAS[name], [table])
    return left_out


def _part(draft: Path, name: str, number: int) -> Path:
    return draft / f"{name}-{number}.parquet"


def _key(run: Path, verdict: Verdict) -> dict[str, Any]:
    return {
        "campaign": run.parent.name,
        "run": run.name,
        "evidence": verdict.evidence,
        "analysis": verdict.analysis,
    }


def _checks(run: Path, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for each in verdict.checks:
        row = {"check": each.name, "verdict": each.verdict, "detail": each.detail, "s": each.seconds}
        yield {**_key(run, verdict), **row}


def _faults(run: Path, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for each in verdict.faults:
        texts = {"fault": each.get("id"), "kind": each.get("kind"), "status": each.get("status")}
        named = {name: None if value is None else str(value) for name, value in texts.items()}
        times = {name: _number(each.get(name)) for name in ("start_s", "end_s")}
        yield {**_key(run, verdict), **named, **times, "targets": [str(target) for target in each.get("targets") or ()]}


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _anomalies(run: Path, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for each in verdict.anomalies:
        names = ("promise", "topic", "partition", "count", "sentence")
        yield {**_key(run, verdict), "anomaly": each.name, **{name: getattr(each, name) for name in names}}


_ROWS: Final = {"checks": _checks, "faults": _faults, "anomalies": _anomalies}


def _seconds(run: Path, row: dict[str, Any]) -> pa.Table:
    """The run's seconds, each row with the key of the run's `row`."""
    table = parquet_file(run / "tables" / SECONDS_FILE).read().cast(SECONDS)
    keys = [pa.repeat(pa.scalar(row[name], kind), table.num_rows) for name, kind in KEY]
    return pa.Table.from_arrays([*keys, *table.columns], schema=SECONDS_OF_RUNS)
