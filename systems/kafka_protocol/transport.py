"""How an observer's questions come to the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from broker.protocol.schema import Message
from systems.kafka_protocol import requests

T = TypeVar("T")
R = TypeVar("R")
Answer = TypeVar("Answer", bound=Message)


class Asking(Protocol):
    """Asks nodes."""

    def ask(
        self, address: tuple[str, int], request: Message, answer: type[Answer], version: int, *, timeout_s: float
    ) -> Answer:
        """One request, on a connection of its own. Raises `requests.RequestError`."""
        ...

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """One deed for each item, at the same time where that can be; the results in the items' order."""
        ...

    def close(self) -> None: ...


class SocketAsking:
    """Over this machine's sockets, from as many threads as there are nodes."""

    def __init__(self, nodes: int) -> None:
        self._pool = ThreadPoolExecutor(nodes, thread_name_prefix="observer")

    def ask(
        self, address: tuple[str, int], request: Message, answer: type[Answer], version: int, *, timeout_s: float
    ) -> Answer:
        return requests.ask(address, request, answer, version, timeout_s=timeout_s)

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        return self._pool.map(action, items)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
