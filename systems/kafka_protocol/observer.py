"""Observes a cluster through the Kafka protocol (DescribeQuorum, Metadata, DescribeCluster).

Each request goes to all nodes concurrently, on separate connections and with a short deadline, because at any time a
node may be dead, stopped or cut off. If answers disagree, the leader of the newest quorum epoch is trusted.

A change of a topic's settings or replicas, and a question for its offsets, is one attempt at one broker. A text as
result is the reason why the attempt did not succeed.

A node becomes the leader of a partition by Kafka's clean election. Kafka has no election that names its winner.
ElectLeaders (KIP-460) makes the first of a partition's replicas the leader, and a reassignment (KIP-455) puts a replica
first.
"""

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from broker.errors import ErrorCode
from broker.protocol.api import encode_request
from broker.protocol.codec import DecodeError
from broker.protocol.messages.cluster_apis import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from broker.protocol.messages.config_apis import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from broker.protocol.messages.offset_apis import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ReassignablePartition,
)
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionData,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    ReplicaState,
)
from broker.protocol.messages.topic_apis import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.protocol.request import Request, Response
from broker.protocol.schema import QuorumTopic, Topic
from broker.server.client import PeerConnection, decode_answer
from nemeses.scheduling import REAL_TIME, Scheduler
from systems.errors import ClusterError, InputError
from systems.view import (
    COMMITTED_END,
    LAST_TIERED,
    LOCAL_START,
    LOG_START,
    PENDING_UPLOAD,
    Member,
    PartitionState,
    View,
)

# ---- One request and its answer, on a connection of its own: through this machine's sockets, or through the
# simulated network. For observation, not for load.

_LARGEST_ANSWER: Final = 64 << 20
CLIENT_ID: Final = "brownout"


class RequestError(Exception):
    """No usable answer: connection refused, timeout, or not the Kafka protocol. The message has address and cause."""


def ask(
    scheduler: Scheduler, address: tuple[str, int], request: Request[Response], version: int, *, timeout_s: float
) -> Response:
    """The answer to one request, for which `scheduler` waits. Raises `RequestError`."""
    try:
        return scheduler.run(_answer(address, request, version, timeout_s))
    except DecodeError as error:
        raise RequestError(f"{address[0]}:{address[1]}: the answer cannot be decoded: {error}") from error
    except OSError as error:
        raise RequestError(f"{address[0]}:{address[1]}: {str(error) or 'timed out'}") from error


async def _answer(address: tuple[str, int], request: Request[Response], version: int, timeout_s: float) -> Response:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, connection = await loop.create_connection(lambda: PeerConnection(_LARGEST_ANSWER), *address)
        try:
            body = await connection.send(1, encode_request(request, version, 1, CLIENT_ID))
        finally:
            connection.drop("the request is over")
    return decode_answer(request, version, body)


TOPIC, BROKER = 2, 4  # types of resources with settings
Address = tuple[str, int]

_CONSUMER: Final = -1  # the replica id of clients
_ALTER_VERSION, _REASSIGN_VERSION, _ELECT_VERSION = 1, 0, 2
# The lowest version of ListOffsets that knows the special timestamp, because older systems lack the newer versions.
_ASKED: Final = {
    LOG_START: (EARLIEST_TIMESTAMP, 7),
    LOCAL_START: (EARLIEST_LOCAL_TIMESTAMP, 8),
    LAST_TIERED: (LATEST_TIERED_TIMESTAMP, 9),
    PENDING_UPLOAD: (EARLIEST_PENDING_UPLOAD_TIMESTAMP, 11),
    COMMITTED_END: (LATEST_TIMESTAMP, 7),
}


def _first_error(results: Iterable[tuple[int, str | None]]) -> str | None:
    errors = [(code, message) for code, message in results if code != ErrorCode.NONE]
    return f"{_name(errors[0][0])}: {errors[0][1] or 'without a message'}" if errors else None


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


ASK_S = 0.7
FETCHED_S = 3.0  # a voter counts as alive if its last fetch from the leader is at most this old
CREATE_S = 5.0
METADATA_TOPIC = "__cluster_metadata"
_QUORUM_QUERY: Final = DescribeQuorumRequest(topics=[QuorumTopic(METADATA_TOPIC, [DescribeQuorumPartitionData(0)])])


class KafkaObserver:
    """Asks the brokers of one run about one topic. `members`: the nodes that answer as brokers; `controllers`: nodes
    that are only controllers. If there are any, they form the quorum, and each is asked directly (KIP-919)."""

    def __init__(
        self,
        members: Sequence[Member],
        topic: str,
        time_scale: float = 1.0,
        controllers: Sequence[Member] = (),
        scheduler: Scheduler = REAL_TIME,
    ) -> None:
        """`scheduler`: the world's, whose network has the requests."""
        self.members = tuple(members)
        self.controllers = tuple(controllers)
        self.topic = topic
        self._time_scale = time_scale
        self._by_id = {member.id: member.name for member in (*members, *controllers)}
        self._ids = {name: number for number, name in self._by_id.items()}
        self._scheduler = scheduler

    def close(self) -> None:
        """Nothing to close: each request has a connection of its own."""

    def view(self) -> View:
        """The state of the cluster now; an empty view with complaints when no node answers."""
        replies = self._scheduler.for_each((*self.controllers, *self.members), self._view_of)
        quorum, answers = replies[: len(self.controllers)], replies[len(self.controllers) :]
        brokers = _newest(answers)
        complaints = tuple(answer for answer in (*answers, *quorum) if isinstance(answer, str))
        controller = _newest(quorum) if self.controllers else brokers
        return View(
            controller.controller,
            controller.epoch,
            brokers.unfenced | controller.unfenced,
            brokers.partitions,
            complaints,
            # Without a controller, the brokers report the nodes that were alive when they last heard from one.
            certain=controller.controller is not None,
        )

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> str | None:
        """One attempt: at the controller, or at a broker on the controller's node, which forwards it."""
        return self.create_topic_with(assignment, {}, timeout_s)

    def create_topic_with(
        self, assignment: Sequence[Sequence[int]], settings: Mapping[str, str], timeout_s: float
    ) -> str | None:
        """See `systems.view.TopicControl`."""
        view = self.view()
        if view.controller is None:
            return "no controller is known"
        member = self._reaching_controller(view)
        if member is None:
            return "no broker is known to be alive"
        topic = CreatableTopic(name=self.topic, num_partitions=-1, replication_factor=-1)
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(ids))
            for number, ids in enumerate(assignment)
        ]
        topic.configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))
        try:
            answer = self._ask(member, request, 5, CREATE_S)
        except RequestError as error:
            return str(error)
        result = answer.topics[0]
        # An earlier attempt whose answer was lost may have created the topic.
        if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return None
        return f"{_name(result.error_code)}: {result.error_message}"

    def configure(self, settings: Mapping[str, str], node: str | None) -> str | None:
        """See `systems.view.TopicControl`. A node's settings are changed at the node."""
        view = self.view()
        target = next((member for member in self.members if member.name == node), None)
        recipient = self._reaching_controller(view) if node is None else target
        if recipient is None:
            return "; ".join(view.complaints) or "no node answers"
        kind, name = (TOPIC, self.topic) if target is None else (BROKER, str(target.id))
        changes = [IncrementalAlterableConfig(key, value=value) for key, value in settings.items()]
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, changes)])
        try:
            answer = self._ask(recipient, request, _ALTER_VERSION, CREATE_S)
        except RequestError as error:
            return str(error)
        return _first_error((response.error_code, response.error_message) for response in answer.responses)

    def reassign(self, partition: int, nodes: Sequence[str]) -> str | None:
        """See `systems.view.TopicControl`."""
        view = self.view()
        recipient = self._reaching_controller(view)
        if recipient is None:
            return "; ".join(view.complaints) or "no node answers"
        try:
            answer = self._reassign(recipient, partition, [self._ids[name] for name in nodes])
        except RequestError as error:
            return str(error)
        results = [(state.error_code, state.error_message) for entry in answer.responses for state in entry.partitions]
        return _first_error([(answer.error_code, answer.error_message), *results])

    def _reassign(self, recipient: Member, partition: int, replicas: list[int]) -> AlterPartitionReassignmentsResponse:
        """Make these node ids the replicas. Raises `RequestError`."""
        topic = Topic(self.topic, [ReassignablePartition(partition, replicas)])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        return self._ask(recipient, request, _REASSIGN_VERSION, CREATE_S)

    def offsets(self, partition: int) -> Mapping[str, int] | str:
        """See `systems.view.TopicControl`. They are asked one after the other."""
        view = self.view()
        state = view.partitions.get(partition)
        leader = next((member for member in self.members if state is not None and member.name == state.leader), None)
        if leader is None:
            return "; ".join(view.complaints) or f"partition {partition} has no leader"
        offset_by_name: dict[str, int] = {}
        for name, (timestamp, version) in _ASKED.items():
            query = ListOffsetsPartition(partition, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=_CONSUMER, topics=[Topic(self.topic, [query])])
            try:
                answer = self._ask(leader, request, version, CREATE_S)
            except RequestError as error:
                return f"{name}: {error}"
            result = answer.topics[0].partitions[0]
            if result.error_code != ErrorCode.NONE:
                return f"{name}: {_name(result.error_code)}"
            offset_by_name[name] = result.offset
        return offset_by_name

    def _ask(self, member: Member, request: Request[Response], version: int, timeout_s: float = ASK_S) -> Response:
        """Send a request to one node. `timeout_s`: unscaled. Raises `RequestError`."""
        address, scaled_s = (member.address, member.port), timeout_s * self._time_scale
        return ask(self._scheduler, address, request, version, timeout_s=scaled_s)

    def _reaching_controller(self, view: View) -> Member | None:
        """The broker that is the controller, or one that forwards requests to it; None if no broker is alive."""
        alive = [member for member in self.members if member.name in view.unfenced]
        return next((member for member in self.members if member.name == view.controller), alive[0] if alive else None)

    def elect(self, node: str, partition: int | None) -> str | None:
        """See `systems.view.Elector`; for partitions only. The next step: None when the node is the leader, otherwise
        what was done."""
        view = self.view()
        state = view.partitions.get(partition) if partition is not None else None
        recipient = self._reaching_controller(view)
        if state is None or partition is None or recipient is None:
            return "; ".join(view.complaints) or "no node answers"
        if node not in state.replicas:
            return f"{node} has no replica of partition {partition}"
        if state.leader == node:
            return None
        try:
            if state.replicas[0] != node:
                others = [self._ids[name] for name in state.replicas if name in self._ids and name != node]
                self._reassign(recipient, partition, [self._ids[node], *others])
            request = ElectLeadersRequest(PREFERRED, [ElectLeadersTopicPartitions(self.topic, [partition])])
            answer = self._ask(recipient, request, _ELECT_VERSION, CREATE_S)
        except RequestError as error:
            return str(error)
        results = [result for topic in answer.replica_election_results for result in topic.partition_result]
        refused = next((result for result in results if result.error_code != ErrorCode.NONE), None)
        return f"the leader is {state.leader or 'unknown'}" + ("" if refused is None else f": {refused.error_message}")

    def _view_of(self, node: Member) -> View | str:
        return self._ask_controller(node) if node in self.controllers else self._ask_member(node)

    def _ask_member(self, member: Member) -> View | str:
        """This node's view, or why it has none."""
        try:
            epoch = self._quorum_epoch(member)
            state = self._metadata(member)
            unfenced = self._unfenced(member)
        except RequestError as error:
            return f"{member.name} does not answer ({error})"
        partitions = {
            partition.partition_index: self._partition(partition)
            for topic in state.topics
            if topic.name == self.topic and topic.error_code == ErrorCode.NONE
            for partition in topic.partitions
        }
        return View(member.name if epoch is not None else None, -1 if epoch is None else epoch, unfenced, partitions)

    def _ask_controller(self, member: Member) -> View | str:
        """If a controller leads the quorum: the nodes that fetch from it are alive. Otherwise an empty view."""
        try:
            result = self._quorum(member)
        except RequestError as error:
            return f"{member.name} does not answer ({error})"
        if result is None:
            return View()
        fetched_ms = {voter.replica_id: voter.last_fetch_timestamp for voter in result.current_voters}
        oldest_ms = max(0, max(fetched_ms.values(), default=0) - FETCHED_S * 1000 * self._time_scale)
        fetching = {id_ for id_, at_ms in fetched_ms.items() if at_ms > oldest_ms} | {member.id}
        alive = frozenset(self._by_id[id_] for id_ in fetching if id_ in self._by_id)
        return View(member.name, result.leader_epoch, alive)

    def _quorum_epoch(self, member: Member) -> int | None:
        """The quorum's epoch if this node is its leader, else None."""
        result = self._quorum(member)
        return None if result is None else result.leader_epoch

    def _quorum(self, member: Member) -> DescribeQuorumPartitionResult | None:
        """The quorum's state if this node is its leader, else None."""
        answer = self._ask(member, _QUORUM_QUERY, 1)
        if answer.error_code != ErrorCode.NONE or not answer.topics or not answer.topics[0].partitions:
            return None
        result = answer.topics[0].partitions[0]
        return result if result.error_code == ErrorCode.NONE and result.leader_id == member.id else None

    def _metadata(self, member: Member) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        return self._ask(member, request, 9)

    def _unfenced(self, member: Member) -> frozenset[str]:
        """The unfenced brokers as this node knows them; Metadata lists fenced brokers, too."""
        answer = self._ask(member, DescribeClusterRequest(), 0)
        return frozenset(self._by_id[broker.broker_id] for broker in answer.brokers if broker.broker_id in self._by_id)

    def _partition(self, state: MetadataResponsePartition) -> PartitionState:
        def names(ids: Sequence[int]) -> tuple[str, ...]:
            return tuple(self._by_id.get(number, str(number)) for number in ids)

        leader = self._by_id.get(state.leader_id) if state.leader_id >= 0 else None
        return PartitionState(leader, state.leader_epoch, names(state.isr_nodes), names(state.replica_nodes))


def _newest(answers: Sequence[View | str]) -> View:
    """The view with the newest epoch among those that know a controller; otherwise an empty view."""
    views = [answer for answer in answers if isinstance(answer, View)]
    return max(views, key=lambda view: (view.controller is not None, view.epoch, len(view.unfenced)), default=View())


# ---- The quorum's state by its leader, printed as Kafka's tool does (KIP-595).

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_ASK_S = 1.0


@dataclass(frozen=True)
class ReplicaLine:
    """One replica. Times are in milliseconds; -1 if the leader does not know."""

    replica_id: int
    log_end_offset: int
    lag: int
    lag_time_ms: int
    status: str


@dataclass(frozen=True)
class QuorumState:
    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[int, ...]
    observers: tuple[int, ...]
    replicas: tuple[ReplicaLine, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def status_lines(self) -> list[str]:
        """As `describe --status` (K595-50)."""
        followers = [replica for replica in self.replicas if replica.status == "Follower"]
        rows = {
            "ClusterId": self.cluster_id,
            "LeaderId": self.leader_id,
            "LeaderEpoch": self.leader_epoch,
            "HighWatermark": self.high_watermark,
            "MaxFollowerLag": max((replica.lag for replica in followers), default=0),
            "MaxFollowerLagTimeMs": max((replica.lag_time_ms for replica in followers), default=0),
            "CurrentVoters": _ids(self.voters),
            "CurrentObservers": _ids(self.observers),
        }
        return [f"{name + ':':<24}{value}" for name, value in rows.items()]

    def replication_lines(self) -> list[str]:
        """As `describe --replication` (K595-51)."""
        rows = [("ReplicaId", "LogEndOffset", "Lag", "LagTimeMs", "Status")]
        rows += [
            (str(r.replica_id), str(r.log_end_offset), str(r.lag), str(r.lag_time_ms), r.status) for r in self.replicas
        ]
        return ["".join(f"{cell:<16}" for cell in row).rstrip() for row in rows]


def describe_quorum(bootstrap: Sequence[Address], *, timeout_s: float) -> QuorumState:
    """Ask until the leader answers (K595-45). Raises `ClusterError` when it does not answer in time, and `InputError`
    when no broker answers.

    A broker that knows the leader names it, and the next request goes there. Otherwise, and if the named broker names
    another one (two brokers that do not know of an election yet may name each other), the next request goes to a random
    broker after a pause that doubles each time.
    """
    deadline, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    addresses: dict[int, Address] = {}
    target, was_named, complaint = random.choice(bootstrap), False, "no broker was asked"
    while time.monotonic() < deadline:
        try:
            cluster = _metadata(target)
            addresses |= {broker.node_id: (broker.host, broker.port) for broker in cluster.brokers}
            result = _ask(target)
        except RequestError as error:
            complaint, result = str(error), None
        if result is not None and result.error_code == ErrorCode.NONE:
            return _state(cluster.cluster_id or "", result)
        if result is not None:
            complaint = f"{target[0]}:{target[1]}: {ErrorCode(result.error_code).name}, leader {result.leader_id}"
            leader = addresses.get(result.leader_id, target)
            if leader != target and not was_named:
                target, was_named = leader, True
                continue
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        target, was_named = random.choice([*bootstrap, *addresses.values()]), False
    if not addresses:
        raise InputError(f"no broker answered within {timeout_s:g} s; last: {complaint}; name a broker that runs")
    raise ClusterError(f"no leader of the quorum answered within {timeout_s:g} s; last: {complaint}")


def _metadata(target: Address) -> MetadataResponse:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return ask(REAL_TIME, target, request, 9, timeout_s=_ASK_S)


def _ask(target: Address) -> DescribeQuorumPartitionResult | None:
    answer = ask(REAL_TIME, target, _QUORUM_QUERY, 1, timeout_s=_ASK_S)
    if answer.error_code != ErrorCode.NONE:
        return DescribeQuorumPartitionResult(error_code=answer.error_code, leader_id=-1)
    return answer.topics[0].partitions[0] if answer.topics and answer.topics[0].partitions else None


def _state(cluster_id: str, result: DescribeQuorumPartitionResult) -> QuorumState:
    end = max((r.log_end_offset for r in result.current_voters if r.replica_id == result.leader_id), default=-1)
    now_ms = max((r.last_fetch_timestamp for r in [*result.current_voters, *result.observers]), default=-1)

    def line(replica: ReplicaState, status: str) -> ReplicaLine:
        if replica.replica_id == result.leader_id:
            return ReplicaLine(replica.replica_id, replica.log_end_offset, 0, 0, "Leader")
        lag = end - replica.log_end_offset if replica.log_end_offset >= 0 and end >= 0 else -1
        caught_up = replica.last_caught_up_timestamp
        lag_time = max(0, now_ms - caught_up) if caught_up >= 0 and now_ms >= 0 else -1
        return ReplicaLine(replica.replica_id, replica.log_end_offset, lag, lag_time, status)

    lines = [line(replica, "Follower") for replica in result.current_voters]
    lines += [line(replica, "Observer") for replica in result.observers]
    return QuorumState(
        cluster_id,
        result.leader_id,
        result.leader_epoch,
        result.high_watermark,
        tuple(sorted(replica.replica_id for replica in result.current_voters)),
        tuple(sorted(replica.replica_id for replica in result.observers)),
        tuple(sorted(lines, key=lambda entry: (entry.status != "Leader", entry.status, entry.replica_id))),
    )


def _ids(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
