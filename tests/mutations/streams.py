"""Takes a client's record apart into rows, and writes other rows as the client would have written them."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa

from history.checksummed_lines import text_of
from history.record.arrow_stream import BatchWriter
from history.record.schemas import NAMES
from history.record.shapes import LOG, REGISTER
from history.regular_files import sha256_of
from tests.mutations.stored import Line, Stored, checked, event

Row = dict[str, Any]

OPERATIONS = "history/operations"


def rows_of(path: Path) -> list[Row]:
    """All rows of a whole stream."""
    with pa.ipc.open_stream(path) as stream:
        rows: list[Row] = stream.read_all().to_pylist()
    return rows


def rewrite(run: Stored, name: str, change: Callable[[list[Row]], list[Row]], *, recount: bool = True) -> None:
    """A client recorded other rows than it did, in its stream `name`; there must be a difference.

    All that was written of the stream is in agreement with it; without `recount`, all but the counts of operations.
    """
    path = run / f"{OPERATIONS}/{name}"
    with pa.ipc.open_stream(path) as stream:
        schema = stream.schema
    before = rows_of(path)
    after = change(deepcopy(before))
    assert after != before, f"{name} stayed as it was"
    path.unlink()
    writer = BatchWriter(path, schema, clock=lambda: 0)
    for row in after:
        writer.add(tuple(row[name] for name in schema.names))
    writer.close()
    if recount:
        counts = Counter(NAMES.get(row["f"], str(row["f"])) for row in after)
        _reannounce(announced(path), lambda lines: [*lines[:-1], {"closed": dict(counts)}])
    as_left(run, path)


def reannounce(run: Stored, name: str, change: Callable[[list[Line]], list[Line]]) -> None:
    """A client announced other things than it did, in its file `name`."""
    path = run / f"{OPERATIONS}/{name}"
    _reannounce(path, change)
    as_left(run, path)


def _reannounce(path: Path, change: Callable[[list[Line]], list[Line]]) -> None:
    path.write_bytes(text_of(change(checked(path))))


def announced(stream: Path) -> Path:
    return stream.with_suffix(REGISTER.announced if stream.suffix == REGISTER.stream else LOG.announced)


def as_left(run: Stored, path: Path) -> None:
    """The journal has of a client's files what they are now."""

    def change(line: Line) -> None:
        for name, left in line["files"].items():
            file = path.with_name(name)
            left.update(bytes=file.stat().st_size, sha256=sha256_of(file))

    run.change_lines(_ended(path), change)


def _ended(path: Path) -> Callable[[Line], bool]:
    return event("client_ended", client=path.stem.rpartition("-")[0])


def borders(path: Path) -> list[int]:
    """The places behind the schema and behind each batch."""
    found: list[int] = []
    with pa.OSFile(str(path)) as file:
        while True:
            try:
                pa.ipc.read_message(file)
            except (EOFError, pa.ArrowInvalid):
                return found
            found.append(file.tell())
