"""Writes a client's file of checksummed lines: first the client's name, last its orderly end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from history.checksummed_lines import LineWriter


class ClientLineWriter:
    """Writes the file of one client, each line at once. Use it as a context manager.

    `operations`: the directory of the client's operations; the file is in `folder` beside it, as NAME + `suffix`.
    `role`: the kind of client in the first line. Raises FileExistsError."""

    def __init__(
        self, operations: Path | str, folder: str, suffix: str, role: str, name: str, clock: Callable[[], int]
    ) -> None:
        self.clock = clock
        directory = Path(operations).parent / folder
        directory.mkdir(exist_ok=True)
        self._lines = LineWriter(directory / f"{name}{suffix}")
        self._lines.write({"what": role, role: name})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Record the orderly end of the client, and close the file."""
        if not self._lines.closed:
            self._lines.write({"what": "closed"})
            self._lines.close()
