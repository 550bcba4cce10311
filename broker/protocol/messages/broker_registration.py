"""BrokerRegistration (62)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Bool, Int16, Int32, Int64, Message, ServedApi, String, UInt16, Uuid, v


class Listener(Message):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationRequest(Message):
    API = ServedApi(62, v("0-4"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0-4")
    FLEXIBLE = v("0+")

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
    VERSIONS = v("0-4")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
