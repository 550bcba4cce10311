"""Collects the sends and polls of a foreign history as rows of the schema OPERATIONS.

Offsets become positions: the n-th offset of a key that an answer names is n. Kafka gives offsets to markers of
transactions, which no client sees, so an offset that no answer names is not a gap.

A poll does not say where its consumer was. A consumer that keeps its partition continues behind the last record of its
previous poll, and a consumer whose transaction failed continues where it was before. After a subscription the service
decides, and after an unknown outcome the position is unknown.

A transaction whose outcome is unknown happened if one of its values was read. Then all its values are in the log, those
with an offset at that offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.foreign.events import ForeignOperation
from history.foreign.history import LOG, OWN_PRODUCER, ForeignError, ForeignHistory
from history.foreign.numbered_texts import TextFile
from history.foreign.operation_files import OperationFiles
from history.schemas import ACKS_ALL, APPEND, FAIL, INF, INFO, OK, OPERATIONS, PHASE_MAIN, READ

_MOST_PARTITIONS: Final = 1 << 31

OBJECT_ROWS: Final = 1 << 14
"""The most rows that are objects of Python at once."""
_START: Final = -1
"""The offset before the first one."""
_NAMED: Final = 4
"""Values that a doubt names."""

_Place = tuple[int, str]


@dataclass(frozen=True)
class _Send:
    operation: ForeignOperation
    key: str
    value: int
    offset: int | None
    outcome: int


@dataclass(frozen=True)
class _Poll:
    operation: ForeignOperation
    key: str
    records: tuple[tuple[int, int], ...]
    after: int | None


class LogRows:
    """The rows of one file, written below a directory. Keys and values are texts; a value gets a number for each key
    that it is sent to."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        self._numbers: dict[tuple[str, str], int] = {}
        self._texts: dict[int, str] = {}
        self._sent: dict[int, int] = {}
        self._sends: list[list[_Send]] = []
        self._polls: list[_Poll] = []
        self._last: dict[_Place, int] = {}
        self._drifts: set[int] = set()

    def assigned(self, process: int, keys: set[str], *, from_start: bool) -> None:
        """A consumer chose its keys, and reads them from the start or where it was."""
        self._drifts.discard(process)
        self._forget(process, but=keys)
        if from_start:
            self._last.update({(process, key): _START for key in keys})

    def left_to_the_service(self, process: int) -> None:
        """A consumer subscribed, or it is not known whether it got the keys that it chose."""
        self._drifts.add(process)
        self._forget(process)

    def polled_in_vain(self, process: int, outcome: int) -> None:
        """An operation with polls that failed, or whose outcome is unknown."""
        if outcome == INFO:
            self._forget(process)

    def send(self, operation: ForeignOperation, sends: Sequence[tuple[str, str, int | None]]) -> None:
        """The sends of one operation: key, value, offset. Raises ForeignError for a value that was sent to the key
        before."""
        some: list[_Send] = []
        for key, text, offset in sends:
            value = self._number(key, text)
            first = self._sent.setdefault(value, operation.line)
            if first != operation.line or any(each.value == value for each in some):
                problem = f"{text} was sent to {key} before, in line {first}: values of a log identify the sends"
                raise ForeignError(self._path, operation.line, f"{problem}; give each send its own value")
            some.append(_Send(operation, key, value, offset, operation.outcome))
        if some:
            self._sends.append(some)

    def poll(self, operation: ForeignOperation, key: str, records: Sequence[tuple[int, str]]) -> None:
        """A poll was answered with these records of a key: offset, value."""
        if not records:
            return
        place = operation.process, key
        found = tuple((offset, self._number(key, text)) for offset, text in records)
        self._polls.append(_Poll(operation, key, found, self._last.get(place)))
        if operation.process not in self._drifts:
            self._last[place] = found[-1][0]

    def history(self, *not_judged: str) -> ForeignHistory:
        sends = self._settled()
        positions = self._positions(sends)
        places = _places([each.key for each in sends] + [each.key for each in self._polls])
        rows = chain(
            (_append(each, positions, places) for each in sends),
            (_read(each, positions, places) for each in self._polls),
        )
        files, texts = OperationFiles(self._directory, LOG), TextFile(self._directory, OWN_PRODUCER)
        parts = iter(lambda: list(islice(rows, OBJECT_ROWS)), [])
        texts.add(pa.array(self._texts.values(), pa.string()))
        unnamed = "offsets that no answer names: markers of transactions have offsets, too"
        tables = (pa.Table.from_pylist(some, OPERATIONS) for some in parts)
        return files.of(tables, texts.texts(), (*not_judged, unnamed), tuple(self._unread(sends)))

    def _forget(self, process: int, but: set[str] | None = None) -> None:
        for place in [place for place in self._last if place[0] == process and place[1] not in (but or ())]:
            del self._last[place]

    def _number(self, key: str, text: str) -> int:
        number = self._numbers.setdefault((key, text), (len(self._numbers) + 1) * OWN_PRODUCER)
        self._texts[number] = text
        return number

    def _settled(self) -> list[_Send]:
        """All sends; those of a transaction that was read happened, at an unknown time."""
        read = {value for each in self._polls for _, value in each.records}
        found = []
        for some in self._sends:
            happened = some[0].outcome == INFO and any(each.value in read for each in some)
            found += [replace(each, outcome=OK) if happened and each.offset is not None else each for each in some]
        return found

    def _unread(self, sends: Sequence[_Send]) -> Iterator[str]:
        """A sentence for each key with values that no poll returned, though a poll returned later ones."""
        read = {value for each in self._polls for _, value in each.records}
        most: dict[str, int] = {}
        for each in self._polls:
            most[each.key] = max(most.get(each.key, -1), *(offset for offset, _ in each.records))
        found: dict[str, list[_Send]] = {}
        for send in sends:
            is_known = send.outcome == OK and send.offset is not None and send.value not in read
            if is_known and (send.offset or 0) <= most.get(send.key, -1):
                found.setdefault(send.key, []).append(send)
        for key, some in found.items():
            named = ", ".join(f"{self._texts[each.value]} at offset {each.offset}" for each in some[:_NAMED])
            more = f" and {len(some) - _NAMED:,} more" if len(some) > _NAMED else ""
            yield f"key {key}: no poll returned {named}{more}, which were acknowledged; polls returned later offsets"

    def _positions(self, sends: Sequence[_Send]) -> dict[tuple[str, int], int]:
        named = {(each.key, each.offset) for each in sends if each.outcome == OK and each.offset is not None}
        named |= {(each.key, offset) for each in self._polls for offset, _ in each.records}
        count: Counter[str] = Counter()
        positions = {}
        for key, offset in sorted(named):
            positions[key, offset] = count[key]
            count[key] += 1
        return positions


def _places(keys: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The topic and partition of each key: a number is a partition of the topic `key`."""
    return {
        key: ("key", int(key)) if key.isdecimal() and int(key) < _MOST_PARTITIONS else (key, 0) for key in set(keys)
    }


def _append(send: _Send, positions: dict[tuple[str, int], int], places: dict[str, tuple[str, int]]) -> dict[str, Any]:
    offset = -1 if send.offset is None or send.outcome != OK else positions[send.key, send.offset]
    row = _row(send.operation, places[send.key], APPEND, send.outcome, offset)
    return {**row, "value": send.value, "lo": -1, "offsets": [], "values": []}


def _read(poll: _Poll, positions: dict[tuple[str, int], int], places: dict[str, tuple[str, int]]) -> dict[str, Any]:
    offsets = [positions[poll.key, offset] for offset, _ in poll.records]
    before = -1 if poll.after is None or poll.after == _START else positions[poll.key, poll.after]
    start = offsets[0] if poll.after is None else before + 1
    row = _row(poll.operation, places[poll.key], READ, OK, start)
    values = [value for _, value in poll.records]
    return {**row, "value": -1, "lo": max(offsets) + 1, "offsets": offsets, "values": values}


def _row(operation: ForeignOperation, place: tuple[str, int], f: int, outcome: int, offset: int) -> dict[str, Any]:
    topic, partition = place
    return {
        "process": operation.process,
        "session": 1,
        "client": f"process {operation.process}",
        "f": f,
        "topic": topic,
        "partition": partition,
        "type": outcome,
        "inv": operation.inv,
        "ret": INF if outcome == INFO else operation.ret,
        "offset": offset,
        "hi": -1,
        "acks": ACKS_ALL,
        "phase": PHASE_MAIN,
        "error": "" if outcome == OK else operation.error or ("failed" if outcome == FAIL else "unknown"),
    }
