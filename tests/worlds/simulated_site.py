"""The site of a nemesis in a simulated cluster, without a run around it."""

from itertools import count
from pathlib import Path

from broker.tiered.segments import SUFFIXES
from nemeses import Host, Nemesis, Site
from orchestrator.worlds.base import Node
from orchestrator.worlds.simulation.host import COMMAND_S, SimulatedHost, SimulatedWire
from orchestrator.worlds.simulation.lab import (
    SimulatedCables,
    SimulatedDisks,
    SimulatedObjects,
    SimulatedOscillators,
    SimulatedPower,
    SimulatedSuspender,
)
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import PORT, SimulatedCluster


def site_of(cluster: SimulatedCluster) -> Site:
    """All machines of a cluster, their power, cables, wire and disks."""
    scheduler = VirtualScheduler(cluster, cluster.seed)
    hosts = {
        name: SimulatedHost(_node(name, number), cluster, scheduler) for number, name in enumerate(cluster.machines)
    }
    power, marks, suspender = SimulatedPower(cluster, hosts), count(), SimulatedSuspender(cluster)

    def is_awake(host: Host) -> bool:
        return power.is_on(host.name) and suspender.state(host.name) == "running"

    def first_word_s(host: Host, patience_s: float) -> float | None:
        word_s = COMMAND_S if is_awake(host) else None
        scheduler.sleep(patience_s if word_s is None else word_s)
        return word_s

    return Site(
        hosts,
        power,
        SimulatedCables(cluster, hosts),
        scheduler=scheduler,
        wire=SimulatedWire(cluster, scheduler),
        disks=SimulatedDisks(cluster, scheduler),
        suspender=suspender,
        oscillators=SimulatedOscillators(cluster),
        objects=SimulatedObjects(cluster, scheduler),
        answers=is_awake,
        first_word_s=first_word_s,
        new_mark=lambda: f"{next(marks):032x}",
    )


def fill_store(cluster: SimulatedCluster) -> None:
    """Three segments in the object store, for faults that change objects at rest."""
    for number in range(3):
        for suffix in SUFFIXES:
            cluster.objects.objects[f"cluster/log-id/0/{number:020d}-id{suffix}"] = bytes([number]) * 100


def running(cluster: SimulatedCluster) -> Nemesis:
    """A nemesis that is armed, of a cluster whose brokers are ready."""
    cluster.start()
    cluster.run(cluster.ready())
    nemesis = Nemesis(site_of(cluster))
    assert nemesis.arm().status == "confirmed"
    return nemesis


def _node(name: str, number: int) -> Node:
    return Node(name, number + 1, name, {"broker": PORT}, f"/{name}", "/etc", "/var", record_dir=Path(name))
