"""Partitions on hosts without a private network: each host drops packets from the peers that it is cut from.

One nftables table per host, in its input hook: a set with a counter per peer, and sets of the peers that are cut,
silently or with a reject. Existing rules are not touched, and packets from other machines (the orchestrator, its
clients) always pass.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from nemeses.ports import Host, HostError, PacketCount
from nemeses.scheduling import for_each
from orchestrator.errors import WorldError

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
            found = self._read()
            self._forget(pairs)
            for name, present in found.items():
                self._change("delete", name, set(present) if pairs is None else set(present) & set(pairs))

    def _forget(self, pairs: Collection[Pair] | None) -> None:
        for wanted in self._wanted.values():
            wanted -= set(wanted) if pairs is None else set(pairs)

    def counters(self) -> dict[Pair, PacketCount]:
        with self._lock:
            self._read()
            return dict(self._last)

    def cut_pairs(self) -> set[Pair]:
        with self._lock:
            wanted = {pair for pairs in self._wanted.values() for pair in pairs}
            absent = {pair for pair in wanted if not self._answers(pair[1])}
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
            [self._hosts[a].address for a, b in sorted(self._wanted[wanted]) if b == name]
            for wanted in ("cut", "rejected")
        )
        # Declared before it is deleted: deleting a missing table would be an error. Rejecting answers must pass: if
        # both
        # directions are rejected, each host would otherwise not receive the other one's rejects.
        self._nft(
            name,
            f"""table {TABLE}
            delete table {TABLE}
            table {TABLE} {{
              set peers {{ type ipv4_addr; counter; {_elements(peers)} }}
              set cut {{ type ipv4_addr; counter; {_elements(cut)} }}
              set rejected {{ type ipv4_addr; counter; {_elements(rejected)} }}
              chain input {{
                type filter hook input priority {_PRIORITY}; policy accept;
                ip saddr @peers
                ip saddr @cut drop
                tcp flags & rst == rst accept
                icmp type destination-unreachable accept
                meta l4proto tcp ip saddr @rejected reject with tcp reset
                ip saddr @rejected reject
              }}
            }}""",
        )

    def _read(self) -> dict[str, dict[Pair, int]]:
        """By set: its pairs with the number of stopped packets, of the hosts that answer. Stores all counters."""
        found: dict[str, dict[Pair, int]] = {"cut": {}, "rejected": {}}

        def read(name: str) -> None:
            listed = json.loads(self._run(name, f"nft -j list table {TABLE}"))
            counts = {entry["set"]["name"]: _counts(entry["set"]) for entry in listed["nftables"] if "set" in entry}
            for address, seen in counts["peers"].items():
                pair = (self._names[address], name)
                stopped = 0
                for set_name, present in found.items():
                    if address in counts[set_name]:
                        present[pair] = counts[set_name][address]
                        stopped += present[pair]
                self._last[pair] = PacketCount(seen, stopped)

        for_each(self._present(), read)
        return found

    def _nft(self, name: str, script: str) -> None:
        """One atomic transaction."""
        self._run(name, f"printf %s {shlex.quote(script)} | nft -f -")

    def _run(self, name: str, command: str) -> str:
        done = self._hosts[name].run(f"{_PATH}; {command}", timeout_s=_DEADLINE_S)
        if not done.ok:
            said = done.stderr.strip().splitlines()
            raise WorldError(f"{name}: its packet filter (nftables, table {TABLE}) refuses: {' '.join(said[:2])}")
        return done.stdout


def _elements(addresses: Collection[str]) -> str:
    return f"elements = {{ {', '.join(addresses)} }}" if addresses else ""


def _counts(listed: Mapping[str, Any]) -> Counts:
    """The packets of each address of a set, in nft's output."""
    elements = (element["elem"] for element in listed.get("elem", []))
    return {element["val"]: int(element["counter"]["packets"]) for element in elements}
