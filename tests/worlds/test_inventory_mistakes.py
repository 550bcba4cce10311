"""A mistake in the inventory is the user's to correct (exit 64); a host that does not answer is not (70)."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nemeses.ports import Result
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


def run(tmp_path: Path, inventory: str | None, name: str = "hosts.ini") -> int:
    campaign, path = tmp_path / "few.toml", tmp_path / name
    campaign.write_text(CAMPAIGN)
    if inventory is not None:
        path.write_text(inventory)
    options = ["--store", str(tmp_path / "store"), "--engine", "in-process", "--quiet"]
    return main(["run", str(campaign), "--inventory", str(path), *options])


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("inventory", "name", "said"),
    [
        (None, "hosts.ini", "there is no such inventory"),
        ("all: {hosts: {a: {b\n", "hosts.yml", "is not understood by Ansible"),
        ("[brownout]\n", "hosts.ini", "the group brownout has no hosts"),
        ("[brownout]\nnowhere.invalid\n", "hosts.ini", "the name nowhere.invalid is not known"),
        ("[brownout]\nh ansible_host=127.0.0.1 brownout_address=::1\n", "hosts.ini", "is not an IPv4 address"),
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


class Sudo:
    """A host whose sudo wants this password."""

    def __init__(self, password: str) -> None:
        self.password = password

    def run(self, *_: object, **__: object) -> Result:
        return Result(1, "", "sudo: a password is required")

    def run_as_user(self, _command: str, given: str) -> Result:
        right = given == f"{self.password}\n"
        return Result(0, "", "") if right else Result(1, "", "sudo: 1 incorrect password attempt")


def examined(variables: dict[str, Any], tmp_path: Path) -> checks._UnfitError:
    listed = (Listed("web", {"ansible_host": "127.0.0.1", "ansible_become": True, **variables}),)
    (host,) = chosen(Inventory(tmp_path / "h.ini", "brownout", listed), 1)
    access: Any = SimpleNamespace(user="ann")
    with pytest.raises(checks._UnfitError) as raised:
        checks.examine(Sudo("right"), checks.CheckedHost(host, access, "127.0.0.1", {}, (9092,)))  # type: ignore[arg-type]
    return raised.value


def test_a_wrong_and_a_missing_sudo_password_have_separate_errors(tmp_path: Path) -> None:
    missing = examined({}, tmp_path)
    assert "cannot become root without a password" in str(missing)
    wrong = examined({"ansible_become_pass": "wrong"}, tmp_path)
    assert "(ansible_become_password) is wrong: sudo: 1 incorrect password attempt" in str(wrong)
    right = examined({"ansible_become_password": "right"}, tmp_path)
    assert "is right, and runs cannot type one" in str(right)
    assert (missing.is_mistake, wrong.is_mistake, right.is_mistake) == (False, True, False)
    assert all("NOPASSWD" in str(each) for each in (missing, right))


def test_a_password_is_read_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[brownout]\nh ansible_host=127.0.0.1 ansible_become_password=secret\n")
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
