"""Checks the order of journal events, and that operations fall within their client's lifetime.

Each event has its phases, its order and its count. The final reads must come after the last heal; otherwise they do not
show the healed state. A record in another order is not of a run that went as planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from history.journal import (
    ASSIGNMENT,
    CLIENT,
    CLIENT_ENDED,
    CONVERGED,
    FINAL_READ_STALLED,
    JOINED,
    NOT_CONVERGED,
    OUTPUTS,
    REASSIGNED,
)
from history.service_events import RUNNING, STARTED, STOPPED
from installation.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.checker import CheckedRun

Line = Mapping[str, Any]

_WHEN: Final[Mapping[str, tuple[str, ...]]] = {
    STARTED: ("setup",),
    ASSIGNMENT: ("setup",),
    "fault_invoked": ("main",),
    "fault_injected": ("main",),
    "fault_healed": ("main", "heal"),
    "step_done": ("main",),
    REASSIGNED: ("main",),
    JOINED: ("main",),
    "heal_all": ("heal",),
    CONVERGED: ("quiesce",),
    NOT_CONVERGED: ("quiesce",),
    FINAL_READ_STALLED: ("final",),
    RUNNING: ("collect",),
    STOPPED: ("collect",),
    OUTPUTS: ("collect",),
}
"""The phases in which a complete run records each event; node events by their kind, others by name. Faults fall into
the load, a stopped process was running before, and a heal is final."""
_ONCE: Final = (ASSIGNMENT, "heal_all", STARTED, RUNNING, STOPPED, OUTPUTS)
_BEFORE: Final = (
    ("fault_injected", "fault_healed"),
    ("fault_healed", "heal_all"),
    (RUNNING, STOPPED),
    (CLIENT, CLIENT_ENDED),
    (STOPPED, OUTPUTS),
    (CLIENT_ENDED, OUTPUTS),
)
"""Pairs of events: the first must not follow the second."""
LAG_S: Final = 5.0
"""The allowed difference between the recovery time by the journal's timestamps and the recovery time that it states:
the machine may be busy between the two."""


def out_of_order(journal: Sequence[Line]) -> Iterator[str]:
    """The journal's events that are out of order, each in a sentence. The journal must have all phases, in order."""
    phase = ""
    seen: Counter[tuple[str, str]] = Counter()
    for line in journal:
        if line["event"] == "phase":
            phase = line["name"]
            continue
        what, who = _what(line), _who(line)
        subject = f"{what} of {who}" if who else what
        if what in _WHEN and phase not in _WHEN[what]:
            yield f"the journal has {subject} in the phase {phase or '?'}, not in {' or '.join(_WHEN[what])}"
        seen[what, who] += 1
        if what in _ONCE and seen[what, who] == 2:
            yield f"the journal has {subject} more than once"
        for first, behind in _BEFORE:
            if what == first and (seen[behind, who] or seen[behind, ""]):
                yield f"the journal has {subject} behind {behind}"
    yield from _steps(journal)
    yield from _recovery(journal)


def _what(line: Line) -> str:
    return str(line["what"] if line["event"] == "node" else line["event"])


def _who(line: Line) -> str:
    """The node, fault or client that a line is about; empty for the run itself."""
    return str(line.get("node") or line.get("id") or line.get("client") or "")


def _steps(journal: Sequence[Line]) -> Iterator[str]:
    """Checks that a script's steps were done in sequence."""
    done = [line["step"] for line in journal if line["event"] == "step_done"]
    if done != list(range(1, len(done) + 1)):
        yield f"the steps of the script were not done in their order: {', '.join(map(str, done))}"


def _recovery(journal: Sequence[Line]) -> Iterator[str]:
    """Checks that the cluster's recovery started with its phase, and ended once, when the journal says so."""
    lines = [line for line in journal if line["event"] in (CONVERGED, NOT_CONVERGED)]
    if len(lines) > 1:
        yield f"the journal says {len(lines)} times whether the cluster had recovered"
    began = began_at(journal, "quiesce")
    for line in lines:
        took_s = (line["t"] - (began or 0)) / 1e9
        if line["event"] == CONVERGED and not took_s - LAG_S <= line["seconds"] <= took_s + 0.001:
            yield f"the journal says that the cluster took {line['seconds']:g} s to recover, and has {took_s:.3f} s"


def out_of_life(run: CheckedRun) -> Iterator[str]:
    """Operations outside of their client's lifetime, and final reads that ended before the phase of final reads
    started. Times of a clock that is not the run's own are intervals, as wide as that clock may be wrong."""
    began = began_at(run.history.journal, "final")
    lives = lives_of(run.history.journal)
    names = ("client", "inv", "ret", "phase")
    for tables in (run.history.parts(*names), run.history.register_parts(*names)):
        strangers, early = Counter[str](), 0
        for table in tables:
            strangers.update(dict(_strangers(table, lives)))
            early += 0 if began is None else _early(table, began)
        for client, count in sorted(strangers.items()):
            yield f"client {client} has {counted(count, 'operation')} before its start or after its end, by their times"
        if early:
            yield f"{counted(early, 'operation')} of the final reads ended before these started, by their times"


def began_at(journal: Sequence[Line], phase: str) -> int | None:
    """When a phase started; None if the journal does not have it."""
    return next((line["t"] for line in journal if line["event"] == "phase" and line["name"] == phase), None)


def lives_of(journal: Sequence[Line]) -> dict[str, tuple[int, int]]:
    """Start and end of each client for which the journal has both."""
    began = {line["client"]: line["t"] for line in journal if line["event"] == CLIENT}
    ended = {line["client"]: line["t"] for line in journal if line["event"] == CLIENT_ENDED}
    return {client: (began[client], ended[client]) for client in began.keys() & ended.keys()}


def _strangers(table: pa.Table, lives: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """For each client the number of its operations that are entirely outside of its lifetime."""
    import pyarrow as pa
    import pyarrow.compute as pc

    extent = (
        table.select(["inv", "ret"])
        .append_column("client", table["client"].cast(pa.string()))
        .group_by("client", use_threads=False)
        .aggregate([("ret", "min"), ("inv", "max")])
    )
    for each in extent.to_pylist():
        began, ended = lives.get(each["client"], (each["ret_min"], each["inv_max"]))
        if each["ret_min"] >= began and each["inv_max"] <= ended:
            continue
        mine = table.filter(pc.equal(table["client"].cast(pa.string()), each["client"]))
        outside = pc.or_(pc.less(mine["ret"], began), pc.greater(mine["inv"], ended))
        yield each["client"], int(pc.sum(outside).as_py())


def _early(table: pa.Table, began: int) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    from history.schemas import PHASE_FINAL

    is_final = pc.equal(table["phase"].cast(pa.string()), PHASE_FINAL)
    return int(pc.sum(pc.and_(is_final, pc.less(table["ret"], began))).as_py() or 0)
