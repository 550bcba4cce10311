"""Faults in force at once on one machine: the heal of one ends its own effect and no other one's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from nemeses import KINDS, Fault, Nemesis
from nemeses.kind import RandomDraw
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.worlds.simulated_site import running

FLUSHED: Final = {"log.flush.interval.messages": "1"}
DISK: Final = ("disk-error", "disk-full", "disk-slow", "disk-hang")
"""A disk with one of the first, second or last fault answers no probe that could show another one."""
WIRE: Final = ("packet-duplicate", "packet-reorder", "connection-reset")
NETEM: Final = ("packet-delay", "packet-loss")
CUTS: Final = ("partition-one", "partition-halves", "reject")
COMPOSING: Final = ("clock-drift", *DISK, *WIRE, *NETEM)
"""Kinds that change a value of a machine, which the faults in force determine together."""
PAIRS: Final = [*itertools.product(COMPOSING, repeat=2), *itertools.product(CUTS, repeat=2)]
FIRST, SECOND = 0.3, 0.8
"""Draws of the strengths of the two faults."""


def drawn(kind: str, draw: float) -> Fault:
    """A fault of n1 with another strength for each draw."""
    parameters = KINDS[kind].draw(RandomDraw(draw, "both", None))
    return Fault(kind, ("n1",), draw, {key: value for key, value in parameters.items() if value is not None})


@contextmanager
def machine() -> Iterator[tuple[SimulatedCluster, Nemesis]]:
    """Three machines with connections between them, and their nemesis."""
    with SimulatedCluster(1, 3, properties=FLUSHED) as cluster:
        nemesis = running(cluster)
        cluster.run(SimulatedClient(cluster.addresses).create_topic("log", 1, 3))
        yield cluster, nemesis


def state(cluster: SimulatedCluster, nemesis: Nemesis) -> dict[str, Any]:
    """What faults have changed of the machine n1."""
    faults, wire = cluster.machines["n1"].disk.faults, nemesis._site.wire
    assert wire is not None
    outlet = cluster.network.outlet("n1")
    before = wire.times_reset("n1")
    cluster.loop.run_for(1.5)
    return {
        "drift": pytest.approx(cluster.machines["n1"].clock.drift),
        "disk": (faults.failing, faults.free_bytes, faults.hung),
        "slow_s": pytest.approx(faults.slow_s),
        "cuts": (sorted(cluster.network._cut), sorted(cluster.network._rejecting)),
        "packets": None if outlet is None else outlet.disturbance,
        "resets": wire.times_reset("n1") > before,
    }


def alone(kind: str, draw: float) -> dict[str, Any]:
    """The state under one fault."""
    with machine() as (cluster, nemesis):
        nemesis.inject(drawn(kind, draw))
        return state(cluster, nemesis)


def is_hidden(kind: str, by: str) -> bool:
    """Whether a fault of the disk leaves no answer in which a fault of this kind could be seen."""
    return kind in DISK and by in DISK and by != "disk-slow"


@pytest.mark.rotating(16, among="pairs of faults")
@pytest.mark.parametrize("heals_first", ["first", "second"])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_heal_of_a_fault_leaves_another_one_in_force(one: str, other: str, heals_first: str) -> None:
    faults = drawn(one, FIRST), drawn(other, SECOND)
    healed, left = faults if heals_first == "first" else faults[::-1]
    with machine() as (cluster, nemesis):
        unchanged = state(cluster, nemesis)
        first, second = (nemesis.inject(fault) for fault in faults)
        assert first.confirmed, first
        assert second.confirmed or is_hidden(other, by=one), second
        cluster.loop.run_for(0.5)
        ended = nemesis.heal(healed)
        assert ended.confirmed or is_hidden(healed.kind, by=left.kind), ended
        assert state(cluster, nemesis) == alone(left.kind, left.at)
        cluster.loop.run_for(0.5)
        ended = nemesis.heal(left)
        assert ended.confirmed, ended
        assert state(cluster, nemesis) == unchanged
        assert nemesis.heal_all().confirmed
