"""The interface through which parts of a broker send requests to other nodes; `broker.server.client` implements it."""

from typing import Protocol

from broker.protocol.request import Request, Response


class Peers(Protocol):
    """Other brokers and voters, by id."""

    async def request(
        self, node_id: int, message: Request[Response], timeout: float, version: int | None = None
    ) -> Response:
        """The answer of a node; `timeout`: seconds without any byte of it; `version`: None for the newest. Raises
        `ConnectionError` or `TimeoutError`; the request may have been handled."""
        ...
