"""One request and its answer, on a connection of its own: through this machine's sockets, or through the simulated
network. For observation, not for load."""

import asyncio
from typing import Final

from broker.protocol.api import encode_request
from broker.protocol.codec import DecodeError
from broker.protocol.request import Request, Response
from broker.server.client import PeerConnection, decode_answer
from nemeses.scheduling import Scheduler

_LARGEST_ANSWER: Final = 64 << 20
CLIENT_ID: Final = "brownout"


class RequestError(Exception):
    """No usable answer: connection refused, timeout, or not the Kafka protocol. The message has address and cause."""


def ask(
    scheduler: Scheduler, address: tuple[str, int], request: Request[Response], version: int, *, timeout_s: float
) -> Response:
    """The answer to one request, for which `scheduler` waits. Raises `RequestError`."""
    try:
        return scheduler.run(_answer(address, request, version, timeout_s))
    except DecodeError as error:
        raise RequestError(f"{address[0]}:{address[1]}: the answer cannot be decoded: {error}") from error
    except OSError as error:
        raise RequestError(f"{address[0]}:{address[1]}: {str(error) or 'timed out'}") from error


async def _answer(address: tuple[str, int], request: Request[Response], version: int, timeout_s: float) -> Response:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, connection = await loop.create_connection(lambda: PeerConnection(_LARGEST_ANSWER), *address)
        try:
            body = await connection.send(1, encode_request(request, version, 1, CLIENT_ID))
        finally:
            connection.drop("the request is over")
    return decode_answer(request, version, body)
