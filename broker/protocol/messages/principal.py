"""DefaultPrincipalData: who has asked, as an envelope carries it (KIP-590)."""

from __future__ import annotations

from broker.protocol.schema import Bool, Message, String, v


class DefaultPrincipalData(Message):
    """`type` is `User`, as in `User:alice`."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
