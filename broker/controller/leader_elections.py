"""ElectLeaders: elections that a client requests (KIP-183, KIP-460). Pure: takes an image and a request."""

from collections.abc import Iterator

from broker.controller.eligibility import first_of
from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.controller.partition_elections import Elections
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.metadata_records import NO_LEADER, PartitionChangeRecord
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, elections: Elections
) -> tuple[list[PartitionChangeRecord], ElectLeadersResponse]:
    """The possible elections, and an answer for each partition.

    For all partitions (`topic_partitions` None) the answer names those that needed an election. Raises `ProtocolError`
    for an unknown type of election.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"election type {request.election_type}; 0 is preferred, 1 is unclean"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)
    records: list[PartitionChangeRecord] = []
    results: dict[str, ReplicaElectionResult] = {}
    elected: set[tuple[str, int]] = set()
    for name, index in _asked(image, request):
        result = ElectLeadersPartitionResult(index, error_message=None)
        try:
            if (name, index) in elected:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")
            records.append(_elect(image, name, index, request.election_type, elections))
            elected.add((name, index))
        except ProtocolError as error:
            if request.topic_partitions is None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result.error_code, result.error_message = error.code, str(error)
        results.setdefault(name, ReplicaElectionResult(name, [])).partition_result.append(result)
    return records, ElectLeadersResponse(replica_election_results=list(results.values()))


def elections_refused(request: ElectLeadersRequest, error: ProtocolError) -> ElectLeadersResponse:
    """The answer when no election was held. Version 0 has no error for the whole request, so it names each
    partition."""
    results = [
        ReplicaElectionResult(
            topic.topic, [ElectLeadersPartitionResult(index, error.code, str(error)) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)


def _asked(image: MetadataImage, request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        yield from ((topic.name, index) for topic, index, _ in image.partitions())
        return
    for requested_topic in request.topic_partitions:
        yield from ((requested_topic.topic, index) for index in requested_topic.partitions)


def _elect(image: MetadataImage, name: str, index: int, kind: int, elections: Elections) -> PartitionChangeRecord:
    topic, partition = image.topics.get(name), image.partition(name, index)
    if topic is None or partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {name}-{index}")
    if kind == PREFERRED:
        return _preferred(image, topic, index, partition, elections)
    if partition.leader != NO_LEADER:
        raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads {name}-{index}")
    if elections.handovers.holds((name, index)):
        if elections.will_be_led(image, topic, index):
            raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} will have a leader in a moment")
        # Clients take "not needed" for success: they would not ask again, and the partition would stay without a
        # leader.
        message = f"the former leader of {name}-{index} may still act; ask again in a moment"
        raise ProtocolError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    record = elections.unclean(image, topic, index)
    if record is None:
        message = f"none of the replicas {list(partition.replicas)} is available"
        raise ProtocolError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    return record


def _preferred(
    image: MetadataImage, topic: TopicImage, index: int, partition: PartitionImage, elections: Elections
) -> PartitionChangeRecord:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} leads already")
    if preferred not in partition.isr or not image.is_available(preferred):
        raise ProtocolError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync")
    if elections.handovers.holds((topic.name, index)):
        raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED, f"{topic.name}-{index} will have a leader in a moment")
    order = elections.in_order(topic, index, partition.replicas, partition.isr)
    if first_of(order, partition.isr, image.is_available) != preferred:
        message = f"broker {preferred} started after the last tiered offset, and others are in sync"
        raise ProtocolError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    leader = elections.successor(image, (topic.name, index), partition.leader, preferred)
    return PartitionChangeRecord(index, topic.id, leader=leader)
