"""Who has sent the request in an envelope (KIP-590): as bytes for the controller, and back.

The bytes of a principal are Kafka's: the version of `DefaultPrincipalData`, and that message.
"""

from __future__ import annotations

import ipaddress
from struct import Struct

from broker.protocol.codec import DecodeError, decode_exactly, encoded
from broker.protocol.messages.principal import DefaultPrincipalData
from broker.security.authorizer import Caller

VERSION = 0
_VERSION = Struct(">h")


def principal_bytes(caller: Caller) -> bytes:
    """A caller's principal."""
    kind, _, name = caller.principal.partition(":")
    return _VERSION.pack(VERSION) + encoded(DefaultPrincipalData(kind, name), VERSION)


def address_bytes(caller: Caller) -> bytes:
    """A caller's address; nothing where it has none, as where hosts have names only."""
    try:
        return ipaddress.ip_address(caller.host).packed
    except ValueError:
        return b""


def caller_of(principal: bytes, address: bytes) -> Caller:
    """Whom these bytes mean. Raises `DecodeError`."""
    if len(principal) < _VERSION.size or _VERSION.unpack_from(principal)[0] != VERSION:
        raise DecodeError(f"a principal begins with version {VERSION}")
    its = decode_exactly(DefaultPrincipalData, VERSION, principal, _VERSION.size)
    try:
        host = str(ipaddress.ip_address(address)) if address else ""
    except ValueError:
        raise DecodeError(f"an address has 4 or 16 bytes, not {len(address)}") from None
    return Caller(f"{its.type}:{its.name}", host)
