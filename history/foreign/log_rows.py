"""Collects the sends and polls of a foreign history as rows of the schema OPERATIONS.

Offsets become positions: the n-th offset of a key that an answer names is n. Kafka gives offsets to markers of
transactions, which no client sees, so an offset that no answer names is not a gap.

A poll does not say where its consumer was. A consumer that keeps its partition continues behind the last record of its
previous poll, and a consumer whose transaction failed continues where it was before. After a subscription the service
decides, and after an unknown outcome the position is unknown. What a poll of an operation with any outcome returned was
in the log when the operation completed.

The sends of one operation to a key follow each other in the log, as those of one producer: their values get numbers of
one producer (`history.values`).

A transaction whose outcome is unknown happened if one of its values was read. Then all its values are in the log, those
with an offset at that offset.

Theory of operation. Positions and outcomes follow from the whole history, so sends and polls are columns in files until
it has been read. In memory remain of each value its key, the line that sent it and whether a poll returned it, of each
key the offsets that answers name, as runs of consecutive ones, and the numbers of values that are not the first ones of
their operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.foreign.events import ForeignOperation
from history.foreign.history import LOG, OWN_PRODUCER, ForeignError, ForeignHistory, alike_keys
from history.foreign.numbered_texts import NumberedTexts, RankedNumbers
from history.foreign.operation_files import OperationFiles
from history.foreign.parts_on_disk import PartsOnDisk
from history.foreign.value_places import JoinedRuns, ValuePlaces
from history.schemas import ACKS_ALL, APPEND, FAIL, INF, INFO, OK, OPERATIONS, PHASE_MAIN, READ
from history.value_runs import I64

Bools = npt.NDArray[np.bool_]

OBJECT_ROWS: Final = 1 << 14
"""The most values that are objects of Python at once, unless one operation has more."""
_MOST_PARTITIONS: Final = 1 << 31

_NUMBERS: Final = "key"
"""The topic of keys that are numbers."""
_START: Final = -1
"""The offset before the first one."""
_UNKNOWN: Final = -2
"""No offset."""
_NAMED: Final = 4
"""Values that a doubt names."""

_OPERATION: Final = [("process", pa.int64()), ("inv", pa.int64()), ("ret", pa.int64()), ("key", pa.int64())]
_SENDS: Final = pa.schema(
    [
        *_OPERATION,
        *(("transaction", pa.int64()), ("outcome", pa.int64()), ("error", pa.string())),
        *(("value", pa.int64()), ("offset", pa.int64())),
    ]
)
"""A send of a transaction. `key`: its number; `value`: the place of its text; `offset`: _UNKNOWN without one."""
_POLLS: Final = pa.schema(
    [*_OPERATION, ("after", pa.int64()), ("offsets", pa.list_(pa.int64())), ("values", pa.list_(pa.int64()))]
)
"""An answered poll of a key. `after`: the offset behind which it continues, _START, or _UNKNOWN."""


class LogRows:
    """The rows of one file, written below a directory. Keys and values are texts; a value gets a number for each key
    that it is sent to."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        self._values = NumberedTexts(directory, OWN_PRODUCER, prefixed=True)
        self._keys: dict[str, int] = {}
        self._texts: list[str] = []
        self._sends: list[tuple[Any, ...]] = []
        self._polls: list[tuple[Any, ...]] = []
        self._transactions = 0
        self._sent_in_line = np.zeros(1, np.uint32)
        self._is_read = np.zeros(1, np.bool_)
        self._last: dict[int, dict[str, int]] = {}
        """The offset of the last record that each process polled, by key."""
        self._later: list[tuple[I64, I64]] = []
        """The places and numbers of values that are not the first ones of their operation and key."""
        self._drifts: set[int] = set()
        self._sends_as_read = PartsOnDisk(directory / "sends.arrow", _SENDS)
        self._polls_as_read = PartsOnDisk(directory / "polls.arrow", _POLLS)

    def assigned(self, process: int, keys: set[str], *, from_start: bool) -> None:
        """A consumer chose its keys, and reads them from the start or where it was."""
        self._drifts.discard(process)
        last = {key: offset for key, offset in self._last.get(process, {}).items() if key in keys}
        self._last[process] = dict.fromkeys(keys, _START) if from_start else last

    def subscribed(self, process: int) -> None:
        """A consumer subscribed, or it is not known whether it got the keys that it chose."""
        self._drifts.add(process)
        self._last.pop(process, None)

    @contextmanager
    def polls_of(self, operation: ForeignOperation) -> Iterator[None]:
        """The polls of one operation, in their order."""
        before = dict(self._last.get(operation.process, {}))
        yield
        if operation.outcome == FAIL:
            self._last[operation.process] = before
        elif operation.outcome == INFO:
            self._last.pop(operation.process, None)

    def send(self, operation: ForeignOperation, sends: Sequence[tuple[str, str, int | None]]) -> None:
        """The sends of one operation: key, value, offset. Raises ForeignError for a value that was sent to the key
        before."""
        of_key: dict[str, list[int]] = {}
        for key, text, offset in sends:
            of_operation = self._of_operation(operation, key, operation.ret)
            outcome = self._transactions, operation.outcome, operation.error
            place = len(self._texts), _UNKNOWN if offset is None else offset
            of_key.setdefault(key, []).append(len(self._texts))
            rank = of_key[key][0], len(of_key[key]) - 1
            self._sends.append((*of_operation, *outcome, *place, *rank, operation.line))
            self._texts.append(f"{of_operation[-1]} {text}")
        self._transactions += 1
        self._flush_if_due()

    def poll(self, operation: ForeignOperation, key: str, records: Sequence[tuple[int, str]]) -> None:
        """A poll returned these records of a key: offset, value."""
        if not records:
            return
        last = self._last.setdefault(operation.process, {})
        of_operation = self._of_operation(operation, key, operation.completed)
        offsets = [offset for offset, _ in records]
        self._polls.append((*of_operation, last.get(key, _UNKNOWN), offsets, len(self._texts)))
        self._texts += [f"{of_operation[-1]} {text}" for _, text in records]
        if operation.process not in self._drifts:
            last[key] = offsets[-1]
        self._flush_if_due()

    def history(self, *not_judged: str, doubts: Sequence[str] = ()) -> ForeignHistory:
        """All rows. Raises ForeignError as `send`."""
        try:
            self._flush()
            numbers = RankedNumbers(self._later, self._values.texts(), OWN_PRODUCER)
            whole = _WholeLog(list(self._keys), self._is_read, numbers)
            whole.learn(self._sends_as_read.tables(), self._polls_as_read.tables())
            files = OperationFiles(self._directory, LOG)
            for rows in self._sends_as_read.tables():
                files.add(whole.appends(rows))
            for rows in self._polls_as_read.tables():
                files.add(whole.reads(rows))
            unnamed = "offsets that no answer names: markers of transactions have offsets, too"
            return files.history(
                whole.texts, (*not_judged, *alike_keys(self._keys), unnamed), (*whole.unread(), *doubts)
            )
        finally:
            self._sends_as_read.remove()
            self._polls_as_read.remove()

    def _of_operation(self, operation: ForeignOperation, key: str, ret: int) -> tuple[int, int, int, int]:
        number = self._keys.setdefault(key, len(self._keys))
        return operation.process, operation.inv, ret, number

    def _flush_if_due(self) -> None:
        if len(self._texts) >= OBJECT_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Writes the sends and polls that are objects, with the places of their values."""
        places = self._values.places(self._texts)
        highest = int(places.max(initial=0))
        self._sent_in_line = _reaching(self._sent_in_line, highest)
        self._is_read = _reaching(self._is_read, highest)
        if self._sends:
            *columns, firsts, ranks, lines = map(list, zip(*self._sends, strict=True))
            at = columns[_SENDS.get_field_index("value")]
            values = places[at]
            self._require_new(values, np.array(lines, np.int64), at)
            columns[_SENDS.get_field_index("value")] = values
            is_later = np.array(ranks) > 0
            numbers = places[firsts] * OWN_PRODUCER + np.array(ranks)
            self._later.append((values[is_later], numbers[is_later]))
            self._sends_as_read.add(_table(columns, _SENDS))
        if self._polls:
            *columns, firsts = map(list, zip(*self._polls, strict=True))
            counts = np.array([len(offsets) for offsets in columns[-1]], np.int64)
            starts = np.concatenate(([0], np.cumsum(counts)))
            shown = places[np.repeat(np.array(firsts) - starts[:-1], counts) + np.arange(starts[-1])]
            self._is_read[shown] = True
            values = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(shown))
            self._polls_as_read.add(_table([*columns, values], _POLLS))
        self._texts, self._sends, self._polls = [], [], []

    def _require_new(self, values: I64, lines: I64, at: Sequence[int]) -> None:
        """Takes these values as sent in these lines. `at`: where their texts are. Raises ForeignError for a value that
        was sent before."""
        firsts = np.unique(values, return_index=True)[1]
        is_again = self._sent_in_line[values] != 0
        is_again[np.setdiff1d(np.arange(len(values)), firsts)] = True
        for wrong in np.flatnonzero(is_again)[:1].tolist():
            number, _, text = self._texts[at[wrong]].partition(" ")
            key = list(self._keys)[int(number)]
            first = int(self._sent_in_line[values[wrong]]) or int(lines[np.flatnonzero(values == values[wrong])[0]])
            problem = f"{text} was sent to {key} before, in line {first}: values of a log identify the sends"
            raise ForeignError(self._path, int(lines[wrong]), f"{problem}; give each send its own value")
        self._sent_in_line[values] = lines


class _WholeLog:
    """What sends and polls need of the whole history. `keys`: by number; `is_read`: by the place of a value, whether a
    poll returned it; `texts`: the numbers of values, and their texts."""

    def __init__(self, keys: Sequence[str], is_read: Bools, texts: RankedNumbers) -> None:
        self.texts = texts
        self._keys = keys
        self._is_read = is_read
        self._named = [JoinedRuns() for _ in keys]
        self._positions: list[ValuePlaces] = []
        self._polled_to = np.full(len(keys), -1, np.int64)
        self._topics, self._topic, self._partitions = _places(keys)
        self._unread: dict[int, tuple[int, list[str]]] = {}

    def learn(self, sends: Iterator[pa.Table], polls: Iterator[pa.Table]) -> None:
        """Takes the offsets that answers name."""
        for rows in sends:
            key, offset = rows["key"].to_numpy(), rows["offset"].to_numpy()
            is_named = (self._outcomes(rows) == OK) & (offset >= 0)
            self._name(key[is_named], offset[is_named])
        for rows in polls:
            offsets = rows["offsets"].combine_chunks()
            counts = np.diff(offsets.offsets.to_numpy())
            key, offset = np.repeat(rows["key"].to_numpy(), counts), offsets.flatten().to_numpy()
            self._name(key, offset)
            np.maximum.at(self._polled_to, key, offset)
        self._positions = [ValuePlaces(each.all()) for each in self._named]

    def appends(self, rows: pa.Table) -> pa.Table:
        """The rows of these sends."""
        columns = {name: rows[name].to_numpy() for name in ("process", "inv", "ret", "key", "value", "offset")}
        key, value, offset, outcome = columns["key"], columns["value"], columns["offset"], self._outcomes(rows)
        is_placed = (outcome == OK) & (offset >= 0)
        self._note_unread(key, value, offset, is_placed & ~self._is_read[value])
        position = np.full(len(key), -1, np.int64)
        position[is_placed] = self._position(key[is_placed], offset[is_placed])
        errors = zip(outcome.tolist(), rows["error"].to_pylist(), strict=True)
        unnamed = {OK: "", FAIL: "failed", INFO: "unknown"}
        return self._rows(
            columns,
            f=APPEND,
            type=outcome,
            ret=np.where(outcome == INFO, INF, columns["ret"]),
            offset=position,
            lo=-1,
            value=self.texts.of_places(value),
            offsets=_empty_lists(len(key)),
            values=_empty_lists(len(key)),
            error=[error if error and how != OK else unnamed[how] for how, error in errors],
        )

    def reads(self, rows: pa.Table) -> pa.Table:
        """The rows of these polls."""
        columns = {name: rows[name].to_numpy() for name in ("process", "inv", "ret", "key")}
        key, after = columns["key"], rows["after"].to_numpy()
        offsets, values = (rows[name].combine_chunks() for name in ("offsets", "values"))
        starts = offsets.offsets.to_numpy()
        shown = self._position(np.repeat(key, np.diff(starts)), offsets.flatten().to_numpy())
        has_place = after >= 0
        before = np.full(len(key), -1, np.int64)
        before[has_place] = self._position(key[has_place], after[has_place])
        places = self.texts.of_places(values.flatten().to_numpy())
        return self._rows(
            columns,
            f=READ,
            type=OK,
            ret=columns["ret"],
            offset=np.where(after == _UNKNOWN, shown[starts[:-1]], before + 1),
            lo=np.maximum.reduceat(shown, starts[:-1]) + 1,
            value=-1,
            offsets=pa.ListArray.from_arrays(offsets.offsets, pa.array(shown)),
            values=pa.ListArray.from_arrays(values.offsets, pa.array(places)),
            error=[""] * len(key),
        )

    def unread(self) -> Iterator[str]:
        """A sentence for each key with values that no poll returned, though a poll returned later ones."""
        for key, (count, named) in self._unread.items():
            more = f" and {count - len(named):,} more" if count > len(named) else ""
            missing = f"{', '.join(named)}{more}"
            yield (
                f"key {self._keys[key]}: no poll returned {missing}, which were acknowledged; polls returned later "
                "offsets"
            )

    def _outcomes(self, sends: pa.Table) -> I64:
        """The outcomes; those with an offset of a transaction that was read happened, at an unknown time."""
        outcome, transaction = sends["outcome"].to_numpy(), sends["transaction"].to_numpy()
        _, number = np.unique(transaction, return_inverse=True)
        was_read = np.bincount(number, self._is_read[sends["value"].to_numpy()]) > 0
        happened = (outcome == INFO) & was_read[number] & (sends["offset"].to_numpy() >= 0)
        return np.where(happened, OK, outcome)

    def _name(self, key: I64, offset: I64) -> None:
        for number, mine in _by_key(key):
            self._named[number].add(np.unique(offset[mine]))

    def _position(self, key: I64, offset: I64) -> I64:
        """The positions of offsets that an answer names."""
        found = np.empty(len(key), np.int64)
        for number, mine in _by_key(key):
            found[mine] = self._positions[number].of(offset[mine])
        return found

    def _note_unread(self, key: I64, value: I64, offset: I64, may_be: Bools) -> None:
        some = np.flatnonzero(may_be)
        for at in some[offset[some] <= self._polled_to[key[some]]].tolist():
            count, named = self._unread.setdefault(int(key[at]), (0, []))
            if count < _NAMED:
                named.append(f"{self.texts[int(self.texts.of_places(value[at : at + 1])[0])]} at offset {offset[at]}")
            self._unread[int(key[at])] = count + 1, named

    def _rows(self, operations: Mapping[str, I64], **columns: Any) -> pa.Table:
        key, process = operations["key"], operations["process"]
        clients, client = np.unique(process, return_inverse=True)
        texts = {
            "client": ([f"process {each}" for each in clients.tolist()], client),
            "topic": (self._topics, self._topic[key]),
            "phase": ([PHASE_MAIN], np.zeros(len(key))),
        }
        columns |= {
            "process": process,
            "session": 1,
            "inv": operations["inv"],
            "hi": -1,
            "acks": ACKS_ALL,
            "partition": self._partitions[key],
            **{name: pa.DictionaryArray.from_arrays(np.asarray(at, np.int32), of) for name, (of, at) in texts.items()},
        }
        whole = ([each] * len(key) if isinstance(each, int) else each for each in map(columns.get, OPERATIONS.names))
        return _table(list(whole), OPERATIONS)


def _by_key(key: I64) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each key with the places where it is."""
    order = np.argsort(key, kind="stable")
    numbers, firsts = np.unique(key[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(key)]
    for number, first, end in zip(numbers.tolist(), firsts.tolist(), ends[: len(firsts)], strict=True):
        yield number, order[first:end]


def _reaching(column: npt.NDArray[Any], highest: int) -> npt.NDArray[Any]:
    """The column, with zeros behind it if it has no place with this number."""
    if highest < len(column):
        return column
    return np.concatenate((column, np.zeros(max(highest + 1 - len(column), len(column) // 2), column.dtype)))


def _table(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _empty_lists(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], pa.int64()))


def _places(keys: Sequence[str]) -> tuple[list[str], I64, I64]:
    """The topics, and for each key the number of its topic and its partition: a number is a partition of the topic
    `key`, which is no other key's."""
    is_number = [key.isdecimal() and int(key) < _MOST_PARTITIONS for key in keys]
    topics: dict[str, int] = {}
    topic, partition = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    for at, key in enumerate(keys):
        name = _NUMBERS if is_number[at] else f"'{key}'" if key == _NUMBERS else key
        topic[at] = topics.setdefault(name, len(topics))
        partition[at] = int(key) if is_number[at] else 0
    return list(topics), topic, partition
