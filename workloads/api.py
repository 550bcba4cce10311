"""For whoever brings a system: the client that a workload drives, one class to write.

    class MyClient(RegisterClient):
        def __init__(self, endpoints, timeout_s, options):
            super().__init__(endpoints, timeout_s, options)
            self.connection = connect(endpoints[0], timeout=timeout_s)

        def read(self, key): ...
        def write(self, key, value): ...
        def compare_and_set(self, key, expected, new): ...

A campaign names it: `client_class = "my_client.py:MyClient"`.

What a method does decides what is recorded, and so what can be proven:
- it returns: the operation happened, with that result;
- it raises `Refused`: it certainly did not happen, and never will;
- it raises anything else, or takes longer than its time: a change may have happened, or may yet; a read did not answer.
  The object is then closed and another one is made for the next operation.

So never catch an error to return something, and never try a change again: the second attempt may be the second change.
An object is used by one thread only, the one that made it, and by one operation at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """Raised by a client: the operation certainly did not happen and never will, such as one that was never sent."""


class Client:
    """A connection to the system under test."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        """`endpoints`: `host:port` of each node. Their order rotates by one node for each client, and for each object
        that is made for a client: a client whose first node is dead begins at the next one. `timeout_s`: what one
        operation may take. `options`: those of the campaign's [client]."""
        self.endpoints = tuple(endpoints)
        self.timeout_s = timeout_s
        self.options = dict(options)

    def close(self) -> None:
        """Let go of the connection. What it raises is ignored."""


class RegisterClient(Client, ABC):
    """Keys with one value each; every key is absent at first."""

    @abstractmethod
    def read(self, key: str) -> int | None:
        """The key's value; None when it is absent. A number of more than 64 bits counts as one that nobody wrote."""

    @abstractmethod
    def write(self, key: str, value: int) -> None:
        """Set the key."""

    @abstractmethod
    def compare_and_set(self, key: str, expected: int | None, new: int) -> bool:
        """Set the key if its value is `expected` (None: if it is absent); whether it was."""


class LogClient(Client, ABC):
    """Partitions, numbered from 0, to whose ends values are appended; the first of each lies at offset 0.

    `reads_show_ends`: set it to True in a class whose `read` always asks the system after it was called, never returns
    what was fetched before, and returns nothing only when there is nothing: such a read is held to the log's end.
    """

    reads_show_ends: bool = False

    @abstractmethod
    def append(self, partition: int, value: int) -> int:
        """Append the value; its offset."""

    @abstractmethod
    def read(self, partition: int, offset: int, limit: int) -> Sequence[tuple[int, int]]:
        """At most `limit` records as (offset, value), from `offset` on, in their order; none when there are no more."""

    @abstractmethod
    def end(self, partition: int) -> int:
        """The offset that the next append will have: the log's length at some moment of the call."""
