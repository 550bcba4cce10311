"""FindCoordinator (10)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int8, Int16, Int32, Message, ServedApi, String, v

TRANSACTION_KEY = 1  # value of `key_type`


class FindCoordinatorRequest(Message):
    API = ServedApi(10, v("0-6"))
    VERSIONS = v("0-6")
    FLEXIBLE = v("3+")

    key: Annotated[String, v("0-3")] = ""
    key_type: Annotated[Int8, v("1+")] = 0
    coordinator_keys: Annotated[list[String], v("4+")] = []


class Coordinator(Message):
    key: Annotated[String, v("4+")] = ""
    node_id: Annotated[Int32, v("4+")] = 0
    host: Annotated[String, v("4+")] = ""
    port: Annotated[Int32, v("4+")] = 0
    error_code: Annotated[Int16, v("4+")] = 0
    error_message: Annotated[String | None, v("4+")] = ""


class FindCoordinatorResponse(Message):
    VERSIONS = v("0-6")
    FLEXIBLE = v("3+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    error_code: Annotated[Int16, v("0-3")] = 0
    error_message: Annotated[String | None, v("1-3")] = ""
    node_id: Annotated[Int32, v("0-3")] = 0
    host: Annotated[String, v("0-3")] = ""
    port: Annotated[Int32, v("0-3")] = 0
    coordinators: Annotated[list[Coordinator], v("4+")] = []
