"""The error codes of the Kafka protocol that this broker uses, and the exceptions that carry them."""

import errno
from enum import IntEnum


class ErrorCode(IntEnum):
    """Codes as in Apache Kafka's `Errors`; the value is what goes over the wire."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    INVALID_VOTER_KEY = 125


LONGEST_MESSAGE = 500
"""Characters. Messages repeat names from a request, for each of its entries, and a name may have megabytes."""


def shortened(message: str) -> str:
    """The message, cut if it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


class ProtocolError(Exception):
    """A request is answered with an error code; `message` is for users and logs, and is shortened."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(shortened(message) or code.name)
        self.code = code


class NotLeaderError(ProtocolError):
    """This node is not the leader; the caller finds the leader and tries there. Nothing was changed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)


class AppendRefusedError(ProtocolError):
    """No leader could append these records. Nothing was changed, and this node stays leader."""


class CommitUncertainError(ProtocolError):
    """The leadership was lost while an append waited for its commit: it may or may not have taken effect."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class StartupError(Exception):
    """The broker refuses to start; the message names the file or key, what is wrong with it, and what to do."""


def is_disk_failure(error: BaseException) -> bool:
    """Whether the disk raised this error: written data may be lost, so the broker must stop."""
    return (
        isinstance(error, OSError)
        and not isinstance(error, ConnectionError | TimeoutError | BlockingIOError | InterruptedError)
        and not is_out_of_descriptors(error)
    )


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether a file could not be opened for lack of descriptors: it is unchanged, and a later attempt may succeed."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
