"""The files of a run that its verdict speaks about, and their digest: by it a verdict is seen to be stale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FILES: Final = ("run.toml",)
_DIRECTORIES: Final = ("history", "nodes")
_BLOCK_BYTES: Final = 1 << 20


def digest(run_dir: Path) -> str:
    """Over name, length and content of every file. Raises `OSError` for one that cannot be read."""
    whole = hashlib.sha256()
    for path in _judged(run_dir):
        name = path.relative_to(run_dir).as_posix()
        if path.is_symlink():
            whole.update(f"{name}\0link\0{path.readlink()}\0".encode(errors="surrogateescape"))
        elif path.is_dir():
            whole.update(f"{name}\0directory\0".encode(errors="surrogateescape"))
        elif path.is_file():
            whole.update(f"{name}\0{path.stat().st_size}\0".encode(errors="surrogateescape"))
            with path.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    whole.update(block)
    return whole.hexdigest()


def _judged(run_dir: Path) -> Iterator[Path]:
    yield from (run_dir / name for name in _FILES)
    for name in _DIRECTORIES:
        yield from sorted((run_dir / name).rglob("*"))
