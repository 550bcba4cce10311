"""Campaigns on hosts of an inventory: here, machines of a namespace world, known by address and key only."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from installation.files import PROJECT_ROOT
from nodeimage import site_archive
from tests.campaign_text import IMPATIENT, campaign_text, random_faults
from tests.mutations.harms import require_seal, require_unknown
from tests.worlds import support

pytestmark = pytest.mark.root
DEADLINE_S = 900.0
NEEDS_IPV6 = pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="needs IPv6")
NEEDS_SUDO = pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo")

CAMPAIGN = campaign_text(
    "small",
    broker=IMPATIENT,
    workload={"partitions": 2, "producers": 2, "consumers": 1, "rate": 100, "duration_s": 6},
    nemesis=random_faults("kill", "pause", "power-loss", "partition-one", interval_s=[0.2, 0.4], duration_s=[0.5, 0.5]),
    # however slow the machine is
    checks={"min_ok": 20, "min_share": 0.05, "required_faults": ["kill", "pause", "power-loss", "partition-one"]},
)


def play(scenario: str, *arguments: str) -> Any:
    """Run a scenario of `tests.worlds.inventory_scenarios` in a sandbox of its own; what it returned."""
    return support.play(scenario, *arguments, module="tests.worlds.inventory_scenarios", deadline_s=DEADLINE_S)


@pytest.mark.rotating(13, among="real-time campaigns")
@pytest.mark.parametrize(
    ("time_scale", "way"),
    [pytest.param(1.0, "IPv6", marks=NEEDS_IPV6), pytest.param(4.0, "jump", marks=NEEDS_SUDO)],
)
def test_a_campaign_passes_on_the_hosts_of_an_inventory(tmp_path: Path, time_scale: float, way: str) -> None:
    """`jump`: the way to the hosts is a jump host, and the command asks for a sudo password."""
    site_archive(PROJECT_ROOT, f"3.{sys.version_info.minor}")  # fetched once; a sandbox has no network
    path = tmp_path / "small.toml"
    path.write_text(CAMPAIGN)
    done = play("campaign", str(tmp_path), str(path), str(time_scale), "true", way)

    assert done["code"] == 0, done["said"]
    (run,) = [path.parent for path in (tmp_path / "store" / "small").glob("*/run.toml")]
    verdict = json.loads((run / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["world"]) == ("pass", "inventory")
    assert tomllib.loads((run / "run.toml").read_text())["time_scale"] == time_scale
    confirmed = {fault["kind"] for fault in verdict["faults"] if fault["status"] == "confirmed"}
    assert confirmed == {"kill", "pause", "power-loss", "partition-one"}
    # What the inventory promises is believed only of machines with a kernel of their own: these share ours.
    (clocks,) = [limit for limit in verdict["limits"] if limit.startswith("no clock-jump: ")]
    assert "n3 (gamma): it is a container" in clocks
    for name in ("events.jsonl", "service.log", "server.properties", "data/log-0", "data/meta.properties"):
        assert (run / "nodes" / "n3" / name).exists(), name
    require_seal(run)
    require_unknown(run)
    # The hosts are left as they were, apart from what was installed.
    assert done["tables"] == ["", "", ""]
    assert (done["brokers"], done["on"]) == (["0", "0", "0"], [True, True, True])
    assert list((tmp_path / "store" / ".labs").iterdir()) == []
    assert done["secrets"] == []


@pytest.mark.rotating(3, among="hosts of an inventory")
def test_unusable_hosts_are_named_together_and_not_changed(tmp_path: Path) -> None:
    done = play("refusals", str(tmp_path))
    in_use, no_way_in = done["in_use"], done["no_way_in"]
    assert in_use.startswith("WorldError: 3 of 3 hosts of ")
    assert "n1 (alpha): nothing listens at 10.77.0.11 port 23" in in_use
    assert "n2 (beta): /data (brownout_data_dir) contains files that are not Brownout's: precious" in in_use
    assert "n3 (gamma): process " in in_use
    assert "listens on port 9092 already" in in_use
    assert "n1 (alpha): 10.77.0.99 is not an address of this host" in no_way_in
    assert "n2 (beta): it does not let root in by the key " in no_way_in
    assert "n3 (gamma): its host key is not in known_hosts" in no_way_in
    on_java = done["on_java"].splitlines()[1:]
    assert (
        "  n1 (alpha): Some System 1.0 needs Java 17 or later, and it has Java 8; install one, on Debian " in on_java[0]
    )
    assert "n2 (beta): /data" in on_java[1], "its Java will do"
    assert "n3 (gamma): process " in on_java[2]
    assert on_java[2].endswith("listens on port 9092 already; stop it"), "every port is looked at, the first moved"
    assert (
        "n3 (gamma): Some System 1.0 needs Java 17 or later, and `java -version` in the PATH of root failed"
        in on_java[3]
    )
    assert "out of memory; run it there as root" in on_java[3]
    assert (done["precious"], done["changed"], done["left"]) == ("mine", ["", "", ""], [])


@pytest.mark.rotating(3, among="hosts of an inventory")
def test_a_host_is_reached_through_a_jump_host(tmp_path: Path) -> None:
    done = play("jump", str(tmp_path))
    for way in ("ProxyJump in the configuration", "ProxyJump", "ProxyCommand"):
        assert done[way] == "through the jump host", way
    refused = done["port 23"].splitlines()[1]
    assert (
        "n1 (alpha): 10.77.0.11 port 22 cannot be reached through its proxy: ssh: connect to host 10.77.0.12 "
        in refused
    )
    assert "port 23: Connection refused; try: ssh -oBatchMode=yes -F " in refused
    assert (done["off"], done["left"]) == (True, "0")


@NEEDS_SUDO
@pytest.mark.rotating(3, among="hosts of an inventory")
def test_a_sudo_password_is_checked_used_and_not_stored(tmp_path: Path) -> None:
    done = play("sudo", str(tmp_path))
    assert done["none"].startswith("WorldError: 1 of 1 host ")
    assert "n1 (alpha): ann cannot become root without a password" in done["none"]
    assert "give it with --ask-become-pass" in done["none"]
    assert done["wrong"].startswith("UsageError: 1 of 1 host ")
    assert "n1 (alpha): the sudo password of ann is wrong (sudo: 1 incorrect password attempt)" in done["wrong"]
    assert done["right"] == "usable"
    assert "BECOME password" in done["ansible"]
    assert done["secrets"] == []


@pytest.mark.rotating(3, among="hosts of an inventory")
def test_a_firewall_between_the_hosts_is_found_before_a_run(tmp_path: Path) -> None:
    done = play("firewall", str(tmp_path))
    assert done["said"].splitlines()[1:] == ["  N3 cannot connect to N2 at 10.77.0.12 port 9092"]
    assert done["listening"] == ["0", "0", "0"]


@pytest.mark.rotating(3, among="hosts of an inventory")
def test_two_campaigns_cannot_have_the_same_host(tmp_path: Path) -> None:
    refused = play("claims", str(tmp_path))["refused"]
    assert refused.startswith("n2 (beta) is in use by another campaign (root@")


@pytest.mark.rotating(3, among="hosts of an inventory")
def test_each_host_makes_its_own_cut_and_a_reboot_keeps_it(tmp_path: Path) -> None:
    done = play("network", str(tmp_path))
    for name, cut in {
        "out": [["n1", "n2"], ["n1", "n3"]],
        "both": [["n1", "n3"], ["n2", "n3"], ["n3", "n1"], ["n3", "n2"]],
        "reject": [["n1", "n2"], ["n2", "n1"], ["n2", "n3"], ["n3", "n2"]],
    }.items():
        assert done[name]["injected"]["status"] == "confirmed", done[name]
        assert (done[name]["cut"], done[name]["healed"]["status"]) == (cut, "confirmed"), done[name]
    # What is to be cut at a host without power is remembered, and done when it is back.
    assert done["dark"] == {"cut": [["n1", "n2"], ["n2", "n1"], ["n3", "n2"]], "counted": 6}
    assert (done["back"], done["healed"]) == ([["n2", "n1"], ["n3", "n2"]], [])
    assert done["tables"] == ["table inet theirs", "", ""]
