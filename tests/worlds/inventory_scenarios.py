"""The scenarios inside the sandboxes of the inventory world's tests: three existing hosts with sshd.

A program: `python -m tests.worlds.inventory_scenarios <name> <arguments>` prints the scenario's result as JSON.
"""

import json
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemeses import Fault, Nemesis
from nemeses.ports import HostError, Site
from orchestrator.errors import RunError, UsageError, WorldError
from orchestrator.machine.playbooks import PlaybookError, Target, play
from orchestrator.worlds.base import Node
from orchestrator.worlds.inventory.checks import CheckedHost, check_all
from orchestrator.worlds.inventory.hosts import ANSIBLE_VARIABLES, chosen
from orchestrator.worlds.inventory.lab import HostLocks, HostsNetwork, InventoryLab, require_ways
from orchestrator.worlds.inventory.parser import read
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from systems import Software
from tests.worlds.support import specification

NAMES = ("alpha", "beta", "gamma")
DISK_BYTES = 512 << 20
ENABLE_IPV6 = "for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 0 > $each; done; ip addr add {}"
CLOSED_TO = (
    "add table inet wall; add chain inet wall in {{ type filter hook input priority 0; }}; "
    "add rule inet wall in tcp dport 22 tcp flags & (syn | ack) == syn ip saddr {} reject with tcp reset"
)
PASSWORD = "Ann's sudo $ecret"


@dataclass(frozen=True)
class Hosts:
    """Machines of a namespace world, known only by addresses and a key."""

    made: NamespaceWorld
    directory: Path
    has_ipv6: bool = False

    def address(self, node: Node) -> str:
        return f"fd77::1{node.id}" if self.has_ipv6 else node.address

    def give_ipv6(self, name: str) -> None:
        """An IPv6 address for a machine, and an sshd there."""
        address = self.address(next(node for node in self.made.nodes if node.name == name))
        self.ask(name, ENABLE_IPV6.format(f"{address}/64 dev eth0 nodad"))
        config = f"sed 's/^ListenAddress.*/ListenAddress {address}/' /etc/brownout/sshd_config"
        self.ask(name, f"{config} > /run/sshd-ipv6 && /usr/sbin/sshd -f /run/sshd-ipv6")

    @property
    def switchboard(self) -> Path:
        return Path("/run/switchboard")

    def inventory(self, *lines: str, of_host: dict[str, str] | None = None, names: tuple[str, ...] = NAMES) -> Path:
        """An inventory of all hosts, with further variables of all (`lines`) or of one."""
        config = self._keys()
        path = self.directory / f"hosts-{len(list(self.directory.glob('hosts-*')))}.ini"
        hosts = [
            f"{name} ansible_host={self.address(node)} {(of_host or {}).get(name, '')}"
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

    def jump_config(self, jump: str) -> Path:
        """A configuration of ssh in which every host is reached through this one."""
        path, node = self.directory / "ssh_config", next(node for node in self.made.nodes if node.name == jump)
        path.write_text(
            f"Host jump\nHostName {node.address}\nHost * !jump\nProxyJump jump\nHost *\nUser root\n"
            + "".join(f"{key} {value}\n" for key, value in self._keys().items())
        )
        return path

    def _keys(self) -> dict[str, str]:
        lines = (line.split() for line in Path(self.made.shell("n1")[2]).read_text().splitlines())
        return {words[0]: words[1] for words in lines if words[0] in ("IdentityFile", "UserKnownHostsFile")}

    def power_lines(self) -> list[str]:
        """Power by commands, as a hypervisor's would be; see `serve_power`."""
        order = f"{shlex.quote(sys.executable)} -m tests.worlds.inventory_scenarios order {self.switchboard}"
        return [f"brownout_power_{word}={order} {word} {{address}}" for word in ("off", "on", "status")]

    def serve_power(self) -> None:
        """Work the machines' plugs for those who ask on a socket."""
        by_address = {self.address(node): node.name for node in self.made.nodes}
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
                    if self.has_ipv6:
                        self.give_ipv6(name)
                connection.sendall(b"Chassis power is " + (b"on" if power.is_on(name) else b"off"))

        def serve() -> None:
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()

    def add_user(self, name: str, user: str) -> None:
        """A user of a host who becomes root with a password only."""
        self.ask(name, f"useradd -m {user} && echo {shlex.quote(f'{user}:{PASSWORD}')} | chpasswd")
        self.ask(name, f"mkdir -p /etc/sudoers.d && echo '{user} ALL=(ALL) ALL' > /etc/sudoers.d/{user}")

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
def made_hosts(directory: str, count: int) -> Iterator[Hosts]:
    made = NamespaceWorld(replace(specification(Path(directory, "machines"), count), disk_bytes=DISK_BYTES))
    made.up()
    try:
        yield Hosts(made, Path(directory))
    finally:
        made.down()


def said_by(inventory: Path, directory: Path, nodes: int = 3, software: tuple[Software, ...] = ()) -> str:
    """The error for a user of a lab of unusable hosts."""
    try:
        lab = InventoryLab(LabSpec(nodes, "ext4", directory / "lab", software, inventory=inventory))
        lab.open()
    except (UsageError, RunError) as error:
        return f"{type(error).__name__}: {error}"
    lab.close()
    raise AssertionError("the lab was opened")


def refusals(directory: str) -> Any:
    """Hosts that cannot be used; nothing is changed on any of them."""
    here = Path(directory)
    stranger = here / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
    with made_hosts(directory, 3) as hosts:
        hosts.ask("n2", "echo mine > /data/precious")
        listener = "import socket, time; s = socket.create_server(('', 9092)); time.sleep(999)"
        hosts.ask("n3", f"{sys.executable} -c {shlex.quote(listener)} >/dev/null 2>&1 &")
        hosts.ask("n3", "until grep -q ':2384 ' /proc/net/tcp; do sleep 0.01; done")
        # Java is too old on n1, new enough on n2, and fails on n3. A process listens on the second port of n3.
        javas = {"n1": 'openjdk version "1.8.0_1"', "n2": 'openjdk version "17.0.1"', "n3": "out of memory"}
        for name, answer in javas.items():
            script = f"#!/bin/sh\necho '{answer}' >&2\n"
            path = "/usr/local/bin/java"
            hosts.ask(name, f"printf %s {shlex.quote(script)} > {path}; chmod +x {path}")
        on_java = Software("Some System 1.0", "some/1.0", least_java=17, ports=((7000,), (7000,), (7000, 9092)))
        wrong_ways = {
            "alpha": "brownout_address=10.77.0.99",
            "beta": f"ansible_ssh_private_key_file={stranger}",
            "gamma": "ansible_ssh_common_args='-o UserKnownHostsFile=/dev/null'",
        }
        return {
            "in_use": said_by(hosts.inventory(of_host={"alpha": "ansible_port=23"}), here),
            "no_way_in": said_by(hosts.inventory(of_host=wrong_ways), here),
            "on_java": said_by(hosts.inventory(of_host={"gamma": "brownout_port=7001"}), here, software=(on_java,)),
            "precious": hosts.ask("n2", "cat /data/precious"),
            "changed": [hosts.ask(name, "ls -d /opt/brownout 2>/dev/null || true") for name in hosts.made.hosts],
            "left": sorted(path.name for path in here.iterdir() if path.name == "lab"),
        }


def checked_hosts(hosts: Hosts) -> list[CheckedHost]:
    path = hosts.inventory()
    return check_all(path, chosen(read(path, ANSIBLE_VARIABLES), 3), hosts.directory)


def claims(directory: str) -> Any:
    """Two campaigns that want the same hosts."""
    with made_hosts(directory, 3) as hosts:
        checked = checked_hosts(hosts)
        known_hosts = hosts.directory / "known_hosts"

        def claim() -> HostLocks:
            connections = {each.host.node: each.connection(known_hosts) for each in checked}
            return HostLocks(connections, {each.host.node: each.host.title for each in checked})

        ours, theirs = claim(), claim()
        ours.take(["n1", "n2"])
        ours.take(["n1"])
        try:
            theirs.take(["n2", "n3"])
            refused = ""
        except HostError as error:
            refused = str(error)
        ours.release()
        theirs.take(["n1", "n2", "n3"])
        theirs.release()
        return {"refused": refused}


def firewall(directory: str) -> Any:
    """One host does not let the others in."""
    with made_hosts(directory, 3) as hosts:
        connections = {
            each.host.node: each.connection(hosts.directory / "known_hosts") for each in checked_hosts(hosts)
        }
        titles = {name: name.upper() for name in connections}
        require_ways(connections, titles)
        hosts.ask(
            "n2", "nft add table inet wall && nft 'add chain inet wall in { type filter hook input priority 0; }'"
        )
        hosts.ask("n2", f"nft add rule inet wall in ip saddr {hosts.made.nodes[2].address} tcp dport 9092 drop")
        try:
            require_ways(connections, titles)
            said = ""
        except WorldError as error:
            said = str(error)
        listening = [hosts.ask(name, "grep -c ':2384 00000000:0000 0A' /proc/net/tcp || true") for name in connections]
        return {"said": said, "listening": listening}


def network(directory: str) -> Any:
    """Partitions by the hosts' own filters, one of them rebooting meanwhile."""
    with made_hosts(directory, 3) as hosts:
        on: dict[str, bool] = dict.fromkeys(hosts.made.hosts, True)
        net = HostsNetwork(hosts.made.hosts, on.__getitem__)
        hosts.ask("n1", "nft add table inet theirs")
        hosts.ask("n2", "nft add table inet brownout && nft add chain inet brownout left_by_a_killed_run")
        net.build()
        site = Site(hosts.made.hosts, network=net)
        nemesis = Nemesis(site)
        found: dict[str, Any] = {}
        for name, fault in {
            "out": Fault("partition-one", ("n1",), parameters={"direction": "out"}),
            "both": Fault("partition-one", ("n3",)),
            "reject": Fault("reject", ("n2",)),
        }.items():
            injected = nemesis.inject(fault).to_json()
            cut = sorted(net.cut_pairs())
            found[name] = {"injected": injected, "cut": cut, "healed": nemesis.heal(fault).to_json()}
        net.cut({("n1", "n2"), ("n2", "n1")})
        hosts.made.power.cut(["n2"])
        on["n2"] = False
        net.cut({("n3", "n2")})
        found["dark"] = {"cut": sorted(net.cut_pairs()), "counted": len(net.counters())}
        net.heal({("n1", "n2")})
        hosts.made.power.restore(["n2"])
        on["n2"] = True
        net.refresh(["n2"])
        found["back"] = sorted(net.cut_pairs())
        net.heal()
        found["healed"] = sorted(net.cut_pairs())
        net.remove(hosts.made.hosts)
        net.remove(hosts.made.hosts)
        found["tables"] = [hosts.ask(name, "nft list tables") for name in hosts.made.hosts]
        return found


def campaign(directory: str, path: str, time_scale: str, question: str = "true", way: str = "IPv4") -> Any:
    """A campaign over the inventory, by the command that people type; each host is asked `question` afterwards. One of
    the hosts has this time scale, the slowest one. `way`: IPv4, IPv6, or `jump` for a user with a sudo password,
    who logs in through a jump host: the hosts' SSH ports are closed to the tester."""
    with made_hosts(directory, 4 if way == "jump" else 3) as hosts:
        if way == "IPv6":
            hosts = replace(hosts, has_ipv6=True)
            subprocess.run(["sh", "-c", ENABLE_IPV6.format("fd77::1/64 dev br0")], check=True)
            for name in hosts.made.hosts:
                hosts.give_ipv6(name)
        hosts.serve_power()
        slow = {"beta": f"brownout_time_scale={time_scale}"}
        lines, asked = [*hosts.power_lines(), "brownout_own_clock=true"], []
        if way == "IPv6":
            lines.append("ansible_ssh_common_args=-o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=accept-new")
        elif way == "jump":
            *nodes, between = hosts.made.nodes
            for node in nodes:
                hosts.add_user(node.name, "ann")
                tester = hosts.ask(node.name, "echo ${SSH_CONNECTION%% *}")
                hosts.ask(node.name, f"nft -f - <<'END'\n{CLOSED_TO.format(tester)}\nEND")
            lines += [
                "ansible_user=ann",
                "ansible_become=true",
                f"ansible_ssh_common_args=-F {hosts.jump_config(between.name)}",
            ]
            asked = ["--ask-become-pass"]
        inventory = hosts.inventory(*lines, of_host=slow)
        store = Path(directory, "store")
        command = [sys.executable, "-m", "orchestrator", "run", path, "--world", "inventory"]
        command += ["--inventory", str(inventory), "--store", str(store), "--engine", "in-process", *asked]
        done = subprocess.run(command, input=f"{PASSWORD}\n", capture_output=True, text=True, check=False)
        for name in hosts.made.hosts:
            hosts.ask(name, "nft delete table inet wall 2>/dev/null || true")
        tested = list(hosts.made.hosts)[:3]
        return {
            "code": done.returncode,
            "said": done.stdout + done.stderr,
            "tables": [hosts.ask(name, "nft list tables") for name in tested],
            "brokers": [hosts.ask(name, "pgrep -fc [b]roker.--config || true") for name in tested],
            "on": [hosts.made.power.is_on(name) for name in tested],
            "answers": [hosts.ask(name, question) for name in tested],
            "secrets": files_with_password(store),
        }


def sudo(directory: str) -> Any:
    """A host whose user becomes root by sudo, with a password."""
    with made_hosts(directory, 1) as hosts:
        hosts.add_user("n1", "ann")
        path = hosts.inventory("ansible_user=ann", "ansible_become=true", names=NAMES[:1])
        said = {}
        for name, password in {"none": None, "wrong": "wrong", "right": PASSWORD}.items():
            try:
                said[name] = (
                    "usable"
                    if check_all(path, chosen(read(path, ANSIBLE_VARIABLES), 1, password), hosts.directory)
                    else ""
                )
            except (UsageError, WorldError) as error:
                said[name] = f"{type(error).__name__}: {error}"
        (checked,) = check_all(path, chosen(read(path, ANSIBLE_VARIABLES), 1, PASSWORD), hosts.directory)
        access = checked.access
        target = Target(
            "alpha",
            access.address,
            user=access.user,
            key_file=access.key_file,
            known_hosts=hosts.directory / "known_hosts",
            become=True,
            become_password=checked.host.become_password,
        )
        with suppress(PlaybookError):  # no service was ever installed
            play("stop", [target], hosts.directory / "ansible", on_progress=lambda _: None)
        (output,) = hosts.directory.glob("ansible/artifacts/*/stdout")
        return {**said, "ansible": output.read_text(), "secrets": files_with_password(hosts.directory / "ansible")}


def jump(directory: str) -> Any:
    """A host behind another one: each way to say so, and a mistake."""
    with made_hosts(directory, 2) as hosts:
        by_config = f"-F {hosts.jump_config('n2')}"
        ways = {
            "ProxyJump in the configuration": by_config,
            "ProxyJump": f"{by_config} -o ProxyJump=root@jump:22 -o StrictHostKeyChecking=no",
            "ProxyCommand": f"{by_config} -o 'ProxyCommand=ssh -F {hosts.jump_config('n2')} -W %h:%p jump'",
            "port 23": f"{by_config} -o ProxyJump=jump:23",
        }
        said: dict[str, str] = {}
        for name, arguments in ways.items():
            path = hosts.inventory(f'ansible_ssh_common_args="{arguments}"', names=NAMES[:1])
            try:
                (checked,) = check_all(path, chosen(read(path, ANSIBLE_VARIABLES), 1), hosts.directory)
            except (UsageError, WorldError) as error:
                said[name] = str(error)
                continue
            connection = checked.connection(hosts.directory / "known_hosts")
            source = connection.run("echo $SSH_CONNECTION").stdout.split()[0]
            said[name] = "through the jump host" if source == hosts.made.nodes[1].address else source
            connection.disconnect()
        hosts.made.power.cut(["n1"])
        processes = subprocess.run(["pgrep", "-fc", "ssh .*-W"], capture_output=True, text=True, check=False)
        return {**said, "off": not checked.access.is_reachable(), "left": processes.stdout.strip()}


def files_with_password(directory: Path) -> list[str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return [str(path) for path in files if b"$ecret" in path.read_bytes()]


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)
