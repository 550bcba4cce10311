"""The faults of a run: planned faults must have been injected, confirmed and healed.

Only evidence counts. The journal has the required evidence of each fault. It is checked again here, so a status alone,
or an incomplete record, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.doubt import Reason
from analysis.evidence.fault_evidence import contradictions
from analysis.verdict import PASS, UNKNOWN
from history.fault_looks import FaultGroup
from installation.counted import counted
from installation.sanitize import brief, plain

UNDECIDED: Final = Reason(
    "fault-record-damaged", "The journal's entries about a fault are contradictory or incomplete."
)
NOT_CONFIRMED: Final = Reason(
    "fault-not-confirmed", "Evidence that a fault took effect is missing, or a planned kind of fault never occurred."
)
NOT_HEALED: Final = Reason(
    "fault-not-healed", "Evidence that a fault was healed, or that the final heal was complete, is missing."
)
NOT_DONE: Final = Reason("script-not-done", "A step of the script was not executed.")
CONFIRMED: Final = "confirmed"
PREVENTED: Final = "prevented"
Line = Mapping[str, Any]


@dataclass
class _Fault:
    """One fault in the journal: its lines by event, and the position of the first line of each event."""

    id: str
    lines: dict[str, list[Line]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)

    def one(self, event: str) -> Line | None:
        lines = self.lines.get(event, [])
        return lines[0] if lines else None

    @property
    def kind(self) -> str:
        return str((self.one("invoked") or {}).get("kind", "?"))

    @property
    def name(self) -> str:
        return f"fault {self.id} ({self.kind})"

    @property
    def status(self) -> str:
        """The final status: the heal's, if it has one, replaces the first one."""
        injected, healed = self.one("injected") or {}, self.one("healed") or {}
        return str(healed.get("status") or injected.get("status") or "inconclusive")

    def prevented_by(self, target: str) -> str:
        """The kind of fault that its evidence names as the one that prevented it on a target; empty without one."""
        facts = ((self.one("injected") or {}).get("evidence") or {}).get(target)
        named = facts.get("prevented_by") if isinstance(facts, Mapping) else None
        return named if isinstance(named, str) else ""

    def is_in_force(self, kind: str, node: str, position: int) -> bool:
        """Whether it is a fault of this kind that is in force on a node at a position of the journal. A partition and a
        fault of the store are on every node."""
        invoked = self.one("invoked") or {}
        is_there = node in invoked.get("targets", ()) or invoked.get("group") in (
            FaultGroup.PARTITION,
            FaultGroup.STORE,
        )
        begins, ends = self.positions.get("injected", position), self.positions.get("healed", position + 1)
        return self.kind == kind and is_there and self.status == CONFIRMED and begins < position < ends


def check(run: CheckedRun) -> Outcome:
    """Check every fault, and the plan of faults."""
    faults = _faults(run.history.journal)
    finished = "done" in run.history.phases["name"].to_pylist()
    doubts: list[str] = list(
        NOT_CONFIRMED.say(f"fault {kind} was required and never confirmed" for kind in never_confirmed(run))
    )
    doubts += NOT_CONFIRMED.say(_not_injected(run, faults))
    doubts += fault_doubts(run.history.journal, finished=finished)
    if finished:
        doubts += NOT_HEALED.say(_unhealed(run.history.journal, run.plan.nodes))
        doubts += NOT_DONE.say(_undone(run))
    if doubts:
        return Outcome(UNKNOWN, f"{counted(len(faults), 'fault')}, not all proven and healed", doubts=tuple(doubts))
    if not faults:
        return Outcome(PASS, "no fault was planned or injected")
    return Outcome(
        PASS,
        f"{counted(len(faults), 'fault')} injected, proven and healed; {_ending(run.history.journal)}",
    )


def never_confirmed(run: CheckedRun) -> list[str]:
    """The required kinds without a confirmed fault."""
    confirmed = _confirmed(_faults(run.history.journal))
    return [kind for kind in run.description.requirements.required_faults if kind not in confirmed]


def fault_doubts(journal: Iterable[Line], *, finished: bool) -> Iterator[str]:
    """What the lines of a journal do not prove of its faults, and, in a run that is `finished`, of their heals."""
    faults = _faults(journal)
    for fault in faults:
        yield from _doubts(fault, faults, finished)


def unproven_heals(run: CheckedRun) -> Iterator[str]:
    """The faults, and the final heal of everything, whose end has no evidence: each in a sentence. Also for a run that
    was not finished."""
    faults = _faults(run.history.journal)
    for fault in faults:
        if (invoked := fault.one("invoked")) is not None:
            yield from _not_healed(fault, invoked, faults)
    yield from _unhealed(run.history.journal, run.plan.nodes)


def _faults(journal: Iterable[Line]) -> list[_Fault]:
    faults: dict[str, _Fault] = {}
    for position, line in enumerate(journal):
        event = str(line.get("event", ""))
        if event.startswith("fault_"):
            identifier, event = str(line.get("id")), event.removeprefix("fault_")
            fault = faults.setdefault(identifier, _Fault(identifier))
            fault.lines.setdefault(event, []).append(line)
            fault.positions.setdefault(event, position)
    return list(faults.values())


def _confirmed(faults: Iterable[_Fault]) -> set[str]:
    return {fault.kind for fault in faults if fault.status == CONFIRMED}


def _not_injected(run: CheckedRun, faults: Sequence[_Fault]) -> Iterator[str]:
    """Every kind of a random schedule must occur at least once."""
    if "main" not in run.history.phases["name"].to_pylist():
        return
    confirmed = _confirmed(faults)
    for kind in run.description.planned_faults:
        if kind not in confirmed and kind not in run.description.requirements.required_faults:
            yield f"fault {kind} was planned and never confirmed"


def _doubts(fault: _Fault, faults: Sequence[_Fault], finished: bool) -> Iterator[str]:
    invoked, injected = fault.one("invoked"), fault.one("injected")
    if invoked is None:
        return  # the checker of the record reports the defect
    if not invoked.get("targets"):
        yield f"{fault.name}: the record does not name its targets"
    must_show = invoked.get("must_show") or {}
    if not must_show.get("seen"):
        yield f"{fault.name}: the record does not say what its evidence must show"
    if "healed" not in must_show:  # kinds whose heal leaves nothing to see have an empty entry
        yield f"{fault.name}: the record does not say what the evidence of its heal must show"
    for event, lines in fault.lines.items():
        if len(lines) > 1:
            yield f"{fault.name}: the record has fault_{event} {counted(len(lines), 'time')}"
    if injected is None:
        yield NOT_CONFIRMED.says(f"{fault.name} was started, but its result is not on record")
        return
    if fault.status == PREVENTED:
        yield from NOT_CONFIRMED.say(_not_prevented(fault, invoked, faults))
    elif fault.status != CONFIRMED:
        reason = _because(injected, fault.one("healed"))
        yield NOT_CONFIRMED.says(f"{fault.name} is {fault.status}: no proof that it took effect{reason}")
    else:
        evidence = injected.get("evidence")
        yield from NOT_CONFIRMED.say(_disbelieved(fault, invoked, faults, "seen", evidence, "is called confirmed"))
    if finished:
        yield from NOT_HEALED.say(_not_healed(fault, invoked, faults))


def _not_prevented(fault: _Fault, invoked: Line, faults: Iterable[_Fault]) -> Iterator[str]:
    """The targets on which no fault was in force that could have prevented this one."""
    for target in invoked.get("targets", ()):
        if target not in _prevented(fault, faults):
            by = fault.prevented_by(target)
            reason = f"no fault {by} was in force there" if by else "its evidence does not say by which fault"
            yield f"{fault.name} is called prevented on {target}, but {reason}"


def _prevented(fault: _Fault, faults: Iterable[_Fault]) -> set[str]:
    """The targets on which another fault prevented this one, according to the journal."""
    targets, position = (fault.one("invoked") or {}).get("targets", ()), fault.positions.get("injected", 0)
    return {
        target
        for target in targets
        if (by := fault.prevented_by(target))
        and any(other is not fault and other.is_in_force(by, target, position) for other in faults)
    }


def _because(injected: Line, healed: Line | None) -> str:
    """The problems before the fault, and the reasons that its heal gives for proving nothing."""
    heal = ((healed or {}).get("evidence") or {}).get("healed") or {}
    detail = heal.get("detail") if isinstance(heal, Mapping) else None
    reasons = [
        *((injected.get("evidence") or {}).get("already") or ()),
        *((detail.get("because") if isinstance(detail, Mapping) else None) or ()),
    ]
    return f" ({'; '.join(map(str, reasons))})" if reasons else ""


def _not_healed(fault: _Fault, invoked: Line, faults: Sequence[_Fault]) -> Iterator[str]:
    healed = fault.one("healed")
    if healed is None:
        yield f"{fault.name} was never healed"
        return
    if (injected := fault.one("injected")) is not None and injected["t"] >= healed["t"]:
        yield f"{fault.name} was healed before it had been injected"
    heal = (healed.get("evidence") or {}).get("healed")
    if not isinstance(heal, Mapping):
        yield f"nothing shows that {fault.name} was healed"
        return
    if heal.get("status") == fault.status == PREVENTED:
        return  # nothing was done; `_not_prevented` has checked that
    if heal.get("status") != CONFIRMED:
        yield f"{fault.name}: its heal is {heal.get('status')}, so when it ended is not known"
        return
    yield from _disbelieved(fault, invoked, faults, "healed", heal.get("detail"), "is called healed")


def _disbelieved(
    fault: _Fault, invoked: Line, faults: Sequence[_Fault], phase: str, evidence: Any, called: str
) -> Iterator[str]:
    must, position = (invoked.get("must_show") or {}).get(phase, ()), fault.positions.get("healed", 0)
    prevented = _prevented(fault, faults)
    targets = [target for target in invoked.get("targets", ()) if target not in prevented]

    def is_in_force(kind: str, node: str) -> bool:
        return any(other is not fault and other.is_in_force(kind, node, position) for other in faults)

    sentences = contradictions(must, evidence if isinstance(evidence, Mapping) else {}, targets, is_in_force)
    if sentences:
        yield f"{fault.name} {called}, but not by its evidence: {'; '.join(sentences)}"


def _unhealed(journal: Iterable[Line], nodes: Sequence[str]) -> Iterator[str]:
    """If anything was injected, the heal of everything at the end must have been confirmed, with every service up."""
    healings = [line for line in journal if line.get("event") == "heal_all"]
    if not healings:
        yield "the final heal of everything has no evidence: heal_all is not on record"
    for line in healings:
        if line.get("status") != CONFIRMED or not line.get("evidence"):
            yield f"healing everything in the end was {line.get('status')}: {brief(plain(line.get('evidence')), 300)}"
        else:
            yield from _down(line["evidence"], nodes)


def _down(evidence: Any, nodes: Sequence[str]) -> Iterator[str]:
    """The services that the evidence itself does not show to be up, for any status."""
    services = evidence.get("services") if isinstance(evidence, Mapping) else None
    by_node = services if isinstance(services, Mapping) else {}
    for node in dict.fromkeys((*nodes, *by_node)):
        facts = by_node.get(node)
        port = facts.get("port") if isinstance(facts, Mapping) else None
        if port != "open":
            state = "nothing shows that the service of {} was up" if port is None else f"the port of {{}} was {port}"
            yield f"healing everything in the end is called confirmed, but {state.format(node)}"


def _undone(run: CheckedRun) -> Iterator[str]:
    """The steps of a script that are not recorded as done: the first, and the number of the others."""
    done = {line.get("step") for line in run.history.journal if line.get("event") == "step_done"}
    undone = [step for number, step in enumerate(run.description.steps, 1) if number not in done]
    if undone:
        others_text = f", and {len(undone) - 1} more" if len(undone) > 1 else ""
        yield f"not every step of the script is on record as done: {undone[0]}{others_text}"


def _ending(journal: Iterable[Line]) -> str:
    """What was checked after everything was healed."""
    evidence = [line.get("evidence") for line in journal if line.get("event") == "heal_all"]
    parts = sorted(evidence[0]) if evidence and isinstance(evidence[0], Mapping) else []
    return f"in the end everything was found healed ({', '.join(parts)})" if parts else "the run did not end"


CHECKER: Final = Checker(
    "faults",
    "Were the planned faults injected, confirmed and healed?",
    25,
    (),
    check,
    (UNDECIDED, NOT_CONFIRMED, NOT_HEALED, NOT_DONE),
)
