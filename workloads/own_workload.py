"""The base class of a workload of a user's own: it declares parameters and draws the operations of each client.

    class Bank(OwnWorkload):
        accounts: Annotated[int, Meta(ge=2, le=100, description="accounts of the bank")] = 5
        queries = ("read",)

        def operations(self, random):
            while True:
                yield Operation("read")
                yield Operation("transfer", {"amount": random.randint(1, 5)})

        def final(self):
            yield Operation("read")

A campaign names it: `[workload] kind = "bank.py:Bank"`, with its parameters as keys beside it.

Each client has an object of the class, and a random source of its own, which follows from the run's seed and the
client's name. An operation names a method of the client's class. The method gets the operation and returns what the
system answered. Argument and result are JSON values, because the record has them as text. The value of a `yield` is the
result of that operation, None if it is not known to have happened: so a generator can go on from what it was shown.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar


@dataclass(frozen=True)
class Operation:
    """What a client invokes: a method of its class, and a JSON value for it. `key`: the object that it is about, if the
    workload has several."""

    function: str
    argument: Any = None
    key: str = ""


class OwnWorkload(ABC):
    """What the clients of a run do. Each annotated attribute is a parameter, and has a default."""

    queries: ClassVar[Collection[str]] = ()
    """The functions that change nothing. A query without an answer did not happen; a change without one may have."""
    client: ClassVar[str] = ""
    """Of an object: the name of the client whose operations it draws, unique in the run."""

    def __init__(self, **parameters: Any) -> None:
        """Raises TypeError for a name that the class does not have."""
        for name, value in parameters.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, value)

    @abstractmethod
    def operations(self, random: Random) -> Iterable[Operation]:
        """The operations of one client, in general without end: a client without further ones does nothing more."""

    @abstractmethod
    def final(self) -> Iterable[Operation]:
        """What a fresh client asks after the last heal. Each operation is repeated until it is answered."""
