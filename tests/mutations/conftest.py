from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.mutations import base_runs
from tests.mutations.bench import Bench

IN_MEMORY: Final = "/dev/shm"
"""Where it can be written to, mutants are made there: each is some 200 files, and is gone in a moment."""


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """With runs that the tool has just made. Workers share them, for nobody changes one; who comes first makes them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = tmp_path_factory.getbasetemp().parent / "bases"
        directory.mkdir(exist_ok=True)
    else:
        directory = tmp_path_factory.mktemp("bases")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None) as mutants:
        yield Bench(_bases(directory), Path(mutants))


def _bases(directory: Path) -> dict[str, Path]:
    """By name; a list of their paths is written when all are there."""
    with open(directory / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = directory / "made"
        if not made.exists():
            paths = [str(base_runs.make(name, directory)) for name in base_runs.BASES]
            made.write_text("\n".join(paths), encoding="utf-8")
    paths = made.read_text(encoding="utf-8").splitlines()
    return dict(zip(base_runs.BASES, map(Path, paths), strict=True))
