"""What happens inside the sandboxes of the inventory world's tests: three hosts with sshd, which it did not make.

A program: `python -m tests.worlds.inventory_scenarios <name> <arguments>` prints the scenario's result as JSON.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemeses import Fault, Nemesis
from orchestrator.errors import RunError, UsageError
from orchestrator.worlds.inventory.lab import InventoryLab
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.namespaces.world import NamespaceWorld
from tests.worlds.support import send, specification, stand_in_properties

NAMES = ("alpha", "beta", "gamma")
DISK_BYTES = 512 << 20


@dataclass(frozen=True)
class Hosts:
    """Machines of a namespace world, of which only addresses and a key are known from here on."""

    made: NamespaceWorld
    directory: Path

    @property
    def switchboard(self) -> Path:
        return Path("/run/switchboard")

    def inventory(self, *lines: str, of_host: dict[str, str] | None = None, names: tuple[str, ...] = NAMES) -> Path:
        """An inventory of all hosts, with further variables of all (`lines`) or of one."""
        config = dict(
            line.split()
            for line in Path(self.made.shell("n1")[2]).read_text().splitlines()
            if line.split()[0] in ("IdentityFile", "UserKnownHostsFile")
        )
        path = self.directory / "hosts.ini"
        hosts = [
            f"{name} ansible_host={node.address} {(of_host or {}).get(name, '')}"
            for name, node in zip(names, self.made.nodes, strict=False)
        ]
        path.write_text(
            "\n".join(
                [
                    *("[brownout]", *hosts, "[brownout:vars]", "ansible_user=root"),
                    f"ansible_ssh_private_key_file={config['IdentityFile']}",
                    f"ansible_ssh_common_args=-o UserKnownHostsFile={config['UserKnownHostsFile']}",
                    *lines,
                    "",
                ]
            )
        )
        return path

    def power_lines(self) -> list[str]:
        """Power by commands, as a hypervisor's would be; see `serve_power`."""
        order = f"{shlex.quote(sys.executable)} -m tests.worlds.inventory_scenarios order {self.switchboard}"
        return [f"brownout_power_{word}={order} {word} {{address}}" for word in ("off", "on", "status")]

    def serve_power(self) -> None:
        """Work the machines' plugs for those who ask on a socket."""
        by_address = {node.address: node.name for node in self.made.nodes}
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.switchboard))
        server.listen(16)

        def answer(connection: socket.socket) -> None:
            with connection:
                word, address = connection.recv(256).decode().split()
                name, power = by_address[address], self.made.power
                if word == "off":
                    power.cut([name])
                elif word == "on":
                    power.restore([name])
                connection.sendall(b"Chassis power is " + (b"on" if power.is_on(name) else b"off"))

        def serve() -> None:
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()

    def ask(self, name: str, command: str) -> str:
        done = self.made.hosts[name].run(command, timeout_s=30)
        assert done.ok, f"{name}: {command}: {done.stderr}"
        return str(done.stdout).strip()


def order(switchboard: str, word: str, address: str) -> str:
    """One order to the switchboard: a power command of the inventory."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(switchboard)
        connection.sendall(f"{word} {address}".encode())
        return connection.recv(256).decode()


@contextmanager
def three_hosts(directory: str) -> Iterator[Hosts]:
    made = NamespaceWorld(replace(specification(Path(directory, "machines"), 3), disk_bytes=DISK_BYTES))
    made.up()
    try:
        yield Hosts(made, Path(directory))
    finally:
        made.down()


def campaign(directory: str, path: str) -> Any:
    """A campaign over the inventory, by the command that people type; twice over the same hosts."""
    with three_hosts(directory) as hosts:
        hosts.serve_power()
        inventory = hosts.inventory(*hosts.power_lines())
        store = Path(directory, "store")
        command = [sys.executable, "-m", "orchestrator", "run", path, "--world", "inventory"]
        command += ["--inventory", str(inventory), "--store", str(store), "--engine", "in-process"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return {
            "code": done.returncode,
            "said": done.stdout + done.stderr,
            "tables": [hosts.ask(name, "nft list tables") for name in hosts.made.hosts],
            "brokers": [hosts.ask(name, "pgrep -fc [b]roker.--config || true") for name in hosts.made.hosts],
            "on": [hosts.made.power.is_on(name) for name in hosts.made.hosts],
        }


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)
