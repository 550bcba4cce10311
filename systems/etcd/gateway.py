"""etcd's API over HTTP: the JSON gateway that every member has before its gRPC services.

Keys and values are base64, 64-bit numbers are texts, and what is zero, false or empty is left out.
"""

from __future__ import annotations

import base64
import http.client
import json
import select
import socket
from typing import Any


class NotConnectedError(OSError):
    """There is no connection: nothing of the request was sent."""


class GatewayError(Exception):
    """etcd answered with an error. `message` is its own text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})")
        self.message = message


class Gateway:
    """A connection to one member, kept alive between requests."""

    def __init__(self, address: str, port: int, connect_s: float) -> None:
        """Raises `NotConnectedError` when there is no connection within `connect_s`."""
        self._http = http.client.HTTPConnection(address, port, timeout=connect_s)
        try:
            self._http.connect()
        except OSError as error:
            raise NotConnectedError(f"{address}:{port} takes no connection ({error})") from error
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http.auto_open = 0  # a request that finds the connection closed must not go out on another one unseen

    @property
    def is_open(self) -> bool:
        """Whether the member has not closed the connection, as far as this side knows. For use between requests."""
        if self._http.sock is None:
            return False
        poll = select.poll()  # unlike select(), it takes descriptors of any number
        poll.register(self._http.sock, select.POLLIN)
        return not poll.poll(0)  # nothing was asked, so what can be read is the connection's end

    def ask(self, path: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one request and wait for its answer, at most `timeout_s` for each part of it.

        Raises `GatewayError` for an answer that is an error, and OSError, `http.client.HTTPException` or ValueError
        when there is none: then it may have been carried out."""
        if self._http.sock is not None:
            self._http.sock.settimeout(timeout_s)
        self._http.request("POST", path, json.dumps(request).encode(), {"Content-Type": "application/json"})
        response = self._http.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise GatewayError(response.status, _message(content))
        answer = json.loads(content)
        if not isinstance(answer, dict):
            raise ValueError(f"the answer is no object: {content[:100]!r}")
        return answer

    def close(self) -> None:
        self._http.close()


def encoded(text: str) -> str:
    """A key or value as the gateway takes it."""
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> bytes:
    """A key or value as it was meant. Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _message(content: bytes) -> str:
    """etcd's words for an error; what else stands there when they are not to be found."""
    try:
        answer = json.loads(content)
        return str(answer.get("error") or answer["message"])
    except (ValueError, KeyError, AttributeError):
        return content[:200].decode(errors="replace") or "an error without words"
