"""The world of one run over machines that are there already; nodes of a namespace world play those machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import support

pytestmark = [pytest.mark.root, pytest.mark.rotating(3, among="hosts of an inventory")]


def play(scenario: str, directory: Path) -> Any:
    return support.play(scenario, str(directory), module="tests.worlds.remote_scenarios")


def test_runs_are_configured_mirrored_and_collected_one_after_the_other(tmp_path: Path) -> None:
    for number, seen in enumerate(play("whole_run", tmp_path), 1):
        assert all(seen["pids"])
        assert (seen["stopped"], seen["still"]) == (None, None), "no broker outlives its run"
        for name in ("n1", "n2"):
            records = tmp_path / f"run-{number}" / "nodes" / name
            assert (records / "data/topic-0/00000000000000000000.log").read_text() == f"!run {number} on {name}\n"
            events = [json.loads(line) for line in (records / "events.jsonl").read_text().splitlines()]
            assert [event["event"] for event in events] == ["broker_started"] * (2 if name == "n1" else 1)
            assert all(event["seen"] > 1e18 for event in events)
            assert "--mutant some_mutant" in (records / "service.log").read_text()
            assert "log.dir=/data/log" in (records / "server.properties").read_text()


def test_a_service_of_another_system_has_its_own_files_ports_and_preparation(tmp_path: Path) -> None:
    seen = play("another_system", tmp_path)
    assert seen["ports"] == seen["reached"] == [7001, 7002]
    assert seen["noted"] == ["7001\n", "7002\n"], "service-control waits for that port"
    assert seen["prepared"] == "yes other /opt/brownout/files/other/2.0 9092 /data", "in the service's surroundings"
    assert seen["works in"] == "/data"


def test_broken_connections_transfer_each_line_once(tmp_path: Path) -> None:
    events = play("broken_connections", tmp_path)
    assert [event["number"] for event in events] == list(range(1, 401)), "and no line that is not whole"


def test_a_power_cut_loses_only_unread_lines(tmp_path: Path) -> None:
    seen = play("power_cut", tmp_path)
    assert [each["status"] for each in seen["evidence"]] == ["confirmed", "confirmed"]
    events = [event.get("number") or event.get("after") or event["event"] for event in seen["events"]]
    first, second = events.index(1), len(events) - 4
    assert events[second:] == ["broker_started", 1, 2, 3]
    assert events[:first] == ["broker_started"]
    assert events[first:second] == list(range(1, second - first + 1))
    assert second - first > 50


def test_trouble_is_reported_with_the_node_and_its_output(tmp_path: Path) -> None:
    ended, incomplete, unready, again = play("words", tmp_path)
    assert ended == "n1: the service ended at its start; its last words: refused: this configuration"
    assert "n1: the end of its records may be missing" in incomplete
    assert unready == again
    assert "n1: does not come back" in again


def test_another_user_becomes_root(tmp_path: Path) -> None:
    seen = play("as_another_user", tmp_path)
    assert (seen["asked"], seen["plain"], seen["same"]) == ("yes", "", True)
    assert seen["pid"]
    assert [event["event"] for event in seen["events"]] == ["broker_started"]


def test_only_hosts_with_valid_keys_are_connected(tmp_path: Path) -> None:
    said = play("strangers", tmp_path)
    assert said["kind"] == "ssh-ed25519"
    assert "BadHostKey" in said["changed"]
    assert "not found in known_hosts" in said["unknown"]
