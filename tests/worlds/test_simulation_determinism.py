"""A simulated run is made again by its seed, whoever makes it, and what would prevent that fails when it is tried."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.cluster import SimulatedCluster
from simulator.guard import Guard, NondeterminismError
from tests.worlds.simulated import ROOT, SimulatedRun, simulate
from tests.worlds.test_simulation_world import SHORT

TWICE = (
    "import sys; from pathlib import Path; from tests.worlds.simulated import simulate; "
    "run = simulate(Path(sys.argv[1]), Path(sys.argv[2]), seeds=[int(sys.argv[3])]); print(run.path)"
)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


def comparable(run: SimulatedRun) -> list[dict[str, object]]:
    """The journal but for what names this run among all others."""
    lines = run.journal
    return [{key: value for key, value in line.items() if key not in ("run", "crc", "plan")} for line in lines]


def test_the_same_seed_is_the_same_run_in_every_process(campaign: Path, tmp_path: Path) -> None:
    runs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", TWICE, str(campaign), str(tmp_path / hash_seed), "5"]
        done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        runs.append(SimulatedRun(Path(done.stdout.splitlines()[-1])))
    first, second = runs
    assert first.summary["digest"] == second.summary["digest"]
    assert comparable(first) == comparable(second)
    assert first.verdict.verdict == second.verdict.verdict == "pass"


def test_another_seed_is_another_run(campaign: Path, tmp_path: Path) -> None:
    digests = {simulate(campaign, tmp_path, seeds=[seed]).summary["digest"] for seed in (1, 2)}
    assert len(digests) == 2


@pytest.mark.long
def test_a_hundred_seeds_twice(campaign: Path, tmp_path: Path) -> None:
    for seed in range(100):
        once, again = (simulate(campaign, tmp_path / str(seed), seeds=[seed]).summary for _ in range(2))
        assert once["digest"] == again["digest"], f"seed {seed}"


@pytest.mark.parametrize(
    "ask",
    [
        time.time,
        time.monotonic_ns,
        random.random,
        lambda: random.choice([1, 2]),
        uuid.uuid4,
        lambda: os.urandom(1),
        lambda: threading.Thread(target=print).start(),
    ],
)
def test_a_process_that_asks_for_what_no_seed_decides_is_stopped_there(ask: Callable[[], object]) -> None:
    def late() -> object:
        # As the broker's code does: by the module, at the moment of the call.
        name = getattr(ask, "__name__", "")
        module = {"time": time, "monotonic_ns": time, "random": random, "uuid4": uuid}.get(name)
        return getattr(module, name)() if module else ask()

    async def body() -> None:
        await asyncio.sleep(0)
        with pytest.raises(NondeterminismError, match="client asked for"):
            late()

    with Guard() as guard, SimulatedCluster(1) as cluster:
        cluster.run(body())
        assert guard.refused
        assert time.time() > 0, "whoever is no host asks as always"


ORDERLY = (
    "from simulator import ordering; ordering.install(); "
    "import sys; from pathlib import Path; from tests.worlds.simulated import simulate; "
    "run = simulate(Path(sys.argv[1]), Path(sys.argv[2]), seeds=[int(sys.argv[3])]); print(run.path)"
)


def test_no_broker_iterates_over_a_set_whose_order_no_seed_decides(campaign: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", ORDERLY, str(campaign), str(tmp_path / "store"), "5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    run = SimulatedRun(Path(done.stdout.splitlines()[-1]))
    assert run.verdict.verdict == "pass", run.verdict.reasons
