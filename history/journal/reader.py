"""Reads and validates a run's journal: its events, and its missing or invalid lines as defects.

An event is valid if its line converts to the struct that the tables below define for it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from history.checksummed_lines import read_lines
from history.damage import Damage
from history.journal.evidence_rule import EvidenceRule
from history.journal.service_events import FATAL_LINE, LOG_EVENT, RUNNING, SERVICE_EXIT, STARTED, STOPPED
from history.journal.writer import (
    ADMINISTERED,
    ASSIGNMENT,
    CLIENT,
    CLIENT_ENDED,
    CLUSTER_SEEN,
    CONVERGED,
    DELETION_SENT,
    FINAL_READ_STALLED,
    JOINED,
    NOT_CONVERGED,
    PHASES,
    REASSIGNED,
    RECORDS_DELETED,
    STATUSES,
    TESTER_SHORT,
)
from history.record.schemas import INF
from installation.sanitize import brief, quoted

Line = dict[str, Any]


@dataclass(frozen=True)
class JournalReader:
    """`lines`: the valid events, in order. `defects`: what was invalid, as sentences. `is_torn`: the last line was not
    ended."""

    lines: tuple[Line, ...] = ()
    defects: tuple[str, ...] = ()
    is_torn: bool = False


_Time = Annotated[int, Meta(ge=0, lt=INF)]
_Natural = Annotated[int, Meta(ge=0)]
_Number = Annotated[float, Meta(gt=-1e11, lt=1e11)]
_Range = Annotated[list[_Natural], Meta(min_length=2, max_length=2)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e11)]


class _File(msgspec.Struct):
    bytes: int
    sha256: str


class _Read(msgspec.Struct):
    read: int
    end: int
    idle_s: _Number
    error: str


class _SeenTopic(msgspec.Struct):
    replicas: list[list[int]]
    settings: dict[str, str]


_ALWAYS: Final[Mapping[str, Any]] = {"t": _Time, "wall": _Number}
EVENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "run_started": {},
    "phase": {"name": Literal[*PHASES]},
    ASSIGNMENT: {"replicas": list[list[int]]},
    REASSIGNED: {"partition": int, "replicas": list[int]},
    JOINED: {
        "node": str,
        "partition": int,
        "leader": str,
        "seconds": _Seconds,
        "before": dict[str, int],
        "after": dict[str, int],
        "segments": list[int],
        "moved": int,
        "epochs": list[list[int]],
        "leader_epochs": list[list[int]],
        "starts_at": str | None,
    },
    DELETION_SENT: {"client": str, "number": _Natural, "partition": _Natural, "offset": _Natural},
    ADMINISTERED: {
        "client": str,
        "operation": str,
        "target": str,
        "outcome": Literal["ok", "fail", "info"],
        "error": str,
        "arguments": dict[str, Any],
    },
    CLUSTER_SEEN: {
        "client": str,
        "nodes": list[int],
        "topics": dict[str, _SeenTopic],
        "records": dict[str, tuple[_Natural, list[tuple[_Natural, str]]]],
        "groups": dict[str, int],
    },
    RECORDS_DELETED: {"client": str, "number": _Natural, "low_watermark": int, "error": str},
    CLIENT: {"client": str, "process": int, "role": str, "session": int, "producers": _Range},
    CLIENT_ENDED: {"client": str, "exit_code": int | None, "files": dict[str, _File]},
    "fault_invoked": {"id": str, "kind": str, "targets": list[str], "parameters": dict[str, Any]},
    "fault_injected": {"id": str, "status": Literal[*STATUSES], "evidence": dict[str, Any]},
    "fault_healed": {"id": str, "evidence": dict[str, Any]},
    "heal_all": {"status": Literal[*STATUSES], "evidence": dict[str, Any]},
    "node": {"node": str, "what": Literal[STARTED, RUNNING, STOPPED]},
    "step_done": {"step": int},
    "note": {"text": str},
    SERVICE_EXIT: {"node": str, "exit_code": int | None, "signal": int | None, "last_words": str},
    FATAL_LINE: {"node": str, "pattern": str, "line": str},
    LOG_EVENT: {"node": str, "name": str, "line": str},
    CONVERGED: {"seconds": _Seconds},
    NOT_CONVERGED: {"bound_s": _Seconds, "seen": str},
    FINAL_READ_STALLED: {
        "place": str,
        "bound_s": _Seconds,
        "reads": list[_Read],
        "takes_writes": bool,
        "ended": list[str],
        "running": list[str],
        "reached": list[str],
    },
    TESTER_SHORT: {"resource": str, "since": int, "seen": str},
    "outputs": {},  # older runs have it
}
"""The required fields of each event's line; others are allowed."""


_OF_FAULTS: Final[Mapping[str, Any]] = {
    "kind": str,
    "targets": list[str],
    "parameters": dict[str, Any],
    "sentence": str,
    "proof": str,
    "status": Literal[*STATUSES],
}
"""Fields that any line of a fault may have."""
_MAY_HAVE: Final[Mapping[str, Mapping[str, Any]]] = {
    "fault_invoked": {
        **_OF_FAULTS,
        "must_show": dict[str, list[EvidenceRule]],
        "may_destroy": list[Damage],
        "group": str,
        "mark": str,
    },
    "fault_injected": _OF_FAULTS,
    "fault_healed": _OF_FAULTS,
    CLIENT: {"seed": int},
    CLIENT_ENDED: {"killed": int},
    NOT_CONVERGED: {"running": list[str], "reached": list[str]},
    "note": {"dumped": list[str], "undumped": str},
    SERVICE_EXIT: {"way": str, "kernel": str, "core": str},
}


def _struct(event: str) -> type[msgspec.Struct]:
    may_have = [(name, kind | msgspec.UnsetType, msgspec.UNSET) for name, kind in _MAY_HAVE.get(event, {}).items()]
    needed = {**_ALWAYS, **EVENTS[event]}
    return msgspec.defstruct(event, [*needed.items(), *(field for field in may_have if field[0] not in needed)])


_STRUCTS: Final = {event: _struct(event) for event in EVENTS}
_INVALID: Final = re.compile(r"`\$\.(\w+)")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
"""In a message of msgspec: the field of the line that is invalid, or missing."""


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
        yield f"has the unknown event {quoted(event)}"
        return
    try:
        msgspec.convert(line, _STRUCTS[event])
    except msgspec.ValidationError as error:
        yield f"is a {event} {_problem_of(line, str(error))}"
        return
    if line["t"] < latest:
        yield "has an earlier time than the line before it"
    if event == "fault_invoked":
        if line["id"] in faults:
            yield f"invokes the fault {line['id']} a second time"
        faults.add(line["id"])
    elif event in ("fault_injected", "fault_healed") and line["id"] not in faults:
        yield f"is a {event} of {line['id']}, which was never invoked"


def _problem_of(line: Line, message: str) -> str:
    match = _INVALID.search(message) or _MISSING.search(message)
    assert match is not None, message
    name = match[1]
    return f"with {name} {brief(quoted(line[name]), 60)}" if name in line else f"without {name}"
