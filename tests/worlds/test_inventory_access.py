"""How the key of a host without a known key is learnt."""

import shutil
import socket
from pathlib import Path

import pytest

from orchestrator.worlds.inventory.access import find_access
from orchestrator.worlds.inventory.hosts import chosen
from orchestrator.worlds.inventory.parser import Inventory, Listed


def test_a_slow_host_has_the_time_to_show_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, ssh = tmp_path / "ssh", shutil.which("ssh")
    program.write_text(
        f'#!/bin/sh\n[ "$1" != -G ] || exec {ssh} "$@"\n'
        'for word; do case $word in -oUserKnownHostsFile=*) echo "asked with $*" > "${word#*=}";; esac; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with socket.create_server(("127.0.0.1", 0)) as server:
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_port": server.getsockname()[1],
            "ansible_ssh_common_args": "-F /dev/null -o StrictHostKeyChecking=no",
            "brownout_time_scale": 4,
        }
        (host,) = chosen(Inventory(Path("h.ini"), "brownout", (Listed("web", variables),)), 1)
        access = find_access(host)
    (line,) = access.host_keys
    assert f"-p {access.port} -l" in line
    assert "-oConnectTimeout=80 " in line
    assert access.noted == ("the host key of n1 (web) was not known, and is trusted without verification",)
