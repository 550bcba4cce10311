"""Tables over all runs of a store, for queries: `<store>/.tables/{runs,checks,faults,anomalies,seconds}.parquet`.

Each row has the key of its run: `campaign`, `run`, `evidence` (the digest of the analyzed files) and `analysis` (the
revision of the code). The tables are made from the runs' verdicts and their `tables/seconds.parquet`, never from older
tables, so a damaged or foreign table has no influence. A table is replaced atomically.

Theory of operation. A task writes the rows of 256 runs into files of its own, one for each table, and sends only
sentences back. The driver merges these files, one after another, in the order of the runs. So memory is bounded by a
task's rows, and tables that Spark wrote are byte for byte those of a single process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.engines.task_map import TaskMap, in_sequence
from analysis.verdict import VERDICT_FILE, Verdict
from history.regular_files import read_bytes, remove
from history.seconds import SECONDS, SECONDS_FILE
from orchestrator.campaign.store import Store, locked

FOLDER: Final = ".tables"
_KEY: Final = [(name, pa.string()) for name in ("campaign", "run", "evidence", "analysis")]
_TEXTS: Final = pa.list_(pa.string())


def _schema(*fields: tuple[str, Any]) -> pa.Schema:
    return pa.schema([*_KEY, *fields])


RUNS: Final = _schema(
    ("cell", pa.string()), ("seed", pa.int64()), ("world", pa.string()), ("verdict", pa.string()), ("met", pa.bool_()),
    ("finished", pa.bool_()), ("expected", pa.string()), ("mutants", _TEXTS), ("reasons", _TEXTS), ("codes", _TEXTS),
    ("acknowledged", pa.int64()), ("stats", pa.string()), ("versions", pa.string()),
)  # fmt: skip
CHECKS: Final = _schema(("check", pa.string()), ("verdict", pa.string()), ("detail", pa.string()), ("s", pa.float64()))
FAULTS: Final = _schema(
    ("fault", pa.string()), ("kind", pa.string()), ("targets", _TEXTS), ("status", pa.string()),
    ("start_s", pa.float64()), ("end_s", pa.float64()),
)  # fmt: skip
ANOMALIES: Final = _schema(
    ("anomaly", pa.string()), ("promise", pa.string()), ("topic", pa.string()), ("partition", pa.int64()),
    ("count", pa.int64()), ("sentence", pa.string()),
)  # fmt: skip
SECONDS_OF_RUNS: Final = pa.schema([*_schema(), *SECONDS])


RUNS_PER_TASK: Final = 256
_DRAFT: Final = ".draft"
_SCHEMAS: Final = {
    "runs": RUNS,
    "checks": CHECKS,
    "faults": FAULTS,
    "anomalies": ANOMALIES,
    "seconds": SECONDS_OF_RUNS,
}


def write_tables(store: Store, spread: TaskMap = in_sequence) -> tuple[Path, list[str]]:
    """Writes all tables; returns their directory, and a sentence for each run that is left out or has no seconds.

    `spread`: this process or Spark, whose workers see the store at the same path; the files are equal. Raises OSError;
    `UsageError` when another process writes them; RuntimeError when a task on Spark fails.
    """
    folder = store.root / FOLDER
    folder.mkdir(exist_ok=True)
    with locked(os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), f"{folder}: writing tables"):
        draft = folder / _DRAFT
        remove(draft)  # of a process that was killed
        draft.mkdir()
        try:
            tasks = list(_tasks(store, draft))
            left_out = [sentence for some in spread(_write_parts, tasks) for sentence in some]
            for name, schema in _SCHEMAS.items():
                merged = draft / f"{name}.parquet"
                _write(merged, schema, (_read(_part(draft, name, task.number)) for task in tasks))
                target = folder / merged.name
                if target.is_dir():
                    remove(target)
                merged.rename(target)
        finally:
            remove(draft)
    return folder, left_out


@dataclass(frozen=True)
class _Task:
    """Some runs, whose rows become one file of each table in the directory `draft`."""

    number: int
    draft: Path
    runs: tuple[Path, ...]


def _tasks(store: Store, draft: Path) -> Iterator[_Task]:
    runs = [run.path for campaign in sorted(store.root.iterdir()) if _is_own(campaign) for run in store.runs(campaign)]
    for number, start in enumerate(range(0, len(runs), RUNS_PER_TASK)):
        yield _Task(number, draft, tuple(runs[start : start + RUNS_PER_TASK]))


def _is_own(campaign: Path) -> bool:
    return campaign.is_dir() and not campaign.is_symlink()


def _write_parts(task: _Task) -> list[str]:
    """Writes the files of a task; returns a sentence for each run that is left out or has no seconds."""
    left_out: list[str] = []
    tables: dict[str, list[pa.Table]] = {name: [] for name in _SCHEMAS}
    for run in task.runs:
        try:
            rows = _rows(run, Verdict.read(run / VERDICT_FILE, any_form=True))
        except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
            left_out.append(f"{run}: its verdict cannot be read: {error}")
            continue
        try:
            rows["seconds"] = _seconds(run, rows["runs"])
        except (OSError, ValueError, pa.ArrowException) as error:
            left_out.append(f"{run / 'tables' / SECONDS_FILE} cannot be read: {str(error).splitlines()[0]}")
        for name, table in rows.items():
            tables[name].append(table)
    for name, schema in _SCHEMAS.items():
        _write(_part(task.draft, name, task.number), schema, [pa.concat_tables([schema.empty_table(), *tables[name]])])
    return left_out


def _part(draft: Path, name: str, number: int) -> Path:
    return draft / f"{name}-{number}.parquet"


def _write(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    with open(path, "wb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


def _read(path: Path) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(read_bytes(path))).read()  # Arrow opens only names in UTF-8


def _rows(run: Path, verdict: Verdict) -> dict[str, pa.Table]:
    return {
        name: pa.Table.from_pylist([_in_utf8(row) for row in rows], _SCHEMAS[name])
        for name, rows in (
            ("runs", [_run(run, verdict)]),
            ("checks", _checks(run, verdict)),
            ("faults", _faults(run, verdict)),
            ("anomalies", _anomalies(run, verdict)),
        )
    }


def _in_utf8(value: Any) -> Any:
    """The value with escapes in place of bytes of file names, and of halves of surrogate pairs, that have no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_in_utf8(each) for each in value]
    return {name: _in_utf8(each) for name, each in value.items()} if isinstance(value, dict) else value


def _key(run: Path, verdict: Verdict) -> dict[str, Any]:
    return {
        "campaign": run.parent.name,
        "run": run.name,
        "evidence": verdict.evidence,
        "analysis": verdict.analysis,
    }


def _run(run: Path, verdict: Verdict) -> dict[str, Any]:
    acknowledged = verdict.stats.get("acknowledged")
    return {
        **_key(run, verdict),
        **{name: getattr(verdict, name) for name in ("cell", "seed", "world", "verdict", "met", "finished")},
        **{name: list(getattr(verdict, name)) for name in ("mutants", "reasons", "codes")},
        "expected": str(verdict.expected),
        "acknowledged": acknowledged if type(acknowledged) is int else None,
        "stats": json.dumps(verdict.stats),
        "versions": json.dumps(dict(verdict.versions)),
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


def _seconds(run: Path, described: pa.Table) -> pa.Table:
    """The run's seconds, each row with the run's key."""
    table = _read(run / "tables" / SECONDS_FILE).cast(SECONDS)
    keys = [pa.repeat(described[name][0], table.num_rows) for name, _ in _KEY]
    return pa.Table.from_arrays([*keys, *table.columns], schema=SECONDS_OF_RUNS)
