"""The crash-safe record of one client of registers: reads, writes and compare-and-sets of keys.

Two files per client and session. `<client>-<session>.registers` is an Arrow IPC stream with one row per completed
operation. `<client>-<session>.invoked` holds one line per write and compare-and-set, written before the caller can send
it. After a crash, one without completion is an operation that may have happened, or may still happen. Invocations are
announced individually, not in blocks: the checker searches, and every operation that may have happened widens its
search, so the record must not contain any that were not sent. Reads are not announced, because a read without an answer
proves nothing. A clean close ends the file with the recorded number of operations of each kind.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from history.announcements import Invocation
from history.arrow_stream import SEGMENT_ROWS, BatchWriter
from history.checksummed_lines import LineWriter
from history.schemas import (
    CAS,
    FAIL,
    INF,
    INFO,
    MISMATCH,
    NAMES,
    OK,
    PHASE_MAIN,
    READ,
    REGISTERS,
    WRITE,
)
from history.shapes import REGISTER
from history.values import SESSIONS, encode_value


class RegisterWriter:
    """Records the register operations of one client. Safe to use from several threads.

    Every operation starts with `read`, `write` or `compare_and_set`, which stamp its invocation, and ends with one of
    `ok`, `mismatched`, `failed` and `unknown`, which stamp its return. These take the `endpoint` that was asked, empty
    if the client does not know it. Rows reach the file when 8,192 of them wait or
    250 ms after the last flush, whichever a call notices first: a client that may stay idle calls `tick()` now and
    then. Times are CLOCK_MONOTONIC ns.

    `process` is unique among the run's clients. A client that writes also has a `producer` number, unique within the
    session.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        client: str,
        session: int,
        process: int,
        producer: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:
        """Creates the client's files in `directory`. Raises FileExistsError rather than mixing two recordings."""
        self.client = client
        self.session = session
        self.process = process
        self.producer = producer
        self.phase = PHASE_MAIN
        self._clock = clock
        self._lock = threading.Lock()
        self._invoked = 0
        self._written = 0
        self._open: set[int] = set()
        Path(directory).mkdir(parents=True, exist_ok=True)
        stem = f"{client}-{session}"
        stream = Path(directory) / (stem + REGISTER.stream)
        self._rows = BatchWriter(stream, REGISTERS, clock=clock, segment_rows=segment_rows)
        self._counts: Counter[str] = Counter()
        self._announced = LineWriter(Path(directory) / (stem + REGISTER.announced))
        self._announced.write({"client": client, "process": process, "session": session, "producer": producer})

    def new_session(self) -> None:
        """The client reconnects; the values that it writes from now on have the next session."""
        with self._lock:
            self.session += 1

    def read(self, key: str) -> Invocation:
        """A read is about to be sent."""
        return self._invoke(READ, key, None)

    def write(self, key: str) -> Invocation:
        """A write is about to be sent: of the invocation's `value`, which no other operation writes."""
        return self._invoke(WRITE, key, None)

    def compare_and_set(self, key: str, expected: int | None) -> Invocation:
        """A compare-and-set from `expected` (None: the key is absent) to its own `value` is about to be sent."""
        return self._invoke(CAS, key, expected)

    def ok(self, invocation: Invocation, value: int | None = None, *, endpoint: str = "") -> None:
        """It happened. `value`: what a read was answered, None for an absent key."""
        shown = value if invocation.f == READ else invocation.value
        self._complete(invocation, OK, self._clock(), shown, "", endpoint)

    def mismatched(self, invocation: Invocation, *, endpoint: str = "") -> None:
        """A compare-and-set was answered: the key did not hold the expected value."""
        if invocation.f != CAS:
            raise ValueError(f"operation {invocation.id} of {self.client} is not a compare-and-set: it cannot mismatch")
        self._complete(invocation, FAIL, self._clock(), invocation.value, MISMATCH, endpoint)

    def failed(self, invocation: Invocation, error: str, *, endpoint: str = "") -> None:
        """It certainly did not happen and never will; the key's value remains unknown."""
        if not error or error == MISMATCH:
            raise ValueError(f"{error!r} is not an error of a refused operation: say why, or call mismatched()")
        self._complete(invocation, FAIL, self._clock(), invocation.value, error, endpoint)

    def unknown(self, invocation: Invocation, error: str, *, endpoint: str = "") -> None:
        """It may have happened, or may still happen: a timeout, a lost connection."""
        self._complete(invocation, INFO, INF, invocation.value, error, endpoint)

    def tick(self) -> None:
        """Flushes when 250 ms have passed since the last flush."""
        with self._lock:
            self._rows.flush_if_due()

    def flush(self) -> None:
        """Hands every recorded row to the operating system."""
        with self._lock:
            self._rows.flush()

    def close(self) -> None:
        """Flushes and closes the files; safe to call twice. Operations in progress stay announced."""
        with self._lock:
            if not self._rows.closed:
                self._rows.close()
                self._announced.write({"closed": dict(self._counts)})
                self._announced.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _invoke(self, f: int, key: str, expected: int | None) -> Invocation:
        with self._lock:
            self._require_open()
            value = None if f == READ else self._next_value()
            number = self.process << 32 | self._invoked
            self._invoked += 1
            invocation = Invocation(number, f, key, value, expected, self._clock(), self.phase)
            if f != READ:
                self._announced.write(msgspec.structs.asdict(invocation))
            self._open.add(number)
            return invocation

    def _next_value(self) -> int:
        if self.producer is None:
            raise ValueError(f"client {self.client} has no producer number: give one to RegisterWriter to write")
        value = encode_value(min(self.session, SESSIONS - 1), self.producer, self._written)
        self._written += 1
        return value

    def _complete(
        self, invocation: Invocation, outcome: int, ret: int, value: int | None, error: str, endpoint: str
    ) -> None:
        with self._lock:
            self._require_open()
            if invocation.id not in self._open:
                raise ValueError(
                    f"operation {invocation.id} of {self.client} is not under way: it was completed before"
                )
            self._open.remove(invocation.id)
            self._rows.add(row_of(self.process, self.client, invocation, outcome, ret, value, error, endpoint))
            self._counts[NAMES[invocation.f]] += 1

    def _require_open(self) -> None:
        if self._rows.closed:
            raise ValueError(f"the history of {self.client} is closed")


def row_of(
    process: int,
    client: str,
    invocation: Invocation,
    outcome: int,
    ret: int,
    value: int | None,
    error: str,
    endpoint: str = "",
) -> tuple[Any, ...]:
    """An operation in the order of `REGISTERS`."""
    is_cas = invocation.f == CAS
    return (
        *(invocation.id, process, client, invocation.f, invocation.key, outcome, invocation.inv, ret),
        *(None if is_cas else value, invocation.expected, value if is_cas else None, invocation.phase, error, endpoint),
    )
