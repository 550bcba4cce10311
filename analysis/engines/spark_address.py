"""The addresses of `--master`: of a standalone cluster's masters, and of a Spark Connect server."""

import re
import socket
import time
from typing import Final
from urllib.parse import urlsplit

from analysis.engines.spark_errors import REMOTE, SparkUnavailableError, is_remote

SCHEME: Final = "spark://"
CONNECT_PORT: Final = 15002
"""The port of a Spark Connect server if its address states none."""
MASTER_S: Final = 20.0
"""A master that was started a moment ago listens within seconds."""
_CONNECT_S: Final = 5.0
_POLL_S: Final = 0.2
_SECRETS: Final = re.compile(r"(?<=^sc://)[^/;]*@|/?;.*", re.DOTALL)
"""The user information and the parameters of a server's address. A parameter may be a token."""


def without_secrets(master: str) -> str:
    """The address for messages and files."""
    return _SECRETS.sub("", master) if is_remote(master) else master


def addresses_of(master: str) -> list[tuple[str, int]]:
    """The addresses in `spark://HOST:PORT[,...]` or `sc://HOST[:PORT][/;...]`. Raises `SparkUnavailableError` for any
    other form."""
    if is_remote(master):
        return [_server(without_secrets(master))]
    addresses = []
    for address in master.removeprefix(SCHEME).split(","):
        host, _, port = address.rpartition(":")
        if not master.startswith(SCHEME) or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise SparkUnavailableError(
                f"{master!r} is not the address of a master: give {SCHEME}HOST:PORT, or {REMOTE}HOST:PORT of a "
                "Spark Connect server"
            )
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _server(url: str) -> tuple[str, int]:
    try:
        place = urlsplit(url)
        port = CONNECT_PORT if place.port is None else place.port
    except ValueError:  # of the brackets or the port
        place, port = urlsplit(""), 0
    if not place.hostname or not port:
        raise SparkUnavailableError(f"{url!r} is not the address of a server: give {REMOTE}HOST:PORT")
    return place.hostname, port


def reach(master: str, patience_s: float | None = None) -> str:
    """Connect to the master and hang up; this machine's address on that connection. Raises `SparkUnavailableError` when
    no address of the master answers within `patience_s`, by default `MASTER_S`."""
    addresses = addresses_of(master)
    patience_s = MASTER_S if patience_s is None else patience_s
    deadline = time.monotonic() + patience_s
    while True:
        for address in addresses:
            try:
                with socket.create_connection(address, _CONNECT_S) as connection:
                    own_address: str = connection.getsockname()[0]
                    return own_address
            except (OSError, UnicodeError) as error:  # the name is not valid in IDNA
                refused = f"{address[0]}:{address[1]}: {error}"
        if time.monotonic() >= deadline:
            kind = "server" if is_remote(master) else "master"
            raise SparkUnavailableError(
                f"no Spark {kind} answers within {patience_s:.0f} s ({refused}); start it (docs/architecture.md)"
            )
        time.sleep(_POLL_S)
