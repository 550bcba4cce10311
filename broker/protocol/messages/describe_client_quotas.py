"""DescribeClientQuotas (48): KIP-546."""

from __future__ import annotations

from broker.protocol.schema import Bool, Float64, Int8, Int16, Int32, Message, ServedApi, String, v

EXACT, DEFAULT, ANY = 0, 1, 2  # values of `match_type`


class ComponentData(Message):
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(Message):
    API = ServedApi(48, v("0-1"), operation="DESCRIBE_CONFIGS")
    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

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

    VERSIONS = v("0-1")
    FLEXIBLE = v("1+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = []
