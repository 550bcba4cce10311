"""Checks when faults and operations happened: faults during the load, operations within their client's lifetime.

A fault outside of the load had no effect on it. The last heal must precede the final reads, and these must not end
before their phase starts; otherwise they do not show the healed state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from history.journal.writer import CLIENT, CLIENT_ENDED
from installation.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from analysis.checker import CheckedRun

Line = Mapping[str, Any]

_PHASES: Final[Mapping[str, tuple[str, ...]]] = {
    "fault_invoked": ("main",),
    "fault_injected": ("main",),
    "fault_healed": ("main", "heal"),
    "heal_all": ("heal",),
}
"""The phases in which a complete run records each event."""


def out_of_phase(journal: Sequence[Line]) -> Iterator[str]:
    """Faults and heals outside of their phases, each in a sentence. The journal must have all phases, in order."""
    phase = ""
    for line in journal:
        event = line["event"]
        if event == "phase":
            phase = line["name"]
        elif phase not in _PHASES.get(event, (phase,)):
            subject = f"{event} of {line['id']}" if "id" in line else event
            yield f"the journal has {subject} in the phase {phase or '?'}, not in {' or '.join(_PHASES[event])}"


def out_of_life(run: CheckedRun) -> Iterator[str]:
    """Operations outside of their client's lifetime, and final reads that ended before the phase of final reads
    started. Times of a clock that is not the run's own are intervals, as wide as that clock may be wrong."""
    began = began_at(run.history.journal, "final")
    lives = lives_of(run.history.journal)
    names = ("client", "inv", "ret", "phase")
    for operations in run.history.recorded:
        strangers, early = Counter[str](), 0
        for table in operations.parts(*names):
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
    for row in extent.to_pylist():
        began, ended = lives.get(row["client"], (row["ret_min"], row["inv_max"]))
        if row["ret_min"] >= began and row["inv_max"] <= ended:
            continue
        mine = table.filter(pc.equal(table["client"].cast(pa.string()), row["client"]))
        outside = pc.or_(pc.less(mine["ret"], began), pc.greater(mine["inv"], ended))
        yield row["client"], int(pc.sum(outside).as_py())


def _early(table: pa.Table, began: int) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    from history.record.schemas import PHASE_FINAL

    is_final = pc.equal(table["phase"].cast(pa.string()), PHASE_FINAL)
    return int(pc.sum(pc.and_(is_final, pc.less(table["ret"], began))).as_py() or 0)
