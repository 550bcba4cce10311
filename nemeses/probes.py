"""Requests of faults to a host, as data, for hosts without a shell.

Every other host runs a `Script`. The answer to a request has the keys that its script prints, as texts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AboutProcess:
    """`start` (empty: the process does not exist), `threads`: the set of its threads' states."""

    pid: int


@dataclass(frozen=True)
class KillProbe:
    """SIGKILL to all processes: `start` before, `signalled`, then `state` (`gone`) and the service's `port`."""

    pid: int
    address: str
    port: int


@dataclass(frozen=True)
class Terminate:
    """SIGTERM, and up to `seconds` for the end: as `KillProbe`, and `waited`, in whole seconds."""

    pid: int
    address: str
    port: int
    seconds: int


@dataclass(frozen=True)
class EndLeft:
    """End what an ended service has left behind: `left`, the pids, and `state`."""

    pid: int
    seconds: int


@dataclass(frozen=True)
class Signal:
    """STOP or CONT: `start`, `before` and `after` (the states of all threads), `signalled`."""

    pid: int
    signal: str


@dataclass(frozen=True)
class AwaitPort:
    """`port`: `open` as soon as it is open, `closed` when the process has ended or the time is over."""

    pid: int
    address: str
    port: int
    seconds: int


@dataclass(frozen=True)
class SendDatagrams:
    """One datagram to each address: `sent`, the number."""

    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Reach:
    """A connection to each (name, address, port): by name `open` or `closed`."""

    targets: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Refuse:
    """A connection to each (name, address, port): by name `open`, `refused` if it fails at once, else `silent`."""

    targets: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class RenewMark:
    """Write and sync this mark in a data directory, and remove the other mark: `synced`."""

    directory: str
    mark: str


@dataclass(frozen=True)
class LeaveMark:
    """Write this mark without a sync: `written`."""

    directory: str
    mark: str


@dataclass(frozen=True)
class ReadMarks:
    """The content of both marks: `synced`, `unsynced`; empty without a mark."""

    directory: str


@dataclass(frozen=True)
class DigestFiles:
    """For each non-empty file of a directory that matches the pattern: its path below it, with its size and the SHA-256
    digest of its content; and `noted`."""

    directory: str
    pattern: str


@dataclass(frozen=True)
class ListFiles:
    """For each file of a directory that matches the pattern: its path below it, with its size; and `listed`."""

    directory: str
    pattern: str


@dataclass(frozen=True)
class DigestHeads:
    """The same for the first `size` bytes of each of these (path, size), if the file exists."""

    directory: str
    heads: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Queues:
    """`queues`: the queueing disciplines of the host's devices, as a JSON array."""


@dataclass(frozen=True)
class FindWay:
    """The device through which an address is reached: the line that `ip -o route get` prints."""

    address: str


@dataclass(frozen=True)
class SetQueue:
    """Set exactly these netem options on a device: `applied`."""

    device: str
    netem: str


@dataclass(frozen=True)
class RemoveQueue:
    """Remove our queueing discipline of a device, if it exists; the answer is empty."""

    device: str


@dataclass(frozen=True)
class TimeConnects:
    """`times` connects to an address, within `seconds` in total: `connect<n>`, the microseconds of each."""

    address: str
    port: int
    times: int
    seconds: int


@dataclass(frozen=True)
class SendBurst:
    """`count` datagrams to one address: `sent`."""

    address: str
    count: int


@dataclass(frozen=True)
class ReadClocks:
    """`up`: seconds since boot; `real`: seconds since the epoch; `switches`: the kernel's count of context switches."""


@dataclass(frozen=True)
class MoveClock:
    """Set the real-time clock forward or (negative) back, and note that; the answer is the output of `date`."""

    by_s: float


@dataclass(frozen=True)
class NoteMove:
    """Note that the real-time clock is about to be wrong on purpose. The answer is empty."""


@dataclass(frozen=True)
class ForgetMove:
    """The clock is right again: remove the note. The answer is empty."""


@dataclass(frozen=True)
class WasClockMoved:
    """`moved`: whether the clock was set wrong on purpose and has not been corrected since."""


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
    | ListFiles
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
    """A shell script, with the request that it implements."""

    __slots__ = ("question",)
    question: Question

    def __new__(cls, text: str, question: Question) -> Script:
        script = super().__new__(cls, text)
        script.question = question
        return script
