"""Pairs the invocations and completions of processes into operations.

Formats with events (Jepsen, Porcupine) write one event per line, in the order in which one program observed them. That
order is the order of time. A process has one operation at a time: its next completion belongs to its last invocation.
An operation without a completion, or with one of type `info`, may have happened or may still happen.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from history.foreign.history import INITIAL_TIMES, ForeignError
from history.record.schemas import INF, INFO, OUTCOMES

INVOKE: Final = "invoke"
TYPES: Final = (INVOKE, *OUTCOMES)
_STEP: Final = 1_000_000
_PROCESSES: Final = 1 << 30


class Event(NamedTuple):
    """One line: `type` is one of TYPES; `time` in ns, or None if the format has no times; `value` as the format has
    it."""

    line: int
    process: int
    type: str
    f: str
    value: Any
    time: int | None = None
    error: str = ""


class ForeignOperation(NamedTuple):
    """An invocation with its completion. `answer`: the completion's value, None without completion. `line`,
    `completed_in`: the lines of the two, 0 without completion. `completed`: when the completion was observed, also one
    of type `info`, after which the operation may still happen (`ret` is INF)."""

    line: int
    completed_in: int
    process: int
    f: str
    outcome: int
    inv: int
    ret: int
    completed: int
    asked: Any
    answer: Any
    error: str


class TimeOrder:
    """Compares the times of events with the order of their lines, where it decides which operation ended before which:
    between an invocation and a completion. Programs that take the time before they write the event invert some."""

    def __init__(self) -> None:
        self._latest = {True: -1, False: -1}
        self._inversions = 0
        self._first = ""

    def take(self, event: Event) -> bool:
        """Takes the event of the next line. Returns whether its time contradicts a line above it."""
        if event.time is None:
            return False
        is_invocation = event.type == INVOKE
        is_inverted = event.time < self._latest[not is_invocation]
        if is_inverted:
            if not self._inversions:
                later = self._latest[not is_invocation]
                self._first = f":time {event.time} in line {event.line} is before :time {later} of a line above it"
            self._inversions += 1
        self._latest[is_invocation] = max(self._latest[is_invocation], event.time)
        return is_inverted

    def doubts(self) -> tuple[str, ...]:
        """Why no pass can be concluded; empty without a contradiction."""
        suffix = f", and {self._inversions - 1:,} more" if self._inversions > 1 else ""
        doubt = f"{self._first}{suffix}: times and lines contradict each other, so the order of operations is not known"
        return (doubt,) if self._inversions else ()


def operations_of(path: Path, events: Iterable[Event], order: TimeOrder) -> Iterator[ForeignOperation]:
    """The operations, each when it completes, then those that never did. `order` takes all events. Raises ForeignError
    for events that no sequence of operations has.

    A time is that of the event, if it is later than that of the event before; else it is 1 ns later, so that the order
    of the file is kept. An invocation whose time contradicts that order keeps its time, so that an operation counts as
    earlier than another one only if lines and times agree. Without times in the file, an event is 1 ms later than the
    one before. All times are after those of the write of an initial value (`INITIAL_TIMES`).
    """
    under_way: dict[int, tuple[Event, int]] = {}
    now = INITIAL_TIMES[1]
    for event in events:
        is_inverted = order.take(event)
        if not 0 <= event.process < _PROCESSES:
            problem = f"the process {event.process} is not a number in 0 .. {_PROCESSES - 1}"
            raise ForeignError(path, event.line, f"{problem}; number the clients' processes from 0")
        now = now + _STEP if event.time is None else max(now + 1, event.time)
        if now >= INF:
            raise ForeignError(path, event.line, f":time {event.time} is not a time in ns since the start of a test")
        if event.type == INVOKE:
            if event.process in under_way:
                line = under_way[event.process][0].line
                problem = f"process {event.process} invokes an operation while that of line {line} is not completed"
                raise ForeignError(path, event.line, f"{problem}; after an operation of type info, use a new process")
            under_way[event.process] = event, max(event.time or 0, INITIAL_TIMES[1] + 1) if is_inverted else now
            continue
        if event.process not in under_way:
            problem = f"process {event.process} completes an operation that it did not invoke"
            raise ForeignError(path, event.line, f"{problem}; give the whole history, from its first line")
        invocation, started = under_way.pop(event.process)
        if invocation.f != event.f:
            problem = f"process {event.process} completes {event.f}, but line {invocation.line} invoked {invocation.f}"
            raise ForeignError(path, event.line, f"{problem}; give the history as the tool wrote it")
        yield _operation(invocation, started, now, event)
    for invocation, started in under_way.values():
        yield _operation(invocation, started, INF, None)


def _operation(invocation: Event, inv: int, now: int, completion: Event | None) -> ForeignOperation:
    outcome = INFO if completion is None else OUTCOMES[completion.type]
    return ForeignOperation(
        invocation.line,
        0 if completion is None else completion.line,
        invocation.process,
        invocation.f,
        outcome,
        inv,
        INF if outcome == INFO else now,
        now,
        invocation.value,
        None if completion is None else completion.value,
        "never completed" if completion is None else completion.error,
    )
