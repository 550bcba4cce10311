"""ApiVersions (18)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bool, Int16, Int32, Int64, Message, ServedApi, String, Tag, v


class ApiVersionsRequest(Message):
    API = ServedApi(18, v("0-4"), operation="none")
    VERSIONS = v("0-4")
    FLEXIBLE = v("3+")

    client_software_name: Annotated[String, v("3+")] = ""
    client_software_version: Annotated[String, v("3+")] = ""


class ApiVersion(Message):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    VERSIONS = v("0-4")
    FLEXIBLE = v("3+")

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    supported_features: Annotated[list[SupportedFeatureKey], v("3+"), Tag(0)] = []
    finalized_features_epoch: Annotated[Int64, v("3+"), Tag(1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], v("3+"), Tag(2)] = []
    zk_migration_ready: Annotated[Bool, v("3+"), Tag(3)] = False
