"""Cutting directions between nodes, where this machine bridges them: an nftables table that drops and counts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping
from typing import Any

from nemeses.ports import PacketCount
from orchestrator.errors import WorldError

_TABLE = "bridge brownout"

Pair = tuple[str, str]


class PairFilter:
    """Drops what bridges forward from one node to another, by their addresses (by name of the node).

    What comes from this machine itself is not forwarded, so control connections are never cut.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)
        self._names = {address: name for name, address in addresses.items()}

    def install(self) -> None:
        """Make the table, with nothing cut. Raises `WorldError`."""
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

    def uninstall(self) -> None:
        """Remove the table; no error when it does not exist."""
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
