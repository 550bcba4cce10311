"""The way from one broker to another, as those who ask see it; `broker.server.client` goes it."""

from __future__ import annotations

from typing import Protocol

from broker.protocol.schema import Message


class Peers(Protocol):
    """Other brokers and voters, by their ids."""

    async def request(self, node_id: int, message: Message, version: int, timeout: float) -> Message:
        """The answer of a node; `timeout` is how many seconds may pass without anything of it. Raises `ConnectionError`
        or `TimeoutError`; the request may have been handled."""
        ...
