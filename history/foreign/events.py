"""Pairs the invocations and completions of processes into operations.

Formats with events (Jepsen, Porcupine) write one event per line, in the order in which one program observed them. That
order is the order of time. A process has one operation at a time: its next completion belongs to its last invocation.
An operation without a completion, or with one of type `info`, may have happened or may still happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history.foreign.history import ForeignError
from history.schemas import FAIL, INF, INFO, OK

INVOKE: Final = "invoke"
OUTCOMES: Final = {"ok": OK, "fail": FAIL, "info": INFO}
TYPES: Final = (INVOKE, *OUTCOMES)
_STEP: Final = 1_000_000
_PROCESSES: Final = 1 << 30


@dataclass(frozen=True)
class Event:
    """One line: `type` is one of TYPES; `time` in ns, or None if the format has no times; `value` as the format has
    it."""

    line: int
    process: int
    type: str
    f: str
    value: Any
    time: int | None = None
    error: str = ""


@dataclass(frozen=True)
class ForeignOperation:
    """An invocation with its completion. `answer`: the completion's value, None without completion. `line`: that of
    the invocation."""

    line: int
    process: int
    f: str
    outcome: int
    inv: int
    ret: int
    asked: Any
    answer: Any
    error: str


def operations_of(path: Path, events: Iterable[Event]) -> Iterator[ForeignOperation]:
    """The operations, each when it completes, then those that never did. Raises ForeignError for events that no
    sequence of operations has.

    A time is that of the event, if it is later than that of the event before; else it is 1 ns later, so that the order
    of the file is kept. Without times in the file, an event is 1 ms later than the one before.
    """
    under_way: dict[int, tuple[Event, int]] = {}
    now = -1
    for event in events:
        if not 0 <= event.process < _PROCESSES:
            problem = f"the process {event.process} is not a number in 0 .. {_PROCESSES - 1}"
            raise ForeignError(path, event.line, f"{problem}; number the clients' processes from 0")
        now = now + _STEP if event.time is None else max(now + 1, event.time)
        if now >= INF:
            raise ForeignError(path, event.line, f":time {event.time} is not a time in ns since the start of a test")
        if event.type == INVOKE:
            if event.process in under_way:
                first = under_way[event.process][0].line
                problem = f"process {event.process} invokes an operation while that of line {first} is not completed"
                raise ForeignError(path, event.line, f"{problem}; after an operation of type info, use a new process")
            under_way[event.process] = event, now
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
        invocation.process,
        invocation.f,
        outcome,
        inv,
        INF if outcome == INFO else now,
        invocation.value,
        None if completion is None else completion.value,
        "never completed" if completion is None else completion.error,
    )
