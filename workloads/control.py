"""The protocol between the run loop and a client process: one JSON message per line; commands in, events out.

Each message has a type of its own; any other line raises `MessageError`. `Append`, `Probe`, `ReadAll` and
`DeleteRecords` are requests: the client answers each with one event of the same `id`. `Close`, or the end of the input,
ends the process.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
from typing import Any, Final, TextIO

import msgspec

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37


class MessageError(Exception):
    """A line on the pipe that is not a message of its direction; the text has the line and the reason."""


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is"):
    """A message on the pipe; `is` names its type."""


class StartLoad(_Message, frozen=True, tag="start"):
    """Start the load."""


class StopLoad(_Message, frozen=True, tag="stop"):
    """End the load and wait for operations in flight; answered by `Stopped`."""


class SetPhase(_Message, frozen=True, tag="phase"):
    """Operations recorded from now on belong to this phase of the run."""

    name: str


class Append(_Message, frozen=True, tag="append"):
    """Append `count` values to a partition, each after the outcome of the one before, until one is not ok.

    `acks`: 0, 1, or -1 for all. Answered by `Appended`."""

    id: int
    partition: int
    acks: int
    count: int
    timeout_s: float


class Probe(_Message, frozen=True, tag="probe"):
    """Find out whether a place (a partition, a key) takes operations again; answered by `Probed`."""

    id: int
    place: int
    timeout_s: float


class ReadAll(_Message, frozen=True, tag="read-all"):
    """Read all that a place holds, within the time; answered by `ReadDone`."""

    id: int
    place: int
    timeout_s: float


class DeleteRecords(_Message, frozen=True, tag="delete-records"):
    """Delete the records of a partition below an offset; answered by `RecordsDeleted`."""

    id: int
    partition: int
    offset: int
    timeout_s: float


class Close(_Message, frozen=True, tag="close"):
    """End the process."""


class Ready(_Message, frozen=True, tag="ready"):
    """The client accepts commands."""


class FirstAck(_Message, frozen=True, tag="first-ack"):
    """The load's first change was acknowledged at `t` (CLOCK_MONOTONIC ns)."""

    t: int


class Count(_Message, frozen=True, tag="count"):
    """Operations so far, by outcome."""

    ok: int = 0
    fail: int = 0
    info: int = 0


class Stopped(_Message, frozen=True, tag="stopped"):
    """The load has ended; `unresolved` operations have no outcome."""

    unresolved: int


class AppendResult(msgspec.Struct, frozen=True):
    """The outcome of one append: ok, fail or info. `offset` is -1 when it is not known."""

    outcome: str
    offset: int
    error: str


class Appended(_Message, frozen=True, tag="appended"):
    id: int
    results: list[AppendResult]


class Probed(_Message, frozen=True, tag="probed"):
    """`error`: why the place did not take the operation."""

    id: int
    ok: bool
    error: str = ""


class ReadDone(_Message, frozen=True, tag="read-done"):
    """How far a complete read got: to `read` of `end`. For a place without offsets: 1 of 1 when it was read. `end`: -1
    if no answer named it. `error`: the last error, if it is known. `idle_s`: for how long an incomplete read had not
    advanced when it was given up, while the reader went on asking; 0 if the reader cannot tell."""

    id: int
    complete: bool
    end: int
    read: int
    error: str = ""
    idle_s: float = 0.0


class DeletionSent(_Message, frozen=True, tag="deletion-sent"):
    """The client is about to send DeleteRecords. `number`: of its requests, from 1."""

    number: int
    partition: int
    offset: int


class RecordsDeleted(_Message, frozen=True, tag="records-deleted"):
    """The outcome of the client's request `number`: the low watermark of the answer, or -1 and the error. `id`: of the
    command, 0 for a request of the load."""

    id: int
    number: int
    low_watermark: int
    error: str = ""


class Administered(_Message, frozen=True, tag="administered"):
    """An operation of an administrator on a topic or group, with its outcome: ok, fail (without any effect) or info."""

    operation: str
    target: str
    outcome: str
    error: str
    arguments: dict[str, Any]


class ClusterSeen(_Message, frozen=True, tag="cluster-seen"):
    """What these brokers know at the end: of each topic the replicas of its partitions, and settings. Where all agree
    also `records`: by partition of a side topic (`side-1-0`) the start of its log and its records as [offset, value];
    and the committed offset of each group of the administrator."""

    nodes: list[int]
    topics: dict[str, dict[str, Any]]
    records: dict[str, list[Any]]
    groups: dict[str, int]


class RefusedCommand(_Message, frozen=True, tag="refused"):
    """This client does not support the command of request `id`."""

    id: int
    text: str


class Trouble(_Message, frozen=True, tag="trouble"):
    """A complaint, for the journal. A fatal one is the reason why the process ends."""

    text: str
    fatal: bool = False


class Killed(_Message, frozen=True, tag="killed"):
    """The client killed a program that it had started; the program's open operations may be missing from its record."""


class Closed(_Message, frozen=True, tag="closed"):
    """The record is complete; the process ends."""


Request = Append | Probe | ReadAll | DeleteRecords
Command = StartLoad | StopLoad | SetPhase | Request | Close
Answer = Appended | Probed | ReadDone | RecordsDeleted | RefusedCommand
Administration = Administered | ClusterSeen
Event = Ready | FirstAck | Count | Stopped | DeletionSent | Administration | Answer | Trouble | Killed | Closed

_encoder: Final = msgspec.json.Encoder()
_commands: Final[msgspec.json.Decoder[Command]] = msgspec.json.Decoder(Command)
_events: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode(message: Command | Event) -> str:
    """One line, without its end."""
    return _encoder.encode(message).decode()


def decode_command(line: str) -> Command:
    """Raises `MessageError`."""
    try:
        return _commands.decode(line)
    except msgspec.DecodeError as error:
        raise MessageError(f"not a command for a client: {line.strip()!r}: {error}") from None


def decode_event(line: str) -> Event:
    """Raises `MessageError`."""
    try:
        return _events.decode(line)
    except msgspec.DecodeError as error:
        raise MessageError(f"not an event of a client: {line.strip()!r}: {error}") from None


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends for any reason."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its parent."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def adopts_orphans() -> bool:
    """Whether this process adopts orphans: then any of its children may be a process that a program left behind."""
    answer = ctypes.c_int(0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


class Teller:
    """A destination of a client's events."""

    def tell(self, event: Event) -> None:
        raise NotImplementedError

    def decline(self, role: str, command: Command) -> None:
        """Answer a command that this client does not support."""
        text = f"a {role} does not know the command {type(command).__struct_config__.tag!r}"
        self.tell(RefusedCommand(command.id, text) if isinstance(command, Request) else Trouble(text))


class Control(Teller):
    """The client's end of the pipe."""

    def __init__(self, commands: TextIO = sys.stdin, events: TextIO = sys.stdout) -> None:
        self._commands: queue.Queue[Command | MessageError] = queue.Queue()
        self._events = events
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, args=(commands,), name="control", daemon=True).start()

    def _listen(self, commands: TextIO) -> None:
        for line in commands:
            try:
                self._commands.put(decode_command(line))
            except MessageError as error:
                self._commands.put(error)
        self._commands.put(Close())

    def next(self, timeout_s: float = 0.0) -> Command | None:
        """The next command, or None when none arrives in time. Raises `MessageError` for an invalid one: the two ends
        have different versions, and later commands cannot be trusted either."""
        try:
            command = self._commands.get(timeout=timeout_s) if timeout_s > 0 else self._commands.get_nowait()
        except queue.Empty:
            return None
        if isinstance(command, MessageError):
            raise command
        return command

    def tell(self, event: Event) -> None:
        """Send one event. The process ends when the run loop has closed the pipe."""
        with self._lock:
            try:
                self._events.write(encode(event) + "\n")
                self._events.flush()
            except BrokenPipeError:
                os._exit(1)


class Counts:
    """Outcomes so far, and a report at most twice a second."""

    def __init__(self, control: Teller, every_s: float = 0.5) -> None:
        self._control = control
        self._every_s = every_s
        self._reported_s = 0.0
        self._counts = {"ok": 0, "fail": 0, "info": 0}

    def add(self, outcome: str, count: int = 1) -> None:
        self._counts[outcome] += count

    def report(self, now_s: float, *, force: bool = False) -> None:
        if force or now_s - self._reported_s >= self._every_s:
            self._reported_s = now_s
            self._control.tell(Count(**self._counts))
