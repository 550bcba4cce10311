"""Encodes the sender of a forwarded request as bytes for the controller, and decodes it there (KIP-590).

A principal is encoded as in Kafka: the version of `DefaultPrincipalData`, then that message.
"""

from __future__ import annotations

import ipaddress
from struct import Struct

from broker.protocol.codec import DecodeError, decode_exactly, encoded
from broker.protocol.schema import Bool, Message, String, v
from broker.security.authorizer import Caller


class DefaultPrincipalData(Message):
    """The sender of a request inside an envelope (KIP-590). `type` is `User`, as in `User:alice`."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    type: String = ""
    name: String = ""
    token_authenticated: Bool = False


VERSION = 0
_VERSION = Struct(">h")


def principal_bytes(caller: Caller) -> bytes:
    """The caller's principal, encoded."""
    kind, _, name = caller.principal.partition(":")
    return _VERSION.pack(VERSION) + encoded(DefaultPrincipalData(kind, name), VERSION)


def address_bytes(caller: Caller) -> bytes:
    """The caller's address, encoded; empty where it has none, as in the simulation, whose hosts have only names."""
    try:
        return ipaddress.ip_address(caller.host).packed
    except ValueError:
        return b""


def caller_of(principal: bytes, address: bytes) -> Caller:
    """The caller that these bytes encode. Raises `DecodeError`."""
    if len(principal) < _VERSION.size or _VERSION.unpack_from(principal)[0] != VERSION:
        raise DecodeError(f"an encoded principal starts with version {VERSION}")
    its = decode_exactly(DefaultPrincipalData, VERSION, principal, _VERSION.size)
    try:
        host = str(ipaddress.ip_address(address)) if address else ""
    except ValueError:
        raise DecodeError(f"an address has 4 or 16 bytes, not {len(address)}") from None
    return Caller(f"{its.type}:{its.name}", host)
