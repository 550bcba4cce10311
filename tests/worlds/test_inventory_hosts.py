"""The contents of an Ansible inventory, in each of its forms, and its errors."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.errors import UsageError, WorldError
from orchestrator.running.runner import require_faults
from orchestrator.worlds.inventory import lab
from orchestrator.worlds.inventory.access import HostAccess
from orchestrator.worlds.inventory.checks import CheckedHost
from orchestrator.worlds.inventory.hosts import ANSIBLE_VARIABLES, PASSED_ON, VARIABLES, InventoryHost, chosen
from orchestrator.worlds.inventory.lab import InventoryLab
from orchestrator.worlds.inventory.parser import Inventory, Listed, read
from orchestrator.worlds.inventory.power import is_on, run_command
from orchestrator.worlds.lab import LabSpec
from tests.orchestrator.campaigns import campaign

INI = """
[brownout]
zeta ansible_host=192.0.2.9 ansible_port=2222 ansible_ssh_private_key_file="{{ inventory_dir }}/key"
[brownout:children]
rack
[rack]
beta brownout_port=9093
alpha
[brownout:vars]
ansible_user=admin
brownout_own_clock=yes
brownout_power_off=ipmitool -H bmc-{name} power off
brownout_power_on=virsh start {node}; echo ${HOME} {address}
[elsewhere]
omega
"""
YAML = """
all:
  hosts: {one: {ansible_host: 192.0.2.1}, two: {ansible_become: true}}
"""
DYNAMIC = """#!/bin/sh
[ "$1" = --list ] || { echo '{}'; exit; }
echo '{"brownout": {"hosts": ["x1", "x2"]}, "_meta": {"hostvars": {"x2": {"brownout_time_scale": 2.5}}}}'
"""


def of(variables: Mapping[str, object], name: str = "web") -> InventoryHost:
    (host,) = chosen(Inventory(Path("h.ini"), "brownout", (Listed(name, variables),)), 1)
    return host


def test_the_group_of_nodes_is_taken_in_order_with_its_variables(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(INI)
    (tmp_path / "key").touch()
    inventory = read(path, ANSIBLE_VARIABLES)
    assert [host.name for host in inventory.hosts] == ["zeta", "beta", "alpha"]
    zeta, beta, alpha = chosen(inventory, 3)
    assert (zeta.node, zeta.title, zeta.ssh_address, zeta.ssh_port) == ("n1", "n1 (zeta)", "192.0.2.9", 2222)
    assert (zeta.key_file, zeta.data_address) == ((tmp_path / "key").resolve(), "192.0.2.9")
    assert (beta.port, alpha.port, alpha.ssh_address, alpha.user) == (9093, None, "alpha", "admin")
    assert (alpha.own_clock, alpha.become, alpha.data_dir, alpha.time_scale) == (True, False, "/data", 1.0)
    assert alpha.power_off == "ipmitool -H bmc-alpha power off"
    assert zeta.power_on == "virsh start n1; echo ${HOME} 192.0.2.9"


def test_an_inventory_without_the_group_is_taken_whole(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(YAML)
    one, two = chosen(read(path, ANSIBLE_VARIABLES), 2)
    assert (one.name, one.ssh_address, one.become, two.name, two.become) == ("one", "192.0.2.1", False, "two", True)


def test_a_program_that_lists_hosts_is_an_inventory(tmp_path: Path) -> None:
    path = tmp_path / "cloud"
    path.write_text(DYNAMIC)
    path.chmod(0o755)
    spec = LabSpec(2, "ext4", tmp_path / "lab", inventory=path)
    lab = InventoryLab(spec)
    assert lab.time_scale == 2.5
    assert InventoryLab.time_scales(spec) == (2.5,), "a plan lists no other"
    assert {"kill", "pause", "partition-one", "packet-delay"} <= lab.capabilities
    assert not {"power-loss", "clock-jump", "stall", "clock-freeze"} & lab.capabilities
    assert any(limit.startswith("no power-loss, power-loss-all: ") and "n1 (x1)" in limit for limit in lab.limits)


def test_a_script_that_needs_more_than_the_hosts_offer_names_the_variables_to_add(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[brownout]\none\ntwo\nthree\n")
    lab = InventoryLab(LabSpec(3, "ext4", tmp_path / "lab", inventory=path))
    script = campaign('[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "power-loss"\nnode = "n2"\n')
    with pytest.raises(
        UsageError, match=r"needs power-loss, .*: the inventory has no brownout_power_off and .* n1 \(one\)"
    ):
        require_faults(script, lab, "it was asked for")


def test_too_few_hosts_name_file_and_group(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[brownout]\none\ntwo\n")
    with pytest.raises(UsageError, match=r"hosts\.ini: 3 nodes wanted, and the group brownout has 2 hosts"):
        InventoryLab.prepare(LabSpec(3, "ext4", tmp_path / "lab", inventory=path))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[brownout]\n[others]\nprecious\n", "the group brownout has no hosts"),
        ("a: [\n", "is not understood by Ansible: "),
        (None, "there is no such inventory"),
    ],
)
def test_an_invalid_inventory_is_refused(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "hosts.yml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        read(path, ())


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"brownout_adress": "x"}, "brownout_adress is not a variable of Brownout; did you mean brownout_address?"),
        ({"brownout_port": "90920"}, "brownout_port is '90920', which is not a port"),
        ({"brownout_own_clock": "perhaps"}, "brownout_own_clock is 'perhaps'; write true or false"),
        ({"brownout_time_scale": 0.1}, "brownout_time_scale is '0.1'"),
        ({"brownout_data_dir": "/"}, "brownout_data_dir is '/'"),
        ({"brownout_data_dir": "data"}, "brownout_data_dir is 'data'"),
        ({"brownout_power": "plug"}, "brownout_power 'plug' is not"),
        ({"brownout_power_off": "x"}, "brownout_power_on is missing"),
        ({"brownout_power_off": "x", "brownout_power_on": "y", "brownout_power": "sysrq"}, "keep one of them"),
        ({"brownout_power_off": "x {hots}", "brownout_power_on": "y"}, r"the placeholder \{hots\}"),
        ({"ansible_connection": "local"}, "hosts are reached by SSH only"),
        ({"ansible_become_method": "su"}, "commands become root by sudo only"),
        ({"brownout_suspend_stall": "x"}, "brownout_suspend_resume is missing"),
        ({"ansible_ssh_private_key_file": "/nowhere/key"}, "ansible_ssh_private_key_file is /nowhere/key"),
    ],
)
def test_variables_that_make_no_sense_are_named_with_host_and_file(
    variables: Mapping[str, object], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        of(variables)
    assert str(caught.value).startswith("h.ini: host web: ")


def test_two_nodes_need_two_addresses() -> None:
    twins = tuple(Listed(name, {"ansible_host": "192.0.2.1"}) for name in ("a", "b"))
    with pytest.raises(UsageError, match=r"a and b have the same address, 192\.0\.2\.1"):
        chosen(Inventory(Path("h.ini"), "brownout", twins), 2)


def test_every_variable_is_documented_once() -> None:
    assert not set(VARIABLES) & set(PASSED_ON)
    assert all(of({name: "1"}) for name in ("brownout_address", "brownout_data_serial", *PASSED_ON))


@pytest.mark.parametrize(
    ("command", "on"),
    [
        ("echo Chassis Power is on", True),
        ("echo 'Power is OFF'", False),
        ("echo running", True),
        ("echo shut off", False),
        ("true", True),
        ("exit 1", False),
    ],
)
def test_a_power_status_is_understood(command: str, on: bool) -> None:
    assert is_on(of({}), command) is on


def test_an_ambiguous_power_status_is_refused() -> None:
    with pytest.raises(WorldError, match=r"n1 \(web\): brownout_power_status says neither on nor off"):
        is_on(of({}), "echo BMC does not answer >&2; exit 3")


def test_a_failed_command_is_reported_with_its_output() -> None:
    with pytest.raises(WorldError, match=r"n1 \(web\): brownout_power_off ended with exit code 2: .*no such domain"):
        run_command(of({}), "brownout_power_off", "echo no such domain >&2; exit 2")


@pytest.mark.parametrize(
    ("unreached", "reasons"), [(["n2"], ["n1 (web): it cannot connect to the SSH port of n2"]), ([], [])]
)
def test_a_host_that_reaches_no_ssh_port_has_no_faults_of_the_network(unreached: list[str], reasons: list[str]) -> None:
    access = HostAccess("192.0.2.1", 22, "root", None, ())
    facts = {
        "boot_id": "another",
        "own_kernel": True,
        "may_set_clock": True,
        "nft": "",
        "netem": "",
        "unreached": unreached,
    }
    broken = dict(lab._broken_promises([CheckedHost(of({}), access, "192.0.2.1", facts, (9092,))]))
    assert (broken["network"], broken["netem"], broken["power"]) == (reasons, reasons, [])
