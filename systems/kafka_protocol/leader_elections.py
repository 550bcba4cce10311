"""Makes a node the leader of a partition, by Kafka's clean election.

Kafka has no election that names its winner. ElectLeaders (KIP-460) makes the first of a partition's replicas the
leader, and a reassignment (KIP-455) puts a replica first.
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
    """The next step, sent to the broker at `address`; None when the node is the leader, otherwise what was done.

    `wanted`: the node's name and id; `replicas`: the ids of the replicas of `state`; `partition`: topic and number.
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
    return f"the leader is {state.leader or 'unknown'}" + ("" if refused is None else f": {refused.error_message}")
