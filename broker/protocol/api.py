"""The served APIs and versions, and the headers of requests and responses.

The table of the served APIs is discovered: each request class in `broker.protocol.messages` declares its key, its
versions and the operation on the cluster that its sender needs (`ServedApi`), and its response class follows in the
same module. A new API is these two classes in the module of its family, and its handler in `broker.server.routes`.
Only an API that is allowed for each topic or group separately has a check in `broker.server.authorization`.
"""

import importlib
import pkgutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import NamedTuple

from broker.ports import Buffer
from broker.protocol import messages
from broker.protocol.codec import encode
from broker.protocol.decoder import DecodeError, read_uvarint, too_short
from broker.protocol.encoder import EncodeError
from broker.protocol.messages.cluster_apis import ApiVersion
from broker.protocol.schema import DeclarationError, Message, Operation, ServedApi


class ApiKey(IntEnum):
    """The API keys of Apache Kafka 4; `APIS` has those that this broker serves."""

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
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
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
    operation: Operation
    """See `ServedApi.operation`."""

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.request.FLEXIBLE else 1

    def response_header_version(self, version: int) -> int:
        """Always 0 for ApiVersions: its sender does not know the broker's versions yet (KIP-511)."""
        return 1 if version in self.response.FLEXIBLE and self.key is not ApiKey.API_VERSIONS else 0


def discover(package: ModuleType) -> dict[ApiKey, Api]:
    """The APIs that the request classes in the modules of a package declare, by key in ascending order.

    Raises `DeclarationError` for an unknown key, for a key that two classes declare, and for a response class before
    its request class.
    """
    table: dict[ApiKey, Api] = {}
    for api in sorted(_declared_in(package), key=lambda declared: declared.key):
        if (other := table.setdefault(api.key, api)) is not api:
            raise DeclarationError(f"{api.request.__name__} and {other.request.__name__} declare key {int(api.key)}")
    return table


def _declared_in(package: ModuleType) -> Iterator[Api]:
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, declared in list(vars(module).items()):
            is_own = isinstance(declared, type) and declared.__module__ == module.__name__
            if is_own and issubclass(declared, Message) and declared.API is not None:
                yield _api(declared, declared.API, getattr(module, name.removesuffix("Request") + "Response"))


def _api(request: type[Message], served: ServedApi, response: type[Message]) -> Api:
    if served.key not in set(ApiKey):
        raise DeclarationError(f"{request.__name__}: {served.key} is not an API key of Kafka")
    if response.VERSIONS is not request.VERSIONS:
        raise DeclarationError(f"{response.__name__} is declared before {request.__name__}, which has its versions")
    low, high = served.versions.low, served.versions.high
    advertised = served.versions if served.advertised is None else served.advertised
    is_listed = high in advertised
    return Api(ApiKey(served.key), request, response, low, high, advertised.low, is_listed, served.operation)


APIS: dict[ApiKey, Api] = discover(messages)
"""The served APIs, in the order of their keys."""

_BY_KEY: dict[int, Api] = {int(key): api for key, api in APIS.items()}
_BY_REQUEST: dict[type[Message], Api] = {api.request: api for api in APIS.values()}


def find_api(key: int) -> Api | None:
    """The API with this key; None when it is not served."""
    return _BY_KEY.get(key)


def api_of(request: Message) -> Api:
    """The API that a request message belongs to."""
    return _BY_REQUEST[type(request)]


def advertised_api_keys() -> list[ApiVersion]:
    """The table of the ApiVersions answer, in the order of the keys, as in Apache Kafka."""
    return [
        ApiVersion(int(api.key), api.advertised_min_version, api.max_version) for api in APIS.values() if api.advertised
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
