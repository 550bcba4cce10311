"""Reads Jepsen's `history.edn`: registers (`jepsen.tests.linearizable-register`) and logs (`jepsen.tests.kafka`).

The model follows from the operations: read, write and cas are of registers; send, poll and txn are of logs. A history
of registers by `jepsen.independent` has `[KEY VALUE]` for each value. A failed operation of Jepsen did not happen, and
that is all it says: a failed cas does not show that the value was another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from history.foreign.edn import forms_of, text_of
from history.foreign.events import TYPES, Event, ForeignOperation, operations_of
from history.foreign.history import ForeignError, ForeignHistory
from history.foreign.log_rows import LogRows
from history.foreign.register_rows import F_OF, RegisterRows
from history.schemas import OK

SENDS_AND_POLLS: Final = ("send", "poll", "txn")
PLACES: Final = ("subscribe", "assign")
NO_OPERATIONS: Final = ("crash", "debug-topic-partitions", "clear-assignments", "await")
"""Of `jepsen.tests.kafka`: they say nothing about a log."""
_KNOWN: Final = (*F_OF, *SENDS_AND_POLLS, *PLACES, *NO_OPERATIONS)
_SINGLE_KEY: Final = "register"


@dataclass(frozen=True)
class _FromTheStart:
    """The keys of an assignment that moves the consumer to the start of each."""

    keys: Any


def read(path: Path, directory: Path) -> ForeignHistory:
    """The history in a file, written below a directory. Raises ForeignError."""
    operations = operations_of(path, _events(path))
    first = next((each for each in operations if each.f not in (*PLACES, *NO_OPERATIONS)), None)
    if first is None:
        raise ForeignError(path, 0, "has no operation of a client; name the history.edn of a test that ran")
    whole = chain([first], operations)
    try:
        return _registers(path, directory, whole) if first.f in F_OF else _log(path, directory, whole)
    except RecursionError as error:
        raise ForeignError(
            path, 0, "has a value that is nested too deep; give a history with flatter values"
        ) from error


def _events(path: Path) -> Iterator[Event]:
    for number, form in forms_of(path):
        fields = _fields(form)
        process, kind, f = fields.get("process"), _name(fields.get("type")), _name(fields.get("f"))
        if kind is None or f is None or process is None:
            raise ForeignError(path, number, "is not an operation: a map with :type, :f, :process and :value is needed")
        if _name(process) is not None:  # the nemesis
            continue
        if isinstance(process, bool) or not isinstance(process, int):
            problem = f":process {text_of(process)} is neither a number nor a keyword such as :nemesis"
            raise ForeignError(path, number, f"{problem}; give the history as the tool wrote it")
        if kind not in TYPES:
            raise ForeignError(path, number, f":type {kind} is unknown: one of {', '.join(TYPES)}")
        if f not in _KNOWN:
            raise ForeignError(path, number, f":f {f} is not known: a register or a log has {', '.join(_KNOWN)}")
        time = fields.get("time")
        if time is not None and (isinstance(time, bool) or not isinstance(time, int) or time < 0):
            raise ForeignError(path, number, f":time {time} is not a number of ns")
        error = text_of(fields["error"]) if fields.get("error") is not None else ""
        if kind == "ok" and "value" not in fields and f in (*F_OF, *SENDS_AND_POLLS):
            raise ForeignError(path, number, f":value of an answered {f} is missing; write nil where nothing was read")
        value = fields.get("value")
        if f == "assign" and fields.get("seek-to-beginning?"):
            value = _FromTheStart(value)
        yield Event(number, process, kind, f, value, time, error)


def _fields(form: Any) -> dict[str, Any]:
    if not hasattr(form, "items"):
        return {}
    return {name: value for key, value in form.items() if (name := _name(key)) is not None}


def _name(form: Any) -> str | None:
    """The name of a keyword, None for any other form."""
    import edn_format

    return str(form.name) if isinstance(form, edn_format.Keyword) else None


def _registers(path: Path, directory: Path, operations: Iterator[ForeignOperation]) -> ForeignHistory:
    rows = RegisterRows(path, directory, failed_cas_is_mismatch=False)
    is_keyed: bool | None = None
    for each in operations:
        if each.f not in F_OF:
            raise ForeignError(
                path, each.line, f":f {each.f} in a history of registers; check logs and registers apart"
            )
        is_keyed = _names_a_key(each) if is_keyed is None else is_keyed
        given = each.answer if each.f == "read" and each.outcome == OK else each.asked
        key = _SINGLE_KEY
        if is_keyed:
            if not _is_pair(given):
                problem = (
                    f"the value of {each.f} is {text_of(given)}: [KEY VALUE], as the first operation has it, is needed"
                )
                raise ForeignError(path, each.line, problem)
            key, given = text_of(given[0]), given[1]
        if each.f != "cas":
            rows.add(each, key, _text(given))
        elif _is_pair(given):
            rows.add(each, key, _text(given[1]), _text(given[0]))
        else:
            raise ForeignError(path, each.line, f"the value of a cas is {text_of(given)}: [EXPECTED NEW] is needed")
    return rows.history("failed compare-and-sets: Jepsen does not record whether the value was another one")


def _names_a_key(operation: ForeignOperation) -> bool:
    """Whether the value of a register's operation has a key, as `jepsen.independent` writes it."""
    asked = operation.asked
    return _is_pair(asked) and (operation.f != "cas" or _is_pair(asked[1]))


def _is_pair(form: Any) -> bool:
    is_sequence = hasattr(form, "__getitem__") and not hasattr(form, "items") and not isinstance(form, str)
    return is_sequence and len(form) == 2


def _text(form: Any) -> str | None:
    return None if form is None else text_of(form)


def _log(path: Path, directory: Path, operations: Iterator[ForeignOperation]) -> ForeignHistory:
    rows = LogRows(path, directory)
    for each in operations:
        if each.f in F_OF:
            raise ForeignError(path, each.line, f":f {each.f} in a history of logs; check logs and registers apart")
        if each.f in PLACES:
            _place(path, rows, each)
        elif each.f in SENDS_AND_POLLS:
            _transact(path, rows, each)
    return rows.history("isolation of transactions", "positions of consumers that subscribe")


def _place(path: Path, rows: LogRows, operation: ForeignOperation) -> None:
    """A consumer chose its partitions, or left the choice to the service."""
    asked = operation.asked
    keys = asked.keys if isinstance(asked, _FromTheStart) else asked
    if not hasattr(keys, "__iter__") or isinstance(keys, str):
        problem = f"the value of {operation.f} is {text_of(keys)}: a list of keys is needed"
        raise ForeignError(path, operation.line, problem)
    if operation.f == "assign" and operation.outcome == OK:
        rows.assigned(operation.process, {text_of(key) for key in keys}, from_start=keys is not asked)
    else:
        rows.subscribed(operation.process)


def _transact(path: Path, rows: LogRows, operation: ForeignOperation) -> None:
    """The sends and polls of one operation, from its completion if that lists as many."""
    asked, answer = _steps(path, operation, operation.asked), _steps(path, operation, operation.answer)
    done = answer if operation.answer is not None and len(answer) == len(asked) else asked
    sends = []
    for invoked, step in zip(asked, done, strict=True):
        kind = _name(step[0]) if len(step) else None
        if kind == "send" and len(step) == 3 and len(invoked) == 3:
            value = invoked[2]
            offset = step[2][0] if step is not invoked and _is_pair(step[2]) and not _is_pair(value) else None
            sends.append((text_of(step[1]), text_of(value), _offset(path, operation, offset)))
        elif kind == "poll":
            if operation.outcome == OK:
                _poll(path, rows, operation, step)
        else:
            problem = (
                f"{text_of(step)} is not a step: [:send KEY VALUE] or [:poll {{KEY [[OFFSET VALUE] ...]}}] is needed"
            )
            raise ForeignError(path, operation.line, problem)
    if operation.outcome != OK and any(_name(step[0]) == "poll" for step in asked):
        rows.poll_without_answer(operation.process, operation.outcome)
    rows.send(operation, sends)


def _steps(path: Path, operation: ForeignOperation, value: Any) -> list[Any]:
    steps = [] if value is None else value
    if not hasattr(steps, "__iter__") or any(not hasattr(step, "__getitem__") for step in steps):
        problem = f"the value of {operation.f} is {text_of(value)}: a list of [:send KEY VALUE] and [:poll] is needed"
        raise ForeignError(path, operation.line, problem)
    return list(steps)


def _poll(path: Path, rows: LogRows, operation: ForeignOperation, step: Any) -> None:
    shown = step[1] if len(step) > 1 and step[1] is not None else {}
    if not hasattr(shown, "items"):
        raise ForeignError(path, operation.line, f"the answer of a poll is {text_of(shown)}: a map of keys is needed")
    for key, records in shown.items():
        found = []
        for record in records:
            offset = _offset(path, operation, record[0]) if _is_pair(record) else None
            if offset is None:
                raise ForeignError(path, operation.line, f"a poll has {text_of(record)}: [OFFSET VALUE] is needed")
            found.append((offset, text_of(record[1])))
        rows.poll(operation, text_of(key), found)


def _offset(path: Path, operation: ForeignOperation, offset: Any) -> int | None:
    if offset is None:
        return None
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 60:
        raise ForeignError(path, operation.line, f"the offset {text_of(offset)} is not a number of at least 0")
    return offset
