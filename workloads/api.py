"""Base classes for clients of user-defined systems: a workload drives one class that the user writes.

    class MyClient(RegisterClient):
        def __init__(self, endpoints, timeout_s, options):
            super().__init__(endpoints, timeout_s, options)
            self.connection = connect(endpoints[0], timeout=timeout_s)

        def read(self, key): ...
        def write(self, key, value): ...
        def compare_and_set(self, key, expected, new): ...

A campaign names it: `client_class = "my_client.py:MyClient"`.

What a method does decides what is recorded, and therefore what can be proven:
- it returns: the operation happened, with that result;
- it raises `Refused`: the operation certainly did not happen, and never will;
- it raises another exception, or takes longer than its time: a change may have happened, or may still happen; a read
  has no answer. The object is then closed, and the next operation gets a new one.

- it returns something that its description does not allow, such as None for an offset: the class is wrong, and its
  client ends at once.

Therefore never catch an error to return something, and never retry a change: the retry may be a second change.
One thread uses an object, the thread that made it, for one operation at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """Raised by a client: the operation certainly did not happen and never will; it was not sent, for example."""


class NoOffset(Enum):
    """The type of `NO_OFFSET`."""

    NO_OFFSET = "no offset"


NO_OFFSET: Final = NoOffset.NO_OFFSET
"""The result of an append that was acknowledged without its offset. The record must then be found by reads."""


class Client:
    """A connection to the system under test."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        """`endpoints`: `host:port` of each node. Their order rotates by one node for each client, and for each object
        of a client: a client whose first node is dead starts at the next one. `timeout_s`: the longest time of one
        operation. `options`: the options of the campaign's [client]."""
        self.endpoints = tuple(endpoints)
        self.timeout_s = timeout_s
        self.options = dict(options)

    def close(self) -> None:
        """Close the connection. Exceptions are ignored."""


class RegisterClient(Client, ABC):
    """Keys with one value each; every key is absent at first.

    `endpoint`: which of `endpoints` the current or the last operation was sent to. A class that sets it has it recorded
    with each operation, and pages name the node that answered. Another value counts as not recorded.
    """

    endpoint: str = ""

    @abstractmethod
    def read(self, key: str) -> int | None:
        """The key's value; None when it is absent. A number of more than 64 bits counts as never written."""

    @abstractmethod
    def write(self, key: str, value: int) -> None:
        """Set the key."""

    @abstractmethod
    def compare_and_set(self, key: str, expected: int | None, new: int) -> bool:
        """Set the key if its value is `expected` (None: if it is absent). Returns whether it was set."""


class LogClient(Client, ABC):
    """Partitions, numbered from 0. Values are appended to their ends; the first value of each has offset 0.

    `reads_show_ends`: set it to True in a class whose `read` always asks the system after it was called, never returns
    what was fetched before, and returns nothing only when there is nothing. The checker then takes an empty read as a
    bound on the log's end.
    """

    reads_show_ends: bool = False

    @abstractmethod
    def append(self, partition: int, value: int) -> int | NoOffset:
        """Append the value; returns its offset, or `NO_OFFSET` if the system acknowledges without naming it."""

    @abstractmethod
    def read(self, partition: int, offset: int, limit: int) -> Sequence[tuple[int, int]]:
        """At most `limit` records as (offset, value), from `offset` on, in order; empty at the end of the log."""

    @abstractmethod
    def end(self, partition: int) -> int:
        """The offset of the next append: the log's length at some moment of the call."""
