"""The hosts of an inventory as the machines of a run: wiped for each run, collected by playbook.

Partitions on hosts without a private network: each host drops packets from the peers that it is cut from.

One nftables table per host, in its input hook: a set with a counter per peer, and sets of the peers that are cut,
silently or with a reject. Existing rules are not touched, and packets from other machines (the orchestrator, its
clients) always pass.
"""

import contextlib
import getpass
import json
import os
import shlex
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nemeses import Need
from nemeses.mechanisms.service import kill_service
from nemeses.ports import Host, HostError, HostUnreachableError, MachineState, PacketCount
from nemeses.scheduling import for_each, results_by_name
from orchestrator.cleanup import clean_up
from orchestrator.errors import WorldError
from orchestrator.machine import playbooks
from orchestrator.machine.ssh import FollowedOutput, Sink, SshHost
from orchestrator.worlds.base import Progress
from orchestrator.worlds.inventory.access import HostAccess
from orchestrator.worlds.inventory.checks import CheckedHost
from orchestrator.worlds.inventory.hosts import InventoryHost
from orchestrator.worlds.inventory.power import HostsPower, run_command
from orchestrator.worlds.remote import paths
from orchestrator.worlds.remote.machines import Machines

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
_PATIENCE_S = 3
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
if flock -w {_PATIENCE_S} 9; then
  echo {shlex.quote(owner)} > {_LOCK}
  echo locked
  tail -s 0.2 --pid=$$ -f /dev/null 9>&-
else
  cat {_LOCK}
fi"""


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
