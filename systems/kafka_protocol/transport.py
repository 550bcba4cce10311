"""How an observer's requests reach the nodes: through sockets, or through the simulated network."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from broker.protocol.schema import Message
from nemeses.scheduling import for_each
from systems.kafka_protocol import requests

ANSWER_MAX_BYTES: Final = 16 << 20

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


class VirtualAsking:
    """Sends requests through the simulated network; `run` runs a coroutine on the observer's host to its end."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Message]], Message]) -> None:
        self._run = run

    def ask(
        self, address: tuple[str, int], request: Message, answer: type[Answer], version: int, *, timeout_s: float
    ) -> Answer:
        """Raises `requests.RequestError`."""
        try:
            response = self._run(_ask_once(address, request, version, timeout_s))
        except OSError as error:
            raise requests.RequestError(f"{address[0]}:{address[1]}: {error}") from error
        assert isinstance(response, answer)
        return response

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """One after the other: the simulation has one thread."""
        return [action(item) for item in items]


async def _ask_once(address: tuple[str, int], request: Message, version: int, timeout_s: float) -> Message:
    from broker.server.client import PeerConnector  # which only the simulation needs here

    connector = PeerConnector(-1, {0: address}, response_max_bytes=ANSWER_MAX_BYTES)
    try:
        return await connector.request(0, request, version, timeout_s)
    finally:
        connector.close()
