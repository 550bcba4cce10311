"""Settings of brokers, topics and groups, and quotas of clients."""

from typing import Annotated

from broker.protocol.request import Request
from broker.protocol.schema import Bool, Float64, Int8, Int16, Int32, Message, ServedApi, String, v

# ---- DescribeConfigs (32).


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    API = ServedApi(32, v("1-4"), v("4+"))

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
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


# ---- AlterConfigs (33): replaces the whole configuration of a resource.


class AlterableConfig(Message):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    API = ServedApi(33, v("0-2"), v("2+"))

    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


# ---- IncrementalAlterConfigs (44).


SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # values of `config_operation`


class IncrementalAlterableConfig(Message):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class IncrementalAlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[IncrementalAlterableConfig] = []


class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    API = ServedApi(44, v("0-1"), v("1+"))

    resources: list[IncrementalAlterConfigsResource] = []
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


# ---- ListConfigResources (74): KIP-1142. Version 0 lists only what clients' metrics are configured for (KIP-714).


TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # Kafka's ConfigResource.Type


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """An empty list of types requests all types."""

    API = ServedApi(74, v("0-1"), v("0+"), operation="DESCRIBE_CONFIGS")

    resource_types: Annotated[list[Int8], v("1+")] = []


class ConfigResource(Message):
    resource_name: String = ""
    resource_type: Annotated[Int8, v("1+")] = CLIENT_METRICS


class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


# ---- DescribeClientQuotas (48): KIP-546.


EXACT, DEFAULT, ANY = 0, 1, 2  # values of `match_type`


class ComponentData(Message):
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    API = ServedApi(48, v("0-1"), v("1+"), operation="DESCRIBE_CONFIGS")

    components: list[ComponentData] = []
    strict: Bool = False


class EntityData(Message):
    entity_type: String = ""
    entity_name: String | None = ""


class ValueData(Message):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Message):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Message):
    """An error response has `entries` None."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = []
