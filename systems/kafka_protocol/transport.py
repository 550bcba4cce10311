"""How an observer's requests reach the nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker.protocol.schema import Message
from nemeses.scheduling import for_each
from systems.kafka_protocol import requests

T = TypeVar("T")
R = TypeVar("R")
Answer = TypeVar("Answer", bound=Message)


class Asking(Protocol):
    """Sends an observer's requests to nodes."""

    def ask(
        self, address: tuple[str, int], request: Message, answer: type[Answer], version: int, *, timeout_s: float
    ) -> Answer:
        """Send one request on a new connection. Raises `requests.RequestError`."""
        ...

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply `action` to each item, concurrently where possible; the results are in the items' order."""
        ...


class SocketAsking:
    """Uses this machine's sockets, with one thread per node."""

    def ask(
        self, address: tuple[str, int], request: Message, answer: type[Answer], version: int, *, timeout_s: float
    ) -> Answer:
        return requests.ask(address, request, answer, version, timeout_s=timeout_s)

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return for_each(items, action)
