"""The network of a sandbox: a bridge, a cable per node, and an nftables table that cuts directions and counts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nemeses.ports import PacketCount
from orchestrator.worlds.base import Node, WorldError
from orchestrator.worlds.namespaces import links

BRIDGE = "br0"
GATEWAY = "10.77.0.1"
PREFIX_LENGTH = 24
MAX_NODES = 200
_BRIDGE_MAC = "02:62:6f:00:01:00"
_TABLE = "bridge brownout"

Pair = tuple[str, str]


def node_address(number: int) -> str:
    """The address of the node with this number (from 1), the same in every sandbox."""
    return f"10.77.0.{10 + number}"


def node_mac(number: int) -> str:
    """Fixed: whoever remembers a node's hardware address must find the rebooted node at it."""
    return f"02:62:6f:00:00:{number:02x}"


class BridgeNetwork:
    """The cables between the nodes. What comes from the sandbox itself is not forwarded, so control is never cut."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._addresses = {node.name: node.address for node in nodes}
        self._names = {node.address: node.name for node in nodes}

    def build(self) -> None:
        """The bridge and the table. Raises `WorldError`."""
        try:
            links.disable_ipv6()
            links.ip_batch(
                [
                    # An address of its own: else the bridge takes that of a port, another one whenever a node comes or
                    # goes, and everybody who remembers the last one talks into the void.
                    f"link add {BRIDGE} address {_BRIDGE_MAC} type bridge mcast_snooping 0",
                    f"addr add {GATEWAY}/{PREFIX_LENGTH} dev {BRIDGE}",
                    f"link set {BRIDGE} up",
                    # Asking for an address on a cable that is not yet up is answered after a second: do not ask.
                    *(
                        f"neigh replace {node.address} lladdr {node_mac(node.id)} dev {BRIDGE} nud permanent"
                        for node in self._nodes
                    ),
                ]
            )
        except OSError as error:
            raise WorldError(f"the bridge between the nodes cannot be made: {error}") from error
        # Address resolution is not IPv4 and passes: cutting it would outlast the heal in the caches.
        _nft(
            f"""table {_TABLE} {{
              set pairs {{ type ipv4_addr . ipv4_addr; counter; {self._all_pairs()} }}
              set cut {{ type ipv4_addr . ipv4_addr; counter; }}
              chain forward {{
                type filter hook forward priority 0; policy accept;
                ip saddr . ip daddr @pairs
                ip saddr . ip daddr @cut drop
              }}
            }}"""
        )

    def remove(self) -> None:
        """Remove bridge and table; no error when they do not exist."""
        links.delete(BRIDGE)
        subprocess.run(["nft", "delete", "table", *_TABLE.split()], capture_output=True, check=False)

    def cut(self, pairs: Collection[Pair]) -> None:
        if pairs:
            _nft(f"add element {_TABLE} cut {{ {self._elements(pairs)} }}")

    def heal(self, pairs: Collection[Pair] | None = None) -> None:
        if pairs is None:
            _nft(f"flush set {_TABLE} cut")
        elif present := set(pairs) & self.cut_pairs():
            _nft(f"delete element {_TABLE} cut {{ {self._elements(present)} }}")

    def counters(self) -> dict[Pair, PacketCount]:
        sets = self._read_sets()
        dropped = sets["cut"]
        return {pair: PacketCount(seen, dropped.get(pair, 0)) for pair, seen in sets["pairs"].items()}

    def cut_pairs(self) -> set[Pair]:
        return set(self._read_sets()["cut"])

    def _all_pairs(self) -> str:
        pairs = [(a, b) for a in self._addresses for b in self._addresses if a != b]
        return f"elements = {{ {self._elements(pairs)} }}" if pairs else ""

    def _elements(self, pairs: Collection[Pair]) -> str:
        return ", ".join(f"{self._addresses[a]} . {self._addresses[b]}" for a, b in sorted(pairs))

    def _read_sets(self) -> dict[str, dict[Pair, int]]:
        """Both sets with their packet counts, read in one go."""
        listed = json.loads(_run(["nft", "-j", "list", "table", *_TABLE.split()]))
        found: dict[str, dict[Pair, int]] = {}
        for entry in listed["nftables"]:
            if "set" in entry:
                elements = (element["elem"] for element in entry["set"].get("elem", []))
                found[entry["set"]["name"]] = dict(map(self._counted, elements))
        return found

    def _counted(self, element: Mapping[str, Any]) -> tuple[Pair, int]:
        source, destination = element["val"]["concat"]
        return (self._names[source], self._names[destination]), int(element["counter"]["packets"])


def _nft(script: str) -> None:
    """One transaction: all of it or nothing."""
    _run(["nft", "-f", "-"], script)


def _run(command: list[str], script: str | None = None) -> str:
    try:
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    except OSError as error:
        raise WorldError(
            f"{command[0]} cannot be run: {error.strerror}; `brownout doctor` says what is missing"
        ) from error
    if done.returncode:
        raise WorldError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
