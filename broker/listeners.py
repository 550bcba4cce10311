"""Where a broker listens, and how it speaks there: Kafka's `listeners` and the keys that belong to them.

A listener has a name and a security protocol. Those that `controller.listener.names` names take the requests by which
the cluster is run, and no others; all other listeners are for clients and for the replication between brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.errors import StartupError
from broker.properties import is_port, shown


class SecurityProtocol(IntEnum):
    """How a listener speaks; the numbers are those of Kafka's registrations."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def encrypts(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        """Whether peers say who they are by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """One listener: its name, its address and its security protocol."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


def plaintext(host: str, port: int) -> ListenerEndpoint:
    """The listener that `listeners=host:port` means."""
    return ListenerEndpoint("PLAINTEXT", host, port, SecurityProtocol.PLAINTEXT)


def parse_listeners(text: str, protocols: Mapping[str, SecurityProtocol], source: str) -> tuple[ListenerEndpoint, ...]:
    """`CLIENTS://host:port,CONTROLLER://host:port`; without a name it is PLAINTEXT.

    Raises `StartupError` for anything else, for a name or an address that is given twice, and for a name that has no
    security protocol.
    """
    found: list[ListenerEndpoint] = []
    for part in (each.strip() for each in text.split(",")):
        name, separator, address = part.rpartition("://")
        host, colon, port = address.rpartition(":")
        if not (colon and host and is_port(port)) or (separator and not name):
            raise StartupError(f"{source}: listeners: {shown(part)} is not of the form NAME://host:port")
        name = name or "PLAINTEXT"
        if name not in protocols:
            raise StartupError(
                f"{source}: listeners: {shown(name)} is no security protocol; add {name}:SSL, or another protocol, to "
                "listener.security.protocol.map"
            )
        endpoint = ListenerEndpoint(name, host, int(port), protocols[name])
        if any(endpoint.name == other.name or endpoint.address == other.address for other in found):
            raise StartupError(f"{source}: listeners: {shown(part)}: a name or an address is given twice")
        found.append(endpoint)
    return tuple(found)


def parse_protocols(text: str, controller_names: tuple[str, ...], source: str) -> dict[str, SecurityProtocol]:
    """`CLIENTS:SASL_SSL,CONTROLLER:SSL`. A name that is that of a protocol stands for itself, and a controller listener
    that is not named is PLAINTEXT, as in Kafka. Raises `StartupError`."""
    protocols = {each.name: each for each in SecurityProtocol}
    protocols |= {name: SecurityProtocol.PLAINTEXT for name in controller_names if name not in protocols}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, protocol = part.partition(":")
        if not name or protocol not in SecurityProtocol.__members__:
            raise StartupError(
                f"{source}: listener.security.protocol.map: {shown(part)} is not of the form NAME:PROTOCOL; protocols "
                f"are {', '.join(SecurityProtocol.__members__)}"
            )
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def parse_names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(each.strip() for each in text.split(",") if each.strip())
