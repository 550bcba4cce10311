from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.mutations import base_runs
from tests.mutations.bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """With runs that the tool has just made. Workers share them, for nobody changes one; who comes first makes them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = tmp_path_factory.getbasetemp().parent / "bases"
        directory.mkdir(exist_ok=True)
    else:
        directory = tmp_path_factory.mktemp("bases")
    return Bench(_bases(directory), tmp_path_factory.mktemp("mutants"))


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
