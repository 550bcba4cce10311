"""DescribeCluster (60)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Int8, Int16, Int32, Message, ServedApi, String, v


class DescribeClusterRequest(Message):
    API = ServedApi(60, v("0-2"), operation="none")
    VERSIONS = v("0-2")
    FLEXIBLE = v("0+")

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, v("1+")] = 1
    include_fenced_brokers: Annotated[Bool, v("2+")] = False


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, v("2+")] = False


class DescribeClusterResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, v("1+")] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)
