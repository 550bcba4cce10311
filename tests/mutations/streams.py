"""Takes a client's record apart into rows, and writes other rows as the client would have written them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa

from history.batches import BatchWriter

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """All rows of a whole stream."""
    with pa.ipc.open_stream(path) as stream:
        rows: list[Row] = stream.read_all().to_pylist()
    return rows


def rewrite(path: Path, change: Callable[[list[Row]], list[Row]], *, recount: bool = True) -> None:
    """The client recorded other rows than it did; there must be a difference. Its counts follow, if they are to."""
    with pa.ipc.open_stream(path) as stream:
        schema = stream.schema
    before = rows_of(path)
    after = change(deepcopy(before))
    assert after != before, f"{path.name} stayed as it was"
    path.unlink()
    writer = BatchWriter(path, schema, clock=lambda: 0)
    for row in after:
        writer.add(tuple(row[name] for name in schema.names))
    writer.close()


def borders(path: Path) -> list[int]:
    """The places behind the schema and behind each batch."""
    found = []
    with pa.OSFile(str(path)) as file:
        while True:
            try:
                pa.ipc.read_message(file)
            except (EOFError, pa.ArrowInvalid):
                return found
            found.append(file.tell())
