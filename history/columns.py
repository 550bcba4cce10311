"""Columns of tables, declared once: a struct has a field for each column, with its type and the text below it.

The schema of the table and its description in docs/tables.md follow from the struct."""

from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from history.field_types import Int64

Int8Column = Annotated[int, pa.int8()]
Int32Column = Annotated[int, pa.int32()]
Int64Column = Annotated[int, pa.int64()]
RepeatedText = Annotated[str, pa.dictionary(pa.int32(), pa.string())]
"""A text that is the same in many rows."""
LargeText = Annotated[str, pa.large_string()]
"""A text without a repetition, of any length: columns of usual texts have at most 2^31 bytes."""
Int64List = Annotated[tuple[int, ...], pa.list_(pa.field("item", pa.int64(), nullable=False))]

TEXTS: Final = pa.list_(pa.string())
_PLAIN: Final = {str: pa.string(), bool: pa.bool_(), float: pa.float64(), Int64: pa.int64(), tuple[str, ...]: TEXTS}


def schema_of(declared: type[msgspec.Struct], *, nullable: bool = False) -> pa.Schema:
    """The columns of a struct's fields. A field that may be None is nullable, with `nullable` each one is. The column
    of a mapping has JSON."""
    hints = get_type_hints(declared, include_extras=True)
    return pa.schema([_column(field.name, hints[field.name], nullable) for field in msgspec.structs.fields(declared)])


def _column(name: str, hint: Any, nullable: bool) -> pa.Field:
    choices = [choice for choice in get_args(hint) if choice is not type(None)]
    is_optional = get_origin(hint) is not Annotated and type(None) in get_args(hint)
    return pa.field(name, _type(choices[0] if is_optional else hint), nullable=nullable or is_optional)


def _type(hint: Any) -> pa.DataType:
    stated = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, pa.DataType)]
    return stated[0] if stated else _PLAIN.get(hint, pa.string())
