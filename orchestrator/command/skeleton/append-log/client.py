"""A client of my system for Brownout. Replace `_ask` by your protocol; keep the rules about outcomes.

If a method returns, the operation happened, with that result. `Refused`: it did not happen and never will. Any other
exception: the outcome is unknown. Never catch an error to return a value, and never retry a change.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from brownout_api import LogClient, Refused


class MyClient(LogClient):
    """One connection to one node. A new object is created after every exception except `Refused`."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        super().__init__(endpoints, timeout_s, options)
        host, _, port = endpoints[0].rpartition(":")  # the first address differs from client to client
        self._connection = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._lines = self._connection.makefile("rb")

    def append(self, partition: int, value: int) -> int:
        offset: int = self._ask(do="append", partition=partition, value=value)["offset"]
        return offset

    def read(self, partition: int, offset: int, limit: int) -> Sequence[tuple[int, int]]:
        answer = self._ask(do="read", partition=partition, offset=offset, limit=limit)
        return [(offset + place, value) for place, value in enumerate(answer["values"])]

    def end(self, partition: int) -> int:
        end: int = self._ask(do="end", partition=partition)["end"]
        return end

    def close(self) -> None:
        self._connection.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        """Send one JSON object as a line, and return the one of the answer."""
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the node closed the connection without an answer")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:  # only for operations that the server did not and will not execute
            raise Refused(answer["refused"])
        return answer
