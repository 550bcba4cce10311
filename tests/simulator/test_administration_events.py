"""Supposed requests to the controller: it decides as the rules demand, except for a planted bug."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from broker.controller.controller import Controller
from broker.controller.image import MetadataImage, TopicImage
from broker.protocol.messages.metadata_records import PartitionChangeRecord
from simulator.cluster import SimulatedCluster
from simulator.oracles.administration_events import administration_flaws
from simulator.oracles.machine_view import MachineView
from tests.simulator.stories import started
from tests.simulator.storm import QUICK

Asked = tuple[Controller, MetadataImage]


def controller(cluster: SimulatedCluster) -> MachineView:
    """The machine of the active controller."""
    (machine,) = (view for view in cluster.watch.machines.values() if view.node and view.node.controller.is_active)
    return machine


def asked(cluster: SimulatedCluster) -> Asked:
    machine = controller(cluster)
    assert machine.node is not None
    return machine.node.controller.rules, deepcopy(machine.image)


@pytest.fixture(scope="module")
def moments() -> list[Asked]:
    """A controller and its metadata: without topics, with two, and after the loss of a broker that leads."""
    collected: list[Asked] = []

    async def story(cluster: SimulatedCluster) -> None:
        client = await started(cluster)
        collected.append(asked(cluster))
        await client.create_topic("a_b", replication_factor=3)
        await client.create_topic("plain", replication_factor=2)
        await asyncio.sleep(1)
        collected.append(asked(cluster))
        leader = await client.leader_of("a_b", 0)
        cluster.kill(f"n{leader}")
        await asyncio.sleep(5)
        collected.append(asked(cluster))

    with SimulatedCluster(3, 4, properties=QUICK) as cluster:
        cluster.run(story(cluster))
    return collected


def test_a_controller_decides_as_the_rules_demand(moments: list[Asked]) -> None:
    assert [[*administration_flaws(*moment)] for moment in moments] == [[], [], []]


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""


def prefers_the_first(_: object, topic: TopicImage, index: int, *__: object) -> PartitionChangeRecord:
    """Elects the first replica, whether it is in sync or not."""
    return PartitionChangeRecord(index, topic.id, leader=topic.partitions[index].replicas[0])


PLANTED: list[tuple[str, Callable[..., Any], str]] = [
    ("topics._check_name", nothing, "a CreateTopics with the name a/b"),
    ("topics._colliding", lambda *_: "", "a CreateTopics with a colliding name"),
    ("topics.check_replicas", nothing, "a CreateTopics with a broker twice"),
    ("topics.first_of", lambda replicas, *_: replicas[-1], "a CreateTopics"),
    ("controller.check_replicas", nothing, "a reassignment to []"),
    ("controller._on_the_way", lambda partition, *_: partition, "a reassignment from"),
    ("controller.registered", lambda image, broker, _: image.brokers[broker], "a heartbeat of another epoch"),
    ("controller.caught_up", lambda *_: True, "a heartbeat of a broker that does not know its fencing"),
    ("controller._assignment", lambda *_: [], "a CreatePartitions of"),
    ("configs._checked", lambda _, values: dict(values), "a wrong value"),
    ("leader_elections._preferred", prefers_the_first, "a preferred election in"),
]
"""A function of the controller, what it does instead, and the question whose answer is wrong then."""


@pytest.mark.parametrize(("name", "planted", "question"), PLANTED, ids=[row[0] for row in PLANTED])
def test_a_controller_with_a_planted_bug_is_found(
    name: str, planted: Callable[..., Any], question: str, moments: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"broker.controller.{name}", planted)
    flaws = [flaw for moment in moments for flaw in administration_flaws(*moment)]
    assert [flaw for flaw in flaws if flaw.startswith(f"would answer {question}")], flaws


def test_a_run_asks_the_controller_in_each_kind_of_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.controller.topics._check_name", nothing)

    async def story(cluster: SimulatedCluster) -> None:
        client = await started(cluster)
        await client.create_topic("plain", replication_factor=2)
        await asyncio.sleep(1)

    with SimulatedCluster(3, 2, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
        cluster.run(story(cluster))
    (finding,) = cluster.watch.findings.found
    assert finding.oracle == "election-not-allowed"
    assert "the controller would answer a CreateTopics with the name a/b" in finding.sentence
