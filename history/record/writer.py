"""The crash-safe record of one client process: its operations, of any shape.

`<client>-<session>` with the suffix `Shape.stream` is an Arrow IPC stream with one row per completed operation; a
stream cut anywhere yields every whole batch. After 2^20 rows the record continues in `<client>-<session>.1` with this
suffix, then in `.2`, so that it can be read as several tasks.

`<client>-<session>` with the suffix `Shape.announced` announces what the client may send, before it sends it. So after
a crash the record covers everything that may have happened, or may still happen. A clean close ends the file with the
recorded number of operations of each kind. A query is not announced: without an answer it proves nothing.

Logs are announced in blocks of values, each with its partition. A value that was announced and never completed is an
append that may have happened, invoked no earlier than its block was announced, *in a known partition*; therefore the
log checker's theorem applies to it. A clean close gives the unused rest of every block back, so a run that ends
normally leaves no such appends.

Writes and compare-and-sets of registers are announced one by one: the checker searches, and every operation that may
have happened widens its search, so the record must not contain any that were not sent. So are the calls of a user's own
workload, which have no values of ours.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from history.checksummed_lines import LineWriter
from history.record.announcements import announced_columns
from history.record.arrow_stream import FLUSH_INTERVAL_NS, SEGMENT_ROWS, BatchWriter
from history.record.schemas import CHANGES, FUNCTIONS, INF, NAMES, OUTCOMES, PHASE_MAIN
from history.record.shapes import BLOCKS, Shape
from history.record.values import SESSIONS, encode_value

RESERVATION_BLOCK: Final = 1024
NO_VALUE: Final = -1


class Invocation(msgspec.Struct, frozen=True):
    """An operation in progress. `value`: what it writes, which no other operation of the run writes; `NO_VALUE` if it
    writes nothing. `row`: its row, as far as it is known."""

    id: int
    f: int
    value: int
    inv: int
    row: list[Any]


class OperationWriter:
    """Records the operations of one client. Safe to use from several threads.

    An operation starts with `start`, before the caller sends it, and ends with `end`. Both stamp the time. Names are
    those of `FUNCTIONS`, of `OUTCOMES`, and of the columns in `Shape.row`; a column that is not given has its default.

    `session` is the client's first session in this file; each reconnection starts the next one.

    Rows reach the file when 8,192 of them wait or 250 ms after the last flush, whichever a call notices first: a
    client that may stay idle calls `tick()` now and then. Times are CLOCK_MONOTONIC ns.

    `process` is unique among the run's clients. A client that writes also has a `producer` number, unique within
    the session.
    """

    def __init__(
        self,
        shape: Shape,
        directory: Path | str,
        *,
        client: str,
        session: int,
        process: int,
        producer: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        reservation_block: int = RESERVATION_BLOCK,
        flush_every_ns: int = FLUSH_INTERVAL_NS,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:
        """Creates the client's files in `directory`. Raises FileExistsError rather than mixing two recordings."""
        self.client = client
        self.session = session
        self.process = process
        self.producer = producer
        self.phase = PHASE_MAIN
        self._shape = shape
        self._value_columns = dict(shape.written)
        self._place_columns = shape.key.names
        self._places = {name: place for place, name in enumerate(shape.columns.names)}
        fields = {field.name: field.default for field in msgspec.structs.fields(shape.row)}
        self._blank = [*(fields | {"process": process, "client": client}).values()]
        """A row; a column without a default has an object that no stream takes."""
        self._clock = clock
        self._block = self._most = reservation_block if shape.announces == BLOCKS else 1
        self._lock = threading.Lock()
        self._started = 0
        self._open: set[int] = set()
        self._sequence = 0
        self._free: dict[tuple[Any, ...], tuple[int, int]] = {}
        """By the shape's key columns, the next value and the end of the block."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        stem = Path(directory) / f"{client}-{session}"
        self._rows = BatchWriter(
            stem.with_name(stem.name + shape.stream),
            shape.columns,
            clock=clock,
            flush_every_ns=flush_every_ns,
            segment_rows=segment_rows,
        )
        self._counts: Counter[str] = Counter()
        self._announced = LineWriter(stem.with_name(stem.name + shape.announced))
        self._announced.write({"client": client, "process": process, "session": session, "producer": producer})

    def new_session(self) -> None:
        """The client reconnects: what it was shown before no longer binds what it is shown from now on."""
        with self._lock:
            self.session += 1
            self._give_back()
            self._block = 1  # a client that reconnects all the time announces no more than it uses

    def start(self, function: str, /, **columns: Any) -> Invocation:
        """An operation is about to be sent. If it changes something, it is announced when this returns; if it writes a
        value of its own, it has one."""
        f, value = FUNCTIONS[function], NO_VALUE
        with self._lock:
            self._require_open()
            if f in self._value_columns:
                value = self._next_value(tuple([columns[name] for name in self._place_columns]))
            invocation = self._invocation(f, value, self._clock(), columns)
            if f in CHANGES and self._shape.announces != BLOCKS:
                line = {name: invocation.row[self._places[name]] for name in announced_columns(self._shape)}
                self._announced.write(line if value == NO_VALUE else line | {"value": value})
            if value != NO_VALUE:
                invocation.row[self._places[self._value_columns[f]]] = value
            self._open.add(invocation.id)
            return invocation

    def end(self, invocation: Invocation, outcome: str, **columns: Any) -> None:
        """The operation ended: "ok", it happened; "fail", it certainly did not and never will; "info", it may have
        happened, or may still happen: a timeout, a lost connection."""
        ret = INF if outcome == "info" else self._clock()
        with self._lock:
            self._require_open()
            if invocation.id not in self._open:
                raise ValueError(
                    f"operation {invocation.id} of {self.client} is not under way: it was completed before"
                )
            self._add(invocation, outcome, ret, columns)
            self._open.remove(invocation.id)

    def add(self, function: str, outcome: str, *, inv: int, ret: int, **columns: Any) -> None:
        """A query that was not started, because it has its request or its answer in common with others."""
        f = FUNCTIONS[function]
        if f in self._value_columns:
            raise ValueError(f"{function} of {self.client} was not announced: start() comes first")
        with self._lock:
            self._require_open()
            self._add(self._invocation(f, NO_VALUE, inv, {}), outcome, ret, columns)

    def tick(self) -> None:
        """Flushes when 250 ms have passed since the last flush."""
        with self._lock:
            self._rows.flush_if_due()

    def flush(self) -> None:
        """Hands every recorded row to the operating system."""
        with self._lock:
            self._rows.flush()

    def close(self) -> None:
        """Flushes, gives back unused values and closes the files; safe to call twice. What was announced and did not
        end stays announced."""
        with self._lock:
            if self._rows.closed:
                return
            self._rows.close()
            self._give_back()
            self._announced.write({"closed": dict(self._counts)})
            self._announced.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, invocation: Invocation, outcome: str, ret: int, columns: Mapping[str, Any]) -> None:
        if ret < invocation.inv:
            raise ValueError(
                f"an operation of {self.client} returned at {ret}, before its invocation at {invocation.inv}"
            )
        if outcome == "fail" and not columns.get("error"):
            raise ValueError(f"operation {invocation.id} of {self.client} failed without an error: say why")
        row, places = invocation.row, self._places
        row[places["type"]], row[places["ret"]] = OUTCOMES[outcome], ret
        for name, value in columns.items():
            row[places[name]] = value
        self._rows.add(row)
        self._counts[NAMES[invocation.f]] += 1

    def _require_open(self) -> None:
        if self._rows.closed:
            raise ValueError(f"the history of {self.client} is closed")

    def _invocation(self, f: int, value: int, inv: int, columns: Mapping[str, Any]) -> Invocation:
        """The next operation."""
        number = self.process << 32 | self._started
        self._started += 1
        row, places = self._blank.copy(), self._places
        row[places["f"]], row[places["inv"]], row[places["phase"]] = f, inv, self.phase
        if "id" in places:
            row[places["id"]] = number
        if "session" in places:
            row[places["session"]] = self.session
        for name, content in columns.items():
            row[places[name]] = content
        return Invocation(number, f, value, inv, row)

    def _next_value(self, place: tuple[Any, ...]) -> int:
        """An unused value of the place's block; a new block is announced before the first of its values is used."""
        value, end = self._free.get(place, (0, 0))
        if value == end:
            value = self._value(self._sequence)
            end = value + self._block
            self._value(self._sequence + self._block - 1)
            self._sequence += self._block
            if self._shape.announces == BLOCKS:
                names = dict(zip(self._place_columns, place, strict=True))
                self._announced.write({**names, "first": value, "count": self._block, "t": self._clock()})
            self._block = min(2 * self._block, self._most)
        self._free[place] = (value + 1, end)
        return value

    def _value(self, sequence: int) -> int:
        if self.producer is None:
            raise ValueError(f"client {self.client} has no producer number: give one to OperationWriter to write")
        # After more sessions than a value can name, the sequence alone keeps it unique.
        return encode_value(min(self.session, SESSIONS - 1), self.producer, sequence)

    def _give_back(self) -> None:
        """Announce the unused rest of every block; the next value comes from a new one."""
        for value, end in self._free.values():
            if value < end:
                self._announced.write({"unused": value, "count": end - value})
        self._free.clear()
