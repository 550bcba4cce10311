"""SaslHandshake (17): by which mechanism a client is going to say who it is (KIP-43, KIP-152)."""

from __future__ import annotations

from broker.protocol.schema import Int16, Message, String, v


class SaslHandshakeRequest(Message):
    """From version 1 on SaslAuthenticate carries the tokens. Before they come bare, each in a frame."""

    VERSIONS = v("0-1")

    mechanism: String = ""


class SaslHandshakeResponse(Message):
    VERSIONS = v("0-1")

    error_code: Int16 = 0
    mechanisms: list[String] = []
