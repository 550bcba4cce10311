"""A broker's metrics as text for Prometheus."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, cast

from broker.controller.image import MetadataImage
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.errors import StartupError
from broker.groups.memory_quota import MemoryKind
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.quorum.roles import Role
from broker.quorum.runner import QuorumRunner
from broker.quorum.wire import NO_NODE
from broker.replica.manager import ReplicaManager
from broker.tiered.tiered_storage import TieredStorage

# ---- A separate HTTP listener that answers only `GET /metrics`. Off unless `metrics.port` is set.

MOST_BYTES = 8_192  # of a request; a scraper's has a few hundred
PATIENCE_S = 10.0  # time limit for a whole request
MOST_AT_ONCE = 16  # connections: a further one closes the oldest


class _Scrape(asyncio.Protocol):
    """One connection: one request, one answer, then it is closed."""

    def __init__(self, page: Callable[[], str], open_ones: dict["_Scrape", None]) -> None:
        """`open_ones`: the open connections, in the order in which they connected."""
        self._page = page
        self._open_ones = open_ones
        self._request = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._transport.abort)
        if len(self._open_ones) >= MOST_AT_ONCE:
            oldest = next(iter(self._open_ones))
            oldest.abort()
        self._open_ones[self] = None

    def abort(self) -> None:
        """Disconnect at once."""
        self._open_ones.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._open_ones.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._request += data
        if b"\r\n\r\n" in self._request or b"\n\n" in self._request:
            self._transport.write(self._answer(self._request.split(b"\n", 1)[0].split()))
            self._transport.close()
        elif len(self._request) > MOST_BYTES:
            self._transport.abort()

    def _answer(self, line: list[bytes]) -> bytes:
        method, path = (*line, b"", b"")[:2]
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET is supported\n")
        if path.split(b"?")[0] != b"/metrics":
            return _response("404 Not Found", "the only page is /metrics\n")
        return _response("200 OK", self._page())


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class MetricsPage:
    """Serves the text that `page` returns at the time of the request."""

    def __init__(self, page: Callable[[], str]) -> None:
        self._page = page
        self._scrapes: dict[_Scrape, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `StartupError` when the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Scrape(self._page, self._scrapes), host, port)
        except OSError as error:
            raise StartupError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; free the port or change `metrics.port`"
            ) from error

    def stop(self) -> None:
        """Stop listening and drop the connections."""
        if self._server is not None:
            self._server.close()
            self._server = None


STATES = ("unattached", "voted", "prospective", "candidate", "follower", "resigned", "leader")
OPERATIONS = ("put", "get", "list", "delete")  # of the object store
REMOTE_SIZES = (
    ("log_segments", "Remote segments of led partitions."),
    ("log_bytes", "Bytes of the records in remote segments of led partitions."),
    ("copy_lag_segments", "Closed segments of led partitions that are not in remote storage yet."),
    ("copy_lag_bytes", "Their bytes."),
    ("delete_lag_bytes", "Bytes of remote segments whose deletion has started."),
)
"""Name and meaning of each field of `RemoteSizes`."""


class Metric(NamedTuple):
    """One number. Counters end in `_total`, everything else is a gauge."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


class MetricSources(Protocol):
    """The parts of a node that have metrics."""

    image: MetadataImage
    replicas: ReplicaManager

    groups: GroupCoordinator
    tiered: TieredStorage | None

    @property
    def quorum(self) -> QuorumRunner: ...
    @property
    def connections(self) -> int: ...
    @property
    def fenced(self) -> bool: ...


def render(metrics: Iterable[Metric]) -> str:
    """The exposition format, version 0.0.4. Metrics of one name stand together."""
    lines: list[str] = []
    last_name = ""
    for metric in metrics:
        if metric.name != last_name:
            kind = "counter" if metric.name.endswith("_total") else "gauge"
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {kind}"]
            last_name = metric.name
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in metric.labels.items())
        lines.append(
            f"{metric.name}{{{labels}}} {metric.value:.17g}" if labels else f"{metric.name} {metric.value:.17g}"
        )
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_of(node: MetricSources, now: float) -> Iterator[Metric]:
    """All metrics, at the loop's time `now`."""
    yield from quorum_metrics(node.quorum, now)
    yield from broker_metrics(node)


def quorum_metrics(quorum: QuorumRunner, now: float) -> Iterator[Metric]:
    """Kafka's `raft-manager` metrics (K595-52), with underscores for hyphens. Times are in milliseconds."""
    measures = quorum.measures
    role: Role = quorum.role
    voted = NO_NODE if role.voted_id is None else role.voted_id
    leader = NO_NODE if role.leader_id is None else role.leader_id
    yield Metric("raft_current_leader", "Id of the elected leader, -1 if unknown.", leader)
    yield Metric("raft_current_epoch", "The quorum's epoch.", role.epoch)
    yield Metric("raft_current_vote", "Id of the node that this node voted for in this epoch, -1 if it did not.", voted)
    yield Metric("raft_log_end_offset", "End offset of the metadata log.", quorum.log_end.offset)
    yield Metric(
        "raft_log_end_epoch", "Epoch of the last record of the metadata log, -1 if empty.", quorum.log_end.epoch
    )
    yield Metric("raft_high_watermark", "All metadata records below this offset are committed.", quorum.high_watermark)
    for state in STATES:
        yield Metric(
            "raft_current_state", "1 for the current state of this node.", state == role.name, {"state": state}
        )
    yield Metric("raft_number_unknown_voter_connections", "Voters with an unknown address; all are configured.", 0)
    for name, window in (("election", measures.elections), ("commit", measures.commits)):
        average, largest = 1000 * window.average(now), 1000 * window.largest(now)
        yield Metric(f"raft_{name}_latency_avg", f"Mean {name} time in ms, over the last 30 s.", average)
        yield Metric(f"raft_{name}_latency_max", f"Longest {name} time in ms, over the last 30 s.", largest)
    yield Metric("raft_fetch_records_rate", "Metadata records fetched per second.", measures.fetched.rate(now))
    yield Metric("raft_append_records_rate", "Metadata records appended per second.", measures.appended.rate(now))
    yield Metric(
        "raft_poll_idle_ratio_avg", "Share of its time in which the quorum was idle.", measures.idle_ratio(now)
    )


def remote_storage_metrics(tiered: TieredStorage) -> Iterator[Metric]:
    """Metrics of the object store as this broker experiences it, and of the partitions that it leads: Kafka's
    RemoteLogSizeBytes, RemoteCopyLagBytes and so on."""
    for (operation, kind), count in sorted(tiered.store.failures.items()):
        labels = {"operation": operation, "kind": kind}
        yield Metric("broker_remote_storage_failures_total", "Operations of the store that failed.", count, labels)
    for operation in OPERATIONS:
        failing, labels = operation in tiered.store.failing, {"operation": operation}
        yield Metric("broker_remote_storage_failing", "1 while an operation of the store fails.", failing, labels)
    for kind, count in sorted(tiered.reads.failures.items()):
        labels = {"kind": kind}
        yield Metric("broker_remote_read_failures_total", "Parts of remote segments not read.", count, labels)
    yield Metric("broker_remote_read_cache_bytes", "Bytes of remote segments in memory.", tiered.reads.size)
    sizes = tiered.sizes()
    for number, (name, text) in enumerate(REMOTE_SIZES):
        for topic, topic_sizes in sizes.items():
            yield Metric(f"broker_remote_{name}", text, topic_sizes[number], {"topic": topic})
    yield Metric(
        "broker_remote_unknown_objects", "Objects that the metadata do not know; they stay.", tiered.unknown_objects
    )
    yield Metric(
        "broker_remote_metadata_unreadable",
        "Partitions of the metadata with a record that this version cannot read; nothing of theirs is deleted.",
        tiered.metadata.unreadable_partitions,
    )
    yield Metric("broker_remote_store_owned", "1 while this broker may delete in the store.", tiered.owner.may_delete)


def broker_metrics(node: MetricSources) -> Iterator[Metric]:
    """Metrics of this broker's replicas, and of the cluster according to its copy of the metadata."""
    image, count = node.image, node.replicas.counts()
    yield Metric("broker_fenced", "1 while the controller counts this broker as fenced.", node.fenced)
    yield Metric("broker_connections", "Connected peers, of all listeners.", node.connections)
    yield Metric("broker_partitions", "Partitions with a replica on this broker.", count.partitions)
    yield Metric("broker_leaders", "Partitions that this broker leads.", count.leaders)
    yield Metric(
        "broker_under_replicated_partitions", "Led partitions with a replica that is not in sync.", count.lagging
    )
    yield Metric(
        "broker_under_min_isr_partitions", "Led partitions with fewer in-sync replicas than required.", count.short
    )
    yield Metric("broker_log_bytes", "Bytes of the logs of all partitions.", count.bytes)
    for kind in MemoryKind:
        held_bytes = node.groups.account.held(kind)
        yield Metric("broker_group_bytes", "Bytes held by all groups.", held_bytes, {"kind": kind.name.lower()})
    for work, failed in sorted(node.replicas.work.failures.items()):
        labels = {"work": work}
        yield Metric("broker_partition_work_failures_total", "Errors of work on one partition.", failed, labels)
    if node.tiered is not None:
        yield from remote_storage_metrics(node.tiered)
    yield Metric("broker_metadata_offset", "Offset of the last applied metadata record.", image.offset)
    leaderless = sum(partition.leader == NO_LEADER for _, _, partition in image.partitions())
    yield Metric("cluster_topics", "Topics in the metadata.", len(image.topics))
    yield Metric("cluster_offline_partitions", "Partitions without a leader.", leaderless)
    for state, fenced in (("fenced", True), ("active", False)):
        number = sum(broker.fenced is fenced for broker in image.brokers.values())
        yield Metric("cluster_brokers", "Registered brokers.", number, {"state": state})
