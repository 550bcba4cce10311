"""What a broker tells of itself, as text for Prometheus: pure, from its parts to lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from broker.controller.image import MetadataImage
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.groups.memory_quota import MemoryKind
from broker.quorum.roles import Role
from broker.quorum.runner import QuorumRunner
from broker.replica.manager import ReplicaManager

STATES = ("unattached", "voted", "prospective", "candidate", "follower", "resigned", "leader")
NOBODY = -1


class Metric(NamedTuple):
    """One number. Counters end in `_total`, everything else is a gauge."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


class MetricSources(Protocol):
    """A node, as far as it is measured."""

    image: MetadataImage
    replicas: ReplicaManager

    groups: GroupCoordinator

    @property
    def quorum(self) -> QuorumRunner: ...
    @property
    def connections(self) -> int: ...
    @property
    def fenced(self) -> bool: ...


def render(metrics: Iterable[Metric]) -> str:
    """The exposition format, version 0.0.4. Metrics of one name stand together."""
    lines: list[str] = []
    last = ""
    for metric in metrics:
        if metric.name != last:
            kind = "counter" if metric.name.endswith("_total") else "gauge"
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {kind}"]
            last = metric.name
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in metric.labels.items())
        lines.append(
            f"{metric.name}{{{labels}}} {metric.value:.17g}" if labels else f"{metric.name} {metric.value:.17g}"
        )
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_of(node: MetricSources, now: float) -> Iterator[Metric]:
    """Everything, at the loop's time `now`."""
    yield from quorum_metrics(node.quorum, now)
    yield from broker_metrics(node)


def quorum_metrics(quorum: QuorumRunner, now: float) -> Iterator[Metric]:
    """Kafka's `raft-manager` metrics (K595-52), their hyphens turned into underscores. Times are milliseconds."""
    measures = quorum.measures
    role: Role = quorum.role
    voted = NOBODY if role.voted_id is None else role.voted_id
    leader = NOBODY if role.leader_id is None else role.leader_id
    yield Metric("raft_current_leader", "The elected leader's id, -1 while none is known.", leader)
    yield Metric("raft_current_epoch", "The quorum's epoch.", role.epoch)
    yield Metric("raft_current_vote", "Whom this node voted for in this epoch, -1: nobody.", voted)
    yield Metric("raft_log_end_offset", "The end of the metadata log.", quorum.log_end.offset)
    yield Metric(
        "raft_log_end_epoch", "The epoch of the last record of the metadata log, -1: none.", quorum.log_end.epoch
    )
    yield Metric("raft_high_watermark", "Everything below is committed.", quorum.high_watermark)
    for state in STATES:
        yield Metric(
            "raft_current_state", "1 for the state that this node is in.", state == role.name, {"state": state}
        )
    yield Metric("raft_number_unknown_voter_connections", "Voters whose address is not known; all are configured.", 0)
    for name, window in (("election", measures.elections), ("commit", measures.commits)):
        average, largest = 1000 * window.average(now), 1000 * window.largest(now)
        yield Metric(
            f"raft_{name}_latency_avg", f"Milliseconds of a {name}, on average in the last half minute.", average
        )
        yield Metric(
            f"raft_{name}_latency_max", f"Milliseconds of the longest {name} of the last half minute.", largest
        )
    yield Metric("raft_fetch_records_rate", "Metadata records fetched in a second.", measures.fetched.rate(now))
    yield Metric("raft_append_records_rate", "Metadata records appended in a second.", measures.appended.rate(now))
    yield Metric(
        "raft_poll_idle_ratio_avg", "Which part of its time the quorum had nothing to do.", measures.idle_ratio(now)
    )


def broker_metrics(node: MetricSources) -> Iterator[Metric]:
    """This broker's replicas, and the cluster as its copy of the metadata has it."""
    image, count = node.image, node.replicas.counts()
    yield Metric("broker_fenced", "1 while the controller does not count on this broker.", node.fenced)
    yield Metric("broker_connections", "Peers that are connected to the listener.", node.connections)
    yield Metric("broker_partitions", "Partitions of which this broker has a replica.", count.partitions)
    yield Metric("broker_leaders", "Partitions that this broker leads.", count.leaders)
    yield Metric(
        "broker_under_replicated_partitions", "Of those that it leads: not every replica is in sync.", count.lagging
    )
    yield Metric(
        "broker_under_min_isr_partitions", "Of those that it leads: fewer in sync than is asked for.", count.short
    )
    yield Metric("broker_log_bytes", "Bytes of all logs of partitions.", count.bytes)
    for kind in MemoryKind:
        held = node.groups.account.held(kind)
        yield Metric("broker_group_bytes", "Bytes that all groups hold.", held, {"kind": kind.name.lower()})
    yield Metric("broker_metadata_offset", "The last record of the metadata log that is applied.", image.offset)
    leaderless = sum(partition.leader == NOBODY for _, _, partition in image.partitions())
    yield Metric("cluster_topics", "Topics in the metadata.", len(image.topics))
    yield Metric("cluster_offline_partitions", "Partitions that nobody leads.", leaderless)
    for state, fenced in (("fenced", True), ("active", False)):
        number = sum(broker.fenced is fenced for broker in image.brokers.values())
        yield Metric("cluster_brokers", "Registered brokers.", number, {"state": state})
