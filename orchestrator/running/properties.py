"""Each node's `server.properties`, from the campaign, the world's addresses and its pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from broker.config import BrokerConfig
from orchestrator.campaign.model import BrokerSettings
from orchestrator.worlds.base import Node

_TIMES: dict[str, int] = {
    f.metadata["key"]: f.default
    for f in fields(BrokerConfig)
    if f.metadata.get("key", "").endswith(".ms") and isinstance(f.default, int)
}
"""The properties that are times, with their defaults, in milliseconds."""


def server_properties(
    node: Node, nodes: Sequence[Node], settings: BrokerSettings, cluster_id: str, time_scale: float = 1.0
) -> str:
    """The text of one broker's configuration; every node is a voter of the metadata quorum (K595-1).

    `time_scale` multiplies every time, the defaults as well: where everything takes longer, timeouts have to."""
    voters = ",".join(f"{each.id}@{each.address}:{each.port}" for each in nodes)
    lines = {
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://{node.address}:{node.port}",
        "quorum.voters": voters,
        "log.dir": node.log_dir,
        "trace.path": node.trace_path,
        "cluster.id": cluster_id,
        **_scaled(settings.of(node.name), time_scale),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _scaled(given: Mapping[str, str], time_scale: float) -> dict[str, str]:
    if time_scale == 1.0:
        return dict(given)
    times = {key: int(given.get(key, str(default))) for key, default in _TIMES.items()}
    return {**given, **{key: str(max(1, int(time * time_scale))) for key, time in times.items()}}
