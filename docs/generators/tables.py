"""Writes the tables of docs/tables.md from the structs that declare columns: `python -m docs.generators.tables`."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from msgspec import Struct

from analysis.run_row import RunRow
from history.record.operations import OF_ALL_SHAPES, SHAPE
from history.record.schemas import CallColumns, OperationColumns, RegisterColumns
from history.seconds import SecondColumns
from orchestrator.store.tables import (
    LEFT_OUT,
    MAPPINGS,
    SCHEMAS,
    AnomalyColumns,
    CheckColumns,
    FaultColumns,
    LeftOut,
    RunKey,
    StoredColumns,
)
from systems.declared_tables import texts

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
_KEY: Final = tuple(RunKey.__struct_fields__)
TABLES: Final[Mapping[str, tuple[pa.Schema, Sequence[type[Struct]]]]] = {
    "key": (pa.schema([SCHEMAS["runs"].field(name) for name in _KEY]), (RunKey,)),
    "runs": (SCHEMAS["runs"], (RunRow, StoredColumns)),
    "checks": (SCHEMAS["checks"], (CheckColumns,)),
    "faults": (SCHEMAS["faults"], (FaultColumns,)),
    "anomalies": (SCHEMAS["anomalies"], (AnomalyColumns,)),
    "seconds": (SCHEMAS["seconds"], (SecondColumns,)),
    "operations": (OF_ALL_SHAPES, (OperationColumns, RegisterColumns, CallColumns)),
    "left_out": (LEFT_OUT, (LeftOut,)),
}
_MARKED: Final = re.compile(r"(<!-- (\S+): python -m docs\.generators\.tables -->\n).*?(<!-- end -->\n)", re.DOTALL)
_OWNERS: Final[Mapping[type[Struct], str]] = {
    OperationColumns: "logs",
    RegisterColumns: "registers",
    CallColumns: "workloads of your own",
}
_AS_OF: Final[Mapping[str, type[Struct]]] = {"As of a log.": OperationColumns, "As of a register.": RegisterColumns}
"""The texts of columns that other operations have, too."""
_KINDS: Final = (
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_floating, "number"),
    (pa.types.is_integer, "whole number"),
)


def page() -> str:
    """The page as it should be."""
    return _MARKED.sub(lambda marked: f"{marked[1]}{_table(marked[2])}{marked[3]}", PAGE.read_text(encoding="utf-8"))


def columns(name: str) -> list[tuple[str, str, str]]:
    """The name, the type and the text of each column of a table; without those that name the run, but in `key`."""
    schema, declared = TABLES[name]
    left_out = _KEY if name not in ("key", "left_out") else ()
    return [(field.name, _type(field), _text(field.name, declared)) for field in schema if field.name not in left_out]


def _table(name: str) -> str:
    rows = [f"| `{column}` | {kind} | {text} |" for column, kind, text in columns(name)]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows, ""])


def _type(field: pa.Field) -> str:
    if field.name in MAPPINGS or field.name == "settings":
        return "JSON"
    if pa.types.is_list(field.type):
        return f"list of {_kind(field.type.value_type)}s"
    return _kind(field.type)


def _kind(column_type: pa.DataType) -> str:
    return next(kind for is_type, kind in _KINDS if is_type(column_type))


def _text(column: str, declared: Sequence[type[Struct]]) -> str:
    """What the column means; of operations also to which shapes it belongs, if not to all or with another meaning."""
    if column == SHAPE:
        return texts(SecondColumns)[SHAPE]
    by_struct = {struct: texts(struct).get(column, "") for struct in declared if column in struct.__struct_fields__}
    if OperationColumns not in declared:
        return next(iter(by_struct.values()))
    owners: dict[type[Struct], list[type[Struct]]] = {}
    for struct, text in by_struct.items():
        owners.setdefault(_AS_OF.get(text, struct), []).append(struct)
    if any(len(alike) == len(declared) for alike in owners.values()):
        return by_struct[OperationColumns]
    named = {struct: " and ".join(_OWNERS[each] for each in alike).capitalize() for struct, alike in owners.items()}
    return "<br>".join(f"{named[struct]}: {by_struct[struct]}" for struct in owners)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
