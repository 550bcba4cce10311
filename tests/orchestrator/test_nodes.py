"""Nodes that are kept without a campaign, as plain processes: up, looked at, used, down, and killed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation.python_modules import module_command, module_environment
from orchestrator.command.line import main
from orchestrator.command.nodes import bring_up
from orchestrator.errors import UsageError
from orchestrator.machine.requirement import Requirement
from orchestrator.nodes import state
from orchestrator.nodes.state import NodesPlan
from orchestrator.worlds.namespaces import requirements
from tests.orchestrator.kept_nodes import DEADLINE_S, Nodes

pytestmark = pytest.mark.rotating(3, among="nodes of a user")

PLAN = NodesPlan(
    id="abc123",
    world="process",
    reason="a test asked for it",
    node_count=3,
    filesystem="ext4",
    inventory=None,
    sandboxed=False,
    since="2026-01-01T00:00:00Z",
)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    kept = Nodes(tmp_path / "kept")
    yield kept
    kept.end()


def produce(bootstrap: str) -> list[int | None]:
    """Create a topic and write three records to it; the offsets at which all in-sync replicas have them."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3)], operation_timeout=180)["t"].result(180)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    offsets: list[int | None] = []
    for number in range(3):
        producer.produce("t", f"record {number}", on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(180) == 0
    return offsets


def test_nodes_are_brought_up_used_and_taken_down(nodes: Nodes) -> None:
    said = nodes.must("up", "--world", "process")
    assert "3 nodes up in the process world: n1, n2, n3" in said
    assert "./brownout nodes start" in said

    status = json.loads(nodes.must("status", "--json"))
    assert (status["state"], status["world"]) == ("up", "process")
    assert [(node["name"], node["state"], node["service_pid"]) for node in status["nodes"]] == [
        (name, "up", None) for name in ("n1", "n2", "n3")
    ]
    assert {node["boot_id"] for node in status["nodes"]} == {None}, "they have no boot of their own"

    said = nodes.must("start")
    assert f"bootstrap servers: {status['bootstrap']}" in said
    assert "ssh" not in said, "the addresses are the machine's own"
    assert produce(status["bootstrap"]) == [0, 1, 2]
    pids = nodes.broker_pids()
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert "n2" in nodes.must("status")
    nodes.must("start")
    assert nodes.broker_pids() == pids, "those that run are left alone"

    nodes.must("stop")
    assert nodes.broker_pids() == [None] * 3
    assert "nothing was left behind" in nodes.must("down")
    assert nodes.records() == []
    assert nodes.wait_until_gone() == []
    assert json.loads(nodes.must("status", "--json")) == {"state": "none", "nodes": []}
    assert nodes.must("down") == "no nodes are up\n"


def test_a_command_runs_in_a_nodes_directory_and_its_exit_code_is_ours(nodes: Nodes) -> None:
    nodes.must("up", "--world", "process", "--nodes", "1")
    done = nodes.ask("ssh", "n1", "--", "pwd; exit 7")
    assert (done.returncode, Path(done.stdout.strip()).name) == (7, "n1")
    assert nodes.must("ssh", "n1", "--", "echo", "two  words") == "two  words\n"
    done = nodes.ask("ssh", "n2")
    assert done.returncode == 64
    assert "unknown node 'n2'; the nodes are: n1" in done.stderr


def test_a_second_set_of_nodes_is_refused(nodes: Nodes) -> None:
    nodes.must("up", "--world", "process", "--nodes", "1")
    refused = nodes.ask("up", "--world", "process")
    assert refused.returncode == 64
    assert "nodes are up already (1 in the process world, since" in refused.stderr
    assert "./brownout nodes down" in refused.stderr
    assert len(nodes.look()) == 1


@pytest.mark.parametrize("action", [["ssh", "n1"], ["start"], ["stop"]])
def test_without_nodes_the_message_names_the_command_to_start_some(nodes: Nodes, action: list[str]) -> None:
    refused = nodes.ask(*action)
    assert refused.returncode == 64
    assert "no nodes are up; bring some up: ./brownout nodes up" in refused.stderr


def test_a_killed_holder_ends_its_processes_and_is_cleared(nodes: Nodes) -> None:
    nodes.must("up", "--world", "process", "--nodes", "2")
    nodes.must("start")
    assert len(nodes.processes()) >= 3, "else the test would prove nothing"
    os.kill(nodes.holder(), signal.SIGKILL)
    assert nodes.wait_until_gone() == []
    status = nodes.ask("status")
    assert status.returncode == 0
    assert "no nodes are up" in status.stdout
    assert "was killed" in status.stderr
    assert nodes.records() == []
    nodes.must("up", "--world", "process", "--nodes", "1")


def test_a_holder_that_does_not_answer_is_killed_by_down(nodes: Nodes) -> None:
    nodes.must("up", "--world", "process", "--nodes", "1")
    os.kill(nodes.holder(), signal.SIGSTOP)
    nodes.silence_s = 0.2
    assert "killed" in nodes.ask("down").stderr
    assert nodes.records() == []
    assert nodes.wait_until_gone() == []


def test_sigterm_ends_the_nodes_in_order(nodes: Nodes) -> None:
    nodes.must("up", "--world", "process", "--nodes", "1")
    os.kill(nodes.holder(), signal.SIGTERM)
    assert nodes.wait_until_gone() == []
    assert nodes.records() == [], "it has cleared away after itself"


def test_nodes_end_with_a_command_that_was_killed_before_they_were_up(nodes: Nodes) -> None:
    with nodes.kept.claimed(PLAN) as lock:
        command = module_command("orchestrator.nodes.holder", str(nodes.root), str(lock))
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, pass_fds=(lock,), env=module_environment(), timeout=DEADLINE_S
        )
    assert done.returncode == 0
    assert nodes.records() == []
    assert nodes.wait_until_gone() == []


def test_an_interrupted_up_leaves_no_nodes(tmp_path: Path) -> None:
    kept = Nodes(tmp_path / "kept")

    def interrupt(text: str) -> None:
        if text.startswith("n1 is ready"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_up(kept.kept, PLAN, interrupt)
    assert kept.records() == []
    assert kept.wait_until_gone() == []


def test_a_failed_up_reports_its_reason_and_leaves_no_nodes(tmp_path: Path) -> None:
    kept = Nodes(tmp_path / "kept")
    with pytest.raises(UsageError, match="unknown world 'moon'"):
        bring_up(kept.kept, NodesPlan(**{**vars(PLAN), "world": "moon"}), lambda _: None)
    assert kept.records() == []
    assert kept.wait_until_gone() == []


def test_a_world_that_cannot_be_here_is_refused_as_run_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(state, "DEFAULT_ROOT", tmp_path / "kept")
    lacks = Requirement("root", False, "this is user 7", "run with sudo")
    monkeypatch.setattr(requirements, "missing", lambda _: [lacks])
    assert main(["nodes", "up", "--world", "namespaces"]) == 64
    refused = capsys.readouterr().err
    assert "the namespaces world cannot run here: root: this is user 7; run with sudo" in refused
    assert main(["run", "demo", "--world", "namespaces", "--engine", "in-process", "--store", str(tmp_path)]) == 64
    assert capsys.readouterr().err == refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "0"], "--nodes 0: give a number from 1 to 9"),
        (["--nodes", "10"], "--nodes 10: give a number from 1 to 9"),
        (["--world", "inventory"], "--inventory FILE"),
        (["--world", "process", "--inventory", "x"], "--inventory"),
        (["--inventory", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_usage_is_reported_before_any_start(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(state, "DEFAULT_ROOT", tmp_path / "kept")
    assert main(["nodes", "up", *arguments]) == 64
    assert words in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_nodes_in_a_deep_directory_are_reachable(tmp_path: Path) -> None:
    deep = Nodes(tmp_path.joinpath(*["a directory with a long name"] * 5) / "kept")
    try:
        deep.must("up", "--world", "process", "--nodes", "1")
        assert deep.look()[0]["state"] == "up"
    finally:
        deep.end()
    assert deep.records() == []
