"""Verifies a certificate of registers: its order explains the recorded history. Shares no code with the checker.

An order explains a history under these conditions. For each key, each entry is an operation of that key, at most once,
at a moment within its interval. Moments never decrease. Each entry is legal in its place, starting from an absent key.
Every operation that happened, and every reported mismatch, is in the order. A refused operation is not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.verifiers.log import CertificateError
from history import strict_json
from history.operation_digest import digest_of_registers
from history.regular_files import read_bytes
from history.schemas import CAS, FAIL, MISMATCH, OK, READ

FIELDS: Final = frozenset({"format", "operations", "history", "sha256"})
ENTRIES: Final = pa.schema([("key", pa.string()), ("id", pa.int64()), ("at", pa.int64())])


def verify_registers(directory: Path | str, registers: pa.Table) -> str:
    """Returns what `directory` proves of `registers` in a sentence, or raises CertificateError."""
    claim, entries = _read(Path(directory))
    _demand(claim["operations"] == registers.num_rows, "it was made for a history with another number of operations")
    _demand(claim["history"] == digest_of_registers(registers), "it was made for another history")
    left = {row["id"]: row for row in registers.to_pylist()}
    _demand(len(left) == registers.num_rows, "two operations of the history have one id")
    states: dict[str, tuple[int, int | None]] = {}
    for entry in entries.to_pylist():
        key, at = entry["key"], entry["at"]
        row = left.pop(entry["id"], None)
        _demand(row is not None and row["key"] == key, f"{key}: operation {entry['id']} is missing, or there twice")
        before, held = states.get(key, (-1, None))
        _demand(before <= at, f"{key}: its moments go back at operation {entry['id']}")
        states[key] = at, _state_after(held, row or {}, at)
    for row in left.values():
        _demand(not _must_be_there(row), f"{row['key']}: operation {row['id']} happened and is left out")
    return f"{registers.num_rows} operations on {len(set(registers['key'].to_pylist()))} registers are linearizable"


def _read(directory: Path) -> tuple[dict[str, Any], pa.Table]:
    """The claim and the entries, in a strict form that leaves no room for hidden content."""
    data = directory / "registers.parquet"
    try:
        claim = strict_json.decode(read_bytes(directory / "registers.json"))
        _demand(isinstance(claim, dict) and claim.keys() == FIELDS, "its fields are not those of a certificate")
        _demand(claim["format"] == 2, "its format is unknown to this verifier")
        content = read_bytes(data)
        _demand(claim["sha256"] == hashlib.sha256(content).hexdigest(), f"{data} is not the file it is for")
        entries = pq.read_table(pa.BufferReader(content))
        _demand(entries.column_names == ENTRIES.names, "its columns are not those of an order")
        entries = entries.cast(ENTRIES)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{directory}: cannot be read: {error}") from error
    _demand(not any(column.null_count for column in entries.columns), "an entry lacks a field")
    return claim, entries


def _must_be_there(row: dict[str, Any]) -> bool:
    return bool(row["type"] == OK or (row["type"] == FAIL and row["f"] == CAS and row["error"] == MISMATCH))


def _state_after(held: int | None, row: dict[str, Any], at: int) -> int | None:
    """The value of the key after the operation took effect at that moment."""
    where = f"{row['key']}: operation {row['id']}"
    _demand(row["inv"] <= at <= row["ret"], f"{where} takes effect outside its interval")
    _demand(row["type"] != FAIL or _must_be_there(row), f"{where} was refused, yet takes effect")
    if row["f"] == READ:
        _demand(row["type"] != OK or row["value"] == held, f"{where} read another value than the key held")
        return held
    if row["f"] != CAS:
        return int(row["value"])
    _demand((row["expected"] == held) == (row["type"] != FAIL), f"{where} found another value than it says")
    return held if row["type"] == FAIL else int(row["new"])


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CertificateError(otherwise)
