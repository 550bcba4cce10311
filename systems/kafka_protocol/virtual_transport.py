"""Sends an observer's requests through the simulated network."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from broker.protocol.schema import Message
from broker.server.client import PeerConnector
from systems.kafka_protocol.requests import RequestError

ANSWER_MAX_BYTES: Final = 16 << 20

T = TypeVar("T")
R = TypeVar("R")
Answer = TypeVar("Answer", bound=Message)


class VirtualAsking:
    """Sends requests through the simulated network; `run` runs a coroutine on the observer's host to its end."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Message]], Message]) -> None:
        self._run = run

    def ask(
        self, address: tuple[str, int], request: Message, answer: type[Answer], version: int, *, timeout_s: float
    ) -> Answer:
        """Raises `RequestError`."""
        try:
            response = self._run(_ask_once(address, request, version, timeout_s))
        except OSError as error:
            raise RequestError(f"{address[0]}:{address[1]}: {error}") from error
        assert isinstance(response, answer)
        return response

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """One after the other: the simulation has one thread."""
        return [action(item) for item in items]


async def _ask_once(address: tuple[str, int], request: Message, version: int, timeout_s: float) -> Message:
    connector = PeerConnector(-1, {0: address}, response_max_bytes=ANSWER_MAX_BYTES)
    try:
        return await connector.request(0, request, version, timeout_s)
    finally:
        connector.close()
