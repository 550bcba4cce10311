"""Nodes that are kept without a campaign, as namespaces: entered from outside, and gone with their holder."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation.files import PROJECT_ROOT
from orchestrator.command.nodes import bring_up
from orchestrator.nodes.state import NodesPlan
from orchestrator.worlds.namespaces import requirements
from tests.orchestrator.kept_nodes import Nodes
from tests.worlds.footprint import Footprint, machine_wide

pytestmark = [pytest.mark.root, pytest.mark.rotating(3, among="nodes of a user")]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    if lacks := requirements.missing():
        pytest.skip(" / ".join(map(str, lacks)))
    kept = Nodes(tmp_path / "kept")
    yield kept
    kept.end()


def footprint(nodes: Nodes) -> Footprint:
    plan = nodes.kept.plan()
    assert plan is not None
    return Footprint(nodes.holder(), f"nodes-{plan.id}")


def test_nodes_are_entered_and_their_brokers_reached_from_inside(nodes: Nodes) -> None:
    before = machine_wide()
    nodes.must("up", "--world", "namespaces")
    assert [node["address"] for node in nodes.look()] == ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    assert len({node["boot_id"] for node in nodes.look()}) == 3
    assert nodes.must("ssh", "n2", "--", "hostname; stat -f -c %T /data") == "n2\next2/ext3\n"
    assert nodes.must("ssh", "n1", "--", "echo", "two  words") == "two  words\n"
    assert nodes.ask("ssh", "n3", "--", "exit 7").returncode == 7

    said = nodes.must("start")
    assert "./brownout nodes ssh n1 -- " in said
    asked = f"cd {PROJECT_ROOT} && {sys.executable} -m orchestrator quorum describe --bootstrap-server 10.77.0.12:9092"
    assert "LeaderId" in nodes.must("ssh", "n1", "--", asked)
    assert all(nodes.broker_pids())
    nodes.must("stop")
    assert not any(nodes.broker_pids())
    assert machine_wide() == before, "nothing of the nodes is in the machine's own namespaces"
    left = footprint(nodes)
    nodes.must("down")
    assert left.wait_gone() == {}, "nothing of the nodes is left"
    assert machine_wide() == before


def test_every_process_ends_with_a_killed_holder(nodes: Nodes) -> None:
    before = machine_wide()
    nodes.must("up", "--world", "namespaces", "--nodes", "2")
    nodes.must("start")
    left = footprint(nodes)
    assert set(left.present()) == {"processes", "loop devices", "control group"}, "else the test would prove nothing"
    os.kill(nodes.holder(), signal.SIGKILL)
    assert left.wait_gone() == {}
    assert machine_wide() == before
    assert "no nodes are up" in nodes.must("status")
    assert nodes.records() == []


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_up_leaves_no_namespace(nodes: Nodes, times: int) -> None:
    before = machine_wide()
    plan = NodesPlan("abc123", "namespaces", "a test asked for it", 3, "ext4", None, True, "2026-01-01T00:00:00Z")
    left: list[Footprint] = []

    def interrupt(text: str) -> None:
        # Once while nodes start; then at the next message about their stop.
        if len(left) < times and ("is up at" in text or (left and "taking down" not in text)):
            left.append(footprint(nodes))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_up(nodes.kept, plan, interrupt)
    assert [each.wait_gone() for each in left] == [{}] * times
    assert nodes.records() == []
    assert machine_wide() == before
