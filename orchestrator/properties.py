"""Each node's `server.properties`, from the campaign and the world's addresses."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.campaign import BrokerSettings
from orchestrator.worlds.base import Node


def server_properties(node: Node, nodes: Sequence[Node], settings: BrokerSettings, cluster_id: str) -> str:
    """The text of one broker's configuration; every node is a voter of the metadata quorum (K595-1)."""
    voters = ",".join(f"{each.id}@{each.address}:{each.port}" for each in nodes)
    lines = {
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://{node.address}:{node.port}",
        "quorum.voters": voters,
        "log.dir": node.log_dir,
        "trace.path": node.trace_path,
        "cluster.id": cluster_id,
        **settings.of(node.name),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())
