"""Reads and validates a run's journal: its events, and its missing or invalid lines as defects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history.checksummed_lines import read_lines
from history.client_files import is_counts
from history.damage import Damage
from history.journal import (
    ASSIGNMENT,
    CLIENT,
    CLIENT_ENDED,
    CONVERGED,
    JOINED,
    NOT_CONVERGED,
    PHASES,
    REASSIGNED,
    STATUSES,
    TESTER_SHORT,
)
from history.schemas import INF
from history.service_events import FATAL_LINE, RUNNING, SERVICE_EXIT, STARTED, STOPPED

Line = dict[str, Any]
_DAMAGE: Final = tuple(map(str, Damage))


@dataclass(frozen=True)
class JournalReader:
    """`lines`: the valid events, in order. `defects`: what was invalid, as sentences. `is_torn`: the last line was not
    ended."""

    lines: tuple[Line, ...] = ()
    defects: tuple[str, ...] = ()
    is_torn: bool = False


def _whole(value: Any) -> bool:
    return type(value) is int


def _time(value: Any) -> bool:
    return type(value) is int and 0 <= value < INF


def _seconds(value: Any) -> bool:
    # The comparison comes first: an integer may be too large for isfinite(); NaN fails the comparison.
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) < 1e11


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _one_of(*names: str) -> Callable[[Any], bool]:
    return lambda value: value in names


def _rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, list) and all(map(_whole, row)) for row in value)


def _row(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole, value))


def _offsets(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_whole, value.values()))


def _range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_whole(each) and each >= 0 for each in value)


def _shown_facts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) and all(map(_fact, some)) for some in value.values())


def _fact(value: Any) -> bool:
    """A condition on evidence, in the form that `analysis.evidence.fault_evidence` reads."""
    return (
        isinstance(value, dict)
        and _text(value.get("key"))
        and _text(value.get("differs_from", ""))
        and all(isinstance(value.get(name, []), list) for name in ("values", "unlike"))
        and _seconds(value.get("least", 0))
    )


def _damage(value: Any) -> bool:
    return isinstance(value, list) and all(each in _DAMAGE for each in value)


def _duration(value: Any) -> bool:
    return _seconds(value) and bool(value >= 0)


def _files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, dict) and _whole(each.get("bytes")) and _text(each.get("sha256")) for each in value.values()
    )


_ALWAYS: Final[Mapping[str, Callable[[Any], bool]]] = {"t": _time, "wall": _seconds}
EVENTS: Final[Mapping[str, Mapping[str, Callable[[Any], bool]]]] = {
    "run_started": {},
    "phase": {"name": _one_of(*PHASES)},
    ASSIGNMENT: {"replicas": _rows},
    REASSIGNED: {"partition": _whole, "replicas": _row},
    JOINED: {
        "node": _text,
        "partition": _whole,
        "leader": _text,
        "seconds": _duration,
        "before": _offsets,
        "after": _offsets,
        "segments": _row,
        "moved": _whole,
        "epochs": _rows,
        "leader_epochs": _rows,
        "starts_at": _or_none(_text),
    },
    CLIENT: {"client": _text, "process": _whole, "role": _text, "session": _whole, "producers": _range},
    CLIENT_ENDED: {
        "client": _text,
        "exit_code": _or_none(_whole),
        "operations": _or_none(is_counts),
        "files": _files,
    },
    "fault_invoked": {"id": _text, "kind": _text, "targets": _texts, "parameters": _table},
    "fault_injected": {"id": _text, "status": _one_of(*STATUSES), "evidence": _table},
    "fault_healed": {"id": _text, "evidence": _table},
    "heal_all": {"status": _one_of(*STATUSES), "evidence": _table},
    "node": {"node": _text, "what": _one_of(STARTED, RUNNING, STOPPED)},
    "step_done": {"step": _whole},
    "note": {"text": _text},
    SERVICE_EXIT: {"node": _text, "exit_code": _or_none(_whole), "signal": _or_none(_whole), "last_words": _text},
    FATAL_LINE: {"node": _text, "pattern": _text, "line": _text},
    CONVERGED: {"seconds": _duration},
    NOT_CONVERGED: {"bound_s": _duration, "seen": _text},
    TESTER_SHORT: {"resource": _text, "since": _whole, "seen": _text},
}
"""The required fields of each event's line; others are allowed."""


_OF_FAULTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "kind": _text,
    "targets": _texts,
    "parameters": _table,
    "sentence": _text,
    "proof": _text,
    "status": _one_of(*STATUSES),
}
"""Fields that are taken from whichever line of a fault has them."""
_MAY_HAVE: Final[Mapping[str, Mapping[str, Callable[[Any], bool]]]] = {
    "fault_invoked": {**_OF_FAULTS, "must_show": _shown_facts, "may_destroy": _damage, "group": _text, "mark": _text},
    "fault_injected": _OF_FAULTS,
    "fault_healed": _OF_FAULTS,
    CLIENT: {"seed": _whole},
    CLIENT_ENDED: {"killed": _whole},
    "note": {"dumped": _texts, "undumped": _text},
    SERVICE_EXIT: {"way": _text, "kernel": _text, "core": _text},
}


def read_journal(path: Path) -> JournalReader:
    """The journal in a file. A missing or unreadable file is a defect."""
    try:
        read = read_lines(path)
    except OSError as error:
        return JournalReader(defects=(f"{path.name} cannot be read: {error.strerror}",))
    lines: list[Line] = []
    defects = [f"{path.name}: {defect}" for defect in read.defects]
    faults: set[str] = set()
    latest = 0
    for number, line in read.contents:
        problem = next(_problems(line, faults, latest), None)
        if problem is not None:
            defects.append(f"{path.name}: line {number} {problem}")
            continue
        latest = line["t"]
        lines.append(line)
    if read.torn:
        defects.append(f"{path.name} was torn: its tail is lost")
    if not lines and not defects:
        defects.append(f"{path.name} is empty")
    return JournalReader(tuple(lines), tuple(defects), read.torn)


def _problems(line: Line, faults: set[str], latest: int) -> Iterator[str]:
    """The defects of a line. `faults`: the ids of the faults invoked before it."""
    event = line.get("event")
    if not isinstance(event, str) or event not in EVENTS:
        yield f"has the unknown event {event!r}"
        return
    for name, check in {**_ALWAYS, **EVENTS[event]}.items():
        if name not in line:
            yield f"is a {event} without {name}"
        elif not check(line[name]):
            yield f"is a {event} with {name} {_shown(line[name])}"
    for name, check in _MAY_HAVE.get(event, {}).items():
        if name in line and not check(line[name]):
            yield f"is a {event} with {name} {_shown(line[name])}"
    if line["t"] < latest:
        yield "has an earlier time than the line before it"
    if event == "fault_invoked":
        if line["id"] in faults:
            yield f"invokes the fault {line['id']} a second time"
        faults.add(line["id"])
    elif event in ("fault_injected", "fault_healed") and line["id"] not in faults:
        yield f"is a {event} of {line['id']}, which was never invoked"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
