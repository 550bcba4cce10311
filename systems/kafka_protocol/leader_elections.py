"""Having a node lead a partition, by Kafka's own clean election.

Kafka knows no election that names its winner: the leader is the first of a partition's replicas once the controller is
told to prefer it (ElectLeaders, KIP-460), and putting it first is a reassignment (KIP-455).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import ErrorCode
from broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.protocol.messages.elect_leaders import (
    PREFERRED,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from systems.kafka_protocol import requests
from systems.kafka_protocol.transport import Asking
from systems.view import PartitionState

REASSIGN_VERSION, ELECT_VERSION = 0, 2


def elect_leader(
    asking: Asking,
    address: tuple[str, int],
    state: PartitionState,
    wanted: tuple[str, int],
    replicas: Sequence[int],
    partition: tuple[str, int],
    timeout_s: float,
) -> str | None:
    """The next thing that has to be done, asked of the broker at `address`; None when it is done, else what it was.

    `wanted`: the node, by name and id; `replicas`: the ids of those of `state`; `partition`: topic and number.
    """
    (node, number), (topic, index) = wanted, partition
    if node not in state.replicas:
        return f"{node} has no replica of partition {index}"
    if state.leader == node:
        return None
    try:
        if state.replicas[0] != node:
            moved = ReassignablePartition(index, [number, *(each for each in replicas if each != number)])
            reassign = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, [moved])])
            asking.ask(address, reassign, AlterPartitionReassignmentsResponse, REASSIGN_VERSION, timeout_s=timeout_s)
        elect = ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, [index])])
        answer = asking.ask(address, elect, ElectLeadersResponse, ELECT_VERSION, timeout_s=timeout_s)
    except requests.RequestError as error:
        return str(error)
    results = [each for found in answer.replica_election_results for each in found.partition_result]
    refused = next((each for each in results if each.error_code != ErrorCode.NONE), None)
    return f"{state.leader or 'nobody'} leads" + ("" if refused is None else f": {refused.error_message}")
