"""Envelope (58): a request of a client, as one broker hands it on to the controller (KIP-590)."""

from __future__ import annotations

from broker.protocol.schema import Bytes, Int16, Message, v


class EnvelopeRequest(Message):
    """`request_data` is a request with its header, without a frame's length; `client_host_address` is an IP's bytes."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    request_data: Bytes = b""
    request_principal: Bytes | None = None
    client_host_address: Bytes = b""


class EnvelopeResponse(Message):
    """`response_data` is a response with its header; None when the envelope itself was refused."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    response_data: Bytes | None = None
    error_code: Int16 = 0
