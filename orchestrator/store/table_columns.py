"""The columns of the tables over all runs of a store. The text of a column is in docs/tables.md, too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_origin

import msgspec
import pyarrow as pa
from msgspec.structs import fields

from analysis.run_row import RunRow
from history.columns import schema_of
from history.field_types import Int64
from history.record.operations import OF_ALL_SHAPES
from history.seconds import SecondColumns


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
