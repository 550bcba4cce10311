"""Reads Jepsen's `history.edn`: registers (`jepsen.tests.linearizable-register`) and logs (`jepsen.tests.kafka`).

The model follows from the operations: read, write and cas are of registers; send, poll and txn are of logs. A history
of registers by `jepsen.independent` has `[KEY VALUE]` for each value. A failed operation of Jepsen did not happen, and
that is all it says: a failed cas does not show that the value was another one. What a poll returned was in the log even
if its operation failed or has an unknown outcome: a transaction that aborts takes back its sends only.

A completion repeats its invocation. One with another key or value is refused: such a history contradicts itself.

Collects the sends and polls of a foreign history as rows of the schema OPERATIONS.

Offsets become positions: the n-th offset of a key that an answer names is n. Kafka gives offsets to markers of
transactions, which no client sees, so an offset that no answer names is not a gap.

A poll does not say where its consumer was. A consumer that keeps its partition continues behind the last record of its
previous poll, and a consumer whose transaction failed continues where it was before. After a subscription the service
decides, and after an unknown outcome the position is unknown. What a poll of an operation with any outcome returned was
in the log when the operation completed.

The sends of one operation to a key follow each other in the log, as those of one producer: their values get numbers of
one producer (`history.record.values`).

A transaction whose outcome is unknown happened if one of its values was read. Then all its values are in the log, those
with an offset at that offset.

Theory of operation. Positions and outcomes follow from the whole history, so sends and polls are columns in files until
it has been read. In memory remain of each value its key, the line that sent it and whether a poll returned it, of each
key the offsets that answers name, as runs of consecutive ones, and the numbers of values that are not the first ones of
their operation.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.foreign.edn import FormMap, FormSet, Keyword, text_of
from history.foreign.events import ForeignOperation, TimeOrder, operations_of
from history.foreign.history import OWN_PRODUCER, ForeignError, ForeignHistory, alike_keys
from history.foreign.jepsen_events import AS_WRITTEN, FromTheStart, events_of, name_of
from history.foreign.kinds import EDN, STEPS, refusal
from history.foreign.numbered_texts import NumberedTexts, RankedNumbers
from history.foreign.operation_files import OperationFiles
from history.foreign.parts_on_disk import PartsOnDisk
from history.foreign.register_rows import F_OF, RegisterRows
from history.foreign.value_places import JoinedRuns, ValuePlaces
from history.record.schemas import ACKS_ALL, APPEND, FAIL, INF, INFO, OK, OPERATIONS, PHASE_MAIN, READ
from history.record.shapes import LOG
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
        last_offsets = {key: offset for key, offset in self._last.get(process, {}).items() if key in keys}
        self._last[process] = dict.fromkeys(keys, _START) if from_start else last_offsets

    def subscribed(self, process: int) -> None:
        """A consumer subscribed, or it is not known whether it got the keys that it chose."""
        self._drifts.add(process)
        self._last.pop(process, None)

    @contextmanager
    def polls_of(self, operation: ForeignOperation) -> Iterator[None]:
        """The polls of one operation, in their order."""
        offsets_before = dict(self._last.get(operation.process, {}))
        yield
        if operation.outcome == FAIL:
            self._last[operation.process] = offsets_before
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
        last_offsets = self._last.setdefault(operation.process, {})
        of_operation = self._of_operation(operation, key, operation.completed)
        offsets = [offset for offset, _ in records]
        self._polls.append((*of_operation, last_offsets.get(key, _UNKNOWN), offsets, len(self._texts)))
        self._texts += [f"{of_operation[-1]} {text}" for _, text in records]
        if operation.process not in self._drifts:
            last_offsets[key] = offsets[-1]
        self._flush_if_due()

    def history(self, *not_judged: str, doubts: Sequence[str] = ()) -> ForeignHistory:
        """All rows. Raises ForeignError as `send`."""
        try:
            self._flush()
            numbers = RankedNumbers(self._later, self._values.texts(), OWN_PRODUCER)
            log = _WholeLog(list(self._keys), self._is_read, numbers)
            log.learn(self._sends_as_read.tables(), self._polls_as_read.tables())
            files = OperationFiles(self._directory, LOG)
            for rows in self._sends_as_read.tables():
                files.add(log.appends(rows))
            for rows in self._polls_as_read.tables():
                files.add(log.reads(rows))
            unnamed = "offsets that no answer names: markers of transactions have offsets, too"
            return files.history(log.texts, (*not_judged, *alike_keys(self._keys), unnamed), (*log.unread(), *doubts))
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
        for place in np.flatnonzero(is_again)[:1].tolist():
            number, _, text = self._texts[at[place]].partition(" ")
            key = list(self._keys)[int(number)]
            line = int(self._sent_in_line[values[place]]) or int(lines[np.flatnonzero(values == values[place])[0]])
            problem = f"{text} was sent to {key} before, in line {line}: values of a log identify the sends"
            raise ForeignError(self._path, int(lines[place]), f"{problem}; give each send its own value")
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
            self.name_of(key[is_named], offset[is_named])
        for rows in polls:
            offsets = rows["offsets"].combine_chunks()
            counts = np.diff(offsets.offsets.to_numpy())
            key, offset = np.repeat(rows["key"].to_numpy(), counts), offsets.flatten().to_numpy()
            self.name_of(key, offset)
            np.maximum.at(self._polled_to, key, offset)
        self._positions = [ValuePlaces(runs.all()) for runs in self._named]

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
            error=[error if error and outcome_code != OK else unnamed[outcome_code] for outcome_code, error in errors],
        )

    def reads(self, rows: pa.Table) -> pa.Table:
        """The rows of these polls."""
        columns = {name: rows[name].to_numpy() for name in ("process", "inv", "ret", "key")}
        key, previous_offset = columns["key"], rows["after"].to_numpy()
        offsets, values = (rows[name].combine_chunks() for name in ("offsets", "values"))
        starts = offsets.offsets.to_numpy()
        shown = self._position(np.repeat(key, np.diff(starts)), offsets.flatten().to_numpy())
        has_place = previous_offset >= 0
        previous_position = np.full(len(key), -1, np.int64)
        previous_position[has_place] = self._position(key[has_place], previous_offset[has_place])
        places = self.texts.of_places(values.flatten().to_numpy())
        return self._rows(
            columns,
            f=READ,
            type=OK,
            ret=columns["ret"],
            offset=np.where(previous_offset == _UNKNOWN, shown[starts[:-1]], previous_position + 1),
            lo=np.maximum.reduceat(shown, starts[:-1]) + 1,
            value=-1,
            offsets=pa.ListArray.from_arrays(offsets.offsets, pa.array(shown)),
            values=pa.ListArray.from_arrays(values.offsets, pa.array(places)),
            error=[""] * len(key),
        )

    def unread(self) -> Iterator[str]:
        """A sentence for each key with values that no poll returned, though a poll returned later ones."""
        for key, (count, named) in self._unread.items():
            suffix = f" and {count - len(named):,} more" if count > len(named) else ""
            missing = f"{', '.join(named)}{suffix}"
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

    def name_of(self, key: I64, offset: I64) -> None:
        for number, mine in _by_key(key):
            self._named[number].add(np.unique(offset[mine]))

    def _position(self, key: I64, offset: I64) -> I64:
        """The positions of offsets that an answer names."""
        positions = np.empty(len(key), np.int64)
        for number, mine in _by_key(key):
            positions[mine] = self._positions[number].of(offset[mine])
        return positions

    def _note_unread(self, key: I64, value: I64, offset: I64, may_be: Bools) -> None:
        candidates = np.flatnonzero(may_be)
        for at in candidates[offset[candidates] <= self._polled_to[key[candidates]]].tolist():
            count, named = self._unread.setdefault(int(key[at]), (0, []))
            if count < _NAMED:
                named.append(f"{self.texts[int(self.texts.of_places(value[at : at + 1])[0])]} at offset {offset[at]}")
            self._unread[int(key[at])] = count + 1, named

    def _rows(self, operations: Mapping[str, I64], **columns: Any) -> pa.Table:
        key, process = operations["key"], operations["process"]
        clients, client = np.unique(process, return_inverse=True)
        texts = {
            "client": ([f"process {number}" for number in clients.tolist()], client),
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
        arrays = ([part] * len(key) if isinstance(part, int) else part for part in map(columns.get, OPERATIONS.names))
        return _table(list(arrays), OPERATIONS)


def _by_key(key: I64) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each key with the places where it is."""
    order = np.argsort(key, kind="stable")
    numbers, firsts = np.unique(key[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(key)]
    for number, start, end in zip(numbers.tolist(), firsts.tolist(), ends[: len(firsts)], strict=True):
        yield number, order[start:end]


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
    `key`, which belongs to this key alone."""
    is_number = [key.isdecimal() and int(key) < _MOST_PARTITIONS for key in keys]
    topics: dict[str, int] = {}
    topic, partition = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    for at, key in enumerate(keys):
        name = _NUMBERS if is_number[at] else f"'{key}'" if key == _NUMBERS else key
        topic[at] = topics.setdefault(name, len(topics))
        partition[at] = int(key) if is_number[at] else 0
    return list(topics), topic, partition


SENDS_AND_POLLS: Final = ("send", "poll", "txn")
PLACES: Final = ("subscribe", "assign")
NO_OPERATIONS: Final = ("crash", "debug-topic-partitions", "clear-assignments", "await")
"""Of `jepsen.tests.kafka`: they say nothing about a log."""
ANSWERED: Final = dict.fromkeys((*F_OF, *SENDS_AND_POLLS), True) | dict.fromkeys((*PLACES, *NO_OPERATIONS), False)
"""The operations of registers and logs, and whether the value of an answered one is needed."""
_SINGLE_KEY: Final = "register"


def read(
    path: Path, directory: Path, *, independent: bool | None = None, initial: Any = None, notation: str = EDN
) -> ForeignHistory:
    """The history in a file, written below a directory. Raises ForeignError.

    `independent`: whether the values of registers are `[KEY VALUE]`; None: as the first operation has it. `initial`:
    the form that each register holds at the start.
    """
    order = TimeOrder()
    operations = operations_of(path, events_of(path, ANSWERED, notation=notation), order)
    head = next((operation for operation in operations if operation.f not in (*PLACES, *NO_OPERATIONS)), None)
    if head is None:
        raise ForeignError(path, 0, "has no operation of a client; name the history.edn of a test that ran")
    all_operations = chain([head], operations)
    if head.f in F_OF:
        is_keyed = _names_a_key(head) if independent is None else independent
        guessed = (
            ("whether pairs are [KEY VALUE] (--independent), as assumed",) if is_keyed and independent is None else ()
        )
        return _Registers(path, directory, is_keyed, initial).history(all_operations, guessed, order)
    if initial is not None or independent is not None:
        raise ForeignError(path, head.line, f":f {head.f} is of a log, which has neither an initial value nor pairs")
    return _Log(path, directory).history(all_operations, order)


def is_pair(form: Any) -> bool:
    return isinstance(form, list) and len(form) == 2


def _names_a_key(operation: ForeignOperation) -> bool:
    """Whether the value of a register's operation has a key, as `jepsen.independent` writes it."""
    argument = operation.asked
    return is_pair(argument) and (operation.f != "cas" or is_pair(argument[1]))


def is_error(form: Any) -> bool:
    """Whether the value of a completion that is not ok names an error, in place of the value: a name, or a vector such
    as [:negative 2 -1]. A pair may be a key and a value."""
    if isinstance(form, list) and not is_pair(form):
        return bool(form) and isinstance(form[0], Keyword | str)
    return form is None or isinstance(form, Keyword | str)


def contradiction(path: Path, operation: ForeignOperation, answer: Any, argument: Any) -> ForeignError:
    problem = f"the completion of {operation.f} has {text_of(answer)}, but line {operation.line} invoked"
    return ForeignError(path, operation.completed_in, f"{problem} {text_of(argument)}; {AS_WRITTEN}")


class _Registers:
    """Reads the operations on registers of one file."""

    def __init__(self, path: Path, directory: Path, is_keyed: bool, initial: Any) -> None:
        self._path = path
        self._is_keyed = is_keyed
        self._rows = RegisterRows(path, directory, initial=_text(initial))
        self._shown: tuple[int, str] | None = None
        """The line of the first answer that is a map or a set, and the kind of such a history."""
        self._writes_collections = _kind_of_value(initial) != ""

    def history(
        self, operations: Iterator[ForeignOperation], not_judged: Sequence[str], order: TimeOrder
    ) -> ForeignHistory:
        for operation in operations:
            if operation.f not in F_OF:
                problem = f":f {operation.f} in a history of registers; check logs and registers apart"
                raise ForeignError(self._path, operation.line, problem)
            self._add(operation)
        if self._shown is not None and not self._writes_collections:
            line, kind = self._shown
            problem = (
                f"the answer is of {kind}, and no operation writes such a value: this is not a history of registers"
            )
            raise ForeignError(self._path, line, problem)
        return self._rows.history(
            "failed compare-and-sets: Jepsen does not record whether the value was another one",
            *not_judged,
            doubts=order.doubts(),
        )

    def _add(self, operation: ForeignOperation) -> None:
        key, argument = self._key_and_value(operation, operation.line, operation.asked)
        answer = operation.answer
        if self._is_keyed and not is_error(answer):
            answered_key, answer = self._key_and_value(operation, operation.completed_in, answer)
            if answered_key != key:
                raise contradiction(self._path, operation, operation.answer, operation.asked)
        is_answer = operation.outcome == OK and operation.f == "read"
        if not self._agrees(operation, argument, answer):
            raise contradiction(self._path, operation, operation.answer, operation.asked)
        value = answer if is_answer else argument
        if kind := _kind_of_value(value):
            if is_answer:
                self._shown = self._shown or (operation.completed_in, kind)
            self._writes_collections |= operation.f == "write"
        if operation.f != "cas":
            self._rows.add(operation, key, _text(value))
            return
        if not is_pair(value):
            problem = f"the value of a cas is {text_of(value)}: [EXPECTED NEW] is needed"
            raise ForeignError(self._path, operation.line, problem)
        self._writes_collections |= _kind_of_value(value[1]) != ""
        self._rows.add(operation, key, _text(value[1]), _text(value[0]))

    def _key_and_value(self, operation: ForeignOperation, line: int, form: Any) -> tuple[str, Any]:
        if not self._is_keyed:
            return _SINGLE_KEY, form
        if not is_pair(form):
            problem = f"the value of {operation.f} is {text_of(form)}, but values are taken as [KEY VALUE]"
            raise ForeignError(self._path, line, f"{problem}; if pairs are values, say --no-independent")
        return text_of(form[0]), form[1]

    @staticmethod
    def _agrees(operation: ForeignOperation, argument: Any, answer: Any) -> bool:
        """Whether a completion repeats what was invoked: the value that is written, or a value that a read repeats."""
        if operation.outcome != OK and is_error(answer):
            return True
        unsaid = argument if operation.f == "read" else answer
        return unsaid is None or text_of(argument) == text_of(answer)


def _text(form: Any) -> str | None:
    return None if form is None else text_of(form)


def _kind_of_value(form: Any) -> str:
    """The kind of history whose reads show such a form; empty if registers may hold it unwritten."""
    return "a bank or of several registers" if isinstance(form, FormMap) else "a set" * isinstance(form, FormSet)


class _Log:
    """Reads the operations on logs of one file."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._rows = LogRows(path, directory)

    def history(self, operations: Iterator[ForeignOperation], order: TimeOrder) -> ForeignHistory:
        for operation in operations:
            if operation.f in F_OF:
                problem = f":f {operation.f} in a history of logs; check logs and registers apart"
                raise ForeignError(self._path, operation.line, problem)
            if operation.f in PLACES:
                self._place(operation)
            elif operation.f in SENDS_AND_POLLS:
                self._transact(operation)
        not_judged = "isolation of transactions", "positions of consumers that subscribe"
        return self._rows.history(*not_judged, doubts=order.doubts())

    def _place(self, operation: ForeignOperation) -> None:
        """A consumer chose its partitions, or left the choice to the service."""
        argument = operation.asked
        keys = argument.keys if isinstance(argument, FromTheStart) else argument
        if isinstance(keys, FormSet):
            keys = list(keys.elements.values())
        if not isinstance(keys, list):
            problem = f"the value of {operation.f} is {text_of(keys)}: a list of keys is needed"
            raise ForeignError(self._path, operation.line, problem)
        if operation.f == "assign" and operation.outcome == OK:
            from_start = isinstance(argument, FromTheStart)
            self._rows.assigned(operation.process, set(map(text_of, keys)), from_start=from_start)
        else:
            self._rows.subscribed(operation.process)

    def _transact(self, operation: ForeignOperation) -> None:
        """The sends and polls of one operation, each as its completion has it, if that goes so far."""
        steps = self._steps(operation, operation.line, operation.asked)
        answer = operation.answer
        if operation.outcome != OK and is_error(answer):
            answer = None
        answered = [] if answer is None else self._steps(operation, operation.completed_in, answer)
        if len(answered) > len(steps) or (
            operation.outcome == OK and answer is not None and len(answered) < len(steps)
        ):
            raise contradiction(self._path, operation, operation.answer, operation.asked)
        sends = []
        with self._rows.polls_of(operation):
            for place, invoked in enumerate(steps):
                step = answered[place] if place < len(answered) else None
                kind = name_of(invoked[0]) if invoked else None
                if step is not None and (not step or name_of(step[0]) != kind):
                    raise contradiction(self._path, operation, step, invoked)
                if kind == "send" and len(invoked) == 3:
                    offset = None if step is None else self._offset_of(operation, invoked, step)
                    sends.append((text_of(invoked[1]), text_of(invoked[2]), offset))
                elif kind == "poll":
                    self._poll(operation, step or [])
                else:
                    self._refuse_step(operation, invoked, kind)
        self._rows.send(operation, sends)

    def _refuse_step(self, operation: ForeignOperation, step: Any, kind: str | None) -> None:
        if kind is not None and kind in STEPS:
            problem = refusal(f"[:{kind} ...]", STEPS[kind], ":f txn with")
        else:
            problem = (
                f"{text_of(step)} is not a step: [:send KEY VALUE] or [:poll {{KEY [[OFFSET VALUE] ...]}}] is needed"
            )
        raise ForeignError(self._path, operation.line, problem)

    def _steps(self, operation: ForeignOperation, line: int, steps: Any) -> list[Any]:
        steps = [] if steps is None else steps
        if not isinstance(steps, list) or not all(isinstance(step, list) for step in steps):
            problem = f"the value of {operation.f} is {text_of(steps)}"
            raise ForeignError(self._path, line, f"{problem}: a list of [:send KEY VALUE] and [:poll] is needed")
        return steps

    def _offset_of(self, operation: ForeignOperation, invoked: Any, step: Any) -> int | None:
        """The offset of a send; None if its completion has the value alone. Raises ForeignError for another value."""
        value = text_of(invoked[2])
        if len(step) == 3 and text_of(step[1]) == text_of(invoked[1]):
            if text_of(step[2]) == value:
                return None
            if is_pair(step[2]) and text_of(step[2][1]) == value:
                return self._offset(operation, step[2][0])
        raise contradiction(self._path, operation, step, invoked)

    def _poll(self, operation: ForeignOperation, step: Any) -> None:
        shown = step[1] if len(step) > 1 and step[1] is not None else FormMap({})
        if not isinstance(shown, FormMap):
            problem = f"the answer of a poll is {text_of(shown)}: a map of keys is needed"
            raise ForeignError(self._path, operation.completed_in, problem)
        for key, records in shown.items():
            returned = []
            for record in records if isinstance(records, list) else [records]:
                offset = self._offset(operation, record[0]) if is_pair(record) else None
                if offset is None:
                    problem = f"a poll has {text_of(record)}: [OFFSET VALUE] is needed"
                    raise ForeignError(self._path, operation.completed_in, problem)
                returned.append((offset, text_of(record[1])))
            self._rows.poll(operation, text_of(key), returned)

    def _offset(self, operation: ForeignOperation, offset: Any) -> int | None:
        if offset is None:
            return None
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 60:
            problem = f"the offset {text_of(offset)} is not a number of at least 0"
            raise ForeignError(self._path, operation.completed_in, problem)
        return offset
