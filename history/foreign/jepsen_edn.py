"""Reads Jepsen's `history.edn`: registers (`jepsen.tests.linearizable-register`) and logs (`jepsen.tests.kafka`).

The model follows from the operations: read, write and cas are of registers; send, poll and txn are of logs. A history
of registers by `jepsen.independent` has `[KEY VALUE]` for each value. A failed operation of Jepsen did not happen, and
that is all it says: a failed cas does not show that the value was another one. What a poll returned was in the log even
if its operation failed or has an unknown outcome: a transaction that aborts takes back its sends only.

A completion repeats its invocation. One with another key or value is refused: such a history contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from history.foreign.edn import FormMap, FormSet, Keyword, Tagged, forms_of, text_of
from history.foreign.events import TYPES, Event, ForeignOperation, TimeOrder, operations_of
from history.foreign.history import ForeignError, ForeignHistory
from history.foreign.kinds import STEPS, kind_of, refusal
from history.foreign.log_rows import LogRows
from history.foreign.register_rows import F_OF, RegisterRows
from history.schemas import OK

SENDS_AND_POLLS: Final = ("send", "poll", "txn")
PLACES: Final = ("subscribe", "assign")
NO_OPERATIONS: Final = ("crash", "debug-topic-partitions", "clear-assignments", "await")
"""Of `jepsen.tests.kafka`: they say nothing about a log."""
_KNOWN: Final = (*F_OF, *SENDS_AND_POLLS, *PLACES, *NO_OPERATIONS)
_SINGLE_KEY: Final = "register"
_AS_WRITTEN: Final = "give the history as the tool wrote it"


@dataclass(frozen=True)
class _FromTheStart:
    """The keys of an assignment that moves the consumer to the start of each."""

    keys: Any


def read(path: Path, directory: Path, *, independent: bool | None = None, initial: Any = None) -> ForeignHistory:
    """The history in a file, written below a directory. Raises ForeignError.

    `independent`: whether the values of registers are `[KEY VALUE]`; None: as the first operation has it. `initial`:
    the form that each register holds at the start.
    """
    order = TimeOrder()
    operations = operations_of(path, _events(path), order)
    first = next((each for each in operations if each.f not in (*PLACES, *NO_OPERATIONS)), None)
    if first is None:
        raise ForeignError(path, 0, "has no operation of a client; name the history.edn of a test that ran")
    whole = chain([first], operations)
    if first.f in F_OF:
        is_keyed = _names_a_key(first) if independent is None else independent
        guessed = (
            ("whether pairs are [KEY VALUE] (--independent), as assumed",) if is_keyed and independent is None else ()
        )
        return _Registers(path, directory, is_keyed, initial).history(whole, guessed, order)
    if initial is not None or independent is not None:
        raise ForeignError(path, first.line, f":f {first.f} is of a log, which has neither an initial value nor pairs")
    return _Log(path, directory).history(whole, order)


def _events(path: Path) -> Iterator[Event]:
    last_index = -1
    for number, form in forms_of(path):
        fields = _fields(form)
        process, kind, f = fields.get("process"), _name(fields.get("type")), _name(fields.get("f"))
        if kind is None or f is None or process is None:
            raise ForeignError(path, number, "is not an operation: a map with :type, :f, :process and :value is needed")
        index, time = (_count(path, number, fields, name) for name in ("index", "time"))
        if _name(process) is not None:  # the nemesis
            continue
        if isinstance(process, bool) or not isinstance(process, int):
            problem = f":process {text_of(process)} is neither a number nor a keyword such as :nemesis"
            raise ForeignError(path, number, f"{problem}; {_AS_WRITTEN}")
        if kind not in TYPES:
            raise ForeignError(path, number, f":type {kind} is unknown: one of {', '.join(TYPES)}")
        if f not in _KNOWN:
            raise ForeignError(path, number, refusal(f, kind_of(f)))
        error = text_of(fields["error"]) if fields.get("error") is not None else ""
        if kind == "ok" and "value" not in fields and f in (*F_OF, *SENDS_AND_POLLS):
            raise ForeignError(path, number, f":value of an answered {f} is missing; write nil where nothing was read")
        value = fields.get("value")
        if f == "assign" and fields.get("seek-to-beginning?"):
            value = _FromTheStart(value)
        if index is not None and index <= last_index:
            problem = (
                f":index {index} stands behind :index {last_index}, but the order of the lines is that of the events"
            )
            raise ForeignError(path, number, f"{problem}; {_AS_WRITTEN}")
        last_index = last_index if index is None else index
        yield Event(number, process, kind, f, value, time, error)


def _count(path: Path, line: int, fields: dict[str, Any], name: str) -> int | None:
    """The number in a field, None without one. Raises ForeignError."""
    number = fields.get(name)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise ForeignError(path, line, f":{name} {text_of(number)} is not a number{' of ns' * (name == 'time')}")
    return number


def _fields(form: Any) -> dict[str, Any]:
    form = _untagged(form)
    if not isinstance(form, FormMap):
        return {}
    return {key.name: value for key, value in form.items() if isinstance(key, Keyword)}


def _untagged(form: Any) -> Any:
    """The form of a record, such as `#jepsen.history.Op{...}`."""
    return form.form if isinstance(form, Tagged) else form


def _name(form: Any) -> str | None:
    """The name of a keyword, None for any other form."""
    return form.name if isinstance(form, Keyword) else None


def _is_pair(form: Any) -> bool:
    return isinstance(form, list) and len(form) == 2


def _names_a_key(operation: ForeignOperation) -> bool:
    """Whether the value of a register's operation has a key, as `jepsen.independent` writes it."""
    asked = operation.asked
    return _is_pair(asked) and (operation.f != "cas" or _is_pair(asked[1]))


def _is_error(form: Any) -> bool:
    """Whether the value of a completion that is not ok names an error, in place of the value."""
    return form is None or isinstance(form, Keyword | str)


def _contradiction(path: Path, operation: ForeignOperation, given: Any, asked: Any) -> ForeignError:
    problem = f"the completion of {operation.f} has {text_of(given)}, but line {operation.line} invoked"
    return ForeignError(path, operation.completed_in, f"{problem} {text_of(asked)}; {_AS_WRITTEN}")


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
        for each in operations:
            if each.f not in F_OF:
                problem = f":f {each.f} in a history of registers; check logs and registers apart"
                raise ForeignError(self._path, each.line, problem)
            self._add(each)
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
        key, asked = self._key_and_value(operation, operation.line, operation.asked)
        answer = operation.answer
        if self._is_keyed and not _is_error(answer):
            answered_key, answer = self._key_and_value(operation, operation.completed_in, answer)
            if answered_key != key:
                raise _contradiction(self._path, operation, operation.answer, operation.asked)
        is_answer = operation.outcome == OK and operation.f == "read"
        if not self._agrees(operation, asked, answer):
            raise _contradiction(self._path, operation, operation.answer, operation.asked)
        value = answer if is_answer else asked
        if kind := _kind_of_value(value):
            if is_answer:
                self._shown = self._shown or (operation.completed_in, kind)
            self._writes_collections |= operation.f == "write"
        if operation.f != "cas":
            self._rows.add(operation, key, _text(value))
            return
        if not _is_pair(value):
            problem = f"the value of a cas is {text_of(value)}: [EXPECTED NEW] is needed"
            raise ForeignError(self._path, operation.line, problem)
        self._writes_collections |= _kind_of_value(value[1]) != ""
        self._rows.add(operation, key, _text(value[1]), _text(value[0]))

    def _key_and_value(self, operation: ForeignOperation, line: int, form: Any) -> tuple[str, Any]:
        if not self._is_keyed:
            return _SINGLE_KEY, form
        if not _is_pair(form):
            problem = f"the value of {operation.f} is {text_of(form)}, but values are taken as [KEY VALUE]"
            raise ForeignError(self._path, line, f"{problem}; if pairs are values, say --no-independent")
        return text_of(form[0]), form[1]

    @staticmethod
    def _agrees(operation: ForeignOperation, asked: Any, answer: Any) -> bool:
        """Whether a completion repeats what was invoked: the value that is written, or a value that a read repeats."""
        if operation.outcome != OK and _is_error(answer):
            return True
        unsaid = asked if operation.f == "read" else answer
        return unsaid is None or text_of(asked) == text_of(answer)


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
        for each in operations:
            if each.f in F_OF:
                problem = f":f {each.f} in a history of logs; check logs and registers apart"
                raise ForeignError(self._path, each.line, problem)
            if each.f in PLACES:
                self._place(each)
            elif each.f in SENDS_AND_POLLS:
                self._transact(each)
        not_judged = "isolation of transactions", "positions of consumers that subscribe"
        return self._rows.history(*not_judged, doubts=order.doubts())

    def _place(self, operation: ForeignOperation) -> None:
        """A consumer chose its partitions, or left the choice to the service."""
        asked = operation.asked
        keys = asked.keys if isinstance(asked, _FromTheStart) else asked
        if isinstance(keys, FormSet):
            keys = list(keys.elements.values())
        if not isinstance(keys, list):
            problem = f"the value of {operation.f} is {text_of(keys)}: a list of keys is needed"
            raise ForeignError(self._path, operation.line, problem)
        if operation.f == "assign" and operation.outcome == OK:
            from_start = isinstance(asked, _FromTheStart)
            self._rows.assigned(operation.process, set(map(text_of, keys)), from_start=from_start)
        else:
            self._rows.subscribed(operation.process)

    def _transact(self, operation: ForeignOperation) -> None:
        """The sends and polls of one operation, each as its completion has it, if that goes so far."""
        asked = self._steps(operation, operation.line, operation.asked)
        answer = operation.answer
        if operation.outcome != OK and _is_error(answer):
            answer = None
        answered = [] if answer is None else self._steps(operation, operation.completed_in, answer)
        if len(answered) > len(asked) or (
            operation.outcome == OK and answer is not None and len(answered) < len(asked)
        ):
            raise _contradiction(self._path, operation, operation.answer, operation.asked)
        sends = []
        with self._rows.polls_of(operation):
            for place, invoked in enumerate(asked):
                step = answered[place] if place < len(answered) else None
                kind = _name(invoked[0]) if invoked else None
                if step is not None and (not step or _name(step[0]) != kind):
                    raise _contradiction(self._path, operation, step, invoked)
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
            if _is_pair(step[2]) and text_of(step[2][1]) == value:
                return self._offset(operation, step[2][0])
        raise _contradiction(self._path, operation, step, invoked)

    def _poll(self, operation: ForeignOperation, step: Any) -> None:
        shown = step[1] if len(step) > 1 and step[1] is not None else FormMap({})
        if not isinstance(shown, FormMap):
            problem = f"the answer of a poll is {text_of(shown)}: a map of keys is needed"
            raise ForeignError(self._path, operation.completed_in, problem)
        for key, records in shown.items():
            returned = []
            for record in records if isinstance(records, list) else [records]:
                offset = self._offset(operation, record[0]) if _is_pair(record) else None
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
