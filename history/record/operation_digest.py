"""Digests of recorded operations; a certificate names the history that it proves by them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from history.record.shapes import Shape
from history.regular_files import sha256_of

STREAMS: Final = ("history", "operations")


def digest_of_streams(run: Path) -> str:
    """SHA-256 over the names and digests of the files in which clients recorded their operations. Raises OSError."""
    root = run.joinpath(*STREAMS)
    return _digest(root, sorted(path for path in root.rglob("*") if path.is_file()))


def digest_of_tables(shape: Shape, tables: Path) -> str:
    """SHA-256 over the names and digests of the tables of a shape's operations, and of their index. Raises OSError."""
    files = sorted((tables / shape.folder).rglob("*.parquet"))
    return _digest(tables, [*files, *(path for path in [tables / shape.index] if path.exists())])


def _digest(root: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
