"""Listeners: their names, addresses and security protocols, from Kafka's `listeners` and the related keys.

The listeners in `controller.listener.names` serve only the requests between the nodes that run the cluster. All other
listeners are for clients and for the replication between brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.errors import StartupError
from broker.properties import is_port, shown


class SecurityProtocol(IntEnum):
    """The security protocol of a listener; the numbers are those of Kafka's registrations."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def encrypts(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        """Whether peers must authenticate with SASL first."""
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
    """The listener of the short form `listeners=host:port`."""
    return ListenerEndpoint("PLAINTEXT", host, port, SecurityProtocol.PLAINTEXT)


def parse_listeners(text: str, protocols: Mapping[str, SecurityProtocol], source: str) -> tuple[ListenerEndpoint, ...]:
    """Parse `CLIENTS://host:port,CONTROLLER://host:port`; without a name the listener is PLAINTEXT.

    Raises `StartupError` for other text, for a duplicate name or address, and for a name without a security protocol.
    """
    endpoints: list[ListenerEndpoint] = []
    for part in (piece.strip() for piece in text.split(",")):
        name, separator, address = part.rpartition("://")
        host, colon, port = address.rpartition(":")
        host = host.strip("[]")  # of an IPv6 address
        if not (colon and host and is_port(port)) or (separator and not name):
            raise StartupError(f"{source}: listeners: {shown(part)} is not of the form NAME://host:port")
        name = name or "PLAINTEXT"
        if name not in protocols:
            raise StartupError(
                f"{source}: listeners: {shown(name)} is not a security protocol; add {name}:SSL, or another protocol, "
                "to listener.security.protocol.map"
            )
        endpoint = ListenerEndpoint(name, host, int(port), protocols[name])
        if any(endpoint.name == other.name or endpoint.address == other.address for other in endpoints):
            raise StartupError(f"{source}: listeners: {shown(part)}: a name or an address is given twice")
        endpoints.append(endpoint)
    return tuple(endpoints)


def parse_protocols(text: str, controller_names: tuple[str, ...], source: str) -> dict[str, SecurityProtocol]:
    """Parse `CLIENTS:SASL_SSL,CONTROLLER:SSL`. The name of a protocol stands for itself, and a controller listener that
    is not listed is PLAINTEXT, as in Kafka. Raises `StartupError`."""
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
    """Names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
