"""Changes a topic's settings and replicas through the Kafka protocol, and asks for its offsets.

Each function is one attempt at one broker: `address`; `place`: topic and partition. A text as result is the reason why
the attempt did not succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.offset_apis import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from systems.kafka_protocol import requests
from systems.kafka_protocol.transport import Asking
from systems.view import COMMITTED_END, LAST_TIERED, LOCAL_START, LOG_START, PENDING_UPLOAD

TOPIC, BROKER = 2, 4  # types of resources with settings
Address = tuple[str, int]
Where = tuple[str, int]

_CONSUMER: Final = -1  # the replica id of clients
_ALTER_VERSION, _REASSIGN_VERSION = 1, 0
# The lowest version of ListOffsets that knows the special timestamp, because older systems lack the newer versions.
_ASKED: Final = {
    LOG_START: (EARLIEST_TIMESTAMP, 7),
    LOCAL_START: (EARLIEST_LOCAL_TIMESTAMP, 8),
    LAST_TIERED: (LATEST_TIERED_TIMESTAMP, 9),
    PENDING_UPLOAD: (EARLIEST_PENDING_UPLOAD_TIMESTAMP, 11),
    COMMITTED_END: (LATEST_TIMESTAMP, 7),
}


def configure(
    asking: Asking, address: Address, resource: tuple[int, str], settings: Mapping[str, str], timeout_s: float
) -> str | None:
    """Set these settings of a resource (its type and name). None when they are set."""
    kind, name = resource
    changes = [IncrementalAlterableConfig(key, value=value) for key, value in settings.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, changes)])
    answer_type = IncrementalAlterConfigsResponse
    try:
        answer = asking.ask(address, request, answer_type, _ALTER_VERSION, timeout_s=timeout_s)
    except requests.RequestError as error:
        return str(error)
    return _first_error((response.error_code, response.error_message) for response in answer.responses)


def reassign(asking: Asking, address: Address, place: Where, replicas: Sequence[int], timeout_s: float) -> str | None:
    """Make these node ids the replicas. None when the change is accepted."""
    topic, partition = place
    change = ReassignablePartition(partition, list(replicas))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, [change])])
    answer_type = AlterPartitionReassignmentsResponse
    try:
        answer = asking.ask(address, request, answer_type, _REASSIGN_VERSION, timeout_s=timeout_s)
    except requests.RequestError as error:
        return str(error)
    results = [(state.error_code, state.error_message) for entry in answer.responses for state in entry.partitions]
    return _first_error([(answer.error_code, answer.error_message), *results])


def offsets(asking: Asking, address: Address, place: Where, timeout_s: float) -> dict[str, int] | str:
    """The leader's offsets by name (`systems.view.OFFSETS`), asked one after the other."""
    offset_by_name: dict[str, int] = {}
    for name, (timestamp, version) in _ASKED.items():
        topic, partition = place
        query = ListOffsetsPartition(partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=_CONSUMER, topics=[ListOffsetsTopic(topic, [query])])
        try:
            answer = asking.ask(address, request, ListOffsetsResponse, version, timeout_s=timeout_s)
        except requests.RequestError as error:
            return f"{name}: {error}"
        result = answer.topics[0].partitions[0]
        if result.error_code != ErrorCode.NONE:
            return f"{name}: {_name(result.error_code)}"
        offset_by_name[name] = result.offset
    return offset_by_name


def _first_error(results: Iterable[tuple[int, str | None]]) -> str | None:
    errors = [(code, message) for code, message in results if code != ErrorCode.NONE]
    return f"{_name(errors[0][0])}: {errors[0][1] or 'without a message'}" if errors else None


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
