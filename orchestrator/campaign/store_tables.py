"""Tables over all runs of a store, for queries: `<store>/.tables/{runs,checks,faults,anomalies,seconds}.parquet`.

Each row has the key of its run: `campaign`, `run`, `evidence` (the digest of the analyzed files) and `analysis` (the
revision of the code). The tables are made from the runs' verdicts and their `tables/seconds.parquet`, never from older
tables, so a damaged or foreign table has no influence. A table is replaced atomically.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.verdict import VERDICT_FILE, Verdict
from history.regular_files import remove, require_regular
from history.seconds import SECONDS, SECONDS_FILE
from orchestrator.campaign.store import Store

if TYPE_CHECKING:
    from orchestrator.campaign.store import RunDirectory

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


def write_tables(store: Store) -> tuple[Path, list[str]]:
    """Writes all tables; returns their directory, and a sentence for each run that is left out or has no seconds.
    Raises OSError."""
    folder = store.root / FOLDER
    folder.mkdir(exist_ok=True)
    known, left_out = _verdicts(store)
    for name, schema, rows in (
        ("runs", RUNS, (_run(*each) for each in known)),
        ("checks", CHECKS, (row for each in known for row in _checks(*each))),
        ("faults", FAULTS, (row for each in known for row in _faults(*each))),
        ("anomalies", ANOMALIES, (row for each in known for row in _anomalies(*each))),
    ):
        _replace(folder / f"{name}.parquet", schema, [pa.Table.from_pylist(list(rows), schema)])
    _replace(folder / SECONDS_FILE, SECONDS_OF_RUNS, _seconds(known, left_out))
    return folder, left_out


_Known = list[tuple["RunDirectory", Verdict]]


def _verdicts(store: Store) -> tuple[_Known, list[str]]:
    known: _Known = []
    left_out: list[str] = []
    for campaign in sorted(store.root.iterdir()):
        if not campaign.is_dir() or campaign.is_symlink():
            continue
        known += _of_campaign(store.runs(campaign), left_out)
    return known, left_out


def _of_campaign(runs: Sequence[RunDirectory], left_out: list[str]) -> _Known:
    known: _Known = []
    for run in runs:
        try:
            known.append((run, Verdict.read(run.path / VERDICT_FILE, any_form=True)))
        except (OSError, ValueError) as error:
            left_out.append(f"{run.path}: its verdict cannot be read: {error}")
    return known


def _replace(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
        if path.is_dir():
            remove(path)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


def _key(run: RunDirectory, verdict: Verdict) -> dict[str, Any]:
    return {
        "campaign": run.path.parent.name,
        "run": run.id,
        "evidence": verdict.evidence,
        "analysis": verdict.analysis,
    }


def _run(run: RunDirectory, verdict: Verdict) -> dict[str, Any]:
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


def _checks(run: RunDirectory, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for each in verdict.checks:
        row = {"check": each.name, "verdict": each.verdict, "detail": each.detail, "s": each.seconds}
        yield {**_key(run, verdict), **row}


def _faults(run: RunDirectory, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for each in verdict.faults:
        texts = {"fault": each.get("id"), "kind": each.get("kind"), "status": each.get("status")}
        named = {name: None if value is None else str(value) for name, value in texts.items()}
        times = {name: _number(each.get(name)) for name in ("start_s", "end_s")}
        yield {**_key(run, verdict), **named, **times, "targets": [str(target) for target in each.get("targets") or ()]}


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _anomalies(run: RunDirectory, verdict: Verdict) -> Iterator[dict[str, Any]]:
    for each in verdict.anomalies:
        names = ("promise", "topic", "partition", "count", "sentence")
        yield {**_key(run, verdict), "anomaly": each.name, **{name: getattr(each, name) for name in names}}


def _seconds(known: _Known, left_out: list[str]) -> Iterator[pa.Table]:
    for run, verdict in known:
        path = run.path / "tables" / SECONDS_FILE
        try:
            table = pq.ParquetFile(require_regular(path)).read().cast(SECONDS)
        except (OSError, ValueError) as error:
            left_out.append(f"{path} cannot be read: {str(error).splitlines()[0]}")
            continue
        keys = [pa.array([text] * table.num_rows, pa.string()) for text in _key(run, verdict).values()]
        yield pa.Table.from_arrays([*keys, *table.columns], schema=SECONDS_OF_RUNS)
