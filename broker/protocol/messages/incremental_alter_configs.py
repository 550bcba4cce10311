"""IncrementalAlterConfigs (44)."""

from __future__ import annotations

from broker.protocol.schema import Bool, Int8, Int16, Int32, Message, ServedApi, String, v

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # values of `config_operation`


class AlterableConfig(Message):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(Message):
    API = ServedApi(44, v("0-1"))
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
