"""DefaultPrincipalData: the sender of a request inside an envelope (KIP-590)."""

from __future__ import annotations

from broker.protocol.schema import Bool, Message, String, v


class DefaultPrincipalData(Message):
    """`type` is `User`, as in `User:alice`."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
