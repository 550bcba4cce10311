"""The served APIs and versions, and the headers of requests and responses."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from broker.ports import Buffer
from broker.protocol.codec import encode
from broker.protocol.decoder import DecodeError, read_uvarint, too_short
from broker.protocol.encoder import EncodeError
from broker.protocol.messages import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    get_replica_log_info,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    vote,
)
from broker.protocol.schema import Message


class ApiKey(IntEnum):
    """The APIs that this broker serves."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    ALLOCATE_PRODUCER_IDS = 67
    GET_REPLICA_LOG_INFO = 93


@dataclass(frozen=True)
class Api:
    """One API: versions `min_version` to `max_version` are served."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    advertised_min_version: int
    """The lowest version in the ApiVersions answer; below the served ones only for Produce."""
    advertised: bool
    """Whether ApiVersions lists it; APIs that only brokers use are not listed."""

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.request.FLEXIBLE else 1

    def response_header_version(self, version: int) -> int:
        """Always 0 for ApiVersions: its sender does not know the broker's versions yet (KIP-511)."""
        return 1 if version in self.response.FLEXIBLE and self.key is not ApiKey.API_VERSIONS else 0


def _api(
    key: ApiKey,
    request: type[Message],
    response: type[Message],
    versions: tuple[int, int],
    *,
    advertised_from: int | None = None,
    advertised: bool = True,
) -> Api:
    low, high = versions
    return Api(key, request, response, low, high, low if advertised_from is None else advertised_from, advertised)


APIS: dict[ApiKey, Api] = {
    api.key: api
    for api in (
        # Older versions of librdkafka do not compress unless Produce is advertised from version 0 (KAFKA-18659).
        _api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse, (3, 12), advertised_from=0),
        _api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse, (4, 17)),
        _api(ApiKey.LIST_OFFSETS, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse, (1, 11)),
        _api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse, (0, 13)),
        _api(ApiKey.API_VERSIONS, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse, (0, 4)),
        _api(ApiKey.CREATE_TOPICS, create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse, (2, 7)),
        _api(ApiKey.DELETE_TOPICS, delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse, (1, 6)),
        _api(
            ApiKey.INIT_PRODUCER_ID,
            init_producer_id.InitProducerIdRequest,
            init_producer_id.InitProducerIdResponse,
            (0, 5),
        ),
        _api(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            offset_for_leader_epoch.OffsetForLeaderEpochRequest,
            offset_for_leader_epoch.OffsetForLeaderEpochResponse,
            (2, 4),
        ),
        _api(
            ApiKey.DESCRIBE_CONFIGS,
            describe_configs.DescribeConfigsRequest,
            describe_configs.DescribeConfigsResponse,
            (1, 4),
        ),
        _api(ApiKey.DELETE_RECORDS, delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse, (0, 2)),
        _api(ApiKey.ALTER_CONFIGS, alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse, (0, 2)),
        _api(
            ApiKey.DESCRIBE_LOG_DIRS,
            describe_log_dirs.DescribeLogDirsRequest,
            describe_log_dirs.DescribeLogDirsResponse,
            (1, 4),
        ),
        _api(
            ApiKey.CREATE_PARTITIONS,
            create_partitions.CreatePartitionsRequest,
            create_partitions.CreatePartitionsResponse,
            (0, 3),
        ),
        _api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            incremental_alter_configs.IncrementalAlterConfigsRequest,
            incremental_alter_configs.IncrementalAlterConfigsResponse,
            (0, 1),
        ),
        _api(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            alter_partition_reassignments.AlterPartitionReassignmentsRequest,
            alter_partition_reassignments.AlterPartitionReassignmentsResponse,
            (0, 1),
        ),
        _api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            list_partition_reassignments.ListPartitionReassignmentsRequest,
            list_partition_reassignments.ListPartitionReassignmentsResponse,
            (0, 0),
        ),
        _api(ApiKey.ELECT_LEADERS, elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse, (0, 2)),
        _api(ApiKey.OFFSET_COMMIT, offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse, (2, 9)),
        _api(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse, (1, 9)),
        _api(
            ApiKey.FIND_COORDINATOR,
            find_coordinator.FindCoordinatorRequest,
            find_coordinator.FindCoordinatorResponse,
            (0, 6),
        ),
        _api(ApiKey.JOIN_GROUP, join_group.JoinGroupRequest, join_group.JoinGroupResponse, (0, 9)),
        _api(ApiKey.HEARTBEAT, heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse, (0, 4)),
        _api(ApiKey.LEAVE_GROUP, leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse, (0, 5)),
        _api(ApiKey.SYNC_GROUP, sync_group.SyncGroupRequest, sync_group.SyncGroupResponse, (0, 5)),
        _api(
            ApiKey.DESCRIBE_GROUPS,
            describe_groups.DescribeGroupsRequest,
            describe_groups.DescribeGroupsResponse,
            (0, 6),
        ),
        _api(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest, list_groups.ListGroupsResponse, (0, 5)),
        _api(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse, (0, 2)),
        _api(ApiKey.OFFSET_DELETE, offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse, (0, 0)),
        _api(ApiKey.SASL_HANDSHAKE, sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse, (0, 1)),
        _api(
            ApiKey.SASL_AUTHENTICATE,
            sasl_authenticate.SaslAuthenticateRequest,
            sasl_authenticate.SaslAuthenticateResponse,
            (0, 2),
        ),
        _api(ApiKey.DESCRIBE_ACLS, describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse, (1, 3)),
        _api(ApiKey.CREATE_ACLS, create_acls.CreateAclsRequest, create_acls.CreateAclsResponse, (1, 3)),
        _api(ApiKey.DELETE_ACLS, delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse, (1, 3)),
        _api(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            describe_client_quotas.DescribeClientQuotasRequest,
            describe_client_quotas.DescribeClientQuotasResponse,
            (0, 1),
        ),
        _api(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
            describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
            (0, 0),
        ),
        _api(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            alter_user_scram_credentials.AlterUserScramCredentialsRequest,
            alter_user_scram_credentials.AlterUserScramCredentialsResponse,
            (0, 0),
        ),
        _api(ApiKey.VOTE, vote.VoteRequest, vote.VoteResponse, (0, 2), advertised=False),
        _api(
            ApiKey.BEGIN_QUORUM_EPOCH,
            begin_quorum_epoch.BeginQuorumEpochRequest,
            begin_quorum_epoch.BeginQuorumEpochResponse,
            (0, 1),
            advertised=False,
        ),
        _api(
            ApiKey.END_QUORUM_EPOCH,
            end_quorum_epoch.EndQuorumEpochRequest,
            end_quorum_epoch.EndQuorumEpochResponse,
            (0, 1),
            advertised=False,
        ),
        _api(
            ApiKey.DESCRIBE_QUORUM,
            describe_quorum.DescribeQuorumRequest,
            describe_quorum.DescribeQuorumResponse,
            (0, 2),
        ),
        _api(
            ApiKey.ALTER_PARTITION,
            alter_partition.AlterPartitionRequest,
            alter_partition.AlterPartitionResponse,
            (2, 3),
            advertised=False,
        ),
        _api(
            ApiKey.FETCH_SNAPSHOT,
            fetch_snapshot.FetchSnapshotRequest,
            fetch_snapshot.FetchSnapshotResponse,
            (0, 1),
            advertised=False,
        ),
        _api(ApiKey.ENVELOPE, envelope.EnvelopeRequest, envelope.EnvelopeResponse, (0, 0), advertised=False),
        _api(
            ApiKey.DESCRIBE_CLUSTER,
            describe_cluster.DescribeClusterRequest,
            describe_cluster.DescribeClusterResponse,
            (0, 2),
        ),
        _api(
            ApiKey.BROKER_REGISTRATION,
            broker_registration.BrokerRegistrationRequest,
            broker_registration.BrokerRegistrationResponse,
            (0, 4),
            advertised=False,
        ),
        _api(
            ApiKey.BROKER_HEARTBEAT,
            broker_heartbeat.BrokerHeartbeatRequest,
            broker_heartbeat.BrokerHeartbeatResponse,
            (0, 1),
            advertised=False,
        ),
        _api(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            allocate_producer_ids.AllocateProducerIdsRequest,
            allocate_producer_ids.AllocateProducerIdsResponse,
            (0, 0),
            advertised=False,
        ),
        _api(
            ApiKey.GET_REPLICA_LOG_INFO,
            get_replica_log_info.GetReplicaLogInfoRequest,
            get_replica_log_info.GetReplicaLogInfoResponse,
            (0, 0),
            advertised=False,
        ),
    )
}

_BY_KEY: dict[int, Api] = {int(key): api for key, api in APIS.items()}
_BY_REQUEST: dict[type[Message], Api] = {api.request: api for api in APIS.values()}


def find_api(key: int) -> Api | None:
    """The API with this key; None when it is not served."""
    return _BY_KEY.get(key)


def api_of(request: Message) -> Api:
    """The API that a request message belongs to."""
    return _BY_REQUEST[type(request)]


def advertised_api_keys() -> list[api_versions.ApiVersion]:
    """The table of the ApiVersions answer, in the order of the keys, as in Apache Kafka."""
    return [
        api_versions.ApiVersion(int(api.key), api.advertised_min_version, api.max_version)
        for api in sorted(APIS.values(), key=lambda it: it.key)
        if api.advertised
    ]


class RequestHeader(NamedTuple):
    """The header of a request; `api_key` and `api_version` as sent, possibly not served."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


MOST_TAGGED_FIELDS = 100
"""The most tagged fields of a header; none is defined so far. Each takes at least two bytes of a frame of up to
100 MB."""

_FIXED_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


def decode_request_header(buf: Buffer, pos: int = 0) -> tuple[RequestHeader, int]:
    """The header at `pos` (after the frame's length) and the position of the body.

    The first fields are the same in every version, so that an API or version that is not served can still be answered.
    The position is valid only for a served API and version. Raises `DecodeError`.
    """
    try:
        key, version, correlation_id, length = _FIXED_HEADER.unpack_from(buf, pos)
        pos += _FIXED_HEADER.size
        client_id = None
        if length >= 0:
            if pos + length > len(buf):
                raise too_short(length, len(buf) - pos)
            client_id = str(buf[pos : pos + length], "utf-8")
            pos += length
        api = _BY_KEY.get(key)
        if api is not None and version in api.request.FLEXIBLE:
            pos = _skip_tagged(buf, pos)
    except (struct.error, IndexError):
        raise DecodeError("a request header ends too early") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"a client id is not UTF-8: {error.reason}") from None
    return RequestHeader(key, version, correlation_id, client_id), pos


def encode_request_header(header: RequestHeader, out: bytearray) -> None:
    """Append a request header. Raises `EncodeError` for an API that is not served or a client id that is too long."""
    api = _BY_KEY.get(header.api_key)
    if api is None:
        raise EncodeError(f"API {header.api_key} does not exist")
    client_id = None if header.client_id is None else header.client_id.encode()
    length = -1 if client_id is None else len(client_id)
    try:
        out += _FIXED_HEADER.pack(header.api_key, header.api_version, header.correlation_id, length)
    except struct.error as error:
        raise EncodeError(f"request header: {error}") from error
    out += client_id or b""
    if api.request_header_version(header.api_version) == 2:
        out.append(0)


def encode_response_header(api: Api, version: int, correlation_id: int, out: bytearray) -> None:
    """Append the header of a response to a request of that version."""
    out += _CORRELATION_ID.pack(correlation_id)
    if api.response_header_version(version) == 1:
        out.append(0)


def decode_response_header(api: Api, version: int, buf: Buffer, pos: int = 0) -> tuple[int, int]:
    """The correlation id at `pos` and the position of the body. Raises `DecodeError`."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buf, pos)
        pos += _CORRELATION_ID.size
        if api.response_header_version(version) == 1:
            pos = _skip_tagged(buf, pos)
    except (struct.error, IndexError):
        raise DecodeError("a response header ends too early") from None
    return correlation_id, pos


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """A whole request, its frame's length included. Raises `EncodeError`."""
    out = bytearray(4)
    encode_request_header(RequestHeader(int(api_of(request).key), version, correlation_id, client_id), out)
    encode(request, version, out)
    _CORRELATION_ID.pack_into(out, 0, len(out) - 4)
    return out


def encode_response(api: Api, response: Message, version: int, correlation_id: int) -> bytearray:
    """A whole response, its frame's length included. Raises `EncodeError`."""
    out = bytearray(4)
    encode_response_header(api, version, correlation_id, out)
    encode(response, version, out)
    _CORRELATION_ID.pack_into(out, 0, len(out) - 4)
    return out


def _skip_tagged(buf: Buffer, pos: int) -> int:
    """The position after the tagged fields of a header. They are read before the cost of a request is counted."""
    count, pos = read_uvarint(buf, pos)
    if count > MOST_TAGGED_FIELDS:
        raise DecodeError(f"a header with {count} tagged fields; the limit is {MOST_TAGGED_FIELDS}")
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        if pos + size > len(buf):
            raise too_short(size, len(buf) - pos)
        pos += size
    return pos
