"""The fields of a line of a JSON lines history, their bounds, and the clock of its times."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from history.journal.writer import wall_ahead
from history.record.schemas import APPEND, CAS, END, INF, MISMATCH, OUTCOMES, READ, WRITE
from history.record.shapes import LOG, REGISTER, Shape
from history.topic_folders import is_topic
from installation.sanitize import brief

_MOST: Final = (1 << 63) - 1


class BadLineError(Exception):
    """A line is not an operation; the message says what is wrong and what is needed."""


def _integer(low: int, high: int) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadLineError(f'"{name}" is {_shown(value)}: an integer in {low} .. {high} is needed')

    return check


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise BadLineError(f'"{name}" is {_shown(value)}: a text that is not empty is needed')
    try:
        value.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can express and UTF-8 cannot
        raise BadLineError(f'"{name}" is {_shown(value)}: not valid text') from error


def _topic(name: str, value: Any) -> None:
    _text(name, value)
    if not is_topic(value):
        raise BadLineError(
            f'"{name}" is {_shown(value)}: a topic\'s name is needed, 1 to 249 of the characters a-z, A-Z, 0-9, ".", '
            '"_" and "-", and neither "." nor ".."'
        )


def _value_or_nil(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not -_MOST <= value <= _MOST):
        raise BadLineError(f'"{name}" is {_shown(value)}: a 64-bit integer is needed, or null for an absent key')


def _records(name: str, value: Any) -> None:
    if not isinstance(value, list):
        raise BadLineError(f'"{name}" is {_shown(value)}: a list of [offset, value] is needed')
    for record in value:
        if not isinstance(record, list) or len(record) != 2:
            raise BadLineError(f'"{name}" holds {_shown(record)}: each record is [offset, value]')
        _OFFSET(f"{name}: offset", record[0])
        _integer(-_MOST, _MOST)(f"{name}: value", record[1])


_OFFSET: Final = _integer(0, INF - 1)
_TIME: Final = _integer(0, _MOST)

_CHECKS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    "topic": _topic,
    "key": _text,
    "phase": _text,
    "error": _text,
    "endpoint": _text,
    "partition": _integer(0, (1 << 31) - 1),
    "acks": _integer(-1, 127),
    "session": _integer(0, (1 << 31) - 1),
    "inv": _TIME,
    "ret": _TIME,
    "offset": _OFFSET,
    "from": _OFFSET,
    "end": _OFFSET,
    "lo": _OFFSET,
    "hi": _OFFSET,
    "records": _records,
    "expected": _value_or_nil,
    "new": _integer(-_MOST, _MOST),
}


@dataclass(frozen=True)
class _Form:
    """The fields of one operation: those of its invocation, and those of its answer when it is ok."""

    shape: Shape
    f: int
    asked: frozenset[str]
    may_ask: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    may_answer: frozenset[str] = frozenset()
    value: Callable[[str, Any], None] = _value_or_nil


_PLACE: Final = frozenset({"topic", "partition"})
_SESSION: Final = frozenset({"session"})
_ENDPOINT: Final = frozenset({"endpoint"})
_FORMS: Final[Mapping[tuple[Shape, str], _Form]] = {
    (LOG, "append"): _Form(
        LOG, APPEND, _PLACE | {"value"}, _SESSION | {"acks"}, may_answer=frozenset({"offset"}), value=_integer(0, _MOST)
    ),
    (LOG, "read"): _Form(
        LOG, READ, _PLACE | {"from"}, _SESSION, answered=frozenset({"records"}), may_answer=frozenset({"lo", "hi"})
    ),
    (LOG, "end"): _Form(LOG, END, _PLACE, _SESSION, answered=frozenset({"end"})),
    (REGISTER, "read"): _Form(REGISTER, READ, frozenset({"key"}), _ENDPOINT, answered=frozenset({"value"})),
    (REGISTER, "write"): _Form(REGISTER, WRITE, frozenset({"key", "value"}), _ENDPOINT, value=_integer(-_MOST, _MOST)),
    (REGISTER, "cas"): _Form(REGISTER, CAS, frozenset({"key", "expected", "new"}), _ENDPOINT),
}


def _form_of(line: Mapping[str, Any]) -> _Form:
    f = line.get("f")
    names = sorted({name for _, name in _FORMS})
    if f is None:
        raise BadLineError(f'"f" is missing: one of {", ".join(names)}')
    if "key" in line and "topic" in line:
        raise BadLineError('it has both "key" and "topic": a register has a key, a log a topic and partition')
    shapes = [shape for shape, name in _FORMS if name == f]
    if not shapes:
        raise BadLineError(f'"f" is {_shown(f)}: one of {", ".join(names)}')
    shape = shapes[0] if len(shapes) == 1 else REGISTER if "key" in line else LOG
    if len(shapes) == 2 and "key" not in line and "topic" not in line:
        raise BadLineError('a read needs a "key" (of a register) or a "topic" and "partition" (of a log)')
    return _FORMS[shape, f]


def require_place(line: Mapping[str, Any]) -> None:
    """Raises BadLineError unless the topic and the partition of a line are valid."""
    for name in sorted(_PLACE):
        _CHECKS[name](name, line[name])


def require_invocation(line: Mapping[str, Any]) -> None:
    """Raises BadLineError when a line is not an invocation: an operation without an outcome."""
    form = _form_of(line)
    _require(line, form.asked | {"f", "type", "id", "inv"}, form.may_ask | {"phase"}, form)


def operation_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """A whole operation's fields, with `shape`, codes for `f` and `outcome`, and defaults for absent fields.

    Raises BadLineError when it is not a valid operation.
    """
    form = _form_of(line)
    kind = line.get("type")
    if not isinstance(kind, str) or kind not in OUTCOMES:
        missing = "is missing" if kind is None else f"is {_shown(kind)}"
        raise BadLineError(f'"type" {missing}: one of ok, fail, info, or invoke for an invocation alone')
    needed, allowed = form.asked | {"f", "type", "inv"}, form.may_ask | {"phase"}
    if kind == "ok":
        needed, allowed = needed | form.answered | {"ret"}, allowed | form.may_answer
    elif kind == "fail":
        needed |= {"ret", "error"}
    else:
        allowed |= {"error"}
    _require(line, needed, allowed, form)
    if "ret" in line and line["ret"] < line["inv"]:
        raise BadLineError(
            f"it returned at {line['ret']}, before its invocation at {line['inv']}: ret >= inv is needed"
        )
    _require_sense(line, form)
    blank = {"value": None, "expected": None, "new": None, "ret": None, "error": ""}
    return {**blank, **line, "shape": form.shape, "f": form.f, "outcome": OUTCOMES[kind]}


def _require_sense(line: Mapping[str, Any], form: _Form) -> None:
    if line.get("error") == MISMATCH and form.f != CAS:
        raise BadLineError(f'the error "{MISMATCH}" is for a cas that found another value')
    if line.get("error") == MISMATCH and line["type"] != "fail":
        raise BadLineError(f'a cas with the error "{MISMATCH}" has the type "fail": it certainly did not swap')
    records = line.get("records") or []
    if any(b <= a for a, b in pairwise(offset for offset, _ in records)):
        raise BadLineError('the offsets of "records" must rise')
    if "hi" in line and "lo" in line and line["lo"] > line["hi"]:
        raise BadLineError(f'"lo" {line["lo"]} is above "hi" {line["hi"]}: they bound the log\'s length')


def _require(line: Mapping[str, Any], needed: frozenset[str], allowed: frozenset[str], form: _Form) -> None:
    """Raises BadLineError unless a line has all needed fields, no others but allowed ones, each within its bounds."""
    kind = f'{line["f"]} of type "{line["type"]}"'
    for name in sorted(line.keys() - needed - allowed):
        field_names = ", ".join(sorted(needed | allowed))
        raise BadLineError(f'"{name}" is not a field of a {kind}: its fields are {field_names}')
    for name in sorted(needed - line.keys()):
        raise BadLineError(f'"{name}" is missing: a {kind} needs {", ".join(sorted(needed))}')
    for name, value in line.items():
        check = form.value if name == "value" else _CHECKS.get(name)
        if check is not None:
            check(name, value)


@dataclass(frozen=True)
class Clock:
    """Converts a file's times to CLOCK_MONOTONIC ns: `behind` is subtracted, and intervals widen by `error` each
    way."""

    behind: int = 0
    error: int = 0

    def interval(self, inv: int, ret: int | None) -> tuple[int, int]:
        """An operation's interval; `ret` None: it never returned. Raises BadLineError for times that this boot's clock
        cannot have shown: an answer at INF would mean "never returned"."""
        start = inv - self.behind - self.error
        end = INF if ret is None else ret - self.behind + self.error
        for name, time, is_possible in (
            ("inv", inv, -self.error - 1 <= start < INF),
            ("ret", ret, ret is None or end < INF),
        ):
            if not is_possible:
                raise BadLineError(
                    f"{name} {time} is not a time of the run: use ns of CLOCK_MONOTONIC, or of the wall clock if "
                    'the first line says {"clock": "wall", "error_ns": ...}'
                )
        return max(start, 0), end


def clock_of(line: Mapping[str, Any], journal: Sequence[Mapping[str, Any]]) -> tuple[Clock, str]:
    """The clock that a file's first line declares, and the client's name if it gives one.

    Wall-clock times are mapped to the run's clock by the journal's `run_started` line. If later lines show that the
    machine's wall clock was set, it is unknown which of the two settings the client used. Raises BadLineError.
    """
    for name in sorted(line.keys() - {"clock", "error_ns", "client"}):
        raise BadLineError(f'"{name}" is not a field of the first line: its fields are client, clock, error_ns')
    client = line.get("client", "")
    if "client" in line:
        _text("client", client)
    error = line.get("error_ns", 0)
    _integer(0, 10**12)("error_ns", error)
    if line["clock"] == "monotonic":
        return Clock(error=error), client
    if line["clock"] != "wall":
        raise BadLineError(f'"clock" is {_shown(line["clock"])}: "monotonic" or "wall"')
    if "error_ns" not in line:
        raise BadLineError('a wall clock needs "error_ns": how far it may be off the clock of the machine of the run')
    for event in journal:
        if event.get("event") == "run_started":
            (start_offset,), ahead = wall_ahead([event]), wall_ahead(journal)
            return Clock(start_offset, error + max(abs(offset - start_offset) for offset in ahead)), client
    raise BadLineError("wall-clock times cannot be placed: the run's journal has no run_started event")


def _shown(value: Any) -> str:
    return brief(json.dumps(value), 60)
