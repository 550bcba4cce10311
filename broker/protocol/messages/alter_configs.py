"""AlterConfigs (33): replaces the whole configuration of a resource."""

from __future__ import annotations

from broker.protocol.schema import Bool, Int8, Int16, Int32, Message, ServedApi, String, v


class AlterableConfig(Message):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(Message):
    API = ServedApi(33, v("0-2"))
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message):
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
