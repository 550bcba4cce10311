"""Faults on simulated machines, and their evidence when several overlap on one."""

import contextlib
import inspect
import json
from pathlib import Path

import pytest

from analysis.checkers.faults import fault_doubts
from history.journal.writer import Journal
from nemeses import KINDS, Fault
from nemeses.kind import RandomDraw
from nemeses.mechanisms.shell import QUESTIONS
from orchestrator.running.faults import FaultLog
from orchestrator.running.progress import Progress
from orchestrator.worlds.simulation.host import SimulatedAnswers, SimulatedWire
from orchestrator.worlds.simulation.lab import SimulationWorld
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.client import SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.oracles.findings import OracleFindings
from tests.orchestrator.unwatched import Unwatched
from tests.worlds.simulated_site import fill_store, running

FLUSHED = {"log.flush.interval.messages": "1"}


def drawn(kind: str) -> dict[str, object]:
    return KINDS[kind].draw(RandomDraw(0.5, "both", None))


def of(kind: str, *targets: str, **parameters: object) -> Fault:
    return Fault(kind, targets or ("n1",), 0, parameters)


def test_a_simulated_machine_answers_each_question_with_its_parameters() -> None:
    assert len(QUESTIONS) > 20
    answers = {name for name in vars(SimulatedAnswers) if not name.startswith("_")}
    assert answers == set(QUESTIONS)
    for name, question in QUESTIONS.items():
        _, *parameters = inspect.signature(getattr(SimulatedAnswers, name)).parameters.values()
        assert parameters == [*inspect.signature(question).parameters.values()], name


@pytest.mark.parametrize("tear", [None, 7])
@pytest.mark.parametrize("trouble", ["disk-full", "disk-error", "disk-hang"])
def test_a_power_cut_is_proven_on_a_disk_that_takes_no_data(trouble: str, tear: int | None) -> None:
    """The marks that prove a cut have their space, and the next cut has the same synced mark."""
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster:
        nemesis = running(cluster)
        fault = of(trouble)
        assert nemesis.inject(fault).status == "confirmed"
        for _ in range(2):
            cut = of("power-loss", tear=tear)
            assert nemesis.inject(cut).status == "confirmed"
            healed = nemesis.heal(cut)
            assert (healed.status, healed.detail["n1"]["synced_mark"]) == ("confirmed", "kept")
            assert healed.detail["n1"]["unsynced_mark"] == "lost" or tear is not None
            assert healed.detail["n1"]["service"] == {"withheld_by": trouble}
        assert nemesis.heal(fault).status == "confirmed"
        assert nemesis.heal_all().status == "confirmed"


@pytest.mark.parametrize("kind", sorted(SimulationWorld.capabilities))
def test_each_fault_composes_with_a_service_that_a_disk_withholds(tmp_path: Path, kind: str) -> None:
    """A hung disk keeps the service from running after a power cut. A pause from before ends after the disk's fault."""
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster, Journal(tmp_path) as journal:
        faults = FaultLog(running(cluster), journal, Progress(quiet=True), Unwatched())  # type: ignore[arg-type]
        fill_store(cluster)
        hang, pause, cut = of("disk-hang"), of("pause"), of("power-loss")
        later = of(kind, **{key: value for key, value in drawn(kind).items() if value is not None})
        for fault in (pause, hang, cut):
            faults.inject(fault)
        faults.heal(lambda fault: fault is cut)
        faults.inject(later)
        faults.heal(lambda fault: fault is pause)
        faults.heal(lambda fault: fault is later)
        faults.heal(lambda fault: fault is hang)
        faults.heal_all()
        lines = [json.loads(line) for line in (tmp_path / "history" / "journal.jsonl").read_text().splitlines()]
        assert list(fault_doubts(lines, finished=True)) == []
        if kind in {"disk-wipe", "old-disk"}:
            cluster.watch.findings = OracleFindings(cluster.loop.time)


def test_a_slow_disk_under_a_disk_error_is_prevented() -> None:
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster:
        nemesis = running(cluster)
        assert nemesis.inject(of("disk-error")).status == "confirmed"
        seen = nemesis.inject(of("disk-slow", sync_ms=50))
        assert (seen.status, seen.detail["n1"]) == ("prevented", {"prevented_by": "disk-error"})
        assert nemesis.heal_all().status == "confirmed"


def test_a_probe_is_not_lost_with_the_service_that_its_disk_ends() -> None:
    """Syncs of the service are failing already, and one of them ends it while the probe waits for its turn."""
    for seed in range(1, 5):
        with SimulatedCluster(seed, 3, properties=FLUSHED) as cluster:
            nemesis = running(cluster)
            cluster.machines["n1"].disk.faults.slow_s = 0.05
            client = SimulatedClient(cluster.addresses)
            cluster.run(client.create_topic("log", 4, 3))

            async def write(partition: int, client: SimulatedClient = client) -> None:
                with contextlib.suppress(UncertainError):
                    await client.produce("log", partition, [b"x"])

            for partition in range(4):
                cluster.loop.create_task(write(partition), context=cluster.client.context.copy())
            cluster.loop.run_for(0.02)
            seen = nemesis.inject(of("disk-error"))
            assert (seen.status, seen.detail["n1"]) == ("confirmed", {"probe": "EIO"}), seed


def test_connections_are_reset_at_the_last_requested_rate() -> None:
    with SimulatedCluster(1, 3) as cluster:
        running(cluster)
        wire = SimulatedWire(cluster, VirtualScheduler(cluster, 1))
        wire.keep_resetting("n1", 0.1)
        wire.keep_resetting("n1", None)
        wire.keep_resetting("n1", 0.1)
        cluster.loop.run_for(0.95)
        assert wire.times_reset("n1") == 1 + 10
        assert wire.keep_resetting("n1", None) > 0
        cluster.loop.run_for(1.0)
        assert wire.times_reset("n1") == 1 + 10
