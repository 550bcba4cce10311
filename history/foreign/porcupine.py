"""Reads the logs that Porcupine ships for etcd: lines of Jepsen's log, each one event on one register.

    INFO  jepsen.util - 3	:invoke	:cas	[0 4]

A log has no times: each event is taken to be 1 ms later than the one before. A failed cas that repeats its values was
answered: the register did not hold the expected one. With an error in their place, such as `:connection-refused`, the
register did not answer, and the cas did not happen. `:info`, `:timed-out` of a read and a missing completion mean that
the outcome is unknown.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from history.foreign.events import Event, TimeOrder, operations_of
from history.foreign.history import ForeignError, ForeignHistory
from history.foreign.kinds import kind_of, refusal
from history.foreign.register_rows import RegisterRows
from history.foreign.text_lines import lines_of
from history.record.schemas import FAIL, OK

_LINE: Final = re.compile(
    r"INFO\s+jepsen\.\S+\s+-\s+(:[\w-]+|\d{1,10})\s+:(invoke|ok|fail|info)\s+:([\w-]+)(?:\s+(.*\S))?", re.ASCII
)
_INTEGER: Final = r"0|-?[1-9]\d*"
_VALUE: Final = re.compile(rf"nil|{_INTEGER}", re.ASCII)
_PAIR: Final = re.compile(rf"\[(nil|{_INTEGER}) ({_INTEGER})\]", re.ASCII)
_KEY: Final = "register"


def read(path: Path, directory: Path, *, initial: Any = None) -> ForeignHistory:
    """The history in a log, written below a directory. `initial`: what the register holds at the start. Raises
    ForeignError."""
    rows = RegisterRows(path, directory, initial=None if initial is None else str(initial))
    for operation in operations_of(path, _events(path), TimeOrder()):
        argument, answer = str(operation.asked), str(operation.answer)
        is_answered = operation.f == "read" and operation.outcome == OK
        is_repeated = answer in (argument, "nil") or (operation.outcome != OK and answer.startswith(":"))
        if operation.answer is not None and not is_answered and not is_repeated:
            problem = f"the completion of {operation.f} has {answer}, but line {operation.line} invoked {argument}"
            raise ForeignError(path, operation.completed_in, f"{problem}; give the log as the tool wrote it")
        value = answer if is_answered else argument
        if operation.f == "cas":
            if (pair := _PAIR.fullmatch(value)) is None:
                raise ForeignError(path, operation.line, f"the value of a cas is {value}: [EXPECTED NEW] is needed")
            expected = None if pair[1] == "nil" else pair[1]
            rows.add(operation, _KEY, pair[2], expected, is_mismatch=operation.outcome == FAIL and answer == argument)
            continue
        if _VALUE.fullmatch(value) is None:
            raise ForeignError(path, operation.line, f"the value of a {operation.f} is {value}: an integer is needed")
        rows.add(operation, _KEY, None if value == "nil" else value)
    return rows.history()


def _events(path: Path) -> Iterator[Event]:
    for number, text in lines_of(path):
        line = text.strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            problem = 'is not an event of such a log: "INFO  jepsen.util - PROCESS :TYPE :OPERATION VALUE" is needed'
            problem += ", where PROCESS is a number or :nemesis"
            raise ForeignError(path, number, f"{problem}; or name another --format")
        process, kind, f, value = match.groups()
        if process.startswith(":"):  # the nemesis
            continue
        if f not in ("read", "write", "cas"):
            raise ForeignError(path, number, refusal(f, kind_of(f), "the operation"))
        if (f, kind) == ("read", "ok") and not value:
            raise ForeignError(path, number, "the value of an answered read is missing: an integer or nil is needed")
        yield Event(number, int(process), kind, f, value or "nil", error=(value or "").removeprefix(":"))
