"""What clients do with my system, and what must hold: elements that were added to a set stay in it.

docs/own-workloads.md of Brownout (`brownout docs own-workloads`) explains each part. A campaign names the classes:

    [workload]
    kind = "my_workload.py:MyWorkload"

    [client]
    client_class = "my_workload.py:MyWorkloadClient"

    [checks]
    use = ["my_workload.py:MyWorkloadChecker"]
"""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Any

from msgspec import Meta

from brownout_api import BrokenPromise, Client, HistoryChecker, Operation, OwnWorkload, Refused, RunHistory


class MyWorkload(OwnWorkload):
    """Clients add elements and read the set. Replace the functions by those of your system."""

    # Parameters: keys of [workload]. Each has a type, may have bounds, and needs a default.
    reads: Annotated[float, Meta(ge=0, le=1, description="share of reads in the load")] = 0.5

    # The functions that change nothing: one without an answer certainly did not happen.
    queries = ("read",)

    def operations(self, random: Random) -> Iterator[Operation]:
        """Draw from `random` only: then the seed of a run decides what clients do."""
        number = 0
        while True:
            if random.random() < self.reads:
                yield Operation("read")
            else:
                yield Operation("add", f"{self.client}-{number}")  # no other client adds this element
                number += 1

    def final(self) -> Iterator[Operation]:
        """What a fresh client asks after the last fault."""
        yield Operation("read")


class MyWorkloadClient(Client):
    """One connection to one node. Replace `_ask` by your protocol; keep the rules about outcomes.

    If a method returns, the operation happened, with that result: a JSON value. `Refused`: it did not happen and never
    will. Any other exception: the outcome is unknown. Never catch an error to return a value, and never retry a change.
    A new object is created after every exception except `Refused`.
    """

    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        super().__init__(endpoints, timeout_s, options)
        host, _, port = endpoints[0].rpartition(":")  # the first address differs from client to client
        self._connection = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._lines = self._connection.makefile("rb")

    def add(self, operation: Operation) -> None:
        self._ask(do="add", element=operation.argument)

    def read(self, operation: Operation) -> list[str]:
        elements: list[str] = self._ask(do="read")["elements"]
        return elements

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


class MyWorkloadChecker(HistoryChecker):
    """Judges the operations of a run."""

    promise = "an added element stays in the set"
    anomalies = {
        "lost-element": "An element was added, and the final read lacks it.",
        "strange-element": "A read shows an element that no client added.",
    }
    needs = {"add": 20, "read": 20}  # with fewer answered operations a run is unknown

    def check(self, history: RunHistory) -> Iterator[BrokenPromise]:
        # An operation of the type "info" may have happened: its element may be there or not.
        sent = {operation.argument: operation for operation in history if operation.f == "add"}
        for read in history.ok("read"):
            shown = set(read.result)
            for element in sorted(shown - sent.keys()):
                yield self.anomaly("strange-element", f"{read.client} read {element}, which no client added", read)
            if read.phase == "final":
                for element, add in sent.items():
                    if add.type == "ok" and element not in shown:
                        sentence = f"{add.client} added {element}, and the final read lacks it"
                        yield self.anomaly("lost-element", sentence, add, read)
