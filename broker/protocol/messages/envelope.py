"""Envelope (58): a client's request, forwarded by a broker to the controller (KIP-590)."""

from __future__ import annotations

from broker.protocol.schema import Bytes, Int16, Message, ServedApi, v


class EnvelopeRequest(Message):
    """`request_data`: a request with header, without the frame's length; `client_host_address`: the bytes of an IP."""

    API = ServedApi(58, v("0"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    request_data: Bytes = b""
    request_principal: Bytes | None = None
    client_host_address: Bytes = b""


class EnvelopeResponse(Message):
    """`response_data`: a response with header; None when the envelope was refused."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    response_data: Bytes | None = None
    error_code: Int16 = 0
