"""etcd's API over HTTP: the JSON gateway that every member runs before its gRPC services.

Keys and values are base64, 64-bit numbers are texts, and fields that are zero, false or empty are left out.
"""

import base64
import http.client
import json
import select
import socket
from typing import Any


class NotConnectedError(OSError):
    """The connection failed: no part of the request was sent."""


class GatewayError(Exception):
    """etcd answered with an error. `message` is its own text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})")
        self.message = message


class Gateway:
    """A connection to one member, kept alive between requests."""

    def __init__(self, address: str, port: int, connect_s: float) -> None:
        """Raises `NotConnectedError` when the connection does not succeed within `connect_s` seconds."""
        self._http = http.client.HTTPConnection(address, port, timeout=connect_s)
        try:
            self._http.connect()
        except OSError as error:
            raise NotConnectedError(f"{address}:{port} does not accept a connection ({error})") from error
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http.auto_open = 0  # never resend a request on a new connection without the caller's knowledge

    @property
    def is_open(self) -> bool:
        """Whether the connection is still open, as far as this side knows. For use between requests."""
        if self._http.sock is None:
            return False
        poll = select.poll()  # unlike select(), it accepts any descriptor number
        poll.register(self._http.sock, select.POLLIN)
        return not poll.poll(0)  # no request is open, so that readable data can only be the end of the connection

    def ask(self, path: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one request and wait for its answer, at most `timeout_s` for each part of it.

        Raises `GatewayError` when etcd answers with an error, and OSError, `http.client.HTTPException` or ValueError
        without a usable answer: then the request may have been carried out."""
        if self._http.sock is not None:
            self._http.sock.settimeout(timeout_s)
        self._http.request("POST", path, json.dumps(request).encode(), {"Content-Type": "application/json"})
        response = self._http.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise GatewayError(response.status, _message(content))
        answer = json.loads(content)
        if not isinstance(answer, dict):
            raise ValueError(f"the answer is not a JSON object: {content[:100]!r}")
        return answer

    def close(self) -> None:
        self._http.close()


def encoded(text: str) -> str:
    """A key or value in the gateway's encoding."""
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> bytes:
    """A decoded key or value. Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _message(content: bytes) -> str:
    """etcd's error message; the start of the content when it has no message."""
    try:
        answer = json.loads(content)
        return str(answer.get("error") or answer["message"])
    except (ValueError, KeyError, AttributeError):
        return content[:200].decode(errors="replace") or "an error without a message"
