"""The lab of an inventory: checks and provisions hosts once, wipes them for each run, leaves them at the end.

Partitions on hosts without a private network: each host drops packets from the peers that it is cut from.

One nftables table per host, in its input hook: a set with a counter per peer, and sets of the peers that are cut,
silently or with a reject. Existing rules are not touched, and packets from other machines (the orchestrator, its
clients) always pass.
"""

import contextlib
import functools
import getpass
import json
import math
import os
import shlex
import shutil
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from installation.files import PROJECT_ROOT
from nemeses import Host, HostError, HostUnreachableError, Need, injectable, needing
from nemeses.mechanisms.service import kill_service
from nemeses.mechanisms.shell import ask, reach_script
from nemeses.ports import MachineState, PacketCount
from nemeses.scheduling import for_each, results_by_name
from nodeimage import ImageError, PythonPackages, site_archive
from orchestrator.cleanup import clean_up, described
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine import playbooks
from orchestrator.machine.playbooks import PlaybookError, Target
from orchestrator.machine.ssh import FollowedOutput, Sink, SshHost
from orchestrator.machine.ssh_proxy import proxy_options
from orchestrator.worlds.base import Progress, World, WorldSpec, accepts, no_progress
from orchestrator.worlds.inventory import hosts, parser
from orchestrator.worlds.inventory.access import HostAccess
from orchestrator.worlds.inventory.checks import CheckedHost, check_all, examine
from orchestrator.worlds.inventory.hosts import InventoryHost
from orchestrator.worlds.inventory.power import HostsPower, run_command
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.remote import paths, playbook_variables
from orchestrator.worlds.remote.machines import Machines
from orchestrator.worlds.remote.playbook_variables import Provisions
from orchestrator.worlds.remote.world import RemoteWorld

# ---- Suspends whole machines from outside, with commands of the inventory, usually a hypervisor's.


class HostsSuspender:
    """`on_back` gets the names of resumed hosts before `resume` returns."""

    def __init__(
        self,
        inventory: Mapping[str, InventoryHost],
        accesses: Mapping[str, HostAccess],
        on_back: Callable[[Collection[str]], None],
    ) -> None:
        self._inventory = inventory
        self._accesses = accesses
        self._on_back = on_back
        self._states: dict[str, MachineState] = {}

    def state(self, name: str) -> MachineState:
        """A host that accepts connections is running, whatever was requested."""
        requested = self.asked(name)
        return "running" if requested == "running" or self._accesses[name].is_reachable() else requested

    def asked(self, name: str) -> MachineState:
        """The last requested state of a machine; takes no time."""
        return self._states.get(name, "running")

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, "stalled")

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, "frozen")

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        stopped = [name for name in names if self.asked(name) != "running"]
        outputs = self._run(stopped, "brownout_suspend_resume")
        for name in stopped:
            self._states.pop(name, None)
        if stopped:
            self._on_back(stopped)
        return outputs

    def _suspend(self, names: Collection[str], state: MachineState) -> dict[str, dict[str, Any]]:
        running = [name for name in names if self.asked(name) == "running"]
        # Recorded first: if a command fails halfway, the machine must still be resumed.
        self._states.update(dict.fromkeys(running, state))
        return self._run(running, "brownout_suspend_stall" if state == "stalled" else "brownout_suspend_freeze")

    def _run(self, names: Collection[str], variable: str) -> dict[str, dict[str, Any]]:
        return results_by_name(names, lambda name: self._one(name, variable))

    def _one(self, name: str, variable: str) -> dict[str, Any]:
        host = self._inventory[name]
        command = {
            "brownout_suspend_stall": host.stall,
            "brownout_suspend_freeze": host.freeze,
            "brownout_suspend_resume": host.resume,
        }[variable]
        if command is None:
            raise WorldError(f"{host.title}: the inventory has no {variable} for it")
        return run_command(host, variable, command)


TABLE = "inet brownout"
_DEADLINE_S = 20.0
# Before the address translation and filters of the host.
_PRIORITY = -150
_PATH = "PATH=$PATH:/usr/sbin:/sbin"

Pair = tuple[str, str]
Counts = dict[str, int]


class HostsNetwork:
    """The packet filters of all hosts as one network.

    `answers(name)`: whether a host can currently be reached. For a host that is off or suspended, the intended rules
    are remembered (`refresh` installs them when it is back), and its counters are the last known ones.
    """

    def __init__(self, hosts: Mapping[str, Host], answers: Callable[[str], bool]) -> None:
        self._hosts = hosts
        self._answers = answers
        self._names = {host.address: name for name, host in hosts.items()}
        is_ipv6 = any(":" in address for address in self._names)  # then all are
        self._ip, self._type, self._icmp = ("ip6", "ipv6_addr", "icmpv6") if is_ipv6 else ("ip", "ipv4_addr", "icmp")
        self._wanted: dict[str, set[Pair]] = {"cut": set(), "rejected": set()}
        self._last: dict[Pair, PacketCount] = {(a, b): PacketCount(0, 0) for a in hosts for b in hosts if a != b}
        self._lock = threading.Lock()

    def build(self) -> None:
        """Make the table on every host, replacing one that a killed run left. Raises `HostError`."""
        with self._lock:
            self._forget(None)
            for_each(self._hosts, self._install)

    def refresh(self, names: Iterable[str]) -> None:
        """Install the intended table on hosts that are back. Raises `HostError`."""
        with self._lock:
            for_each(names, self._install)

    def remove(self, names: Collection[str]) -> None:
        """Remove the table from these hosts; hosts that do not answer are skipped: theirs ends with their next boot."""

        def remove(name: str) -> None:
            with contextlib.suppress(HostError):
                self._hosts[name].run(f"{_PATH}; nft delete table {TABLE}", timeout_s=_DEADLINE_S)

        with self._lock:
            for_each([name for name in self._present() if name in names], remove)

    def cut(self, pairs: Collection[Pair], *, reject: bool = False) -> None:
        name = "rejected" if reject else "cut"
        with self._lock:
            self._wanted[name] |= set(pairs)
            self._change("add", name, pairs)

    def heal(self, pairs: Collection[Pair] | None = None) -> None:
        with self._lock:
            counters = self._read()
            self._forget(pairs)
            for name, present in counters.items():
                self._change("delete", name, set(present) if pairs is None else set(present) & set(pairs))

    def _forget(self, pairs: Collection[Pair] | None) -> None:
        for pairs_of_set in self._wanted.values():
            pairs_of_set -= set(pairs_of_set) if pairs is None else set(pairs)

    def counters(self) -> dict[Pair, PacketCount]:
        with self._lock:
            self._read()
            return dict(self._last)

    def cut_pairs(self) -> set[Pair]:
        with self._lock:
            cut = {pair for pairs in self._wanted.values() for pair in pairs}
            absent = {pair for pair in cut if not self._answers(pair[1])}
            return absent.union(*self._read().values())

    def _present(self) -> list[str]:
        return [name for name in self._hosts if self._answers(name)]

    def _change(self, verb: str, set_name: str, pairs: Collection[Pair]) -> None:
        """One transaction per host, all hosts in parallel."""
        sources: dict[str, list[str]] = defaultdict(list)
        for source, destination in sorted(pairs):
            if self._answers(destination):
                sources[destination].append(self._hosts[source].address)
        for_each(
            sources,
            lambda name: self._nft(name, f"{verb} element {TABLE} {set_name} {{ {', '.join(sources[name])} }}"),
        )

    def _install(self, name: str) -> None:
        peers = [host.address for other, host in self._hosts.items() if other != name]
        cut, rejected = (
            [self._hosts[a].address for a, b in sorted(self._wanted[set_name]) if b == name]
            for set_name in ("cut", "rejected")
        )
        # Declared before it is deleted: deleting a missing table would be an error. Rejecting answers must pass: if
        # both directions are rejected, each host would otherwise not receive the other one's rejects. Neighbor
        # discovery passes, as ARP does: cutting it would outlast the heal in the hosts' caches.
        self._nft(
            name,
            f"""table {TABLE}
            delete table {TABLE}
            table {TABLE} {{
              set peers {{ type {self._type}; counter; {_elements(peers)} }}
              set cut {{ type {self._type}; counter; {_elements(cut)} }}
              set rejected {{ type {self._type}; counter; {_elements(rejected)} }}
              chain input {{
                type filter hook input priority {_PRIORITY}; policy accept;
                icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
                {self._ip} saddr @peers
                {self._ip} saddr @cut drop
                tcp flags & rst == rst accept
                {self._icmp} type destination-unreachable accept
                meta l4proto tcp {self._ip} saddr @rejected reject with tcp reset
                {self._ip} saddr @rejected reject
              }}
            }}""",
        )

    def _read(self) -> dict[str, dict[Pair, int]]:
        """By set: its pairs with the number of stopped packets, of the hosts that answer. Stores all counters."""
        pairs_of: dict[str, dict[Pair, int]] = {"cut": {}, "rejected": {}}

        def read(name: str) -> None:
            listed = json.loads(self._run(name, f"nft -j list table {TABLE}"))
            counts = {entry["set"]["name"]: _counts(entry["set"]) for entry in listed["nftables"] if "set" in entry}
            for address, seen_packets in counts["peers"].items():
                pair = (self._names[address], name)
                stopped = 0
                for set_name, present in pairs_of.items():
                    if address in counts[set_name]:
                        present[pair] = counts[set_name][address]
                        stopped += present[pair]
                self._last[pair] = PacketCount(seen_packets, stopped)

        for_each(self._present(), read)
        return pairs_of

    def _nft(self, name: str, script: str) -> None:
        """One atomic transaction."""
        self._run(name, f"printf %s {shlex.quote(script)} | nft -f -")

    def _run(self, name: str, command: str) -> str:
        done = self._hosts[name].run(f"{_PATH}; {command}", timeout_s=_DEADLINE_S)
        if not done.ok:
            message = done.stderr.strip().splitlines()
            raise WorldError(f"{name}: its packet filter (nftables, table {TABLE}) refuses: {' '.join(message[:2])}")
        return done.stdout


def _elements(addresses: Collection[str]) -> str:
    return f"elements = {{ {', '.join(addresses)} }}" if addresses else ""


def _counts(listed: Mapping[str, Any]) -> Counts:
    """The packets of each address of a set, in nft's output."""
    elements = (element["elem"] for element in listed.get("elem", []))
    return {element["val"]: int(element["counter"]["packets"]) for element in elements}


# ---- Admits one campaign per host: a lock on the host itself, held through its own connection and released with it.

_LOCK = "/run/brownout.lock"
_LOCK_PATIENCE_S = 3
_CONNECT_PATIENCE_S = 5.0
_ANSWER_DEADLINE_S = 30.0


class HostLocks:
    """Locks on hosts. `connections` are used for nothing else; `titles` name the hosts in messages. `time_scale`
    multiplies the time that a host may take to answer."""

    def __init__(self, connections: Mapping[str, SshHost], titles: Mapping[str, str], time_scale: float = 1.0) -> None:
        self._connections = connections
        self._titles = titles
        self._deadline_s = _ANSWER_DEADLINE_S * time_scale
        self._held: dict[str, FollowedOutput] = {}

    def take(self, names: Collection[str]) -> None:
        """Lock hosts, also those whose lock a boot has released. Raises `HostError` when another process holds one."""
        for_each(names, self._take)

    @property
    def held(self) -> frozenset[str]:
        """The hosts that are locked by this process; others may be in use elsewhere."""
        return frozenset(self._held)

    def release(self) -> None:
        for following in self._held.values():
            following.close()
        self._held.clear()
        for connection in self._connections.values():
            connection.disconnect()

    def _take(self, name: str) -> None:
        self._held.pop(name, None)  # a lock that a boot has released
        answers: list[str] = []
        answered = threading.Event()

        def hear(line: bytes) -> None:
            answers.append(line.decode(errors="replace"))
            answered.set()

        following = self._follow(name, hear)
        threading.Thread(target=following.wait, name=f"claim-{name}", daemon=True).start()
        if not answered.wait(self._deadline_s):
            raise HostError(f"{name}: it does not report whether it is in use by another campaign")
        if answers[0] != "locked":
            following.close()
            raise WorldError(
                f"{self._titles[name]} is in use by another campaign ({answers[0]}); wait until it ends, or use "
                "other hosts"
            )
        self._held[name] = following

    def _follow(self, name: str, hear: Sink) -> FollowedOutput:
        """Request the lock on a new connection, with retries: a host that has just booted is slow to answer."""
        connection = self._connections[name]
        script = _script(f"{getpass.getuser()}@{socket.gethostname()}, process {os.getpid()}")
        until = time.monotonic() + self._deadline_s
        while True:
            connection.disconnect()
            try:
                return connection.follow(script, hear, connect_timeout_s=_CONNECT_PATIENCE_S)
            except HostUnreachableError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


def _script(owner: str) -> str:
    """Lock, and stay until the login shell ends. It waits for a short time for another holder that is just ending."""
    return f"""exec 9>>{_LOCK}
if flock -w {_LOCK_PATIENCE_S} 9; then
  echo {shlex.quote(owner)} > {_LOCK}
  echo locked
  tail -s 0.2 --pid=$$ -f /dev/null 9>&-
else
  cat {_LOCK}
fi"""


# ---- The hosts of an inventory as the machines of a run: wiped for each run, collected by playbook.


class HostMachines(Machines):
    """Checked hosts: connections, switches and playbooks. The available switches depend on what the hosts support."""

    def __init__(
        self,
        checked: Sequence[CheckedHost],
        offers: frozenset[Need],
        targets: Mapping[str, playbooks.Target],
        directory: Path,
        known_hosts: Path,
    ) -> None:
        super().__init__(targets, directory)
        self._checked = {host.host.node: host for host in checked}
        self.ports = {name: host.host.port for name, host in self._checked.items() if host.host.port is not None}
        self.hosts = {name: host.connection(known_hosts) for name, host in self._checked.items()}
        inventory = {name: host.host for name, host in self._checked.items()}
        accesses = {name: host.access for name, host in self._checked.items()}
        scale = max(host.host.time_scale for host in checked)
        self._claims = HostLocks(
            {name: host.connection(known_hosts) for name, host in self._checked.items()},
            {name: host.host.title for name, host in self._checked.items()},
            scale,
        )
        self.power: HostsPower | None = HostsPower(inventory, self.hosts, accesses, self._after_boot, scale)
        self.suspender: HostsSuspender | None = HostsSuspender(inventory, accesses, self._after_resume)
        self.network: HostsNetwork | None = HostsNetwork(self.hosts, self._answers)
        self.restrict(offers)

    def restrict(self, offers: frozenset[Need]) -> None:
        """Drop the switches that the hosts do not support."""
        if "power" not in offers:
            self.power = None
        if not offers & {"stall", "freeze"}:
            self.suspender = None
        if "network" not in offers:
            self.network = None

    def claim(self) -> None:
        """Lock the hosts against other campaigns, and end what a killed one left. Raises `HostError` when one is in
        use."""
        self._claims.take(list(self.hosts))
        for_each(self.hosts, self._kill_lost_service)
        if self.network is not None:
            self.network.remove(self._claims.held)  # otherwise its cuts would be reported as a firewall

    def reset(self, on_progress: Progress) -> None:
        self.revive()
        for_each(self.hosts.values(), kill_service)  # SIGKILL: a killed run may have left it suspended
        self.play("wipe", on_progress)
        if self.network is not None:
            self.network.build()
        for_each(self.hosts.values(), lambda host: host.connect())

    def revive(self) -> None:
        """Resume every machine that a fault suspended. Raises `HostError`."""
        if self.suspender is not None:
            self.suspender.resume(list(self.hosts))
        if self.power is not None:
            self.power.restore(list(self.hosts))

    def release(self) -> None:
        """Remove what only campaigns need and release the hosts; installed software stays."""
        network = self.network
        clean_up(
            self.revive,
            *(() if network is None else (lambda: network.remove(self._claims.held),)),
            self._claims.release,
            *(host.disconnect for host in self.hosts.values()),
        )

    def _answers(self, name: str) -> bool:
        has_power = self.power is None or self.power.is_on(name)
        return has_power and (self.suspender is None or self.suspender.asked(name) == "running")

    def _after_boot(self, names: Collection[str]) -> None:
        self._claims.take(names)
        if self.network is not None:
            self.network.refresh(names)

    def _after_resume(self, names: Collection[str]) -> None:
        for name in names:
            self.hosts[name].disconnect()
        self._after_boot(names)

    def _kill_lost_service(self, name: str) -> None:
        """Kill a service of an earlier run that listens on one of the ports and is in no pid file."""
        for pid in {int(listener["pid"]) for listener in self._checked[name].facts["listeners"]} - {0}:
            self.hosts[name].run(f"grep -qa {paths.MARK}= /proc/{pid}/environ && kill -9 {pid}")


# ---- Checks that hosts and clients can reach every broker port, so that firewalls are found before a run.

_LISTENS_S = 60
_PATIENCE_S = 5.0  # more than a slow connection needs; a firewall takes longer
# Accepts connections as the broker would, and ends after a timeout if it is not killed.
_LISTENER = """
import os, signal, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
signal.alarm(int(sys.argv[3]))
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for standard in (0, 1, 2):
    os.dup2(null, standard)
while True:
    server.accept()[0].close()
"""


def require_ways(hosts: Mapping[str, SshHost], titles: Mapping[str, str], time_scale: float = 1.0) -> None:
    """Check that every host, and this machine, can connect to every broker port; no broker may run. `time_scale`
    multiplies the time for a connection.

    Raises `WorldError` with each blocked connection, `HostError` when a host does not answer."""
    closed: list[str] = []
    with contextlib.ExitStack() as listening:
        for_each(hosts.values(), lambda host: listening.enter_context(_listener(host, time_scale)))

        def look(host: SshHost) -> None:
            unreached = [other for other in hosts.values() if other is not host]
            give_up = time.monotonic() + _PATIENCE_S * time_scale
            while unreached:
                answers = ask(host, reach_script([(other.name, other.address, other.port) for other in unreached]))
                unreached = [other for other in unreached if answers.get(other.name) != "open"]
                if time.monotonic() > give_up:
                    break
            closed.extend(
                f"{titles[host.name]} cannot connect to {titles[other.name]} at {other.address} port {other.port}"
                for other in unreached
            )

        for_each(hosts.values(), look)
        closed.extend(
            f"this machine cannot connect to {titles[host.name]} at {host.address} port {host.port}"
            for host in hosts.values()
            if not accepts(host.address, host.port)
        )
    if closed:
        ways = "\n".join(f"  {way}" for way in sorted(closed))
        raise WorldError(
            f"brokers and clients would not reach each other; open the port in the firewalls, or set brownout_address "
            f"to addresses that are reachable:\n{ways}"
        )


@contextlib.contextmanager
def _listener(host: SshHost, time_scale: float) -> Iterator[None]:
    lasts_s = math.ceil(_LISTENS_S * time_scale)
    started = host.run(f"python3 -c {shlex.quote(_LISTENER)} {host.address} {host.port} {lasts_s}")
    if not started.ok:
        last_line = started.stderr.strip().splitlines()[-1:]
        raise WorldError(f"{host.name}: its port {host.port} cannot be listened at: {' '.join(last_line)}")
    try:
        yield
    finally:
        with contextlib.suppress(HostError):
            host.run(f"kill -9 {int(started.stdout)}")


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class InventoryLab(Lab):
    """The first hosts of an inventory, as nodes n1, n2, ...

    `capabilities` is what the inventory promises; after `open`, what the hosts actually support.
    """

    name = "inventory"
    has_own_processors: ClassVar[bool] = True
    capabilities: frozenset[str] = injectable(("power", "network", "netem", "stall", "freeze", "clock"))
    needs_sandbox = False

    def __init__(self, spec: LabSpec) -> None:
        """Raises `UsageError` when the inventory cannot be read, or has too few hosts."""
        self._spec = spec
        self._path, self._chosen = _hosts_of(spec.inventory, spec.node_count, spec.become_password)
        self._offers, self.limits = _promised(self._chosen)
        self.capabilities = injectable(self._offers)
        self.time_scale = _time_scale(self._chosen)
        self._checked: list[CheckedHost] = []
        self._machines: HostMachines | None = None
        self._keep_directory = False

    @classmethod
    def time_scales(cls, spec: LabSpec) -> tuple[float, ...]:
        return (_time_scale(_hosts_of(spec.inventory, spec.node_count, spec.become_password)[1]),)

    @classmethod
    def prepare(cls, spec: LabSpec) -> None:
        _hosts_of(spec.inventory, spec.node_count, spec.become_password)

    def open(self, on_progress: Progress = no_progress) -> None:
        self._spec.directory.mkdir(parents=True, exist_ok=True)
        try:
            on_progress(f"looking at {_named(self._chosen)}")
            self._checked = check_all(self._path, self._chosen, self._spec.directory, self._spec.software)
            for host in self._checked:
                for note in host.access.noted:
                    on_progress(note)
            self._machines = self._assemble(self._checked, on_progress)
            self._machines.claim()
            self._machines.play("provision", on_progress)
            titles = {host.node: host.title for host in self._chosen}
            require_ways(self._machines.hosts, titles, self.time_scale)
            self._keep_promises(self._machines, on_progress)
        except HostError as error:
            # A failed playbook's message says where to read the rest.
            self._keep_directory = isinstance(error, PlaybookError)
            clean_up(self.close, cause=error)
            raise error if isinstance(error, WorldError) else WorldError(described(error)) from error
        except BaseException as error:
            clean_up(self.close, cause=error)
            raise

    def world(self, spec: WorldSpec) -> World:
        if self._machines is None:
            raise WorldError("the hosts of the inventory are not ready: the lab was not opened")
        return RemoteWorld(spec, self.name, self._machines, self.capabilities, self.limits, self.time_scale)

    def close(self) -> None:
        clean_up(self._release, self._remove_directory)

    def _release(self) -> None:
        if self._machines is not None:
            self._machines.release()
            self._machines = None

    def _remove_directory(self) -> None:
        if not self._keep_directory:
            shutil.rmtree(self._spec.directory, ignore_errors=True)

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {} if self._machines is None else self._machines.hosts

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        checked = next((checked for checked in self._checked if checked.host.node == name), None)
        if checked is None:
            raise WorldError(f"unknown node {name}; the nodes are {_named(self._chosen)}")
        script = " ".join(command)
        if checked.host.become:
            sudo = "sudo -n" if checked.host.become_password is None else "sudo"  # it asks at the user's terminal
            script = f"{sudo} sh -c {shlex.quote(script)}" if command else f"{sudo} -i"
        return [
            *("ssh", "-p", str(checked.access.port), "-l", checked.access.user),
            *(("-i", _unexpanded(checked.access.key_file)) if checked.access.key_file else ()),
            *("-o", f"UserKnownHostsFile={_one_file(self._known_hosts)}", "-o", "StrictHostKeyChecking=yes"),
            *proxy_options(checked.access.proxy),
            *(("-t",) if not command or checked.host.become_password is not None else ()),
            checked.access.address,
            *((script,) if script else ()),
        ]

    @property
    def _known_hosts(self) -> Path:
        return self._spec.directory / "known_hosts"

    def _assemble(self, checked: Sequence[CheckedHost], on_progress: Progress) -> HostMachines:
        provisions = playbook_variables.provisions(self._spec.software)
        sites: dict[tuple[str, str], PythonPackages] = {}
        for host in checked:
            kind = (host.python, host.machine)
            if kind not in sites:
                sites[kind] = _site(*kind, on_progress)
        targets = {host.host.node: self._target(host, provisions, sites[host.python, host.machine]) for host in checked}
        return HostMachines(checked, self._offers, targets, self._spec.directory / "ansible", self._known_hosts)

    def _target(self, checked: CheckedHost, provisions: Provisions, site: PythonPackages) -> Target:
        """A host as the playbooks take it, by its name in the inventory."""
        host = checked.host
        # A host whose clock must not be set keeps its time services.
        time_services: dict[str, Any] = {} if host.own_clock else {"brownout_time_services": []}
        return Target(
            host.name,
            checked.access.address,
            user=checked.access.user,
            ssh_port=checked.access.port,
            proxy=checked.access.proxy,
            key_file=checked.access.key_file,
            known_hosts=self._known_hosts,
            become=host.become,
            become_password=host.become_password,
            time_scale=host.time_scale,
            variables={
                "brownout_filesystem": self._spec.filesystem,
                **time_services,
                **host.passed_on,
                **provisions.variables(site.archive, site.key),
                "brownout_address": checked.address,
                "brownout_data_dir": host.data_dir,
                "brownout_data_device": host.data_device,
                "brownout_data_serial": host.data_serial,
            },
        )

    def _keep_promises(self, machines: HostMachines, on_progress: Progress) -> None:
        """Check the hosts again after the installation, and drop capabilities that they do not have."""
        checked_again: dict[str, CheckedHost] = {}

        def look(checked: CheckedHost) -> None:
            facts = examine(machines.hosts[checked.host.node], checked)
            peers = [(other.name, other.address, other.probe_port) for other in machines.hosts.values()]
            reached = ask(machines.hosts[checked.host.node], reach_script(peers))
            facts["unreached"] = sorted(name for name, state in reached.items() if state != "open")
            checked_again[checked.host.node] = replace(checked, facts=facts)

        for_each(self._checked, look)
        self._checked = [checked_again[checked.host.node] for checked in self._checked]
        for need, reasons in _broken_promises(self._checked):
            if need in self._offers and reasons:
                self._offers -= {need}
                self.limits.append(f"no {_kinds_needing(need)}: {'; '.join(reasons)}")
                on_progress(self.limits[-1])
        self.capabilities = injectable(self._offers)
        machines.restrict(self._offers)


@functools.cache
def _hosts_of(path: Path | None, count: int, become_password: str | None) -> tuple[Path, tuple[InventoryHost, ...]]:
    if path is None:
        raise UsageError("the inventory world needs an Ansible inventory: give --inventory FILE")
    inventory = parser.read(path, hosts.ANSIBLE_VARIABLES)
    return path, tuple(hosts.chosen(inventory, count, become_password))


def _time_scale(chosen: Sequence[InventoryHost]) -> float:
    """The slowest host determines the times of all."""
    return max(host.time_scale for host in chosen)


def _one_file(path: Path) -> str:
    """A path as ssh reads it in an option that takes several files."""
    text = _unexpanded(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _unexpanded(path: Path) -> str:
    """A path in which ssh finds no tokens, such as %h."""
    return str(path).replace("%", "%%")


def _promised(chosen: Sequence[InventoryHost]) -> tuple[frozenset[Need], list[str]]:
    """The capabilities that the inventory's variables allow, and limits to report."""
    offers: set[Need] = {"network", "netem"}
    limits = ["partitions are made by the hosts themselves: each drops what comes from the peers that it is cut from"]
    optional: tuple[tuple[Need, list[InventoryHost], str], ...] = (
        ("power", [h for h in chosen if not h.has_power], "brownout_power_off and brownout_power_on"),
        ("stall", [h for h in chosen if h.stall is None], "brownout_suspend_stall"),
        ("freeze", [h for h in chosen if h.freeze is None], "brownout_suspend_freeze"),
        ("clock", [h for h in chosen if not h.own_clock], "brownout_own_clock"),
    )
    for need, without, lack in optional:
        if without:
            limits.append(f"no {_kinds_needing(need)}: the inventory has no {lack} for {_named(without)}")
        else:
            offers.add(need)
    resets = [host for host in chosen if host.sysrq]
    if "power" in offers and resets:
        limits.append(
            f"the power of {_named(resets)} is cut by a reset from inside (sysrq): the kernel cooperates, and what "
            "the disk's own cache holds survives"
        )
    elif "power" in offers:
        limits.append("what a power cut takes from the disks' own caches is up to the disks")
    return frozenset(offers), limits


def _broken_promises(checked: Sequence[CheckedHost]) -> Iterable[tuple[Need, list[str]]]:
    """Promised capabilities, each with the reasons why hosts do not have it."""
    ours = _BOOT_ID.read_text(encoding="ascii").strip()

    def stated(reasons: Mapping[str, str]) -> list[str]:
        return [f"{title}: {reason}" for title, reason in reasons.items() if reason]

    by_title = {host.host.title: host for host in checked}
    here = {
        title: "it is the machine that brownout runs on" if host.facts["boot_id"] == ours else ""
        for title, host in by_title.items()
    }
    self_addressed = {
        title: here[title] or ("it has the address that brownout comes from" if _is_own(host.address) else "")
        for title, host in by_title.items()
    }
    apart = {  # the evidence that a fault of the network has ended is a connection to that port
        title: f"it cannot connect to the SSH port of {', '.join(host.facts['unreached'])}"
        for title, host in by_title.items()
        if host.facts["unreached"]
    }
    yield (
        "network",
        stated({t: self_addressed[t] or host.facts["nft"] or apart.get(t, "") for t, host in by_title.items()}),
    )
    yield "netem", stated({t: host.facts["netem"] or apart.get(t, "") for t, host in by_title.items()})
    shared = {
        title: here[title] or ("" if host.facts["own_kernel"] else "it is a container, whose kernel is shared")
        for title, host in by_title.items()
    }
    yield "power", stated({t: shared[t] if host.host.sysrq else here[t] for t, host in by_title.items()})
    yield (
        "clock",
        stated(
            {t: shared[t] or ("" if host.facts["may_set_clock"] else "not allowed") for t, host in by_title.items()}
        ),
    )


def _kinds_needing(need: Need) -> str:
    """Those that need also what no host has are not named."""
    return ", ".join(sorted(needing(need) & InventoryLab.capabilities))


def _is_own(address: str) -> bool:
    """Whether packets to this address leave from this address: then it is this machine's."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False
        return bool(probe.getsockname()[0] == address)


def _site(python: str, machine: str, on_progress: Progress) -> PythonPackages:
    try:
        return site_archive(PROJECT_ROOT, python, machine, on_progress)
    except ImageError as error:
        raise WorldError(str(error)) from error


def _named(chosen: Iterable[InventoryHost]) -> str:
    return ", ".join(host.title for host in chosen)


LAB: Final = InventoryLab
