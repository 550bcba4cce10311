"""Ports of servers that are about to be started: two runs side by side never take the same."""

import socket
import subprocess
import sys

import pytest

from installation.files import PROJECT_ROOT
from systems import local_ports
from systems.local_ports import ADDRESS, LocalPorts, NoPortError

OTHER = """
import sys
from systems.local_ports import LocalPorts
ports = LocalPorts("the same")
print([ports.take() for _ in range(3)], flush=True)
sys.stdin.readline()
"""


def test_a_port_held_by_another_process_is_free_after_its_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER], cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = set(eval(other.stdout.readline()))
        with LocalPorts("the same") as ports:
            mine = {ports.take() for _ in range(3)}
        assert len(mine | theirs) == 6
        other.kill()
    with LocalPorts("the same") as ports:
        assert {ports.take() for _ in range(3)} & theirs


def test_a_port_with_a_listener_is_not_taken() -> None:
    with LocalPorts("a") as ports:
        first = ports.take()
    with socket.create_server((ADDRESS, first)), LocalPorts("a") as ports:
        assert ports.take() != first


def test_released_ports_can_be_taken_again_up_to_the_number_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ports, "PORTS", range(29_990, 29_993))
    for _ in range(2):
        with LocalPorts("b") as ports:
            assert {ports.take() for _ in range(3)} == {29_990, 29_991, 29_992}
            with pytest.raises(NoPortError, match="no free port between 29990 and 29993"):
                ports.take()
