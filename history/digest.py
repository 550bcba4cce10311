"""What a certificate binds itself to: the content of the operations that it speaks of."""

from __future__ import annotations

import hashlib

import pyarrow as pa


def digest_of_registers(registers: pa.Table) -> str:
    """SHA-256 over every column of the operations, ordered by id; equal for equal content, however it was stored."""
    digest = hashlib.sha256()
    ordered = registers.sort_by("id")
    for name in sorted(ordered.column_names):
        digest.update(repr((name, ordered[name].to_pylist())).encode())
    return digest.hexdigest()
