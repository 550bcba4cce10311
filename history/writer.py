"""The crash-safe record of one client process.

`<client>-<session>.arrows` is an Arrow IPC stream with one row per completed operation; a stream cut anywhere yields
every whole batch. After 2^20 rows the record continues in `<client>-<session>.1.arrows`, then in `.2.arrows`, so that
it can be read as several tasks.

`<client>-<session>.reserved` announces, before its first use, each block of values together with its partition. So
after a crash the record covers everything that a producer may have sent: a value that was announced and never completed
is an append that may have happened, invoked no earlier than its block was announced, *in a known partition*; therefore
the log checker's theorem applies to it. A clean close gives the unused rest of every block back, so a run that ends
normally leaves no such appends, and states how many operations of each kind were recorded.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from history.arrow_stream import FLUSH_INTERVAL_NS, SEGMENT_ROWS, BatchWriter
from history.checksummed_lines import LineWriter
from history.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, NAMES, OK, OPERATIONS, PHASE_MAIN, READ
from history.values import SESSIONS, encode_value

RESERVATION_BLOCK: Final = 1024

_NO_RECORDS: Final[tuple[int, ...]] = ()


class OperationWriter:
    """Records the operations of one client. Safe to use from several threads.

    `session` is the client's first session in this file; each reconnection starts the next one.

    Rows reach the file when 8,192 of them wait or 250 ms after the last flush, whichever a call notices first: a
    client that may stay idle calls `tick()` now and then. Times are CLOCK_MONOTONIC ns.

    `process` is unique among the run's clients. A client that appends also has a `producer` number, unique within
    the session.
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
        self._clock = clock
        self._block = self._most = reservation_block
        self._lock = threading.Lock()
        self._sequence = 0
        self._free: dict[tuple[str, int], tuple[int, int]] = {}  # (topic, partition) -> next value, end of block
        Path(directory).mkdir(parents=True, exist_ok=True)
        stem = f"{client}-{session}"
        self._rows = BatchWriter(
            Path(directory) / f"{stem}.arrows",
            OPERATIONS,
            clock=clock,
            flush_every_ns=flush_every_ns,
            segment_rows=segment_rows,
        )
        self._counts: Counter[str] = Counter()
        self._reserved = LineWriter(Path(directory) / f"{stem}.reserved")
        self._reserved.write({"client": client, "process": process, "session": session, "producer": producer})

    def new_session(self) -> None:
        """The client reconnects: what it was shown before no longer binds what it is shown from now on."""
        with self._lock:
            self.session += 1
            self._give_back()
            self._block = 1  # a client that reconnects all the time announces no more than it uses

    def reserve(self, topic: str, partition: int) -> int:
        """The value of the next append to this partition; it is recorded before the caller can send it."""
        if self.producer is None:
            raise ValueError(f"client {self.client} has no producer number: give one to OperationWriter to append")
        with self._lock:
            value, end = self._free.get((topic, partition), (0, 0))
            if value == end:
                value = self._value(self._sequence)
                end = value + self._block
                self._sequence += self._block
                self._value(self._sequence - 1)
                block = {"topic": topic, "partition": partition, "first": value, "count": self._block}
                self._reserved.write({**block, "t": self._clock()})
                self._block = min(2 * self._block, self._most)
            self._free[topic, partition] = (value + 1, end)
            return value

    def append_ok(
        self,
        topic: str,
        partition: int,
        value: int,
        *,
        inv: int,
        ret: int,
        offset: int,
        acks: int = ACKS_ALL,
        error: str = "",
    ) -> None:
        """An acknowledged append; `offset` -1 when the acknowledgement did not carry one. `error`: empty or
        `SENT_AGAIN`."""
        self._add(APPEND, topic, partition, OK, inv, ret, offset=offset, value=value, acks=acks, error=error)

    def append_failed(
        self, topic: str, partition: int, value: int, *, inv: int, ret: int, error: str, acks: int = ACKS_ALL
    ) -> None:
        """An append that certainly did not happen and never will: it was refused before it could be stored."""
        self._add(APPEND, topic, partition, FAIL, inv, ret, value=value, acks=acks, error=error)

    def append_unknown(
        self, topic: str, partition: int, value: int, *, inv: int, error: str, acks: int = ACKS_ALL
    ) -> None:
        """An append that may have happened, or may still happen: a timeout, a lost connection."""
        self._add(APPEND, topic, partition, INFO, inv, INF, value=value, acks=acks, error=error)

    def read(
        self,
        topic: str,
        partition: int,
        *,
        inv: int,
        ret: int,
        start: int,
        offsets: Sequence[int],
        values: Sequence[int],
        lo: int = -1,
        hi: int = -1,
    ) -> None:
        """A read that requested `start` and got these records; `lo` and `hi` are the answer's bounds on the length.

        A client that prefetches leaves `hi` at -1: its answer may be older than its invocation.
        """
        if len(offsets) != len(values):
            raise ValueError(f"{len(offsets)} offsets but {len(values)} values in a read of {topic}-{partition}")
        shown = max(lo, offsets[-1] + 1) if offsets else lo
        self._add(READ, topic, partition, OK, inv, ret, offset=start, lo=shown, hi=hi, offsets=offsets, values=values)

    def end(self, topic: str, partition: int, *, inv: int, ret: int, end: int) -> None:
        """An end query (ListOffsets latest): the log's length was exactly `end` at some moment of the call."""
        self._add(END, topic, partition, OK, inv, ret, lo=end, hi=end)

    def query_failed(
        self, topic: str, partition: int, *, inv: int, ret: int, error: str, start: int = -1, is_end: bool = False
    ) -> None:
        """A read or end query that got no answer; it proves nothing, and is kept for rates and latencies."""
        self._add(END if is_end else READ, topic, partition, FAIL, inv, ret, offset=start, error=error)

    def tick(self) -> None:
        """Flushes when 250 ms have passed since the last flush."""
        with self._lock:
            self._rows.flush_if_due()

    def flush(self) -> None:
        """Hands every recorded row to the operating system."""
        with self._lock:
            self._rows.flush()

    def close(self) -> None:
        """Flushes, gives back unused values and closes the files; safe to call twice."""
        with self._lock:
            if self._rows.closed:
                return
            self._rows.close()
            self._give_back()
            self._reserved.write({"closed": dict(self._counts)})
            self._reserved.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _add(
        self,
        f: int,
        topic: str,
        partition: int,
        outcome: int,
        inv: int,
        ret: int,
        *,
        offset: int = -1,
        hi: int = -1,
        lo: int = -1,
        value: int = -1,
        offsets: Sequence[int] = _NO_RECORDS,
        values: Sequence[int] = _NO_RECORDS,
        acks: int = ACKS_ALL,
        error: str = "",
    ) -> None:
        if ret < inv:
            raise ValueError(f"an operation of {self.client} returned at {ret}, before its invocation at {inv}")
        row = (
            *(self.process, self.session, self.client, f, topic, partition, outcome, inv, ret, offset, hi, lo, value),
            *(offsets, values, acks, self.phase, error),
        )
        with self._lock:
            if self._rows.closed:
                raise ValueError(f"the history of {self.client} is closed")
            self._rows.add(row)
            self._counts[NAMES[f]] += 1

    def _value(self, sequence: int) -> int:
        assert self.producer is not None
        # After more sessions than a value can name, the sequence alone keeps it unique.
        return encode_value(min(self.session, SESSIONS - 1), self.producer, sequence)

    def _give_back(self) -> None:
        """Announce the unused rest of every block; the next value comes from a new one."""
        for value, end in self._free.values():
            if value < end:
                self._reserved.write({"unused": value, "count": end - value})
        self._free.clear()
