"""DescribeConfigs (32)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Int8, Int16, Int32, Message, ServedApi, String, v


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(Message):
    API = ServedApi(32, v("1-4"))
    VERSIONS = v("1-4")
    FLEXIBLE = v("4+")

    resources: list[DescribeConfigsResource] = []
    include_synonyms: Annotated[Bool, v("1+")] = False
    include_documentation: Annotated[Bool, v("3+")] = False


class DescribeConfigsSynonym(Message):
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Message):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Annotated[Int8, v("1+")] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], v("1+")] = []
    config_type: Annotated[Int8, v("3+")] = 0
    documentation: Annotated[String | None, v("3+")] = ""


class DescribeConfigsResult(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message):
    VERSIONS = v("1-4")
    FLEXIBLE = v("4+")

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
