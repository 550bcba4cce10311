"""Faults on simulated machines, and their evidence when several overlap on one."""

from __future__ import annotations

import contextlib
import inspect

from nemeses import Fault
from nemeses.mechanisms.shell import QUESTIONS
from orchestrator.worlds.simulation.host import SimulatedAnswers
from orchestrator.worlds.simulation.packets import SimulatedWire
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.client import SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.worlds.simulated_site import running

FLUSHED = {"log.flush.interval.messages": "1"}


def of(kind: str, *targets: str, **parameters: object) -> Fault:
    return Fault(kind, targets or ("n1",), 0, parameters)


def test_a_simulated_machine_answers_each_question_with_its_parameters() -> None:
    assert len(QUESTIONS) > 20
    answers = {name for name in vars(SimulatedAnswers) if not name.startswith("_")}
    assert answers == set(QUESTIONS)
    for name, question in QUESTIONS.items():
        _, *parameters = inspect.signature(getattr(SimulatedAnswers, name)).parameters.values()
        assert parameters == [*inspect.signature(question).parameters.values()], name


def test_a_power_cut_on_a_full_disk_is_prevented() -> None:
    """The marks that prove a cut cannot be written there."""
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster:
        nemesis = running(cluster)
        full, cut = of("disk-full"), of("power-loss")
        assert nemesis.inject(full).status == "confirmed"
        seen = nemesis.inject(cut)
        assert (seen.status, seen.detail["n1"]) == ("prevented", {"prevented_by": "disk-full"})
        assert nemesis.heal(full).status == "confirmed"
        assert nemesis.heal(cut).status == "prevented"
        assert nemesis.heal_all().status == "confirmed"


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
