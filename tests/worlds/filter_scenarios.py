"""Single packets through the filter between nodes, inside a sandbox of a test: two cables without other traffic.

A program: `python -m tests.worlds.filter_scenarios <name>` prints the scenario's result as JSON.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from nemeses.ports import PacketCount
from orchestrator.machine import links
from orchestrator.worlds.base import Node
from orchestrator.worlds.namespaces.lab import BRIDGE, BridgeNetwork, node_address, node_mac
from tests.worlds.scenarios import tell

DEADLINE_S = 120.0
THERE = ("n1", "n2")
_SHOWN_TO_IP = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


class Cables:
    """The network of a world with two nodes, each no more than a network namespace."""

    def __init__(self, ends: list[subprocess.Popen[str]]) -> None:
        # Where a kernel shows bridged packets to the filter of IP, too, that one answers what is dropped here.
        with contextlib.suppress(FileNotFoundError):
            _SHOWN_TO_IP.write_text("0")
        self.network = BridgeNetwork([_node(number) for number in (1, 2)])
        self.network.build()
        self._ends = ends
        for number, end in enumerate(ends, 1):
            links.ip_batch(
                [
                    f"link add p{number} type veth peer name eth0 netns {end.pid} address {node_mac(number)}",
                    f"link set p{number} master {BRIDGE}",
                    f"link set p{number} up",
                ]
            )
            other = 3 - number
            self.on(
                number, f"ip addr add {node_address(number)}/24 dev eth0 && ip link set lo up && ip link set eth0 up"
            )
            self.on(number, f"ip neigh replace {node_address(other)} lladdr {node_mac(other)} dev eth0 nud permanent")
        self._seen_before = self._come_up()

    def _come_up(self) -> int:
        """The number of packets until a port of the bridge started to forward: earlier ones are lost."""
        give_up = time.monotonic() + DEADLINE_S
        while not (seen := self.network.counters()[THERE].seen) and time.monotonic() < give_up:
            self._send()
        return seen

    def _send(self) -> None:
        self.on(1, f"echo probe > /dev/udp/{node_address(2)}/9")

    def on(self, number: int, command: str) -> None:
        inside = ["nsenter", "-t", str(self._ends[number - 1].pid), "-n", "bash", "-c", command]
        subprocess.run(inside, check=True, capture_output=True, timeout=DEADLINE_S)

    def probe(self, *, until_seen: int = 0, until_dropped: int = 0) -> list[int]:
        """Packets from n1 to n2 seen and dropped, once one more was sent and it reached these numbers."""
        self._send()
        give_up = time.monotonic() + DEADLINE_S
        while True:
            count: PacketCount = self.network.counters()[THERE]
            seen = count.seen - self._seen_before
            if (seen >= until_seen and count.dropped >= until_dropped) or time.monotonic() > give_up:
                return [seen, count.dropped]
            time.sleep(0.01)

    def forget_to_drop(self) -> None:
        """Take the rule that drops out of the filter: the sets stay as they are."""
        listed = ["nft", "-j", "-a", "list", "chain", "bridge", "brownout", "forward"]
        said = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
        rules = [entry["rule"] for entry in json.loads(said)["nftables"] if "rule" in entry]
        (handle,) = [rule["handle"] for rule in rules if {"drop": None} in rule["expr"]]
        deleting = ["nft", "delete", "rule", "bridge", "brownout", "forward", "handle", str(handle)]
        subprocess.run(deleting, check=True, capture_output=True)


def _node(number: int) -> Node:
    return Node(f"n{number}", number, node_address(number), {}, "/data", "/etc", "/var", record_dir=Path("/nowhere"))


@contextlib.contextmanager
def cables() -> Iterator[Cables]:
    ends = [
        subprocess.Popen(["unshare", "-n", "sh", "-c", "echo made; exec sleep 600"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for end in ends:
            assert end.stdout is not None
            assert end.stdout.readline() == "made\n"
        yield (made := Cables(ends))
        made.network.remove()
    finally:
        for end in ends:
            end.kill()
            end.communicate()


def counted() -> dict[str, list[int]]:
    """The counts of single packets: [seen, dropped]."""
    with cables() as made:
        seen = {"open": made.probe(until_seen=1)}
        made.network.cut([THERE])
        seen["cut"] = made.probe(until_dropped=1)
        made.network.cut([THERE], reject=True)
        seen["cut and rejected"] = made.probe(until_seen=3)
        made.network.heal()
        made.network.cut([THERE], reject=True)
        seen["rejected"] = made.probe(until_dropped=1)
        made.network.heal()
        made.network.cut([THERE])
        made.forget_to_drop()
        seen["cut, and not dropped"] = made.probe(until_seen=4)
        return seen


if __name__ == "__main__":
    tell(globals()[sys.argv[1]](*sys.argv[2:]))
