"""From a broker to the controller: BrokerRegistration, BrokerHeartbeat and Envelope."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import (
    NO_ID,
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    ServedApi,
    String,
    Tag,
    UInt16,
    Uuid,
    v,
)

# ---- BrokerRegistration (62).


class Listener(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"]):
    API = ServedApi(62, v("0-4"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    broker_id: Int32 = 0
    cluster_id: String = ""
    incarnation_id: Uuid = NO_ID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: String | None = None
    is_migrating_zk_broker: Annotated[Bool, v("1+")] = False
    log_dirs: Annotated[list[Uuid], v("2+")] = []
    previous_broker_epoch: Annotated[Int64, v("3+")] = -1


class BrokerRegistrationResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1


# ---- BrokerHeartbeat (63).


LEASE_TAG = 10_000
"""Far above the tags that Apache Kafka assigns."""

TIERED_STARTS_TAG = 10_001


class TieredStarts(Message):
    """The partitions of a topic whose replicas started after the last tiered offset (KIP-1023)."""

    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"]):
    API = ServedApi(63, v("0-1"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Annotated[list[Uuid], v("1+"), Tag(0)] = []
    tiered_starts: Annotated[list[TieredStarts], Tag(TIERED_STARTS_TAG)] = []
    """The broker's replicas with few local records. Apache Kafka has no such field."""


class BrokerHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
    lease_ms: Annotated[Int64, Tag(LEASE_TAG)] = 0
    """How long after it sent the request the broker may act as a leader, in ms. Apache Kafka has no leases."""


# ---- Envelope (58): a client's request, forwarded by a broker to the controller (KIP-590).


class EnvelopeRequest(Request["EnvelopeResponse"]):
    """`request_data`: a request with header, without the frame's length; `client_host_address`: the bytes of an IP."""

    API = ServedApi(58, v("0"), v("0+"), advertised=v("none"), operation="CLUSTER_ACTION")

    request_data: Bytes = b""
    request_principal: Bytes | None = None
    client_host_address: Bytes = b""


class EnvelopeResponse(Message):
    """`response_data`: a response with header; None when the envelope was refused."""

    response_data: Bytes | None = None
    error_code: Int16 = 0
