"""A mistake in the inventory is the user's to correct (exit 64); a host that does not answer is not (70)."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.command.line import main
from orchestrator.errors import UsageError, WorldError
from orchestrator.worlds.inventory import checks
from orchestrator.worlds.inventory.hosts import ANSIBLE_VARIABLES, chosen
from orchestrator.worlds.inventory.parser import Inventory, Listed, read

CAMPAIGN = """
name = "few"
[topology]
nodes = 1
"""


def run(tmp_path: Path, inventory: str | None, name: str = "hosts.ini", options: Sequence[str] = ()) -> int:
    campaign, path = tmp_path / "few.toml", tmp_path / name
    campaign.write_text(CAMPAIGN)
    if inventory is not None:
        path.write_text(inventory)
    where = options if "--world" in options else ["--inventory", str(path), *options]
    return main(["run", str(campaign), *where, "--store", str(tmp_path / "store"), "--engine", "in-process", "--quiet"])


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("inventory", "name", "said"),
    [
        (None, "hosts.ini", "does not exist; correct the path of the inventory"),
        ("all: {hosts: {a: {b\n", "hosts.yml", "is not understood by Ansible"),
        ("[brownout]\n", "hosts.ini", "the group brownout has no hosts"),
        ("[brownout]\nnowhere.invalid\n", "hosts.ini", "the name nowhere.invalid is not known"),
        ("[brownout]\nh ansible_host=127.0.0.1 brownout_address=::z\n", "hosts.ini", "is not an IP address"),
        ("[brownout]\nh ansible_host=127.0.0.1 brownout_address=fe80::1\n", "hosts.ini", "is valid on one link only"),
        ("[brownout]\nh ansible_host=127.0.0.1 brownout_port=x\n", "hosts.ini", "which is not a port"),
        (
            "[brownout]\nh ansible_host=127.0.0.1 ansible_ssh_common_args='-o Nonsense=1'\n",
            "hosts.ini",
            "ssh does not understand its settings",
        ),
        ("[brownout]\nh ansible_host=127.0.0.1 ansible_ssh_private_key_file=none\n", "hosts.ini", "no such file"),
        ("[brownout]\nh ansible_host=127.0.0.1 ansible_ssh_private_key_file=few.toml\n", "hosts.ini", "chmod 600"),
    ],
)
def test_a_mistake_exits_with_64_and_names_file_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inventory: str | None, name: str, said: str
) -> None:
    assert run(tmp_path, inventory, name) == 64
    printed = capsys.readouterr().err
    assert said in printed
    assert str(tmp_path / name) in printed


def test_an_inventory_that_is_a_pipe_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "hosts.ini")
    assert run(tmp_path, None) == 64
    assert "hosts.ini: is neither a file nor a directory" in capsys.readouterr().err


def test_a_host_without_a_listener_is_an_error_of_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "[brownout]\nh ansible_host=127.0.0.1 ansible_port=1\n") == 70
    assert "nothing listens at 127.0.0.1 port 1" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_key_is_checked_before_the_host(tmp_path: Path) -> None:
    for content, mode, said in ((b"no key\n", 0o600, "is not a private key"), (None, 0o644, "chmod 600")):
        key = tmp_path / f"key-{mode:o}"
        if content is None:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        else:
            key.write_bytes(content)
        key.chmod(mode)
        variables = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_private_key_file": str(key)}
        hosts = chosen(Inventory(tmp_path / "h.ini", "brownout", (Listed("h", variables),)), 1)
        with pytest.raises(UsageError, match=said):
            checks.check_all(tmp_path / "h.ini", hosts, tmp_path)


def test_two_names_of_one_address_are_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = SimpleNamespace(host_keys=())
    monkeypatch.setattr(checks, "find_access", lambda _: access)
    monkeypatch.setattr(checks, "_look", lambda each, _: each)
    listed = (Listed("a", {"ansible_host": "127.0.0.1"}), Listed("b", {"ansible_host": "localhost"}))
    hosts = chosen(Inventory(tmp_path / "h.ini", "brownout", listed), 2)
    with pytest.raises(UsageError, match=r"n2 \(b\): it has the same address as n1 \(a\), 127\.0\.0\.1"):
        checks.check_all(tmp_path / "h.ini", hosts, tmp_path)


def test_addresses_of_two_kinds_are_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_access", lambda _: SimpleNamespace(host_keys=()))
    listed = (Listed("a", {"ansible_host": "127.0.0.1"}), Listed("b", {"ansible_host": "::1"}))
    hosts = chosen(Inventory(tmp_path / "h.ini", "brownout", listed), 2)
    with pytest.raises(UsageError, match=r"n2 \(b\): its address is ::1, and other nodes have the other kind"):
        checks.check_all(tmp_path / "h.ini", hosts, tmp_path)


@pytest.mark.parametrize(
    ("inventory", "options", "typed", "said"),
    [
        (None, ["--world", "simulation"], "secret\n", "only hosts of an inventory need a password"),
        ("[brownout]\nh\n", [], "secret\n", "no host becomes root by sudo; set ansible_become=true"),
        ("[brownout]\nh ansible_become=true\n", [], "\n", "no password was given"),
        ("[brownout]\nh ansible_become=true\n", [], "", "no password was given"),
    ],
)
def test_a_useless_password_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    inventory: str | None,
    options: list[str],
    typed: str,
    said: str,
) -> None:
    def answer(_: str) -> str:
        if not typed:
            raise EOFError
        return typed.rstrip("\n")

    monkeypatch.setattr("getpass.getpass", answer)
    assert run(tmp_path, inventory, options=[*options, "--ask-become-pass"]) == 64
    assert said in capsys.readouterr().err


def test_hosts_with_different_sudo_passwords_are_refused(tmp_path: Path) -> None:
    listed = [Listed(name, {"ansible_become": True, "ansible_become_pass": name}) for name in ("a", "b")]
    root = Listed("c", {"ansible_become_password": "c"})
    path = tmp_path / "h.ini"
    with pytest.raises(UsageError, match="a and b have different sudo passwords") as raised:
        chosen(Inventory(path, "brownout", tuple(listed)), 2)
    assert "NOPASSWD" in str(raised.value)
    typed = chosen(Inventory(path, "brownout", (listed[0], Listed("b", {"ansible_become": True}), root)), 3, "a")
    assert [host.become_password for host in typed] == ["a", "a", None]
    vault = Listed("a", {"ansible_become": True, "ansible_become_password": {"__ansible_vault": "6"}})
    with pytest.raises(UsageError, match="is not one line of readable text; give the password with --ask-become-pass"):
        chosen(Inventory(path, "brownout", (vault,)), 1)


def test_a_password_is_read_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hosts.ini"
    monkeypatch.setenv("SUDO", "secret")
    path.write_text(
        "[brownout]\nh ansible_become_password='{{ lookup(\"env\", \"SUDO\") }}'\nwrong ansible_user='{{ 1 / 0 }}'\n"
    )
    with pytest.raises(UsageError, match=r"the templates of wrong cannot be filled in: .*division") as raised:
        read(path, ANSIBLE_VARIABLES)
    assert "secret" not in str(raised.value)
    path.write_text("[brownout]\nh ansible_host=127.0.0.1 ansible_become=true ansible_become_password=secret\n")
    (host,) = chosen(read(path, ANSIBLE_VARIABLES), 1)
    assert host.become_password == "secret"
    assert "secret" not in repr(host)


def test_a_mistake_beside_an_unreachable_host_is_reported_as_a_mistake(tmp_path: Path) -> None:
    listed = (Listed("a", {"ansible_host": "127.0.0.1", "ansible_port": 1}), Listed("b.invalid", {}))
    hosts = chosen(Inventory(tmp_path / "h.ini", "brownout", listed), 2)
    with pytest.raises(UsageError, match="2 of 2 hosts"):
        checks.check_all(tmp_path / "h.ini", hosts, tmp_path)
    with pytest.raises(WorldError, match="1 of 1 host "):
        checks.check_all(tmp_path / "h.ini", hosts[:1], tmp_path)
