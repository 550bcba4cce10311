"""The results of a store for notebooks: its tables as pandas DataFrames, or as DataFrames of a Spark session.

Theory of operation. Tables of runs, checks, faults, anomalies and seconds are made from the runs' files, as `brownout
list --tables` makes them, and nothing is written. Their rows go from this process to Spark, so its workers need not see
the store. Operations may be more than a machine holds, so Spark reads their files itself. It receives paths and never
SQL text; the file that a row comes from identifies its run. Rows that are absent have an entry in `left_out`, and each
table that lacks rows is announced by a warning.
"""

import importlib
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from analysis.engines.spark_errors import cause_of
from history.record.operation_tables import TablesError
from history.record.operations import OF_ALL_SHAPES, SHAPE, files_of_all_shapes, parts_of_all_shapes
from installation import extras
from installation.commands import command
from installation.counted import counted
from installation.sanitize import brief
from orchestrator.errors import UsageError
from orchestrator.store.index import IndexedCampaign, read_campaign, read_index
from orchestrator.store.tables import (
    LEFT_OUT,
    OPERATIONS_OF_RUNS,
    LeftOut,
    RunOfStore,
    as_text,
    read_seconds,
    read_verdicts,
    runs_to_read,
    with_key,
)
from systems.toml_tables import suggestion

Frame: TypeAlias = Any
"""A DataFrame of pandas, with columns of Arrow's types, or of Spark."""
OPERATIONS: Final = "operations"
_OLDEST_SPARK: Final = 4
_FILE: Final = "brownout_file"
_SCHEME: Final = re.compile("^file:/+")
"""Spark writes it with one slash or with three."""
_NO_SKIPPING: Final = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""A session may be configured to skip such files without an error."""
_PATTERN: Final = re.compile(r"([\\{}\[\]*?])")
"""The characters that make a path a pattern for Hadoop, unless they are escaped."""
_NOT_LISTED: Final = ("_", ".")
"""Spark takes files whose names start so for hidden ones."""


class _Frames(Protocol):
    """Makes DataFrames of one kind."""

    def frame(self, table: pa.Table) -> Frame: ...

    def operations(self, runs: Sequence[RunOfStore], columns: Sequence[str]) -> tuple[Frame, list[LeftOut]]:
        """These columns of all operations of the runs, and the runs whose operations cannot be read."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """The results of a store at the time of the call, as DataFrames; docs/tables.md describes the columns. Each use of
    a property makes a new DataFrame."""

    _store: Path
    _tables: dict[str, pa.Table]
    _readable: Sequence[RunOfStore]
    _left_out: dict[LeftOut, None]
    _frames: _Frames

    def __repr__(self) -> str:
        return f"<results of {self._store}: {counted(self._tables['runs'].num_rows, 'run')}>"

    @property
    def runs(self) -> Frame:
        """One row for each run."""
        return self._frame("runs")

    @property
    def checks(self) -> Frame:
        """One row for each check of a run."""
        return self._frame("checks")

    @property
    def faults(self) -> Frame:
        """One row for each fault of a run."""
        return self._frame("faults")

    @property
    def anomalies(self) -> Frame:
        """One row for each anomaly of a run."""
        return self._frame("anomalies")

    @property
    def seconds(self) -> Frame:
        """One row for each second, kind and outcome of operations of a run. The first use reads the runs' files."""
        if "seconds" not in self._tables:
            self._tables["seconds"], left_out = read_seconds(self._readable)
            self._left_out.update(dict.fromkeys(left_out))
        return self._frame("seconds")

    @property
    def left_out(self) -> Frame:
        """The runs whose rows some of the tables that were used so far lack, with the reasons."""
        rows = [
            {
                "campaign": as_text(run.campaign),
                "run": as_text(run.run),
                "tables": run.tables,
                "reason": as_text(run.reason),
            }
            for run in self._left_out
        ]
        return self._frames.frame(pa.Table.from_pylist(rows, LEFT_OUT))

    def operations(self, runs: object = None, columns: Iterable[str] | None = None) -> Frame:
        """One row for each operation of these runs; all operations of a store may be more than memory holds.

        `runs`: the name of a run, as `RUN` or `CAMPAIGN/RUN`, several names, or rows of `runs` (a DataFrame); all runs
        by default. `columns`: their names, in the order of the result; all by default. Raises InputError for unknown
        runs and columns, and if Spark cannot read the files."""
        names = self._columns(columns)
        places = self._places(runs)
        frame, left_out = self._frames.operations(
            [run for run in self._readable if places is None or _place(run) in places], names
        )
        self._left_out.update(dict.fromkeys(left_out))
        self._warn(OPERATIONS, places, stacklevel=3)
        return frame

    def _frame(self, name: str) -> Frame:
        self._warn(name, stacklevel=4)
        return self._frames.frame(self._tables[name])

    def _warn(self, name: str, places: set[tuple[str, str]] | None = None, *, stacklevel: int) -> None:
        """Warns if a table lacks rows of these runs. `stacklevel`: the number of calls from the user's line to here."""
        lacking = [
            run
            for run in self._left_out
            if name in run.tables and (places is None or (as_text(run.campaign), as_text(run.run)) in places)
        ]
        if lacking:
            text = f"{name}: rows are left out; `left_out` has {counted(len(lacking), 'reason')}, the first one: "
            warnings.warn(text + as_text(lacking[0].sentence(self._store)), UserWarning, stacklevel=stacklevel)

    @staticmethod
    def _columns(columns: Iterable[str] | None) -> list[str]:
        known = OPERATIONS_OF_RUNS.names
        if columns is not None and not isinstance(columns, Iterable):
            raise UsageError(f"columns: {columns!r} names no column; give a list of names")
        names = list(dict.fromkeys(known if columns is None else [columns] if isinstance(columns, str) else columns))
        for name in names:
            if name not in known:
                raise UsageError(f"columns: operations have no column {name!r}; {suggestion(str(name), known)}")
        if not names:
            raise UsageError("columns: the list is empty; leave it out for all columns")
        return names

    def _places(self, runs: object) -> set[tuple[str, str]] | None:
        """The campaign and the name of each wanted run; None for all. Raises `UsageError` for an unknown one."""
        if runs is None:
            return None
        table = self._tables["runs"]
        campaigns: dict[str, list[str]] = {}
        for campaign, run in zip(table["campaign"].to_pylist(), table["run"].to_pylist(), strict=True):
            campaigns.setdefault(run, []).append(campaign)
        wanted = set[tuple[str, str]]()
        for name in _names(runs):
            given, _, run = name.rpartition("/")
            places = [campaign for campaign in campaigns.get(run, ()) if given in ("", campaign)]
            if not places:
                hint = brief(suggestion(run, campaigns), 200)
                raise UsageError(f"runs: {self._store} has no run {name!r}; {hint}")
            if len(places) > 1:
                choices = " or ".join(f"{campaign}/{run}" for campaign in places)
                raise UsageError(f"runs: {name!r} is a run of several campaigns; give {choices}")
            wanted.add((places[0], run))
        return wanted


def _place(run: RunOfStore) -> tuple[str, str]:
    return run.key["campaign"], run.key["run"]


def _names(runs: Any) -> list[str]:
    """The names in any form of the argument `runs`. Raises `UsageError` for another form."""
    remedy = "give names of runs, or rows of the table `runs`"
    if isinstance(runs, str):
        return [runs]
    if hasattr(runs, "columns"):
        absent = {"campaign", "run"} - set(runs.columns)
        if absent:
            raise UsageError(f"runs: the DataFrame has no column {' and no column '.join(sorted(absent))}; {remedy}")
        is_of_spark = hasattr(runs, "collect")
        rows = (
            runs.select("campaign", "run").collect() if is_of_spark else zip(runs["campaign"], runs["run"], strict=True)
        )
        return ["/".join(map(str, row)) for row in rows]
    if not isinstance(runs, Iterable):
        raise UsageError(f"runs: {runs!r} names no run; {remedy}")
    names = list(runs)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"runs: {name!r} names no run; {remedy}")
    return names


def read_results(store: str | os.PathLike[str], spark: Any = None) -> Results:
    """The results of the store. Raises `UsageError` for a directory without campaigns, a `spark` that is not
    a usable session, and without pandas if it is needed."""
    frames = _PandasFrames() if spark is None else _SparkFrames(spark)
    path = Path(store).absolute()
    try:
        campaigns = read_index(path)
        if not campaigns:
            raise UsageError(_no_store(path))
    except (OSError, ValueError) as error:  # ValueError: a path with a character of code 0
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{getattr(error, 'filename', None) or path}: {reason}; give the directory of runs, usually ./store"
        ) from error
    stored = read_verdicts(path, runs_to_read(campaigns))
    left_out = dict.fromkeys([*_undecided(campaigns), *stored.left_out])
    return Results(path, dict(stored.tables), stored.readable, left_out, frames)


def _no_store(path: Path) -> str:
    if any(read_campaign(path)) or (path / "run.toml").exists():
        whole = path.parent if any(read_campaign(path)) else path.resolve().parent.parent
        return f"{path} is a part of a store; give the store: {whole}"
    return f"{path} has no campaign; give the directory of runs, usually ./store, or make runs with `brownout run`"


def _undecided(campaigns: Iterable[IndexedCampaign]) -> list[LeftOut]:
    """Campaigns without a readable decision: their plan is unknown here, so planned runs may be missing."""
    return [
        LeftOut(campaign.name, "", ("runs",), f"planned runs may be missing: {campaign.reason}")
        for campaign in campaigns
        if not any(run.counts for run in campaign.runs)
    ]


def _without_operations(run: RunOfStore, reason: object) -> LeftOut:
    remedy = command("analyze", str(run.directory))
    return run.left_out(OPERATIONS, f"{reason}; make its tables again with: {remedy}")


class _PandasFrames:
    """Makes DataFrames of pandas with columns of Arrow's types. Raises `UsageError` without pandas."""

    def __init__(self) -> None:
        try:
            self._pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            raise UsageError(extras.what_is_missing(extras.SPARK, "a table as a pandas DataFrame")) from error

    def frame(self, table: pa.Table) -> Frame:
        return table.to_pandas(types_mapper=self._pandas.ArrowDtype)

    def operations(self, runs: Sequence[RunOfStore], columns: Sequence[str]) -> tuple[Frame, list[LeftOut]]:
        parts = [OPERATIONS_OF_RUNS.empty_table()]
        left_out: list[LeftOut] = []
        stored = [name for name in columns if name in OF_ALL_SHAPES.names] or [SHAPE]
        for run in runs:
            key = {name: text for name, text in run.key.items() if name in columns}
            try:
                parts += [with_key(part, key) for part in parts_of_all_shapes(run.directory / "tables", stored)]
            except TablesError as error:
                left_out.append(_without_operations(run, error))
        table = pa.concat_tables([part.select(columns) for part in parts])
        return self.frame(table), left_out


class _SparkFrames:
    """Makes DataFrames of a session. Raises `UsageError` for another object, or an older Spark."""

    def __init__(self, session: Any) -> None:
        if not hasattr(session, "createDataFrame") or not hasattr(session, "read"):
            raise UsageError(f"spark: {session!r} is not a session; give SparkSession.builder.getOrCreate()")
        self._session = session
        try:
            self._schema = self.frame(OPERATIONS_OF_RUNS.empty_table()).schema
        except Exception as error:  # Spark 3 takes no table of Arrow
            raise UsageError(
                f"spark: the session makes no DataFrame of a table: {cause_of(error)}; give a running session of "
                f"Spark {_OLDEST_SPARK}"
            ) from error

    def frame(self, table: pa.Table) -> Frame:
        return self._session.createDataFrame(table)

    def operations(self, runs: Sequence[RunOfStore], columns: Sequence[str]) -> tuple[Frame, list[LeftOut]]:
        files: dict[str, Mapping[str, str]] = {}
        left_out: list[LeftOut] = []
        for run in runs:
            try:
                shapes = files_of_all_shapes(run.directory / "tables")
                _require_readable(shapes)
            except TablesError as error:
                left_out.append(_without_operations(run, error))
                continue
            files |= {str(path): {**run.key, SHAPE: shape.name} for path, shape in shapes.items()}
        if not files:
            return self.frame(OPERATIONS_OF_RUNS.empty_table()).select(*columns), left_out
        return self._rows_of(files).select(*columns), left_out

    def _rows_of(self, files: Mapping[str, Mapping[str, str]]) -> Frame:
        """The rows of files, each with the columns that `files` has for its path. Raises `UsageError` if the workers
        cannot read them."""
        first = next(iter(files))
        schema = type(self._schema)([column for column in self._schema if column.name not in files[first]])
        try:
            reader = self._session.read.schema(schema).options(**_NO_SKIPPING)
            rows = reader.parquet(*map(_uri, files))
            paths = {uri: unquote(urlsplit(uri).path) for uri in rows.inputFiles()}
            keys = [{_FILE: _SCHEME.sub("/", uri), **files[path]} for uri, path in paths.items() if path in files]
            key_frame = self.frame(pa.Table.from_pylist(keys)).hint("broadcast")
            file = f"regexp_replace(_metadata.file_path, '{_SCHEME.pattern}', '/') AS {_FILE}"
            joined = rows.selectExpr("*", file).join(key_frame, _FILE, "left")
            is_read = [row[SHAPE] for row in joined.select(SHAPE).head(1)] != [None]
        except Exception as error:
            master = self._session.conf.get("spark.master", "")
            raise UsageError(
                f"spark: the workers of {master} cannot read {first}: {cause_of(error, master)}; keep the store on a "
                "file system that all workers have mounted at the same path as this machine"
            ) from error
        if not is_read or set(paths.values()) != files.keys():
            raise UsageError(f"spark: it has other files than {first} and the like; move the store to a plainer path")
        return joined


def _uri(path: str) -> str:
    """The path for Spark, whose default file system may be another."""
    return "file://" + _PATTERN.sub(r"\\\1", path)


def _require_readable(paths: Iterable[Path]) -> None:
    """Raises TablesError for a file that Spark would not list."""
    for path in paths:
        if path.name.startswith(_NOT_LISTED):
            raise TablesError(f"Spark reads no file whose name starts with {path.name[0]!r}: {path.name}")
        if ":" in str(path) and _PATTERN.search(str(path)):
            raise TablesError(f"Spark reads no path with a colon beside characters of a pattern (HADOOP-3257): {path}")
