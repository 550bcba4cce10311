"""SaslAuthenticate (36): one step of a SASL exchange (KIP-152, KIP-368)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import Bytes, Int16, Int64, SecretMessage, ServedApi, String, v


class SaslAuthenticateRequest(SecretMessage):
    API = ServedApi(36, v("0-2"), operation="none")
    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(SecretMessage):
    """`session_lifetime_ms` 0: the session does not expire."""

    VERSIONS = v("0-2")
    FLEXIBLE = v("2+")

    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, v("1+")] = 0
