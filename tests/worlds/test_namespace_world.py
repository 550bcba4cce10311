"""The namespace world from the inside: nodes, brokers, power and network work as declared."""

from pathlib import Path

import pytest

import nodeimage
from installation.files import PROJECT_ROOT
from nodeimage import recipe
from orchestrator.errors import WorldError
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from tests.worlds.support import play, specification

pytestmark = [pytest.mark.root, pytest.mark.rotating(3, among="world of namespaces")]


def test_nodes_are_machines_of_their_own(tmp_path: Path) -> None:
    nodes = play("three_nodes", str(tmp_path))
    assert list(nodes) == ["n1", "n2", "n3"]
    for number, (name, node) in enumerate(nodes.items(), 1):
        assert node["hostname"] == name
        assert node["boot_id"] == node["own_boot_id"]
        assert node["uptime_s"] <= node["lasted_s"], "the clocks since boot started when the node did"
        assert node["processes"] < 10, "a node sees no processes but its own"
        assert "node_init" in node["first_process"]
        assert node["data"] == "ext2/ext3"
        assert f"10.77.0.{10 + number}/24" in node["addresses"]
        assert node["python"] == "1", "the broker's interpreter and package are there"
        assert node["read_only"], "a node cannot change the project"
        assert node["peer"] == "10.77.0.12", "nodes know each other by name"
        assert not set(node["root_home"].split()) & {".ssh", ".bashrc", ".profile"}, "the user's home is hidden"
    assert len({node["boot_id"] for node in nodes.values()}) == 3


def test_a_node_may_run_on_the_nodes_image(tmp_path: Path) -> None:
    try:
        image = nodeimage.find(PROJECT_ROOT)
    except nodeimage.ImageError as error:
        pytest.skip(str(error))
    seen = play("on_the_image", str(tmp_path))
    assert seen["release"] == recipe.SUITE
    assert seen["site"] == image.site_key
    assert seen["broker"].startswith("/usr/bin/python3 -m broker --config /etc/brownout/server.properties")
    assert "/opt/brownout/site/msgspec/" in seen["loaded"]
    assert not seen["project"], "nothing of the machine is there but the broker's package"
    assert seen["read_only"]


def test_brokers_start_stop_and_are_collected(tmp_path: Path) -> None:
    seen = play("brokers", str(tmp_path))
    assert all(seen["pids"].values())
    assert seen["restarted"] not in (None, seen["pids"]["n1"])
    assert seen["stopped"] is None
    for name in ("n1", "n2", "n3"):
        records = tmp_path / "nodes" / name
        for collected in (tmp_path / "collected" / name, records):
            assert (collected / "data/topic-0/00000000000000000000.log").read_text() == f"!from {name}\n"
            assert (collected / "data/topic-0/leader-epoch-checkpoint").exists()
            assert (collected / "data/replication-offset-checkpoint").exists()
            assert not (collected / "data/topic-0/00000000000000000000.index").exists()
            assert (collected / "events.jsonl").read_text().startswith('{"event": "broker_started"}')
        assert "--config /etc/brownout/server.properties --mutant some_mutant" in (records / "service.log").read_text()
        assert "listeners=" in (records / "server.properties").read_text()


def test_a_broker_that_ends_at_its_start_is_quoted(tmp_path: Path) -> None:
    assert "n1: the service ended" in play("broker_that_ends", str(tmp_path))
    assert "refused: this configuration" in (tmp_path / "nodes/n1/service.log").read_text()


def test_a_fault_on_a_service_applies_to_all_its_processes(tmp_path: Path) -> None:
    seen = play("several_processes", str(tmp_path))
    both = 2  # the script names the program, too
    assert seen["pause"] == ["confirmed", both, "confirmed", both]
    assert seen["kill"] == seen["stop"] == ["confirmed", 0, "confirmed", both]
    assert seen["left"] == both, "nothing is started beside what was left"


def test_a_service_is_prepared_and_runs_in_its_data_directory(tmp_path: Path) -> None:
    assert play("working_directories", str(tmp_path)) == ["/data", "/data"]


@pytest.mark.parametrize(("mode", "code"), [("", 127), ("0644", 126)], ids=["missing", "not executable"])
def test_a_program_that_cannot_be_started_is_a_host_error(tmp_path: Path, mode: str, code: int) -> None:
    kind, said = play("no_program", str(tmp_path), mode)
    assert kind == "HostError", "nothing ran that could be a finding"
    assert said.startswith(f"n1: {tmp_path}/my-server cannot be started")
    assert f"(exit code {code})" in said


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_a_power_loss_loses_unsynced_data_and_a_kill_keeps_it(tmp_path: Path, filesystem: str) -> None:
    seen = play("power_loss", str(tmp_path), filesystem)
    assert {name: each["status"] for name, each in seen["evidence"].items()} == dict.fromkeys(
        ("kill", "kill healed", "power loss", "power loss healed", "healed twice"), "confirmed"
    )
    assert seen["after_kill"] == ["!synced", "in memory when killed"]
    assert seen["after_power_loss"] == ["!synced", "in memory when killed", "!synced again"]
    assert seen["others_alive"]
    lost = seen["evidence"]["power loss"]["detail"]["n1"]
    back = seen["evidence"]["power loss healed"]["detail"]["n1"]
    assert lost["boot_id"] == back["boot_id_before"] != back["boot_id"]
    assert lost["pages_dropped"] is None or lost["pages_dropped"] >= 1
    assert seen["uptime_s"] <= seen["lasted_s"]


def test_all_nodes_lose_power_at_once(tmp_path: Path) -> None:
    seen = play("all_lose_power", str(tmp_path))
    assert (seen["injected"]["status"], seen["healed"]["status"]) == ("confirmed", "confirmed")
    assert seen["logs"] == {name: f"!synced by {name}" for name in ("n1", "n2", "n3")}


def test_a_torn_cut_may_keep_pages_but_never_loses_synced_ones(tmp_path: Path) -> None:
    cuts = play("torn", str(tmp_path))
    assert all(cut["kept"] for cut in cuts)
    assert all(set(cut["rest"]) <= {"u", "."} for cut in cuts), "what was written, or zeros"
    for cut in cuts:
        if cut["pages_written_back"] == 0 or not cut["journal_flushed"]:
            assert cut["size"] == 10_000, "pages without their journal entry are not part of the file"
    assert len({cut["size"] for cut in cuts}) > 1, "some of the seeds tear"


def test_a_torn_cut_works_with_every_kind_of_file_in_the_data_directory(tmp_path: Path) -> None:
    seen = play("strange_files", str(tmp_path))
    collected = seen.pop("collected")
    for injected, healed in seen.values():
        assert injected["status"] == "confirmed", injected
        assert healed["status"] == "confirmed", healed
    assert {"file", "hard-link.log", "inside.log", "sparse", "unreadable"} <= set(collected)
    not_data = {"socket", "pipe", "device", "dangling", "pipe.log", "outside", "passwd", "hostname"}
    assert not not_data & set(collected), "a link may lead to files of the tester's machine"


def test_a_power_cut_that_fails_halfway_is_completed_or_rolled_back(tmp_path: Path) -> None:
    seen = play("failing_cuts", str(tmp_path))
    assert {name: each["on"] for name, each in seen.items()} == {
        "set_down": [True, True],
        "tear": [False, False],
        "shut_filesystem_down": [True, True],
    }
    for name, each in seen.items():
        assert "the test's error" in each["said"], name
        assert [answer.strip() for answer in each["answers"]] == ["yes", "yes"], name


def test_partitions_cut_exactly_the_directions_they_name(tmp_path: Path) -> None:
    seen = play("partitions", str(tmp_path))
    assert (seen["before"], seen["after"], seen["left"]) == ([], [], [])
    nodes = ["n1", "n2", "n3", "n4"]
    halves = [[a, b] for a in nodes for b in nodes if (a in ("n1", "n2")) != (b in ("n1", "n2"))]
    expected_one_way = {
        "out": [["n1", other] for other in ("n2", "n3", "n4")],
        "halves": halves,
        "pairs": [["n3", "n4"], ["n4", "n3"]],
        "reject": [pair for other in ("n1", "n3", "n4") for pair in (["n2", other], [other, "n2"])],
        "reject-in": [[other, "n2"] for other in ("n1", "n3", "n4")],
    }
    for name, lost in expected_one_way.items():
        cut = seen[name]
        assert (cut["injected"]["status"], cut["healed"]["status"]) == ("confirmed", "confirmed"), name
        assert cut["one_way"] == sorted(lost)
        # A connection needs both directions.
        assert cut["during"] == sorted([pair for a, b in lost for pair in ([a, b], [b, a]) if pair not in lost] + lost)
        assert all(count > 0 for count in cut["healed"]["detail"]["dropped"].values())


def test_a_paused_broker_sleeps_until_it_is_healed(tmp_path: Path) -> None:
    injected, healed, again = play("pause", str(tmp_path))
    assert [each["status"] for each in (injected, healed, again)] == ["confirmed"] * 3
    assert injected["detail"]["n1"]["after"] == "T"
    assert "T" not in healed["detail"]["n1"]["after"]


def test_heal_all_undoes_faults_of_every_nemesis(tmp_path: Path) -> None:
    healed = play("heal_everything", str(tmp_path))
    assert healed["status"] == "confirmed", healed


def test_a_world_that_fails_to_start_reports_its_reason_and_leaves_no_process(tmp_path: Path) -> None:
    seen = play("failures", str(tmp_path))
    disk, space, sshd = seen["said"]
    assert "its disk cannot be made: run n" in disk
    assert "mkfs.ext4 failed" in disk
    assert "No space left on device" in space
    assert "does not boot: sshd does not answer at 10.77.0.1" in sshd
    assert "console.log" in sshd
    assert seen["left"] == []
    assert seen["links"] == ["all", "default", "lo"]


def test_an_interrupted_start_of_a_world_leaves_no_process_even_if_cleanup_raises(tmp_path: Path) -> None:
    for raised in play("interrupted", str(tmp_path)):
        assert raised.startswith("Interrupted: cleaning up failed: the cleanup broke")
        assert raised.endswith(" [] [] []"), "no bridge, no table, no group"


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    assert "is in use by another run" in play("same_directory", str(tmp_path))


def test_outside_of_a_sandbox_the_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="sandbox"):
        NamespaceWorld(specification(tmp_path)).up()


@pytest.mark.parametrize(("key", "value"), [("filesystem", "btrfs"), ("nodes", 0)])
def test_unsupported_topologies_are_refused_immediately(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(WorldError, match=str(value)):
        NamespaceWorld(specification(tmp_path, **{key: value}))  # type: ignore[arg-type]
