"""ListConfigResources (74): KIP-1142. Version 0 lists only what clients' metrics are configured for (KIP-714)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Int8, Int16, Int32, Message, ServedApi, String, v

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # Kafka's ConfigResource.Type


class ListConfigResourcesRequest(Message):
    """An empty list of types requests all types."""

    API = ServedApi(74, v("0-1"), operation="DESCRIBE_CONFIGS")
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    resource_types: Annotated[list[Int8], v("1+")] = []


class ConfigResource(Message):
    resource_name: String = ""
    resource_type: Annotated[Int8, v("1+")] = CLIENT_METRICS


class ListConfigResourcesResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
