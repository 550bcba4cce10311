"""How Brownout's clients talk to my system. Replace `_ask` by your protocol; keep the rules about outcomes.

A method that returns says: it happened, with this result. `Refused` says: it certainly did not happen, and never will.
Any other exception says: nobody knows. Never catch an error to return something, and never try a change again.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from brownout_api import LogClient, Refused


class MyClient(LogClient):
    """One connection to one node. Made anew after every exception but `Refused`."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        super().__init__(endpoints, timeout_s, options)
        host, _, port = endpoints[0].rpartition(":")  # another node first for each client
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
        """One JSON object a line, one back."""
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the node closed the connection without an answer")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:  # only for what the server promises not to have done
            raise Refused(answer["refused"])
        return answer
