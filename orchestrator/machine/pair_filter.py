"""Cuts directions between nodes on this machine's bridge: nftables rules that drop or reject, and count."""

import json
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from installation.programs import run_program
from nemeses.ports import PacketCount
from orchestrator.errors import WorldError

_TABLE = "bridge brownout"
_REJECTING = "ip brownout"

Pair = tuple[str, str]


class PairFilter:
    """Drops packets that bridges forward from one node to another, by their addresses (by node name).

    Packets from this machine itself are not forwarded, so control connections are never cut. Many kernels cannot reject
    on a bridge: packets to be rejected are diverted to this machine's own IP stack, whose filter rejects them.
    """

    def __init__(self, addresses: Mapping[str, str], bridge: str) -> None:
        self._addresses = dict(addresses)
        self._bridge = bridge
        self._names = {address: name for name, address in addresses.items()}

    def install(self) -> None:
        """Create the tables, with nothing cut. The bridge must exist. Raises `WorldError`."""
        (link,) = json.loads(_run(["ip", "-j", "link", "show", "dev", self._bridge]))
        # ARP is not IPv4 and passes: cutting it would outlast the heal in the caches.
        # A lookup in `cut` counts the packet, and a counted packet must have been dropped: so only the rule that drops
        # may
        # look it up. (A lookup that finds nothing counts nothing.)
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
        """Remove the tables; no error if they do not exist."""
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
        """The sets in force, as (table, name, elements with their packet counts)."""
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
        """The sets of a table with the number of packets that matched each element, 0 if not counted."""
        listed = json.loads(_run(["nft", "-j", "list", "table", *table.split()]))
        counts: dict[str, dict[Pair, int]] = {}
        for entry in listed["nftables"]:
            if "set" in entry:
                counts[entry["set"]["name"]] = dict(map(self._counted, entry["set"].get("elem", [])))
        return counts

    def _counted(self, element: Mapping[str, Any]) -> tuple[Pair, int]:
        counted = element.get("elem")
        source, destination = (element if counted is None else counted["val"])["concat"]
        packets = 0 if counted is None else int(counted["counter"]["packets"])
        return (self._names[source], self._names[destination]), packets


def _nft(script: str) -> None:
    """One atomic transaction."""
    _run(["nft", "-f", "-"], script)


def _run(command: list[str], script: str | None = None) -> str:
    try:
        done = run_program(command, input=script)
    except OSError as error:
        raise WorldError(
            f"{command[0]} cannot be run: {error.strerror}; `brownout doctor` lists what is missing"
        ) from error
    if done.returncode:
        raise WorldError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
