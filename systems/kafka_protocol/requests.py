"""A small blocking Kafka client: one request, one answer, a deadline. For observation, not for load."""

import socket
import struct
import time
from typing import TypeVar

from broker.protocol.api import api_of, decode_response_header, encode_request
from broker.protocol.codec import DecodeError, decode
from broker.protocol.schema import Message

Response = TypeVar("Response", bound=Message)

_LENGTH = struct.Struct(">i")
_LARGEST_ANSWER = 64 << 20
CLIENT_ID = "brownout"


class RequestError(Exception):
    """No usable answer: connection refused, timeout, or not the Kafka protocol. The message has address and cause."""


def ask(
    address: tuple[str, int], request: Message, answer: type[Response], version: int, *, timeout_s: float
) -> Response:
    """Send one request on a new connection and return the answer. Raises `RequestError`."""
    deadline = time.monotonic() + timeout_s
    place = f"{address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(encode_request(request, version, 1, CLIENT_ID))
            (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline))
            if not 0 < length <= _LARGEST_ANSWER:
                raise RequestError(f"{place}: an answer of {length} bytes is not the Kafka protocol")
            body = _receive(connection, length, deadline)
    except OSError as error:
        raise RequestError(f"{place}: {error}") from error
    try:
        _, position = decode_response_header(api_of(request), version, body)
        return decode(answer, version, body, position)[0]
    except DecodeError as error:
        raise RequestError(f"{place}: the answer cannot be decoded: {error}") from error


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < size:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(min(size - len(received), 1 << 20))
        if not part:
            raise OSError("the connection was closed before the answer was complete")
        received += part
    return bytes(received)
