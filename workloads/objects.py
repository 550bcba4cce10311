"""Workloads on objects that every system has in some form: a set, a queue, a counter, a bank, a source of ids, and
transactions on lists or registers.

They are workloads as users have them (`workloads/own_workload.py`): a run stores the text of this file, and a client of
the user's own has the functions. Values are unique in a run, so each answer names the operation that made it.
"""

from collections.abc import Generator, Iterator
from random import Random
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from workloads.own_workload import Operation, OwnWorkload

Reads = Annotated[float, Meta(ge=0, lt=1, description="share of the reads in the load")]


class Set(OwnWorkload):
    """`add` of an element, a text; `read` returns a list of all elements."""

    queries = ("read",)
    reads: Reads = 0.3

    def operations(self, random: Random) -> Iterator[Operation]:
        yield from _mixed(random, self.reads, (Operation("add", f"{self.client}-{n}") for n in range(1 << 62)))

    def final(self) -> Iterator[Operation]:
        yield Operation("read")


class Queue(OwnWorkload):
    """`enqueue` of an element, a text; `dequeue` returns an element, or null if the queue is empty."""

    dequeues: Annotated[float, Meta(ge=0, lt=1, description="share of the dequeues in the load")] = 0.5

    def operations(self, random: Random) -> Iterator[Operation]:
        elements = (Operation("enqueue", f"{self.client}-{n}") for n in range(1 << 62))
        yield from _mixed(random, self.dequeues, elements, "dequeue")

    def final(self) -> Generator[Operation, Any, None]:
        while (yield Operation("dequeue")) is not None:
            pass


class Counter(OwnWorkload):
    """`add` of an integer; `read` returns the sum."""

    queries = ("read",)
    reads: Reads = 0.3
    least: Annotated[int, Meta(ge=-1_000_000, le=1_000_000, description="the least number that is added")] = 1
    most: Annotated[int, Meta(ge=-1_000_000, le=1_000_000, description="the greatest number that is added")] = 5

    def operations(self, random: Random) -> Iterator[Operation]:
        numbers = sorted((self.least, self.most))
        yield from _mixed(random, self.reads, iter(lambda: Operation("add", random.randint(*numbers)), None))

    def final(self) -> Iterator[Operation]:
        yield Operation("read")


class Bank(OwnWorkload):
    """`transfer` of an `amount` `from` one account `to` another; `read` returns the balances by account. The accounts
    are 0, 1, ..., and the system has them, with money, when it starts."""

    queries = ("read",)
    reads: Reads = 0.5
    accounts: Annotated[int, Meta(ge=2, le=1_000, description="accounts of the bank")] = 8
    most: Annotated[int, Meta(ge=1, le=1_000_000, description="the greatest amount of a transfer")] = 5

    def operations(self, random: Random) -> Iterator[Operation]:
        yield from _mixed(random, self.reads, iter(lambda: self._transfer(random), None))

    def _transfer(self, random: Random) -> Operation:
        giver, taker = random.sample(range(self.accounts), 2)
        return Operation("transfer", {"from": giver, "to": taker, "amount": random.randint(1, self.most)})

    def final(self) -> Iterator[Operation]:
        yield Operation("read")


class Ids(OwnWorkload):
    """`generate` returns an id that was never returned before."""

    def operations(self, random: Random) -> Iterator[Operation]:
        del random
        while True:
            yield Operation("generate")

    def final(self) -> Iterator[Operation]:
        yield Operation("generate")


class ListAppend(OwnWorkload):
    """`txn` of steps that the system executes as one transaction: `["append", 3, "1-7"]` appends an element to
    the list of a key, `["r", 3, null]` reads it. It returns the steps, with the list of each read.

    The keys that are in use move on, so that no list becomes long. The final read follows them until all lists are
    empty."""

    keys: Annotated[int, Meta(ge=1, le=1_000, description="keys that are in use at once")] = 4
    steps: Annotated[int, Meta(ge=1, le=100, description="the most steps of a transaction")] = 4
    reads: Reads = 0.5
    moves_after: Annotated[
        int, Meta(ge=1, le=1_000_000, description="transactions of a client after which its oldest key is left")
    ] = 50
    _write: ClassVar[str] = "append"

    def operations(self, random: Random) -> Iterator[Operation]:
        written, client = 0, self.client.removeprefix("client-")  # short: answers have many elements
        for number in range(1 << 62):
            transaction: list[tuple[str, int, str | None]] = []
            for _ in range(random.randint(1, self.steps)):
                key = number // self.moves_after + random.randrange(self.keys)
                if random.random() < self.reads:
                    transaction.append(("r", key, None))
                else:
                    transaction.append((self._write, key, f"{client}-{written}"))
                    written += 1
            yield Operation("txn", transaction)

    def final(self) -> Generator[Operation, Any, None]:
        for first in range(0, 1 << 62, self.keys):
            steps = yield Operation("txn", [("r", key, None) for key in range(first, first + self.keys)])
            if not any(step[2] for step in steps or () if isinstance(step, list) and len(step) == 3):
                return


class RwRegister(ListAppend):
    """As `ListAppend`, on registers: `["w", 3, "1-7"]` writes a value, and a read returns it, or null."""

    _write: ClassVar[str] = "w"


OBJECTS: Final = {
    "set": (Set, "set-full"),
    "queue": (Queue, "total-queue"),
    "counter": (Counter, "counter-bounds"),
    "bank": (Bank, "bank"),
    "unique-ids": (Ids, "unique-ids"),
    "list-append": (ListAppend, "list-append"),
    "rw-register": (RwRegister, "rw-register"),
}
"""By the kind in `[workload]`: the class, and the model that judges it unless `[checks]` names another one."""


def _mixed(random: Random, share: float, changes: Iterator[Operation], other: str = "read") -> Iterator[Operation]:
    """Draw from the changes, and the other function with a probability of `share`."""
    for change in changes:
        while random.random() < share:
            yield Operation(other)
        yield change
