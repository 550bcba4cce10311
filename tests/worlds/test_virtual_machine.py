"""The messages about a virtual machine that does not boot or disappears, without a real one: its host and libvirt are
fakes."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from nemeses.ports import HostError, HostUnreachableError, Result
from orchestrator.errors import WorldError
from orchestrator.machine import cgroups
from orchestrator.machine.playbooks import ssh_arguments
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.remote import paths
from orchestrator.worlds.vagrant import lab
from orchestrator.worlds.vagrant.hypervisor import Hypervisor
from orchestrator.worlds.vagrant.machine import BootError, VirtualMachine


class Said:
    """A command whose output comes from here: the machine's clock, as we have it."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def wait(self) -> None:
        for _ in range(4):
            self._sink(f"{time.time():.6f}".encode())

    def close(self) -> None:
        """Nothing to end."""


class BusyHost:
    """An SSH server that drops this number of connections before one lasts."""

    name = "n1"

    def __init__(self, port: int, failures: int) -> None:
        self.probe_port = port
        self.failures = failures
        self.condition = str

    def connect(self) -> None:
        if self.failures:
            self.failures -= 1
            raise HostUnreachableError("n1 cannot be reached by SSH: SSHException('No existing session')")

    def follow(self, _command: str, sink: Any, **_: Any) -> Said:
        if self.failures:
            self.failures -= 1
            raise HostUnreachableError("n1: it cannot be started: TimeoutError()")
        return Said(sink)

    def run(self, _command: str, **_: Any) -> Result:
        return Result(0, "", "")


@pytest.fixture
def greeter() -> Iterator[int]:
    """The port of something that greets as an SSH server does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as channel:
                        channel.sendall(b"SSH-2.0-stand-in\r\n")

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]


def machine(directory: Path, host: object) -> VirtualMachine:
    hypervisor = Hypervisor(directory, cgroups.Cgroup(directory / "group"))
    return VirtualMachine(cast("SshHost", host), "127.0.0.1", hypervisor, directory)


class Running(VirtualMachine):
    """One whose QEMU is this process."""

    def pid(self) -> int | None:
        return 1


def running(directory: Path, host: object) -> Running:
    hypervisor = Hypervisor(directory, cgroups.Cgroup(directory / "group"))
    return Running(cast("SshHost", host), "127.0.0.1", hypervisor, directory)


def test_first_connections_that_a_busy_machine_drops_are_repeated(tmp_path: Path, greeter: int) -> None:
    host = BusyHost(greeter, failures=3)
    assert abs(running(tmp_path, host).wait_until_ready(20.0)) < 1.0
    assert host.failures == 0


def test_an_unreachable_machine_is_reported_with_the_reason(tmp_path: Path, greeter: int) -> None:
    (tmp_path / "console.log").write_text("Linux version 6.1\nStarting ssh.service\n")
    with pytest.raises(BootError, match=r"n1: not reachable 0\.3 s after its start: .*SSHException.*; the end of its "):
        running(tmp_path, BusyHost(greeter, failures=1000)).wait_until_ready(0.3)


def test_an_empty_console_means_that_the_kernel_did_not_run(tmp_path: Path) -> None:
    (tmp_path / "console.log").touch()
    words = machine(tmp_path, BusyHost(1, 0)).last_words()
    assert words.startswith("its console printed nothing, so its processor did not reach the kernel's")
    assert "BROWNOUT_DRIVER=qemu" in words
    (tmp_path / "console.log").write_text("Linux version 6.1\nKernel panic\n")
    assert machine(tmp_path, BusyHost(1, 0)).last_words() == "the end of its console: Linux version 6.1 | Kernel panic"


def test_a_connection_lost_with_its_machine_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log" / "qemu" / "brownout_n1.log"
    log.parent.mkdir(parents=True)
    log.write_text("starting up\nKVM internal error. Suberror: 1\n")
    unit = paths.service_unit(systemd=True)
    host = SshHost("n1", "127.0.0.1", 9092, unit, key_file=None, known_hosts=tmp_path / "known", ssh_port=1)
    machine(tmp_path, host)
    with pytest.raises(HostError, match=r"its virtual machine is off; the last line of QEMU's log: KVM internal error"):
        host.run("true")


@pytest.mark.parametrize(
    ("virsh", "condition"),
    [
        ("echo 'running (booted)'", ""),
        ("echo 'paused (user)'", "its virtual machine is paused (user)"),
        ("echo 'paused (I/O error)'", "its virtual machine is stopped, because its disk cannot be written ("),
        ("echo 'error: failed to connect' >&2; exit 1", "virsh domstate --reason brownout_n1: failed to connect; see "),
    ],
)
def test_the_state_of_a_machine_in_libvirt_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, virsh: str, condition: str
) -> None:
    program = tmp_path / "virsh"
    program.write_text(f"#!/bin/sh\n{virsh}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = running(tmp_path, BusyHost(1, 0)).condition()
    assert said.startswith(condition)
    assert bool(said) == bool(condition)


def test_a_lab_without_disk_space_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(
        WorldError, match=r"has \d+ MB free, and 3 virtual machines need \d+ MB; free some, or .*--store"
    ):
        lab.make(tmp_path / "lab", 3, memory_mb=1 << 40)


def test_a_slow_host_is_waited_for_longer(tmp_path: Path) -> None:
    assert "ServerAliveCountMax=3 " in ssh_arguments(tmp_path, "mitogen_linear", None)
    assert "ServerAliveCountMax=12 " in ssh_arguments(tmp_path, "mitogen_linear", None, 4.0)
