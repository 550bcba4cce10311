"""The table of a store's runs, `<store>/.tables/runs.parquet`, from which trends and comparisons read.

A row repeats the decision about its run as `brownout list` shows it, and what the run's verdict.json says. The first
run of each cell that counts also has the settings in its run.toml; all runs of a cell would take a minute to read.

Theory of operation. The file's metadata has a stamp of the store: the digests of the summaries, and names, sizes and
times of the other documents that the rows are made from. Paths are relative, so `cp -a` and a move keep the stamp.
While the store has this stamp, the rows are read from the table. Otherwise, as in a copy without times, the same rows
are made from the documents again, and the table is replaced where that is possible. The content of an older table is
never used. Its pages have checksums, and each row is validated.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.verdict import VERDICT_FILE, Verdict
from history import strict_json, strict_toml
from history.known_digests import digest_of
from history.regular_files import read_bytes, read_text, remove
from orchestrator.campaign.store import locked
from orchestrator.campaign.store_index import (
    SUMMARY,
    IndexedRun,
    campaign_directories,
    names_of_directories,
    read_index,
)
from orchestrator.errors import UsageError

FOLDER: Final = ".tables"
RUNS_FILE: Final = "runs.parquet"
RUNS_PER_GROUP: Final = 256
"""The runs whose rows are written together."""

KEY: Final = [(name, pa.string()) for name in ("campaign", "run", "evidence", "analysis")]
TEXTS: Final = pa.list_(pa.string())
_OF_DECISION: Final = [
    ("counts", pa.bool_()), ("made", pa.string()), ("cell", pa.string()), ("seed", pa.int64()), ("world", pa.string()),
    ("time_scale", pa.float64()), ("system", pa.string()), ("verdict", pa.string()), ("expected", pa.string()),
    ("met", pa.bool_()), ("reasons", TEXTS), ("anomalies", TEXTS), ("mutants", TEXTS), ("faults", pa.int64()),
    ("faults_confirmed", pa.int64()), ("acknowledged", pa.int64()), ("started", pa.string()),
    ("duration_s", pa.float64()), ("stats", pa.string()), ("versions", pa.string()), ("settings", pa.string()),
    ("settings_unread", pa.string()),
]  # fmt: skip
_STORED_COLUMNS: Final = [
    ("stored_verdict", pa.string()), ("stored_met", pa.bool_()), ("stored_reasons", TEXTS), ("finished", pa.bool_()),
    ("codes", TEXTS),
]  # fmt: skip
RUNS: Final = pa.schema([*KEY, *_OF_DECISION, *_STORED_COLUMNS])

_STAMP: Final = b"brownout.store"
_FORM: Final = "2 "
"""The start of each stamp: the meaning of the columns; a table of another form is made again."""
_MANY: Final = 5_000
_DRAFT: Final = ".draft"
_DESCRIPTION: Final = "run.toml"
_OF_ONE_RUN: Final = frozenset(
    ("run", "invocation", "seed", "started", "replay", "versions", "limits", "campaign", "cell", "world_reason")
)
"""Keys of run.toml that differ between any two runs, or that another part of a comparison shows."""
_MAPPINGS: Final = {"stats": dict[str, float], "versions": dict[str, str]}
_INT64: Final = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class TableOfRuns:
    """The rows, without the pages of their runs. `settings`: by campaign and cell, the keys and values of run.toml.
    `unread`: by campaign and cell, why run.toml cannot be read."""

    runs: tuple[IndexedRun, ...]
    settings: Mapping[tuple[str, str], Mapping[str, Any]]
    unread: Mapping[tuple[str, str], str]


def read_runs(store: Path, notify: Callable[[str], None]) -> TableOfRuns:
    """The runs of a store: from its table if that is current, else made again, with the table.

    `notify` gets a sentence before many runs are read. Raises `OSError` when the store's directory cannot be listed.
    """
    path, stamp = store / FOLDER / RUNS_FILE, stamp_of(store)
    with contextlib.suppress(OSError, ValueError):
        return read_table(path, stamp)
    indexed = [run for campaign in read_index(store) for run in campaign.runs]
    if not indexed:  # a table of runs that were removed stays
        return runs_of(store, indexed)
    if len(indexed) >= _MANY:
        notify(f"{path} is not current: it is made from {len(indexed):,} runs")
    try:
        with drafting(store) as draft:
            groups = [[row_of(store, run, has_settings=each)[0] for run, each in group] for group in grouped(indexed)]
            write_table(draft / RUNS_FILE, stamped(stamp), (pa.Table.from_pylist(rows, RUNS) for rows in groups))
            replace(draft / RUNS_FILE)
        return _parsed([row for rows in groups for row in rows])
    except (OSError, UsageError):  # the store is not writable, the disk is full, or another process writes the tables
        return runs_of(store, indexed)


def runs_of(store: Path, indexed: Sequence[IndexedRun]) -> TableOfRuns:
    """The rows that the table would have for these runs of a store; nothing is written."""
    marked = [each for group in grouped(indexed) for each in group]
    return _parsed(_decision(store, run, has_settings=has_settings) for run, has_settings in marked)


def read_table(path: Path, stamp: str | None = None) -> TableOfRuns:
    """The rows of a table. Raises `OSError` and `ValueError` for a table that is damaged, of another form, or, with
    `stamp`, not of this state of its store."""
    try:
        return _content(parquet_file(path), stamp)
    except pa.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from error


def _content(file: pq.ParquetFile, stamp: str | None) -> TableOfRuns:
    written = (file.schema_arrow.metadata or {}).get(_STAMP, b"").decode("ascii", "replace")
    if not file.schema_arrow.equals(RUNS) or not written.startswith(_FORM):
        raise ValueError("its columns are not those of this version")
    if stamp not in (None, written):
        raise ValueError("the store has changed since")
    return _parsed(file.read([name for name, _ in (*KEY[:2], *_OF_DECISION)]).to_pylist())


def stamp_of(store: Path) -> str:
    """The state of the documents that the rows are made from. Raises `OSError` when a directory cannot be listed."""
    digest = hashlib.sha256()
    for campaign in campaign_directories(store):
        summary = f"{campaign}/{SUMMARY}"
        with contextlib.suppress(OSError):
            digest.update(digest_of(summary).encode("ascii"))
        digest.update(_line(campaign.name, f"{campaign}/{_DESCRIPTION}"))
        for run in names_of_directories(campaign):
            path = f"{campaign}/{run}"  # objects of paths would take half of the time
            digest.update(_line(f"{campaign.name}/{run}", f"{path}/{VERDICT_FILE}", f"{path}/{_DESCRIPTION}"))
    return _FORM + digest.hexdigest()


def _line(name: str, *files: str) -> bytes:
    states: list[tuple[int, int] | None] = []
    for file in files:
        try:
            state = os.stat(file)
        except OSError:
            states.append(None)
        else:
            states.append((state.st_mtime_ns, state.st_size))
    return f"{name!a} {states}\n".encode("ascii")


@contextlib.contextmanager
def drafting(store: Path) -> Iterator[Path]:
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


def replace(draft: Path) -> None:
    """Make the draft of a table the table, atomically. Raises `OSError`."""
    target = draft.parent.parent / draft.name
    if target.is_dir():
        remove(target)
    draft.rename(target)


def stamped(stamp: str) -> pa.Schema:
    """The schema of a table of the store's runs in this state."""
    return RUNS.with_metadata({_STAMP: stamp.encode("ascii")})


def write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a table with checksums. Raises `OSError`."""
    with (
        open(path, "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in tables:
            writer.write_table(table)


def parquet_file(path: Path) -> pq.ParquetFile:
    """A table that verifies its checksums when it is read. Raises `OSError` and `ArrowException`."""
    # Arrow opens only names in UTF-8.
    return pq.ParquetFile(pa.BufferReader(read_bytes(path)), page_checksum_verification=True)


def grouped(runs: Sequence[IndexedRun]) -> Iterator[tuple[tuple[IndexedRun, bool], ...]]:
    """The runs in groups of `RUNS_PER_GROUP`; each with whether its row has settings."""
    known, marked = set[tuple[str, str]](), list[tuple[IndexedRun, bool]]()
    for run in runs:
        cell = (run.campaign, run.summary.cell)
        marked.append((run, run.counts and cell not in known))
        known |= {cell} if run.counts else set()
    for start in range(0, len(marked), RUNS_PER_GROUP):
        yield tuple(marked[start : start + RUNS_PER_GROUP])


def directory_of(store: Path, run: IndexedRun) -> Path:
    """The directory of a run."""
    return store / run.campaign / run.summary.run


def row_of(store: Path, run: IndexedRun, *, has_settings: bool) -> tuple[dict[str, Any], Verdict | Exception]:
    """The row of a run and its stored verdict, or why that cannot be read."""
    row = _decision(store, run, has_settings=has_settings)
    try:
        verdict = Verdict.read(directory_of(store, run) / VERDICT_FILE, any_form=True)
        return row | storable(_stored(verdict)), verdict
    except (OSError, ValueError) as error:
        return row, error


def storable(value: Any) -> Any:
    """The value with escapes in place of bytes of file names, and of halves of surrogate pairs, that have no UTF-8.
    Raises `OverflowError` for an integer of more than 64 bits."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [storable(each) for each in value]
    if isinstance(value, int) and value not in _INT64:
        raise OverflowError("it has a number of more than 64 bits")
    return {name: storable(each) for name, each in value.items()} if isinstance(value, dict) else value


def _decision(store: Path, run: IndexedRun, *, has_settings: bool) -> dict[str, Any]:
    found = run.summary
    copied = (
        "run", "cell", "seed", "world", "system", "verdict", "expected", "met", "faults", "faults_confirmed",
        "acknowledged", "started", "duration_s", "time_scale",
    )  # fmt: skip
    row = {
        "campaign": run.campaign,
        "counts": run.counts,
        "made": run.made,
        **{name: getattr(found, name) for name in copied},
        **{name: list(getattr(found, name)) for name in ("reasons", "anomalies", "mutants")},
        **{name: json.dumps(dict(getattr(found, name))) for name in _MAPPINGS},
        **(_settings(directory_of(store, run) / _DESCRIPTION) if has_settings else {}),
    }
    return {name: storable(value) for name, value in row.items()}


def _settings(path: Path) -> dict[str, str]:
    try:
        return {"settings": json.dumps(dict(_flat(strict_toml.decode(read_text(path)))), default=str, allow_nan=False)}
    except (OSError, ValueError) as error:
        return {"settings_unread": str(error)}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if not prefix and key in _OF_ONE_RUN:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _stored(verdict: Verdict) -> dict[str, Any]:
    return {
        "evidence": verdict.evidence,
        "analysis": verdict.analysis,
        "stored_verdict": verdict.verdict,
        "stored_met": verdict.met,
        "stored_reasons": list(verdict.reasons),
        "finished": verdict.finished,
        "codes": list(verdict.codes),
    }


def _parsed(rows: Iterable[Mapping[str, Any]]) -> TableOfRuns:
    """Raises `ValueError` for a row that lacks a value."""
    runs = list[IndexedRun]()
    settings, unread = dict[tuple[str, str], Mapping[str, Any]](), dict[tuple[str, str], str]()
    for row in rows:
        mappings = {name: msgspec.json.decode(row[name] or "", type=kind) for name, kind in _MAPPINGS.items()}
        summary = {**row, **mappings}
        run = msgspec.convert({**row, "summary": summary, "report": ""}, IndexedRun)
        runs.append(run)
        cell = (run.campaign, run.summary.cell)
        if row.get("settings") is not None:
            settings[cell] = msgspec.convert(strict_json.decode(row["settings"]), dict[str, Any])
        elif row.get("settings_unread") is not None:
            unread[cell] = row["settings_unread"]
    return TableOfRuns(tuple(runs), settings, unread)
