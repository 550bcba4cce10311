"""A seed repeats its simulated run on any machine, and code that would prevent this fails when it is tried."""

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
from simulator.determinism import DeterminismGuard, NondeterminismError
from tests.worlds.simulated import ROOT, SimulatedRun, simulate
from tests.worlds.test_simulation_world import SHORT

SWARM = ROOT / "campaigns" / "swarm.toml"
RUNS = (
    "import sys; from pathlib import Path; from tests.worlds.simulated import simulate; "
    "[print(simulate(Path(sys.argv[1]), Path(sys.argv[2]), '--engine', 'in-process', seeds=[int(seed)]).path) "
    "for seed in sys.argv[3:]]"
)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


def comparable(run: SimulatedRun) -> list[dict[str, object]]:
    """The journal but for what names this run among all others."""
    lines = run.journal
    return [
        {key: value for key, value in line.items() if key not in ("run", "crc", "plan", "started")} for line in lines
    ]


def in_two_processes(path: Path, directory: Path, *seeds: int) -> list[tuple[SimulatedRun, SimulatedRun]]:
    """Each seed's run, made by two processes that hash texts differently."""
    made: list[list[SimulatedRun]] = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", RUNS, str(path), str(directory / hash_seed), *map(str, seeds)]
        done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [line for line in done.stdout.splitlines() if line.startswith(str(directory))]
        made.append([SimulatedRun(Path(line)) for line in paths])
    first, second = made
    return list(zip(first, second, strict=True))


@pytest.mark.rotating(4, among="determinism")
@pytest.mark.parametrize("name", ["short", "swarm"])
def test_the_same_seed_is_the_same_run_in_every_process(name: str, campaign: Path, tmp_path: Path) -> None:
    for first, second in in_two_processes(campaign if name == "short" else SWARM, tmp_path, 5):
        assert first.summary["digest"] == second.summary["digest"]
        assert comparable(first) == comparable(second)
        assert first.verdict.verdict == second.verdict.verdict == "pass"


@pytest.mark.rotating(4, among="determinism")
def test_another_seed_is_another_run(campaign: Path, tmp_path: Path) -> None:
    digests = {simulate(campaign, tmp_path, seeds=[seed]).summary["digest"] for seed in (1, 2)}
    assert len(digests) == 2


@pytest.mark.long
def test_a_hundred_seeds_twice(tmp_path: Path) -> None:
    for seed, (first, second) in enumerate(in_two_processes(SWARM, tmp_path, *range(100))):
        assert first.summary["digest"] == second.summary["digest"], f"seed {seed}"


@pytest.mark.parametrize(
    "ask",
    [
        time.time,
        time.monotonic_ns,
        random.random,
        lambda: random.choice([1, 2]),
        uuid.uuid4,
        lambda: time.perf_counter_ns(),
        lambda: time.process_time(),
        lambda: time.thread_time_ns(),
        lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
        lambda: random.triangular(0, 1),
        lambda: random.betavariate(1, 1),
        lambda: random.normalvariate(0, 1),
        lambda: os.urandom(1),
        lambda: os.getrandom(1),
        lambda: threading.Thread(target=print).start(),
    ],
)
def test_a_process_that_uses_nondeterminism_is_stopped_at_that_line(ask: Callable[[], object]) -> None:
    def late() -> object:
        # As the broker's code does: by the module, at the moment of the call.
        name = getattr(ask, "__name__", "")
        module = {"time": time, "monotonic_ns": time, "random": random, "uuid4": uuid}.get(name)
        return getattr(module, name)() if module else ask()

    async def body() -> None:
        await asyncio.sleep(0)
        with pytest.raises(NondeterminismError, match="client asked for"):
            late()

    with DeterminismGuard() as guard, SimulatedCluster(1) as cluster:
        cluster.run(body())
        assert guard.refused
        assert time.time() > 0, "code outside of a host uses the real clock"


ORDERLY = (
    "from simulator.set_order import install; install(); "
    "import sys; from pathlib import Path; from tests.worlds.simulated import simulate; "
    "run = simulate(Path(sys.argv[1]), Path(sys.argv[2]), seeds=[int(sys.argv[3])]); print(run.path)"
)


@pytest.mark.rotating(4, among="determinism")
def test_no_broker_iterates_over_a_set_with_nondeterministic_order(campaign: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", ORDERLY, str(campaign), str(tmp_path / "store"), "5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    run = SimulatedRun(Path(done.stdout.splitlines()[-1]))
    assert run.verdict.verdict == "pass", run.verdict.reasons
