"""Cutting directions between nodes, where this machine bridges them: nftables that drop or reject, and count."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from nemeses.ports import PacketCount
from orchestrator.errors import WorldError

_TABLE = "bridge brownout"
_REJECTING = "ip brownout"

Pair = tuple[str, str]


class PairFilter:
    """Drops what bridges forward from one node to another, by their addresses (by name of the node).

    What comes from this machine itself is not forwarded, so control connections are never cut. Many kernels cannot
    reject in a bridge: what is to be rejected is taken up into this machine's own IP stack, whose filter answers.
    """

    def __init__(self, addresses: Mapping[str, str], bridge: str) -> None:
        self._addresses = dict(addresses)
        self._bridge = bridge
        self._names = {address: name for name, address in addresses.items()}

    def install(self) -> None:
        """Make the tables, with nothing cut. The bridge is there. Raises `WorldError`."""
        (link,) = json.loads(_run(["ip", "-j", "link", "show", "dev", self._bridge]))
        # Address resolution is not IPv4 and passes: cutting it would outlast the heal in the caches.
        # Whatever is found in `cut` is counted there, and what is counted must have been dropped: only the rule that
        # drops may look for it. (Who asks for what is not there finds nothing that could be counted.)
        _nft(
            f"""table {_TABLE} {{
              set pairs {{ type ipv4_addr . ipv4_addr; counter; {self._all_pairs()} }}
              set cut {{ type ipv4_addr . ipv4_addr; counter; }}
              set taken {{ type ipv4_addr . ipv4_addr; }}
              chain prerouting {{
                type filter hook prerouting priority 0; policy accept;
                ip saddr . ip daddr @taken ip saddr . ip daddr != @cut \
                  meta pkttype set host ether daddr set {link["address"]}
              }}
              chain forward {{
                type filter hook forward priority 0; policy accept;
                ip saddr . ip daddr @pairs
                ip saddr . ip daddr @cut drop
              }}
            }}
            table {_REJECTING} {{
              set rejected {{ type ipv4_addr . ipv4_addr; counter; }}
              chain prerouting {{
                type filter hook prerouting priority 0; policy accept;
                meta l4proto tcp ip saddr . ip daddr @rejected reject with tcp reset
                ip saddr . ip daddr @rejected reject
              }}
            }}"""
        )

    def uninstall(self) -> None:
        """Remove the tables; no error when they do not exist."""
        for table in (_TABLE, _REJECTING):
            subprocess.run(["nft", "delete", "table", *table.split()], capture_output=True, check=False)

    def cut(self, pairs: Collection[Pair], *, reject: bool = False) -> None:
        if not pairs:
            return
        elements = f"{{ {self._elements(pairs)} }}"
        if reject:
            _nft(f"add element {_REJECTING} rejected {elements}\nadd element {_TABLE} taken {elements}")
        else:
            _nft(f"add element {_TABLE} cut {elements}")

    def heal(self, pairs: Collection[Pair] | None = None) -> None:
        script = []
        for table, name, present in self._in_force():
            healed = set(present) if pairs is None else set(present) & set(pairs)
            if healed:
                script.append(f"delete element {table} {name} {{ {self._elements(healed)} }}")
        if script:
            _nft("\n".join(script))

    def counters(self) -> dict[Pair, PacketCount]:
        stopped: Counter[Pair] = Counter()
        for _, _, packets in self._in_force():
            stopped.update(packets)
        return {pair: PacketCount(count, stopped[pair]) for pair, count in self._read(_TABLE)["pairs"].items()}

    def cut_pairs(self) -> set[Pair]:
        return {pair for _, _, present in self._in_force() for pair in present}

    def _in_force(self) -> list[tuple[str, str, dict[Pair, int]]]:
        """The sets of what is cut (table, name, elements with their packets)."""
        bridge, rejecting = self._read(_TABLE), self._read(_REJECTING)
        return [
            (_TABLE, "cut", bridge["cut"]),
            (_TABLE, "taken", bridge["taken"]),
            (_REJECTING, "rejected", rejecting["rejected"]),
        ]

    def _all_pairs(self) -> str:
        pairs = [(a, b) for a in self._addresses for b in self._addresses if a != b]
        return f"elements = {{ {self._elements(pairs)} }}" if pairs else ""

    def _elements(self, pairs: Collection[Pair]) -> str:
        return ", ".join(f"{self._addresses[a]} . {self._addresses[b]}" for a, b in sorted(pairs))

    def _read(self, table: str) -> dict[str, dict[Pair, int]]:
        """The sets of a table with the packets that matched each element, 0 where they are not counted."""
        listed = json.loads(_run(["nft", "-j", "list", "table", *table.split()]))
        found: dict[str, dict[Pair, int]] = {}
        for entry in listed["nftables"]:
            if "set" in entry:
                found[entry["set"]["name"]] = dict(map(self._counted, entry["set"].get("elem", [])))
        return found

    def _counted(self, element: Mapping[str, Any]) -> tuple[Pair, int]:
        counted = element.get("elem")
        source, destination = (element if counted is None else counted["val"])["concat"]
        packets = 0 if counted is None else int(counted["counter"]["packets"])
        return (self._names[source], self._names[destination]), packets


def _nft(script: str) -> None:
    """One transaction: all of it or nothing."""
    _run(["nft", "-f", "-"], script)


def _run(command: list[str], script: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, encoding="utf-8", errors="backslashreplace", check=False
        )
    except OSError as error:
        raise WorldError(
            f"{command[0]} cannot be run: {error.strerror}; `brownout doctor` says what is missing"
        ) from error
    if done.returncode:
        raise WorldError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
