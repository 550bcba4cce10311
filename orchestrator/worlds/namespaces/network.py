"""The network of a sandbox: a bridge, a cable per node, and a filter between them."""

from collections.abc import Sequence

from orchestrator.errors import WorldError
from orchestrator.machine import links
from orchestrator.machine.pair_filter import PairFilter
from orchestrator.worlds.base import Node

BRIDGE = "br0"
GATEWAY = "10.77.0.1"
PREFIX_LENGTH = 24
MAX_NODES = 200
_BRIDGE_MAC = "02:62:6f:00:01:00"


def node_address(number: int) -> str:
    """The address of the node with this number (from 1), the same in every sandbox."""
    return f"10.77.0.{10 + number}"


def node_mac(number: int) -> str:
    """Fixed, so that neighbour caches stay valid when a node is rebooted."""
    return f"02:62:6f:00:00:{number:02x}"


class BridgeNetwork(PairFilter):
    """The cables between the nodes, and the cuts between them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__({node.name: node.address for node in nodes}, BRIDGE)
        self._nodes = nodes

    def build(self) -> None:
        """Make the bridge and the table. Raises `WorldError`."""
        try:
            links.disable_ipv6()
            links.ip_batch(
                [
                    # A fixed address: otherwise the bridge takes a port's address, which changes whenever a node is
                    # added or
                    # removed, and neighbour caches become wrong.
                    f"link add {BRIDGE} address {_BRIDGE_MAC} type bridge mcast_snooping 0",
                    f"addr add {GATEWAY}/{PREFIX_LENGTH} dev {BRIDGE}",
                    f"link set {BRIDGE} up",
                    # Address resolution on a cable that is not up yet takes a second: avoid it.
                    *(
                        f"neigh replace {node.address} lladdr {node_mac(node.id)} dev {BRIDGE} nud permanent"
                        for node in self._nodes
                    ),
                ]
            )
        except OSError as error:
            raise WorldError(f"the bridge between the nodes cannot be made: {error}") from error
        self.install()

    def remove(self) -> None:
        """Remove bridge and table; no error if they do not exist."""
        links.delete(BRIDGE)
        self.uninstall()
