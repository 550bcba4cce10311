"""What a fault asks of a host, in terms of its subject: what a host without a shell answers.

A `Script` is what every other host runs. Each question's answer has the keys that its script prints, as texts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AboutProcess:
    """`start` (empty: there is no such process), `threads`: the set of its threads' states."""

    pid: int


@dataclass(frozen=True)
class KillProbe:
    """SIGKILL to all processes: `start` before, `signalled`, then `state` (`gone`) and the service's `port`."""

    pid: int
    address: str
    port: int


@dataclass(frozen=True)
class Terminate:
    """SIGTERM, and up to `seconds` for it to end: as `KillProbe`, and `waited`, in whole seconds."""

    pid: int
    address: str
    port: int
    seconds: int


@dataclass(frozen=True)
class EndLeft:
    """End what a service that has ended has left behind: `left`, the pids, and `state`."""

    pid: int
    seconds: int


@dataclass(frozen=True)
class Signal:
    """STOP or CONT: `start`, `before` and `after` (the states of all threads), `signalled`."""

    pid: int
    signal: str


@dataclass(frozen=True)
class AwaitPort:
    """`port`: `open` as soon as it is, `closed` when the process has ended or the seconds are over."""

    pid: int
    address: str
    port: int
    seconds: int


@dataclass(frozen=True)
class SendDatagrams:
    """One datagram to each address: `sent`, how many."""

    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Reach:
    """A connection to each (name, address, port): by name `open` or `closed`."""

    targets: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Refuse:
    """A connection to each (name, address, port): by name `open`, `refused` when it fails at once, else `silent`."""

    targets: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class RenewMark:
    """Write this as the synced mark of a data directory, sync it, and remove the other one: `synced`."""

    directory: str
    mark: str


@dataclass(frozen=True)
class LeaveMark:
    """Write this as the mark that is not synced: `written`."""

    directory: str
    mark: str


@dataclass(frozen=True)
class ReadMarks:
    """What both marks hold: `synced`, `unsynced`, empty where there is none."""

    directory: str


@dataclass(frozen=True)
class DigestFiles:
    """For each file of a directory that is like the pattern and not empty: its path below it, with its size and the
    SHA-256 of its content; and `noted`."""

    directory: str
    pattern: str


@dataclass(frozen=True)
class DigestHeads:
    """The same of the first so many bytes of each of these (path, size), of as many of them as there are."""

    directory: str
    heads: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Queues:
    """`queues`: the queues in front of the host's devices, as a JSON array."""


@dataclass(frozen=True)
class FindWay:
    """Through which device an address is reached: the line that `ip -o route get` prints."""

    address: str


@dataclass(frozen=True)
class SetQueue:
    """Have exactly these words of netem in force on a device: `applied`."""

    device: str
    netem: str


@dataclass(frozen=True)
class RemoveQueue:
    """Take our queue of a device away, if it is there; nothing is answered."""

    device: str


@dataclass(frozen=True)
class TimeConnects:
    """So many connects to an address, for `seconds` at most in all: `connect<n>`, the microseconds of each."""

    address: str
    port: int
    times: int
    seconds: int


@dataclass(frozen=True)
class SendBurst:
    """So many datagrams to one address: `sent`."""

    address: str
    count: int


@dataclass(frozen=True)
class ReadClocks:
    """`up`: seconds since boot; `real`: seconds since the epoch; `switches`: the kernel's count of context switches."""


@dataclass(frozen=True)
class MoveClock:
    """Set the real-time clock forward or (negative) back, and note that it was; what `date` says is answered."""

    by_s: float


@dataclass(frozen=True)
class NoteMove:
    """Note that the real-time clock is going to be wrong on purpose. Nothing is answered."""


@dataclass(frozen=True)
class ForgetMove:
    """The clock is right again: forget that it was moved. Nothing is answered."""


@dataclass(frozen=True)
class WasClockMoved:
    """`moved`: whether the clock was set wrong on purpose and not set right since."""


Question = (
    AboutProcess
    | KillProbe
    | Terminate
    | EndLeft
    | Signal
    | AwaitPort
    | SendDatagrams
    | Reach
    | Refuse
    | RenewMark
    | LeaveMark
    | ReadMarks
    | DigestFiles
    | DigestHeads
    | Queues
    | FindWay
    | SetQueue
    | RemoveQueue
    | TimeConnects
    | SendBurst
    | ReadClocks
    | MoveClock
    | NoteMove
    | ForgetMove
    | WasClockMoved
)


class Script(str):
    """A shell script, with the question that it answers."""

    __slots__ = ("question",)
    question: Question

    def __new__(cls, text: str, question: Question) -> Script:
        script = super().__new__(cls, text)
        script.question = question
        return script
