"""Crash points on simulated machines: where a service ends, what its disk keeps, and how that is proven."""

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.checkers.faults import fault_doubts
from history.journal.writer import Journal
from nemeses import KINDS, Fault
from nemeses.kinds.crash_point import CRASHES, FILES
from nemeses.parameters import ParameterError
from orchestrator.running.faults import FaultLog
from orchestrator.running.progress import Progress
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from orchestrator.worlds.simulation.lab import SimulationWorld
from simulator import crash_points
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.orchestrator.unwatched import Unwatched
from tests.worlds.simulated_site import running

FLUSHED = {"log.flush.interval.messages": "1"}
TOPIC = "log"


def point(files: str = "segments", number: int = 1, crash: str = "kill-after") -> Fault:
    return Fault("crash-point", ("n1",), 0, {"files": files, "number": number, "crash": crash})


def write(cluster: SimulatedCluster, count: int) -> None:
    """Send records to a topic with a replica on every machine; some may be refused."""

    async def send() -> None:
        client = SimulatedClient(cluster.addresses)
        with contextlib.suppress(RefusedError, UncertainError):
            await client.create_topic(TOPIC, 1, 3)
        for _ in range(count):
            with contextlib.suppress(RefusedError, UncertainError, TimeoutError):
                await asyncio.wait_for(client.produce(TOPIC, 0, [b"x"]), 2)

    cluster.run(send())


def struck(fault: Fault, directory: Path, writes: int) -> tuple[dict[str, Any], list[str], str]:
    """The evidence of a fault and its heal, what the journal leaves in doubt, and the digest of the run."""
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster, Journal(directory) as journal:
        faults = FaultLog(running(cluster), journal, Progress(quiet=True), Unwatched())  # type: ignore[arg-type]
        write(cluster, 1)
        assert faults.inject(fault).confirmed
        write(cluster, writes)
        faults.heal(lambda _: True)
        write(cluster, 1)
        faults.heal_all()
        lines = [json.loads(line) for line in (directory / "history" / "journal.jsonl").read_text().splitlines()]
        (healed,) = (line for line in lines if line["event"] == "fault_healed")
        return healed["evidence"]["healed"]["detail"]["n1"], list(fault_doubts(lines, finished=True)), cluster.digest()


@pytest.mark.parametrize("recovery", [{}, {"restarts": True}])
def test_an_operation_that_fails_ends_the_service(tmp_path: Path, recovery: dict[str, bool]) -> None:
    fault = point(crash="error")
    facts, doubts, _ = struck(replace(fault, parameters={**fault.parameters, **recovery}), tmp_path, 3)
    assert doubts == []
    assert facts["operation"] == "n1 read log-0/00000000000000000000.log"
    assert facts["exit"] in (64, 70)


@pytest.mark.parametrize("crash", CRASHES[:-1])
def test_a_service_ends_at_the_operation(tmp_path: Path, crash: str) -> None:
    facts, doubts, _ = struck(point(number=2, crash=crash), tmp_path, 3)
    assert doubts == []
    assert facts["operation"].startswith("n1 sync log-0/")
    assert (facts["operations"], facts["exit"]) == (2, 137)
    assert facts.get("synced_mark") == ("kept" if crash.startswith("power-loss") else None)


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_without_its_operation_comes_at_the_heal(tmp_path: Path, crash: str) -> None:
    facts, doubts, _ = struck(point("compaction", crash=crash), tmp_path, 1)
    assert doubts == []
    assert (facts["operation"], facts["operations"], facts["exit"]) == ("none", 0, 137)
    assert "only 0 of the operations" in KINDS["crash-point"].proof({"n1": {"armed": "yes"}}, {"n1": facts})


def test_a_service_can_end_in_its_recovery(tmp_path: Path) -> None:
    fault = point("any", 3, "power-loss-before")
    facts, doubts, _ = struck(replace(fault, parameters={**fault.parameters, "restarts": 1}), tmp_path, 1)
    assert doubts == []
    assert facts["operation"] == "n1 replace_file __cluster_metadata-0/leader-epoch-checkpoint"


def test_a_crash_is_repeated_by_its_seed(tmp_path: Path) -> None:
    one, other = (struck(point(number=3, crash="power-loss-before"), tmp_path / name, 3) for name in ("a", "b"))
    assert one == other


def test_the_words_of_the_fault_are_those_of_the_simulator() -> None:
    assert tuple(crash_points.WINDOWS) == FILES
    assert crash_points.CRASHES == CRASHES
    with pytest.raises(ParameterError, match="not known; known: any, segments"):
        KINDS["crash-point"].check({"files": "logs"})


def test_only_the_simulation_has_crash_points() -> None:
    assert "crash-point" in SimulationWorld.capabilities
    assert "crash-point" not in NamespaceWorld.capabilities
