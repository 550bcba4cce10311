"""libvirt in the sandbox: started with its own state in the lab's directory, called through `virsh`."""

import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from installation.programs import run_program
from orchestrator.errors import WorldError
from orchestrator.machine import cgroups, links
from orchestrator.machine.programs import program
from orchestrator.worlds.vagrant import daemon, network

URI = "qemu:///system"
POOL = "default"
_VIRSH = ("virsh", "-q", "-c", URI)
_START_DEADLINE_S = 30.0
_VIRSH_DEADLINE_S = 120.0
# Everything runs as root within the sandbox, which isolates it from the machine.
_QEMU_SETTINGS = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
"""
_DAEMON_SETTINGS = """\
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:stderr"
"""


class Hypervisor:
    """The sandbox's libvirt. `group` contains all its processes, including virtual machines."""

    def __init__(self, directory: Path, group: cgroups.Cgroup) -> None:
        self._directory = directory
        self._group = group
        self.pool = directory / "pool"
        self.log = directory / "libvirtd.log"
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self, numbers: Iterable[int]) -> None:
        """Start it, with the networks for the nodes of these numbers and an empty storage pool. Raises `WorldError`."""
        for name in (*daemon.PLACES, "pool"):
            (self._directory / name).mkdir(exist_ok=True)
        (self._directory / "etc" / "qemu.conf").write_text(_QEMU_SETTINGS, encoding="utf-8")
        (self._directory / "etc" / "libvirtd.conf").write_text(_DAEMON_SETTINGS, encoding="utf-8")
        self._group.create()
        links.disable_ipv6()
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                program(daemon.__name__, str(self._group.path), str(self._directory), "libvirtd"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_for(self._daemon)
        for number, definition in enumerate(network.definitions(numbers)):
            file = self._directory / f"network-{number}.xml"
            file.write_text(definition, encoding="utf-8")
            self.virsh("net-define", str(file))
        for name in network.BRIDGES:
            self.virsh("net-start", name)
        # Address resolution of a machine that is just booting is given up after seconds: avoid it.
        links.ip_batch([f"neigh replace {neighbour} nud permanent" for neighbour in network.neighbours(numbers)])
        self.virsh("pool-define-as", POOL, "dir", "--target", str(self.pool))
        self.virsh("pool-start", POOL)

    def stop(self) -> None:
        """Kill it and every virtual machine, and remove what the kernel keeps of them. Can be called twice."""
        self._group.remove()
        if self._daemon is not None:
            self._daemon.wait()
            self._daemon = None
        # Files of an earlier daemon in /run would list machines that are gone.
        shutil.rmtree("/run/libvirt", ignore_errors=True)
        for bridge in network.BRIDGES.values():
            links.delete(bridge)

    def virsh(self, *arguments: str) -> str:
        """Run a virsh command; returns its output. Raises `WorldError` with its error message."""
        command = [*_VIRSH, *arguments]
        try:
            done = run_program(command, timeout=_VIRSH_DEADLINE_S)
        except OSError as error:
            raise WorldError(
                f"virsh cannot be run: {error.strerror}; `brownout doctor` lists what is missing"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise WorldError(
                f"virsh {' '.join(arguments)} did not end within {_VIRSH_DEADLINE_S:g} s; see {self.log}"
            ) from error
        if done.returncode:
            if self._daemon is not None and self._daemon.poll() is not None:
                raise WorldError(f"libvirt has ended unexpectedly: {_last_line(self.log)}; see {self.log}")
            message = " ".join(done.stderr.split()).removeprefix("error: ")
            raise WorldError(f"virsh {' '.join(arguments)}: {message or f'code {done.returncode}'}; see {self.log}")
        return done.stdout

    def said_of(self, domain: str) -> str:
        """The last line of QEMU's and libvirt's log of a machine."""
        return _last_line(self._directory / "log" / "qemu" / f"{domain}.log")

    def _wait_for(self, started: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_DEADLINE_S
        while True:
            try:
                self.virsh("uri")
                return
            except WorldError as error:
                if started.poll() is not None:
                    raise WorldError(f"libvirt does not start: {_last_line(self.log)}; see {self.log}") from error
                if time.monotonic() > deadline:
                    raise WorldError(f"libvirt does not answer within {_START_DEADLINE_S:g} s: {error}") from error
            time.sleep(0.02)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError as error:
        return f"none ({error.strerror})"
    return lines[-1] if lines else "it printed nothing"
