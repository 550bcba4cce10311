"""Verifies a certificate: its linearization explains the recorded history. Shares no code with the checker.

A linearization gives each append that happened an offset and a time `at`. It explains a history under these conditions.
Per partition, the offsets are 0, 1, 2, ... and `at` never decreases. Each entry is an append of the history that was
not refused, at a time within its interval. Each durable acknowledged append is in it, at its offset. Each read returned
exactly the entries at its offsets. Each query has a time in its own interval at which the log had the length that the
query reported: between `at` of the last record it showed and `at` of the first record it showed to be absent.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history import strict_json
from history.operation_digest import digest_of_operations
from history.regular_files import read_bytes
from history.schemas import ACKS_ALL, APPEND, FAIL, INF, OK

Columns = dict[str, Any]


class CertificateError(Exception):
    """The certificate does not prove its claim; the message names the first error."""


STRENGTH: Final = ("lower-bound-only", "session", "strict")
"""What a certificate may prove, from the weakest to the strongest."""

FIELDS: Final = frozenset({"format", "upper_bound", "operations", "history", "lengths", "sha256"})
ENTRIES: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("at", pa.int64()),
    ]
)
KEY: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32())])


def verify(directory: Path | str, operations: pa.Table, *, upper_bound: str = "strict") -> str:
    """Returns a sentence with what `directory` proves about `operations`, or raises CertificateError.

    `upper_bound`: the weakest acceptable claim.
    """
    claim, entries = _read(Path(directory))
    _demand(claim["operations"] == operations.num_rows, "it was made for a history with another number of operations")
    _demand(claim["history"] == digest_of_operations(operations), "it was made for another history")
    proven = claim["upper_bound"]
    _demand(proven in STRENGTH, "its upper bound has no meaning")
    _demand(
        STRENGTH.index(proven) >= STRENGTH.index(upper_bound), f"it proves {proven} bounds only, not {upper_bound} ones"
    )
    lengths = {}
    keys = pa.concat_tables([each.select(["topic", "partition"]).cast(KEY) for each in (operations, entries)])
    for key in keys.group_by(["topic", "partition"]).aggregate([]).to_pylist():
        here = (pc.field("topic") == key["topic"]) & (pc.field("partition") == key["partition"])
        where = f"{key['topic']}-{key['partition']}"
        log = _columns(entries.filter(here))
        lengths[where] = len(log["offset"])
        _verify_partition(where, log, operations.filter(here), proven)
    _demand(claim["lengths"] == lengths, "the partitions and lengths that it states are not those that it holds")
    return f"{operations.num_rows} operations are linearizable ({proven}): {entries.num_rows} records in order"


def _read(directory: Path) -> tuple[dict[str, Any], pa.Table]:
    """The claim and the entries, in a strict form that leaves no room for hidden content."""
    data = directory / "linearization.parquet"
    try:
        claim = strict_json.decode(read_bytes(directory / "certificate.json"))
        _demand(isinstance(claim, dict) and claim.keys() == FIELDS, "its fields are not those of a certificate")
        _demand(claim["format"] == 2, "its format is unknown to this verifier")
        content = read_bytes(data)
        _demand(claim["sha256"] == hashlib.sha256(content).hexdigest(), f"{data} is not the file it was made for")
        entries = pq.read_table(pa.BufferReader(content))
        _demand(entries.column_names == ENTRIES.names, "its columns are not those of a linearization")
        entries = entries.cast(ENTRIES)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{directory}: cannot be read: {error}") from error
    _demand(all(not column.null_count for column in entries.columns), "an entry lacks a field")
    return claim, entries


def _demand(holds: Any, otherwise: str) -> None:
    if not np.all(holds):
        raise CertificateError(otherwise)


def _columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy() for name in table.column_names if pa.types.is_integer(table[name].type)}


def _verify_partition(where: str, log: Columns, operations: pa.Table, upper_bound: str) -> None:
    _demand(log["offset"] == np.arange(len(log["offset"])), f"{where}: its offsets are not 0, 1, 2, ...")
    _demand(np.diff(log["at"]) >= 0, f"{where}: its moments go back")
    ordered = np.sort(log["value"], kind="stable")
    _demand(ordered[1:] > ordered[:-1], f"{where}: it holds a value twice")
    _verify_appends(where, log, _columns(operations.filter(pc.field("f") == APPEND)))
    answered = operations.filter((pc.field("f") != APPEND) & (pc.field("type") == OK))
    queries = _columns(answered)
    queries["lo"] = np.maximum(queries["lo"], _verify_reads(where, log, queries["offset"], answered))
    final = pc.equal(answered["phase"], "final").to_numpy()
    _verify_bounds(where, log, queries, (queries["hi"] >= 0) & (final | (upper_bound == "strict")))
    if upper_bound != "lower-bound-only":
        _demand((queries["hi"] < 0) | (queries["lo"] <= queries["hi"]), f"{where}: a query contradicts itself")
    if upper_bound == "session":
        appends = operations.filter(
            (pc.field("f") == APPEND) & (pc.field("type") == OK) & (pc.field("acks") == ACKS_ALL)
        )
        _verify_sessions(where, _columns(appends), queries, final)


def _verify_appends(where: str, log: Columns, appends: Columns) -> None:
    possible = np.flatnonzero(appends["type"] != FAIL)
    possible = possible[np.argsort(appends["value"][possible], kind="stable")]
    values = appends["value"][possible]
    _demand(values[1:] > values[:-1], f"{where}: a value was appended twice")
    _demand(np.isin(log["value"], values), f"{where}: it holds a value that was not appended")
    entry = possible[np.searchsorted(values, log["value"])]
    _demand(appends["inv"][entry] <= log["at"], f"{where}: an append takes effect before its invocation")
    durable = (appends["type"] == OK) & (appends["acks"] == ACKS_ALL)
    _demand(~durable[entry] | (log["at"] <= appends["ret"][entry]), f"{where}: an append takes effect after its return")
    told = durable[entry] & (appends["offset"][entry] >= 0)
    _demand(~told | (appends["offset"][entry] == log["offset"]), f"{where}: an append is not where it was acknowledged")
    _demand(np.isin(appends["value"][durable], log["value"]), f"{where}: an acknowledged append is missing")


def _verify_reads(where: str, log: Columns, start: Any, answered: pa.Table) -> Any:
    """Returns the length that each query's records show."""
    counts = pc.list_value_length(answered["values"]).to_numpy()
    offsets, values = (pc.list_flatten(answered[name]).to_numpy() for name in ("offsets", "values"))
    expected = np.repeat(start - (np.cumsum(counts) - counts), counts) + np.arange(len(offsets))
    _demand(offsets == expected, f"{where}: a read is not contiguous")
    _demand(offsets >= 0, f"{where}: a read shows a record before the first")
    _demand(offsets < len(log["value"]), f"{where}: a read shows a record past its end")
    _demand(log["value"][offsets] == values, f"{where}: a read shows another record")
    return np.where(counts > 0, start + counts, -1)


def _verify_bounds(where: str, log: Columns, queries: Columns, capped: Any) -> None:
    n = len(log["at"])
    _demand(queries["lo"] <= n, f"{where}: a query shows more records than there are")
    _demand(~capped | (queries["lo"] <= queries["hi"]), f"{where}: a query contradicts itself")
    at = np.concatenate(([-INF], log["at"], [INF]))  # at[i + 1] is the moment of offset i
    earliest = np.maximum(queries["inv"], at[np.maximum(queries["lo"], 0)])
    latest = np.minimum(queries["ret"], np.where(capped, at[np.clip(queries["hi"], 0, n) + 1], INF))
    _demand(earliest <= latest, f"{where}: a query saw a length that the log did not have while it ran")


def _verify_sessions(where: str, written: Columns, queries: Columns, final: Any) -> None:
    """A client must not be shown, within one session, a log shorter than it was shown or than its own acknowledged
    writes.

    `queries`: their `lo` is raised to what their records show; `written`: acknowledged appends.
    """
    names = ("process", "session", "ret")
    known = {name: np.concatenate((written[name], queries[name])) for name in names}
    shown = np.concatenate((written["offset"] + 1, queries["lo"]))
    capped = ~final & (queries["hi"] >= 0)
    pairs = np.stack((queries["process"][capped], queries["session"][capped]), axis=1)
    for process, session in np.unique(pairs, axis=0).tolist():
        before = np.flatnonzero((known["process"] == process) & (known["session"] == session))
        before = before[np.argsort(known["ret"][before])]
        most = np.concatenate(([-1], np.maximum.accumulate(shown[before])))
        after = np.flatnonzero(capped & (queries["process"] == process) & (queries["session"] == session))
        least = most[np.searchsorted(known["ret"][before], queries["inv"][after])]
        _demand(queries["hi"][after] >= least, f"{where}: a client was shown a shorter log than before")
