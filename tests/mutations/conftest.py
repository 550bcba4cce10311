import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from orchestrator.command.line import main
from orchestrator.errors import EXIT_PASS
from tests.mutations import base_runs
from tests.mutations.bench import Bench, judge

IN_MEMORY: Final = "/dev/shm"
"""Where it can be written to, mutants are made there: each is some 200 files, and is gone in a moment."""


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """With the archived base runs. Workers share them, because no test changes one; the first worker analyzes them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = tmp_path_factory.getbasetemp().parent / "bases"
        directory.mkdir(exist_ok=True)
    else:
        directory = tmp_path_factory.mktemp("bases")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None) as mutants:
        yield Bench(_bases(directory), Path(mutants))


def _bases(directory: Path) -> dict[str, Path]:
    """The analyzed base runs, by name."""
    with open(directory / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        analyzed = directory / "analyzed.json"
        if not analyzed.exists():
            bases = base_runs.unpack(directory)
            for run in bases.values():
                judge(run)
                assert main(["gate", str(run.parent)]) == EXIT_PASS, base_runs.STALE
            analyzed.write_text(json.dumps({name: str(run) for name, run in bases.items()}), encoding="utf-8")
    return {name: Path(run) for name, run in json.loads(analyzed.read_text(encoding="utf-8")).items()}
