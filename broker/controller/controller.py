"""The decisions of the controller. Pure: each reads the committed image and returns the records to commit, and the
answer after their commit. They have no side effects; `active` executes one decision at a time.

AlterPartitionReassignments and ListPartitionReassignments (KIP-455). Pure: an image and a request in.

During a reassignment a partition has its old and new replicas; `adding` and `removing` name the difference. It is
complete when every added replica is in the ISR. As in Apache Kafka, a leader that stays has a new leader epoch only if
a replica is removed: fetches of a removed replica must not count. A replica that is added starts within the epoch.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from broker.config import BrokerConfig
from broker.controller.access import alter_scram_credentials, create_acls, delete_acls
from broker.controller.configs import alter_incrementally, alter_wholly
from broker.controller.eligibility import RECOVERED, IsrMembership, change_record, first_of
from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.controller.leader_elections import elect_leaders
from broker.controller.partition_elections import Elections, LogEnd, same_leader_in_next_epoch
from broker.controller.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    automatic_assignment,
    check_replicas,
    create_topics,
    delete_topics,
    partition_records,
)
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode, ProtocolError
from broker.listeners import SecurityProtocol
from broker.mutants import Mutants
from broker.producers.producer_ids import BLOCK_SIZE
from broker.protocol.messages.acl_apis import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.protocol.messages.broker_apis import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from broker.protocol.messages.config_apis import AlterConfigsRequest, IncrementalAlterConfigsRequest
from broker.protocol.messages.credential_apis import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from broker.protocol.messages.metadata_records import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    CLUSTER_ID,
    NO_LEADER,
    NO_LEADER_CHANGE,
    OWN_OFFSET,
    SESSION_TIMEOUT,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from broker.protocol.messages.partition_apis import (
    AlterPartitionData,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicData,
    AlterPartitionTopicResult,
    BrokerState,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
)
from broker.protocol.messages.producer_apis import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from broker.protocol.messages.topic_apis import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker.protocol.schema import Message, Topic
from broker.protocol.uuids import id_text, random_id
from broker.tiered.remote_storage_rules import METADATA_TOPIC
from broker.topic_settings import CLUSTER_WIDE, KEYS


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, elections: Elections
) -> tuple[list[PartitionChangeRecord], AlterPartitionReassignmentsResponse]:
    """The records that start, complete or cancel reassignments, and an answer for each partition."""
    records: list[PartitionChangeRecord] = []
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    named_partitions: set[tuple[str, int]] = set()
    for requested_topic in request.topics:
        result = Topic[ReassignablePartitionResponse](requested_topic.name)
        response.responses.append(result)
        for entry in requested_topic.partitions:
            answer = ReassignablePartitionResponse(entry.partition_index, error_message=None)
            result.partitions.append(answer)
            try:
                if (requested_topic.name, entry.partition_index) in named_partitions:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")
                named_partitions.add((requested_topic.name, entry.partition_index))
                topic, partition = _found(image, requested_topic.name, entry.partition_index)
                record = _reassigned(image, topic, partition, entry, request.allow_replication_factor_change, elections)
            except ProtocolError as error:
                answer.error_code, answer.error_message = error.code, str(error)
                continue
            if record is not None:
                records.append(record)
    return records, response


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The partitions in reassignment, among the requested ones (None: among all)."""
    requested_partitions = (
        None
        if request.topics is None
        else {requested_topic.name: set(requested_topic.partition_indexes) for requested_topic in request.topics}
    )
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic in image.topics.values():
        if requested_partitions is not None and topic.name not in requested_partitions:
            continue
        moving = [
            OngoingPartitionReassignment(
                index, list(partition.replicas), list(partition.adding), list(partition.removing)
            )
            for index, partition in sorted(topic.partitions.items())
            if (partition.adding or partition.removing)
            and (requested_partitions is None or index in requested_partitions[topic.name])
        ]
        if moving:
            response.topics.append(Topic(topic.name, moving))
    return response


def completed(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    members: IsrMembership,
    elections: Elections,
) -> PartitionChangeRecord | None:
    """The completion of a reassignment when the ISR of `members` has every added replica; None before."""
    record = _completion(image, topic, index, partition, members, elections)
    return None if record is None else _in_same_epoch_if_possible(partition, record)


def _completion(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    members: IsrMembership,
    elections: Elections,
) -> PartitionChangeRecord | None:
    """As `completed`; the record names the leader. A removed replica loses its eligibility (KIP-966)."""
    if not (partition.adding or partition.removing) or not set(partition.adding) <= set(members.isr):
        return None
    stays = {partition.leader} if elections.removed_leader_stays else set()
    replicas = [it for it in partition.replicas if it not in partition.removing or it in stays]
    remaining = [member for member in members.isr if member in replicas]
    order = elections.in_order(topic, index, replicas, remaining)
    leader = partition.leader if partition.leader in remaining else first_of(order, remaining, image.is_available)
    if not remaining or leader == NO_LEADER:
        return None
    return PartitionChangeRecord(
        index,
        topic.id,
        isr=remaining,
        leader=elections.successor(image, (topic.name, index), partition.leader, leader),
        replicas=replicas,
        removing_replicas=[],
        adding_replicas=[],
        eligible_leader_replicas=[replica for replica in members.elr if replica in replicas],
        last_known_elr=[replica for replica in members.last_known_elr if replica in replicas],
    )


def _in_same_epoch_if_possible(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionChangeRecord:
    """The record without its leader, which would start a new epoch, if the leader and all replicas of `partition`
    stay."""
    assert record.replicas is not None
    if record.leader == partition.leader and set(partition.replicas) <= set(record.replicas):
        record.leader = NO_LEADER_CHANGE
    return record


def _found(image: MetadataImage, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {name}-{index}")
    return topic, partition


def _reassigned(
    image: MetadataImage,
    topic: TopicImage,
    partition: PartitionImage,
    entry: ReassignablePartition,
    may_change_factor: bool,
    elections: Elections,
) -> PartitionChangeRecord | None:
    """The record that starts or cancels a reassignment; None if the partition is as requested."""
    old_replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    if entry.replicas is None:
        if not (partition.adding or partition.removing):
            raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "this partition is not being reassigned")
        target = old_replicas
    else:
        target = tuple(entry.replicas)
        check_replicas(image, entry.partition_index, list(target))
        if not may_change_factor and len(target) != len(old_replicas):
            message = f"{len(target)} replicas instead of {len(old_replicas)}, which the request does not allow"
            raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if target == partition.replicas and not (partition.adding or partition.removing):
        return None
    new_partition = _on_the_way(partition, old_replicas, target)
    members = IsrMembership(new_partition.isr, new_partition.elr, new_partition.last_known_elr)
    finished = _completion(image, topic, entry.partition_index, new_partition, members, elections)
    if finished is not None:
        return _in_same_epoch_if_possible(partition, finished)
    if not new_partition.isr:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica in sync would be left")
    leader = new_partition.leader
    if leader not in new_partition.isr:  # refusals are not possible from here on: the handover has started
        order = elections.in_order(topic, entry.partition_index, new_partition.replicas, new_partition.isr)
        successor = first_of(order, new_partition.isr, image.is_available)
        leader = elections.successor(image, (topic.name, entry.partition_index), leader, successor)
    record = PartitionChangeRecord(
        entry.partition_index,
        topic.id,
        isr=list(new_partition.isr),
        leader=leader,
        replicas=list(new_partition.replicas),
        removing_replicas=list(new_partition.removing),
        adding_replicas=list(new_partition.adding),
        eligible_leader_replicas=list(new_partition.elr),
        last_known_elr=list(new_partition.last_known_elr),
    )
    return _in_same_epoch_if_possible(partition, record)


def _on_the_way(partition: PartitionImage, old_replicas: tuple[int, ...], target: tuple[int, ...]) -> PartitionImage:
    """The partition with its old and new replicas. Replicas that an earlier reassignment added, and that this one does
    not want, are removed at once."""
    adding = tuple(replica for replica in target if replica not in old_replicas)
    removing = tuple(replica for replica in old_replicas if replica not in target)
    replicas = target + removing
    return replace(
        partition,
        isr=tuple(member for member in partition.isr if member in replicas),
        elr=tuple(member for member in partition.elr if member in replicas),
        last_known_elr=tuple(member for member in partition.last_known_elr if member in replicas),
        replicas=replicas,
        adding=adding,
        removing=removing,
    )


# ---- CreatePartitions: adds partitions to a topic. Pure: from image and request to records and answer.

ASSIGNED_BY_COUNT: Final = {OFFSETS_TOPIC: "groups", METADATA_TOPIC: "remote segments"}
"""Topics in which the partition of a record is a hash modulo the number of partitions. With another number, a group's
committed offsets, or the segments of a log, would not be found."""


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, rng: random.Random
) -> tuple[list[MetadataRecord], CreatePartitionsResponse]:
    """The records of the partitions that can be created, and an answer for each topic; no records for
    `validate_only`."""
    records: list[MetadataRecord] = []
    response = CreatePartitionsResponse()
    times = Counter(requested_topic.name for requested_topic in request.topics)
    for requested_topic in request.topics:
        try:
            if times[requested_topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            topic = image.topics.get(requested_topic.name)
            if topic is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {requested_topic.name!r}")
            if topic.name in ASSIGNED_BY_COUNT:
                message = (
                    f"{topic.name} assigns {ASSIGNED_BY_COUNT[topic.name]} by the number of its partitions, which "
                )
                raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"{message}cannot change")
            assignment = _assignment(image, topic, requested_topic, rng)
            if len(records) + len(assignment) > MAX_PARTITIONS_PER_REQUEST:
                limit = f"at most {MAX_PARTITIONS_PER_REQUEST} partitions are created by one request"
                raise ProtocolError(ErrorCode.POLICY_VIOLATION, limit)
        except ProtocolError as error:
            response.results.append(CreatePartitionsTopicResult(requested_topic.name, error.code, str(error)))
            continue
        records += partition_records(image, topic.id, assignment, first_index=len(topic.partitions))
        response.results.append(CreatePartitionsTopicResult(requested_topic.name))
    return [] if request.validate_only else records, response


def _assignment(
    image: MetadataImage, topic: TopicImage, requested_topic: CreatePartitionsTopic, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition: as many as the first one has without those that a reassignment adds."""
    old_count = len(topic.partitions)
    added_count = requested_topic.count - old_count
    if added_count < 1:
        message = f"topic {topic.name!r} has {old_count} partitions; {requested_topic.count} would not be more"
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, message)
    first_partition = topic.partitions[0]
    factor = len([replica for replica in first_partition.replicas if replica not in first_partition.adding])
    if not requested_topic.assignments:
        return automatic_assignment(image, added_count, factor, rng)
    if len(requested_topic.assignments) != added_count:
        message = f"{len(requested_topic.assignments)} assignments for {added_count} more partitions"
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for index, entry in enumerate(requested_topic.assignments, old_count):
        check_replicas(image, index, entry.broker_ids)
        if len(entry.broker_ids) != factor:
            message = f"partition {index}: the topic's partitions have {factor} replicas each"
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [tuple(entry.broker_ids) for entry in requested_topic.assignments]


# ---- AlterPartition: decides which ISR a leader may have (KIP-497, KIP-841, KIP-903). Pure: takes image and request.

FIRST_VERSION_WITH_EPOCHS = 3


def alter_partitions(
    image: MetadataImage, request: AlterPartitionRequest, version: int, elections: Elections
) -> tuple[list[PartitionChangeRecord], AlterPartitionResponse]:
    """The changes that are granted or that make a refusal final, and the answer after their commit.

    The sender must be registered in the epoch that it claims. The answer has the resulting state of each partition, or
    the reason for its refusal.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    records: list[PartitionChangeRecord] = []
    response = AlterPartitionResponse()
    for topic_data in request.topics:
        result = AlterPartitionTopicResult(topic_data.topic_id)
        response.topics.append(result)
        for data in topic_data.partitions:
            result.partitions.append(_alter(image, request.broker_id, topic_data, data, version, elections, records))
    return records, response


def _alter(
    image: MetadataImage,
    sender: int,
    topic_data: AlterPartitionTopicData,
    data: AlterPartitionData,
    version: int,
    elections: Elections,
    records: list[PartitionChangeRecord],
) -> AlterPartitionResult:
    """The result for one partition; the record of a granted change, or of a final refusal, is appended to `records`."""
    index, topic_id = data.partition_index, topic_data.topic_id
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return AlterPartitionResult(index, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        return AlterPartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if any(record.topic_id == topic_id and record.partition_id == index for record in records):
        # The first proposal of the request has changed the state that a second one would be checked against.
        return AlterPartitionResult(index, ErrorCode.INVALID_REQUEST)
    members = _wanted(data, version)
    error = refusal(image, partition, sender, data, members, elections)
    if error is ErrorCode.INELIGIBLE_REPLICA:
        # A replica may become eligible without a change of the partition. After this answer the leader no longer counts
        # it, so a delayed copy of the proposal must meet another partition epoch.
        records.append(PartitionChangeRecord(index, topic_id))
    if error is not ErrorCode.NONE:
        return AlterPartitionResult(index, error)
    isr = tuple(member.broker_id for member in members)
    if set(isr) == set(partition.isr):
        isr = partition.isr
    new_membership = elections.membership(topic, partition, isr)
    if partition.recovering and data.leader_recovery_state == RECOVERED:
        # The leader's log is on disk: from now on it defines the content of the partition.
        new_membership = replace(new_membership, last_known_elr=())
    record = change_record(topic_id, index, partition, new_membership, recovery=data.leader_recovery_state)
    if (
        isr != partition.isr
        and (end := completed(image, topic, index, partition, new_membership, elections)) is not None
    ):
        record = end  # the last added replica is in sync: the reassignment is complete
    if record is not None:
        records.append(record)
        partition = partition.changed(record)
    return _state(index, partition)


def refusal(
    image: MetadataImage,
    partition: PartitionImage,
    sender: int,
    data: AlterPartitionData,
    members: list[BrokerState],
    mutated: Elections,
) -> ErrorCode:
    """Why a proposed ISR is refused; NONE if it is granted. The order of the checks is that of Apache Kafka.

    `mutated`: carries the mutants of these checks.
    """
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The leader has seen more of the log than this controller: another controller must be active.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch and not mutated.takes_stale_partition_epochs:
        return ErrorCode.INVALID_UPDATE_VERSION
    ids = [member.broker_id for member in members]
    if len(set(ids)) != len(ids) or not set(ids) <= set(partition.replicas) or partition.leader not in ids:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state and not partition.recovering:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state and len(ids) > 1 and not mutated.isr_grows_while_recovering:
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(image, member, mutated) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(image: MetadataImage, member: BrokerState, mutated: Elections) -> bool:
    """Whether a broker may be in an ISR: available (H14), and the same process whose log the leader has seen (H15)."""
    broker = image.brokers.get(member.broker_id)
    if broker is None:
        return False
    same = member.broker_epoch in (-1, broker.epoch) or mutated.takes_stale_broker_epochs
    return same and (not broker.fenced or mutated.takes_fenced)


def _wanted(data: AlterPartitionData, version: int) -> list[BrokerState]:
    if version >= FIRST_VERSION_WITH_EPOCHS:
        return data.new_isr_with_epochs
    return [BrokerState(broker_id) for broker_id in data.new_isr]


def _state(index: int, partition: PartitionImage) -> AlterPartitionResult:
    return AlterPartitionResult(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=int(partition.recovering),
        partition_epoch=partition.partition_epoch,
    )


PROTOCOLS = frozenset(map(int, SecurityProtocol))
FENCE = 1
UNFENCE = -1

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class LogsFound:
    """The log ends that brokers reported for a partition: by broker, its epoch at that time and its log end."""

    topic_id: bytes
    index: int
    partition_epoch: int
    ends: Mapping[int, tuple[int, LogEnd]]


@dataclass(frozen=True)
class ControllerDecision(Generic[T_co]):
    """Records to commit together, and the answer, computed from the image after the commit."""

    records: Sequence[MetadataRecord]
    answer: Callable[[MetadataImage], T_co]


class Controller:
    """The rules. Raises `ProtocolError` if a whole request is refused."""

    def __init__(self, config: BrokerConfig, rng: random.Random, mutants: Mutants) -> None:
        self._config = config
        self._rng = rng
        self._mutants = mutants
        self._elections = Elections(config, mutants)
        self.handovers = self._elections.handovers
        self.tiered_starts = self._elections.tiered_starts
        self._elects_unclean_shutdowns = mutants.active("elect_unclean_shutdown_isr")
        self._bounce_unseen = mutants.active("bounce_unseen")
        self._alter_drops_others = mutants.active("alter_drops_others")

    def twin(self) -> "Controller":
        """A controller with the same settings, for questions: it has no handovers, and random numbers of its own."""
        return Controller(self._config, random.Random(0), self._mutants)

    # --- access

    def create_acls(self, image: MetadataImage, request: CreateAclsRequest) -> ControllerDecision[CreateAclsResponse]:
        records, response = create_acls(image, request, lambda: random_id(self._rng))
        return ControllerDecision(records, lambda _: response)

    def delete_acls(self, image: MetadataImage, request: DeleteAclsRequest) -> ControllerDecision[DeleteAclsResponse]:
        records, response = delete_acls(image, request)
        return ControllerDecision(records, lambda _: response)

    def alter_scram_credentials(
        self, image: MetadataImage, request: AlterUserScramCredentialsRequest
    ) -> ControllerDecision[AlterUserScramCredentialsResponse]:
        records, response = alter_scram_credentials(image, request)
        return ControllerDecision(records, lambda _: response)

    # --- registration of brokers

    def register(
        self, image: MetadataImage, request: BrokerRegistrationRequest
    ) -> ControllerDecision[BrokerRegistrationResponse]:
        """Register a process. Its broker epoch is the offset of its registration.

        Another incarnation with the same data directory proves that the old process is gone, even if its session has
        not expired, because only one process at a time holds the lock of the directory. The new one starts fenced and
        outside every ISR (H12), so that nothing that the old process lost counts. If the old process did not close its
        logs, the broker is not eligible to lead either (KIP-966), because its page cache may be lost; the
        clean-shutdown mark on its disk then does not belong to its last registration. Another directory may be a second
        process that was given the same id by mistake: it is refused while the session of the first one lasts. Raises
        `ProtocolError`.
        """
        if image.cluster_id is not None and request.cluster_id != image.cluster_id:
            message = f"this cluster is {image.cluster_id!r}, not {request.cluster_id!r}"
            raise ProtocolError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
        if not request.listeners:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "a broker needs a listener")
        if not all(listener.security_protocol in PROTOCOLS for listener in request.listeners):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "a listener has an unknown security protocol")
        old_broker = image.brokers.get(request.broker_id)
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=OWN_OFFSET,
            end_points=[
                BrokerEndpoint(listener.name, listener.host, listener.port, listener.security_protocol)
                for listener in request.listeners
            ],
            rack=request.rack,
            log_dirs=request.log_dirs,
        )
        records: list[MetadataRecord] = [record]
        if old_broker is not None and old_broker.incarnation == request.incarnation_id:
            # A retry after a lost answer: the same registration, not a new one.
            record.broker_epoch, record.fenced = old_broker.epoch, old_broker.fenced
        elif old_broker is not None:
            if not old_broker.fenced and old_broker.directories != tuple(request.log_dirs):
                endpoint = old_broker.endpoints[0]
                message = (
                    f"broker {request.broker_id} is alive at {endpoint.host}:{endpoint.port}, on another data directory"
                )
                raise ProtocolError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
            records += self._bounce(
                image, old_broker, record, unclean=request.previous_broker_epoch != old_broker.epoch
            )

        def answer(committed_image: MetadataImage) -> BrokerRegistrationResponse:
            return BrokerRegistrationResponse(broker_epoch=committed_image.brokers[request.broker_id].epoch)

        return ControllerDecision(records, answer)

    def _bounce(
        self, image: MetadataImage, old_broker: BrokerImage, record: RegisterBrokerRecord, *, unclean: bool
    ) -> Sequence[MetadataRecord]:
        """The changes caused by the end of the old incarnation. Every partition that it led gets a new epoch
        (K101-10)."""
        if self._bounce_unseen and not old_broker.fenced:
            record.fenced = False
            return same_leader_in_next_epoch(image, old_broker.id)
        unclean = unclean and not self._elects_unclean_shutdowns
        return self._elections.broker_leaves(image, old_broker.id, unclean=unclean, bump_all=True)

    def heartbeat(self, image: MetadataImage, request: BrokerHeartbeatRequest) -> ControllerDecision[None]:
        """The changes by a heartbeat: a broker that is ready is unfenced, one that wants to leave is fenced.

        A broker is ready when it has applied the log up to its own registration and fencing, because then it knows what
        it leads. Otherwise a broker that returns after a partition would get a lease for leaderships that it has lost,
        and answer stale reads under it.
        """
        broker = registered(image, request.broker_id, request.broker_epoch)
        if request.want_fence or request.want_shut_down:
            return self.fence(image, broker.id, broker.epoch)
        if broker.fenced and caught_up(broker, request):
            change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=UNFENCE)
            return ControllerDecision([change, *self._elections.broker_returns(image, broker.id)], _nothing)
        return ControllerDecision([], _nothing)

    def fence(self, image: MetadataImage, broker_id: int, broker_epoch: int) -> ControllerDecision[None]:
        """Remove a broker from every ISR and every leadership. No change if it is fenced already or registered
        again."""
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return ControllerDecision([], _nothing)
        change = BrokerRegistrationChangeRecord(broker_id, broker_epoch, fenced=FENCE)
        return ControllerDecision([change, *self._elections.broker_leaves(image, broker_id)], _nothing)

    # --- topics and partitions

    def create_topics(
        self, image: MetadataImage, request: CreateTopicsRequest
    ) -> ControllerDecision[CreateTopicsResponse]:
        records, response = create_topics(image, request, self._config, self._rng)
        return ControllerDecision(records, lambda _: response)

    def delete_topics(
        self, image: MetadataImage, request: DeleteTopicsRequest
    ) -> ControllerDecision[DeleteTopicsResponse]:
        records, response = delete_topics(image, request, self._config)
        return ControllerDecision(records, lambda _: response)

    def create_partitions(
        self, image: MetadataImage, request: CreatePartitionsRequest
    ) -> ControllerDecision[CreatePartitionsResponse]:
        records, response = create_partitions(image, request, self._rng)
        return ControllerDecision(records, lambda _: response)

    def alter_configs(
        self, image: MetadataImage, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
    ) -> ControllerDecision[Message]:
        records, response = (
            alter_wholly(image, request, self._config)
            if isinstance(request, AlterConfigsRequest)
            else alter_incrementally(image, request, self._config, drops_others=self._alter_drops_others)
        )
        return ControllerDecision(records, lambda _: response)

    def alter_reassignments(
        self, image: MetadataImage, request: AlterPartitionReassignmentsRequest
    ) -> ControllerDecision[AlterPartitionReassignmentsResponse]:
        records, response = alter_reassignments(image, request, self._elections)
        return ControllerDecision(records, lambda _: response)

    def list_reassignments(
        self, image: MetadataImage, request: ListPartitionReassignmentsRequest
    ) -> ControllerDecision[ListPartitionReassignmentsResponse]:
        return ControllerDecision([], lambda _: list_reassignments(image, request))

    def alter_partition(
        self, image: MetadataImage, request: AlterPartitionRequest, version: int
    ) -> ControllerDecision[AlterPartitionResponse]:
        records, response = alter_partitions(image, request, version, self._elections)
        return ControllerDecision(records, lambda _: response)

    def elect_leaders(
        self, image: MetadataImage, request: ElectLeadersRequest
    ) -> ControllerDecision[ElectLeadersResponse]:
        records, response = elect_leaders(image, request, self._elections)
        return ControllerDecision(records, lambda _: response)

    def elect_successors(self, image: MetadataImage, keys: Sequence[tuple[str, int]]) -> ControllerDecision[None]:
        """Elect for partitions whose leaders no longer act."""
        return ControllerDecision(self._elections.after_handovers(image, keys), _nothing)

    def elect_most_complete(self, image: MetadataImage, compared_logs: Sequence[LogsFound]) -> ControllerDecision[None]:
        """Elect the most complete log for partitions without a certain holder. Partitions that have changed are
        skipped."""
        records: list[MetadataRecord] = []
        for logs in compared_logs:
            topic = image.topic_by_id(logs.topic_id)
            partition = None if topic is None else topic.partitions.get(logs.index)
            if topic is None or partition is None or partition.partition_epoch != logs.partition_epoch:
                continue
            if self.handovers.holds((topic.name, logs.index)):
                continue  # the former leader may still act; the partition is checked again (H31)
            same = {
                broker: end
                for broker, (epoch, end) in logs.ends.items()
                if image.is_available(broker) and image.brokers[broker].epoch == epoch
            }
            records += self._elections.most_complete(topic, logs.index, same)
        return ControllerDecision(records, _nothing)

    def allocate_producer_ids(
        self, image: MetadataImage, request: AllocateProducerIdsRequest
    ) -> ControllerDecision[AllocateProducerIdsResponse]:
        """A block of unused ids. Raises `ProtocolError` for a broker that is not in the epoch that it claims."""
        registered(image, request.broker_id, request.broker_epoch)
        first_id = image.next_producer_id
        record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first_id + BLOCK_SIZE)
        response = AllocateProducerIdsResponse(producer_id_start=first_id, producer_id_len=BLOCK_SIZE)
        return ControllerDecision([record], lambda _: response)

    # --- the controller itself

    def first_records(self, image: MetadataImage) -> ControllerDecision[None]:
        """The first records of a new controller: the cluster id, if this is the first controller ever (K595-46); the
        cluster-wide settings that are not set yet, from its own file; and the duration of leases, if it is longer than
        before."""
        missing = {name: KEYS[name].default(self._config) for name in sorted(CLUSTER_WIDE - image.defaults.keys())}
        if image.cluster_id is None:
            missing[CLUSTER_ID] = self._config.cluster_id or id_text(random_id(self._rng))
        if image.session_timeout_ms < self._config.broker_session_timeout_ms:
            missing[SESSION_TIMEOUT] = str(self._config.broker_session_timeout_ms)
        records = [ConfigRecord(BROKER_RESOURCE, ALL_BROKERS, name, value) for name, value in missing.items()]
        return ControllerDecision(records or [NoOpRecord()], _nothing)

    def outlive_earlier_leases(self, image: MetadataImage) -> ControllerDecision[None]:
        """The record after the last lease of an earlier controller has ended: from now on leases end sooner."""
        own_timeout_ms = self._config.broker_session_timeout_ms
        record = ConfigRecord(BROKER_RESOURCE, ALL_BROKERS, SESSION_TIMEOUT, str(own_timeout_ms))
        return ControllerDecision([record] if image.session_timeout_ms > own_timeout_ms else [], _nothing)

    def prove_leadership(self, _: MetadataImage) -> ControllerDecision[None]:
        """A record whose commit proves that this node still led when it was written."""
        return ControllerDecision([NoOpRecord()], _nothing)


def registered(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The broker in the epoch that it claims. Raises `ProtocolError` if it is not registered, or in another epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        message = f"broker {broker_id} is registered in epoch {broker.epoch}, not {broker_epoch}"
        raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, message)
    return broker


def caught_up(broker: BrokerImage, request: BrokerHeartbeatRequest) -> bool:
    """Whether a broker has applied the metadata log at least up to its own registration and last fencing."""
    return request.current_metadata_offset >= max(broker.epoch, broker.lost_at)


def _nothing(_: MetadataImage) -> None:
    return None
