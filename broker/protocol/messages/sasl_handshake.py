"""SaslHandshake (17): selects the mechanism of the authentication (KIP-43, KIP-152)."""

from __future__ import annotations

from broker.protocol.schema import Int16, Message, ServedApi, String, v


class SaslHandshakeRequest(Message):
    """From version 1 on SaslAuthenticate carries the tokens. In version 0 each is a bare frame."""

    API = ServedApi(17, v("0-1"), operation="none")
    VERSIONS = v("0-1")

    mechanism: String = ""


class SaslHandshakeResponse(Message):
    VERSIONS = v("0-1")

    error_code: Int16 = 0
    mechanisms: list[String] = []
