"""The cluster as its own answers show it: who leads what, who is in sync, who is fenced.

Every question goes to all nodes at once, on connections of their own and with a short deadline, because at any time
some node may be dead, stopped or cut off. Where answers disagree the leader of the newest quorum epoch is believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from broker.errors import ErrorCode
from broker.protocol.messages import create_topics, describe_cluster, describe_quorum, metadata
from nemeses import ClusterView
from orchestrator.errors import RunError
from orchestrator.running import wire

ASK_S = 0.7
POLL_S = 0.03
METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True)
class Member:
    """A broker as clients reach it."""

    name: str
    id: int
    address: str
    port: int


@dataclass(frozen=True)
class PartitionState:
    """`leader` is None while nobody leads."""

    leader: str | None
    leader_epoch: int
    isr: tuple[str, ...]
    replicas: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Led, and every replica in sync."""
        return self.leader is not None and set(self.isr) == set(self.replicas)


@dataclass(frozen=True)
class View:
    """What the cluster looked like at one moment, by its controller if one answered, else by any node."""

    controller: str | None = None
    epoch: int = -1
    unfenced: frozenset[str] = frozenset()
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()

    def __str__(self) -> str:
        states = [
            f"{number}: leader {p.leader or 'none'}, in sync {','.join(p.isr) or 'nobody'}"
            for number, p in sorted(self.partitions.items())
        ]
        seen = f"controller {self.controller or 'unknown'}, unfenced {','.join(sorted(self.unfenced)) or 'nobody'}"
        return "; ".join([seen, *(f"partition {state}" for state in states), *self.complaints])


class Cluster:
    """Asks the brokers of one run. Safe to use from one thread at a time."""

    def __init__(self, members: Sequence[Member], topic: str, time_scale: float = 1.0) -> None:
        self.members = tuple(members)
        self.topic = topic
        self._time_scale = time_scale
        self._by_id = {member.id: member.name for member in members}
        self._pool = ThreadPoolExecutor(len(self.members), thread_name_prefix="cluster")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{member.address}:{member.port}" for member in self.members)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def view(self) -> View:
        """How the cluster looks now; an empty view with complaints when nobody answers."""
        answers = list(self._pool.map(self._ask_member, self.members))
        complaints = tuple(answer for answer in answers if isinstance(answer, str))
        views = [answer for answer in answers if isinstance(answer, View)]
        if not views:
            return View(complaints=complaints)
        newest = max(views, key=lambda view: (view.controller is not None, view.epoch, len(view.unfenced)))
        return View(newest.controller, newest.epoch, newest.unfenced, newest.partitions, complaints)

    def fault_view(self) -> ClusterView:
        """The view in the words of the fault generator."""
        view = self.view()
        leaders = {(self.topic, n): p.leader for n, p in view.partitions.items() if p.leader is not None}
        isr = {(self.topic, n): p.isr for n, p in view.partitions.items()}
        return ClusterView(tuple(member.name for member in self.members), leaders, isr, view.controller)

    def await_view(
        self,
        condition: Callable[[View], bool],
        what: str,
        timeout_s: float,
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> View:
        """Look until the condition holds. Raises `RunError` naming what was awaited and what was last seen.

        `meanwhile` is called before each look; it raises when there is nothing left to wait for.
        """
        give_up = time.monotonic() + timeout_s
        while True:
            meanwhile()
            view = self.view()
            if condition(view):
                return view
            if time.monotonic() > give_up:
                raise RunError(f"{what}: not within {timeout_s:g} s; last seen: {view}")
            time.sleep(POLL_S)

    def await_registered(self, timeout_s: float, *, meanwhile: Callable[[], None] = lambda: None) -> View:
        """Wait until a controller leads and every broker is unfenced; otherwise as `await_view`."""
        everyone = frozenset(self._by_id.values())
        return self.await_view(
            lambda view: view.controller is not None and view.unfenced >= everyone,
            "waiting for a controller and all brokers to be registered",
            timeout_s,
            meanwhile=meanwhile,
        )

    def create_topic(self, assignment: Sequence[Sequence[int]], timeout_s: float) -> None:
        """Create the topic with these replicas, through the controller. Raises `RunError` with the broker's words."""
        give_up = time.monotonic() + timeout_s
        topic = create_topics.CreatableTopic(name=self.topic, num_partitions=-1, replication_factor=-1)
        topic.assignments = [
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=list(ids))
            for number, ids in enumerate(assignment)
        ]
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))
        while True:
            complaint = self._try_create(request)
            if complaint is None:
                return
            if time.monotonic() > give_up:
                raise RunError(f"the topic {self.topic} could not be created: {complaint}")
            time.sleep(POLL_S)

    def _try_create(self, request: create_topics.CreateTopicsRequest) -> str | None:
        """One attempt at the controller; None when the topic exists, else what stands in the way."""
        controller = self.view().controller
        member = next((m for m in self.members if m.name == controller), None)
        if member is None:
            return "no controller is known"
        try:
            answer = wire.ask(
                (member.address, member.port),
                request,
                create_topics.CreateTopicsResponse,
                5,
                timeout_s=5.0 * self._time_scale,
            )
        except wire.WireError as error:
            return str(error)
        result = answer.topics[0]
        # An earlier attempt whose answer was lost may have made it.
        if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return None
        return f"{_name(result.error_code)}: {result.error_message}"

    def _ask_member(self, member: Member) -> View | str:
        """This node's view, or its complaint."""
        try:
            epoch = self._quorum_epoch(member)
            state = self._metadata(member)
            unfenced = self._unfenced(member)
        except wire.WireError as error:
            return f"{member.name} does not answer ({error})"
        partitions = {
            partition.partition_index: self._partition(partition)
            for topic in state.topics
            if topic.name == self.topic and topic.error_code == ErrorCode.NONE
            for partition in topic.partitions
        }
        return View(member.name if epoch is not None else None, -1 if epoch is None else epoch, unfenced, partitions)

    def _quorum_epoch(self, member: Member) -> int | None:
        """The quorum's epoch if this node leads it, else None."""
        request = describe_quorum.DescribeQuorumRequest(
            topics=[describe_quorum.TopicData(METADATA_TOPIC, [describe_quorum.PartitionData(0)])]
        )
        address = (member.address, member.port)
        answer = wire.ask(
            address, request, describe_quorum.DescribeQuorumResponse, 1, timeout_s=ASK_S * self._time_scale
        )
        if answer.error_code != ErrorCode.NONE or not answer.topics or not answer.topics[0].partitions:
            return None
        result = answer.topics[0].partitions[0]
        return result.leader_epoch if result.error_code == ErrorCode.NONE and result.leader_id == member.id else None

    def _metadata(self, member: Member) -> metadata.MetadataResponse:
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
        )
        return wire.ask(
            (member.address, member.port), request, metadata.MetadataResponse, 9, timeout_s=ASK_S * self._time_scale
        )

    def _unfenced(self, member: Member) -> frozenset[str]:
        """Who may lead and be in sync, as this node knows it; Metadata lists fenced brokers too."""
        request = describe_cluster.DescribeClusterRequest()
        address = (member.address, member.port)
        answer = wire.ask(
            address, request, describe_cluster.DescribeClusterResponse, 0, timeout_s=ASK_S * self._time_scale
        )
        return frozenset(self._by_id[broker.broker_id] for broker in answer.brokers if broker.broker_id in self._by_id)

    def _partition(self, state: metadata.MetadataResponsePartition) -> PartitionState:
        def names(ids: Sequence[int]) -> tuple[str, ...]:
            return tuple(self._by_id.get(number, str(number)) for number in ids)

        leader = self._by_id.get(state.leader_id) if state.leader_id >= 0 else None
        return PartitionState(leader, state.leader_epoch, names(state.isr_nodes), names(state.replica_nodes))


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
