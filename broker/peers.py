"""The interface through which parts of a broker send requests to other nodes; `broker.server.client` implements it."""

from typing import Protocol

from broker.protocol.schema import Message


class Peers(Protocol):
    """Other brokers and voters, by id."""

    async def request(self, node_id: int, message: Message, version: int, timeout: float) -> Message:
        """The answer of a node; `timeout`: seconds without any byte of it. Raises `ConnectionError` or `TimeoutError`;
        the request may have been handled."""
        ...
