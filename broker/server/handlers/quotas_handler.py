"""DescribeClientQuotas: this broker throttles no clients and has no quotas."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    ANY,
    DEFAULT,
    EXACT,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


def describe_client_quotas(request: DescribeClientQuotasRequest, _version: int) -> DescribeClientQuotasResponse:
    """No entries; filters that Apache Kafka refuses are refused with its errors."""
    for number, component in enumerate(request.components):
        kinds = [before.entity_type for before in request.components[:number]]
        if why := _wrong(component.entity_type, component.match_type, kinds):
            return DescribeClientQuotasResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why, entries=None)
    return DescribeClientQuotasResponse(error_message=None)


def _wrong(kind: str, match_type: int, before: list[str]) -> str:
    """Why a filter cannot have this component after those of other kinds; empty where it can."""
    if not kind:
        return "Invalid empty entity type."
    if kind in before:
        return f"Entity type {kind} cannot appear more than once in the filter."
    if match_type not in (EXACT, DEFAULT, ANY):
        return f"Unknown match type {match_type}"
    return ""
