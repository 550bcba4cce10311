"""A site with hosts that give the answers of a test."""

from collections.abc import Callable, Collection
from typing import Any, Final

from nemeses import KINDS, Evidence, Fault, HostError, Nemesis, PacketCount, Result, Site
from nemeses.mechanisms.shell import process_script

Answer = Callable[[str], str]
ENDINGS: Final = [
    ({}, "confirmed"),
    ({"state": "S"}, "mismatch"),
    ({"port": "open"}, "mismatch"),
    ({"signalled": ""}, "mismatch"),
    ({"start": ""}, "inconclusive"),
]
"""Changes of the answers about a process that had to end, and the status of the evidence."""


class UnhinderedNemesis:
    """The part of a nemesis by which nothing prevents, hides or withholds a fault."""

    kinds = KINDS

    def prevented(self, _: Fault) -> dict[str, Evidence]:
        return {}

    def hidden(self, _: Fault) -> str:
        return ""

    def withheld(self) -> frozenset[str]:
        return frozenset()


class FakeHost:
    """Answers each command by `answer`; a `HostError` that it returns is raised. Observers of its service get
    `threads`."""

    probe_port = 1  # a port without a listener
    address = "127.0.0.1"
    port = 9092
    data_dir = "/data"

    def __init__(self, name: str, answer: Answer = lambda _: "") -> None:
        self.name = name
        self.answer = answer
        self.pid: int | None = 42
        self.commands: list[str] = []
        self.starts = 0
        self.comes_up = True
        self.threads = "S"

    def look(self, command: str) -> Result | None:
        """The answer to a look at the service; None: the command is something else."""
        if self.pid is None or command != process_script(self.pid):
            return None
        return Result(0, lines(start="7", threads=self.threads), "")

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        assert timeout_s > 0
        if (seen := self.look(command)) is not None:
            return seen
        self.commands.append(command)
        return Result(0, self.answer(command), "")

    def service_exit(self, pid: int | None = None) -> int | None:
        del pid
        return None

    def service_pid(self) -> int | None:
        return self.pid

    def start_service(self) -> None:
        if self.pid is None and self.comes_up:
            self.starts += 1
            self.pid = 43


def unreachable(_: str) -> str:
    raise HostError("n1 cannot be reached")


class FakePower:
    """Plugs that may be stuck."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.off: set[str] = set()
        self.boots = 0
        self._stuck = stuck

    def is_on(self, name: str) -> bool:
        return name not in self.off

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        if not self._stuck:
            self.off |= set(names)
        return {name: {"tear": tear} for name in names}

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        back = self.off & set(names)
        self.off -= back
        self.boots += bool(back)
        return {name: {} for name in back}


class FakeNetwork:
    """Counts every datagram that a host sends, unless the test disables it."""

    def __init__(self, names: Collection[str]) -> None:
        self.cuts: set[tuple[str, str]] = set()
        self.rejecting = False
        self.can_reject = True
        self.seen = {(a, b): 0 for a in names for b in names if a != b}
        self.dropped: dict[tuple[str, str], int] = {}
        self.deaf = False
        self.stuck = False

    def cut(self, pairs: Collection[tuple[str, str]], *, reject: bool = False) -> None:
        self.cuts |= set(pairs)
        self.rejecting = reject and self.can_reject

    def heal(self, pairs: Collection[tuple[str, str]] | None = None) -> None:
        if not self.stuck:
            self.cuts -= self.cuts if pairs is None else set(pairs)

    def cut_pairs(self) -> set[tuple[str, str]]:
        return set(self.cuts)

    def carry(self, source: str) -> None:
        """A datagram from `source` to everybody."""
        for pair in self.seen:
            if pair[0] == source and not self.deaf:
                self.seen[pair] += 1
                if pair in self.cuts:
                    self.dropped[pair] = self.dropped.get(pair, 0) + 1

    def counters(self) -> dict[tuple[str, str], PacketCount]:
        return {pair: PacketCount(count, self.dropped.get(pair, 0)) for pair, count in self.seen.items()}


def lines(**values: str) -> str:
    """What a script answers."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def inject(kind: str, host: FakeHost, **parts: Any) -> Evidence:
    return Nemesis(Site({host.name: host}, **parts)).inject(Fault(kind, (host.name,)))


def heal(kind: str, host: FakeHost, **parts: Any) -> Evidence:
    return Nemesis(Site({host.name: host}, **parts)).heal(Fault(kind, (host.name,)))
