"""Digests of recorded operations; a certificate names the history that it proves by them."""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa

_ORDER: Final = ("process", "session", "inv", "ret", "f", "type", "partition", "offset", "hi", "lo", "value", "acks")


def digest_of_operations(operations: pa.Table) -> str:
    """SHA-256 over every column of the operations on logs, sorted; equal for equal content, however it was stored."""
    texts = [each.name for each in operations.schema if pa.types.is_dictionary(each.type)]
    plain = operations.cast(pa.schema([_plain(each) for each in operations.schema])).combine_chunks()
    ordered = plain.sort_by([(name, "ascending") for name in (*_ORDER, *sorted(texts))]).combine_chunks()
    digest = hashlib.sha256()
    for name in sorted(ordered.column_names):
        column = ordered[name].combine_chunks()
        digest.update(f"{name} {column.type} {len(column)} {column.null_count}\n".encode())
        if pa.types.is_list(column.type):
            digest.update(column.value_lengths().to_numpy(zero_copy_only=False).tobytes())
            column = column.flatten()
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
            digest.update(repr(column.dictionary.to_pylist()).encode())
            column = column.indices
        digest.update(column.to_numpy(zero_copy_only=False).tobytes())
    return digest.hexdigest()


def _plain(field: pa.Field) -> pa.Field:
    """Text without dictionary encoding: the codes depend on how a table was built."""
    return pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field


def digest_of_registers(registers: pa.Table) -> str:
    """SHA-256 over every column of the operations, ordered by id; equal for equal content, however it was stored."""
    digest = hashlib.sha256()
    ordered = registers.sort_by("id")
    for name in sorted(ordered.column_names):
        digest.update(repr((name, ordered[name].to_pylist())).encode())
    return digest.hexdigest()
