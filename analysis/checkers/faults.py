"""The faults of a run: planned faults must have been injected, confirmed and healed.

Only evidence counts. The journal has the required evidence of each fault. It is checked again here, so a status alone,
or an incomplete record, proves nothing.

A fault declares conditions of its evidence: `must_show` in the journal. Each entry names a fact by its `key` (dots
separate nested keys) in the evidence for each target or for the whole fault (`of`). The fact must be present. Further
conditions: `values`: it is one of these; `unlike`: it is not one of these; `least`: it is at least this, or is a
non-empty mapping to such numbers; `differs_from`: it differs from the fact of this other key, which must be present
too; `unless`: the key of a fact that names the kind of another fault, whose effect on the target makes the condition
void while it is in force.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.doubt import Reason
from analysis.verdict import PASS, UNKNOWN
from history.fault_looks import FaultGroup
from history.journal.timeline import CONFIRMED, HEALED, INJECTED, INVOKED, PREVENTED, FaultSpan, fault_spans
from installation.counted import counted
from installation.sanitize import brief, plain, quoted

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
Line = Mapping[str, Any]


def check(run: CheckedRun) -> Outcome:
    """Check every fault, and the plan of faults."""
    faults = run.history.faults
    finished = "done" in run.history.phase_names
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
    confirmed = _confirmed(run.history.faults)
    return [kind for kind in run.description.checks.required_faults if kind not in confirmed]


def fault_doubts(journal: Iterable[Line], *, finished: bool) -> Iterator[str]:
    """What the lines of a journal do not prove of its faults, and, in a run that is `finished`, of their heals."""
    faults = fault_spans(journal)
    for fault in faults:
        yield from _doubts(fault, faults, finished)


def unproven_heals(run: CheckedRun) -> Iterator[str]:
    """The faults, and the final heal of everything, whose end has no evidence: each in a sentence. Also for a run that
    was not finished."""
    faults = run.history.faults
    for fault in faults:
        yield from _not_healed(fault, faults)
    yield from _unhealed(run.history.journal, run.plan.nodes)


def _confirmed(faults: Iterable[FaultSpan]) -> set[str]:
    return {fault.kind for fault in faults if fault.status == CONFIRMED}


def _not_injected(run: CheckedRun, faults: Sequence[FaultSpan]) -> Iterator[str]:
    """Every kind of a random schedule must occur at least once."""
    if "main" not in run.history.phase_names:
        return
    confirmed = _confirmed(faults)
    for kind in run.description.planned_faults:
        if kind not in confirmed and kind not in run.description.checks.required_faults:
            yield f"fault {kind} was planned and never confirmed"


def _title(fault: FaultSpan) -> str:
    return f"fault {fault.id} ({fault.kind})"


def _doubts(fault: FaultSpan, faults: Sequence[FaultSpan], finished: bool) -> Iterator[str]:
    injected = fault.line(INJECTED)
    if not fault.targets:
        yield f"{_title(fault)}: the record does not name its targets"
    must_show = fault.line(INVOKED).get("must_show") or {}
    if not must_show.get("seen"):
        yield f"{_title(fault)}: the record does not say what its evidence must show"
    if "healed" not in must_show:  # kinds whose heal leaves nothing to see have an empty entry
        yield f"{_title(fault)}: the record does not say what the evidence of its heal must show"
    for event, lines in fault.lines.items():
        if len(lines) > 1:
            yield f"{_title(fault)}: the record has {event} {counted(len(lines), 'time')}"
    if not injected:
        yield NOT_CONFIRMED.says(f"{_title(fault)} was started, but its result is not on record")
        return
    if fault.status == PREVENTED:
        yield from NOT_CONFIRMED.say(_not_prevented(fault, faults))
    elif fault.status != CONFIRMED:
        reason = _because(injected, fault.line(HEALED))
        yield NOT_CONFIRMED.says(f"{_title(fault)} is {fault.status}: no proof that it took effect{reason}")
    else:
        evidence = injected.get("evidence")
        yield from NOT_CONFIRMED.say(_disbelieved(fault, faults, "seen", evidence, "is called confirmed"))
    if finished:
        yield from NOT_HEALED.say(_not_healed(fault, faults))


def _not_prevented(fault: FaultSpan, faults: Iterable[FaultSpan]) -> Iterator[str]:
    """The targets on which no fault was in force that could have prevented this one."""
    for target in fault.targets:
        if target not in _prevented(fault, faults):
            by = _prevented_by(fault, target)
            reason = f"no fault {by} was in force there" if by else "its evidence does not say by which fault"
            yield f"{_title(fault)} is called prevented on {target}, but {reason}"


def _prevented(fault: FaultSpan, faults: Iterable[FaultSpan]) -> set[str]:
    """The targets on which another fault prevented this one, according to the journal."""
    position = fault.position(INJECTED, 0)
    return {
        target
        for target in fault.targets
        if (by := _prevented_by(fault, target))
        and any(other is not fault and _is_in_force(other, by, target, position) for other in faults)
    }


def _prevented_by(fault: FaultSpan, target: str) -> str:
    """The kind of fault that its evidence names as the one that prevented it on a target; empty without one."""
    facts = (fault.line(INJECTED).get("evidence") or {}).get(target)
    named = facts.get("prevented_by") if isinstance(facts, Mapping) else None
    return named if isinstance(named, str) else ""


def _is_in_force(fault: FaultSpan, kind: str, node: str, position: int) -> bool:
    """Whether it is a fault of this kind that is in force on a node at a position of the journal. A partition and a
    fault of the store are on every node."""
    is_there = node in fault.targets or fault.group in (FaultGroup.PARTITION, FaultGroup.STORE)
    begins, ends = fault.position(INJECTED, position), fault.position(HEALED, position + 1)
    return fault.kind == kind and is_there and fault.status == CONFIRMED and begins < position < ends


def _because(injected: Line, healed: Line) -> str:
    """The problems before the fault, the errors of its targets, and the reasons that its heal gives for proving
    nothing."""
    evidence = injected.get("evidence") or {}
    heal = (healed.get("evidence") or {}).get("healed") or {}
    detail = heal.get("detail") if isinstance(heal, Mapping) else None
    reasons = [
        *(evidence.get("already") or ()),
        *(
            f"{name}: {answer['error']}"
            for name, answer in evidence.items()
            if isinstance(answer, Mapping) and "error" in answer
        ),
        *((detail.get("because") if isinstance(detail, Mapping) else None) or ()),
    ]
    return f" ({'; '.join(map(str, reasons))})" if reasons else ""


def _not_healed(fault: FaultSpan, faults: Sequence[FaultSpan]) -> Iterator[str]:
    healed = fault.line(HEALED)
    if not healed:
        yield f"{_title(fault)} was never healed"
        return
    if fault.at(INJECTED, healed["t"] - 1) >= healed["t"]:
        yield f"{_title(fault)} was healed before it had been injected"
    heal = (healed.get("evidence") or {}).get("healed")
    if not isinstance(heal, Mapping):
        yield f"nothing shows that {_title(fault)} was healed"
        return
    if heal.get("status") == fault.status == PREVENTED:
        return  # nothing was done; `_not_prevented` has checked that
    if heal.get("status") != CONFIRMED:
        yield f"{_title(fault)}: its heal is {heal.get('status')}, so when it ended is not known"
        return
    yield from _disbelieved(fault, faults, "healed", heal.get("detail"), "is called healed")


def _disbelieved(
    fault: FaultSpan, faults: Sequence[FaultSpan], phase: str, evidence: Any, called: str
) -> Iterator[str]:
    must, position = (fault.line(INVOKED).get("must_show") or {}).get(phase, ()), fault.position(HEALED, 0)
    prevented = _prevented(fault, faults)
    targets = [target for target in fault.targets if target not in prevented]

    def is_in_force(kind: str, node: str) -> bool:
        return any(other is not fault and _is_in_force(other, kind, node, position) for other in faults)

    sentences = contradictions(must, evidence if isinstance(evidence, Mapping) else {}, targets, is_in_force)
    if sentences:
        yield f"{_title(fault)} {called}, but not by its evidence: {'; '.join(sentences)}"


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


IsInForce = Callable[[str, str], bool]
"""Whether a fault of a kind (the first text) is in force on a node (the second)."""
_ABSENT = object()


def none_in_force(kind: str, node: str) -> bool:
    del kind, node
    return False


def contradictions(
    must_show: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any],
    targets: Sequence[str],
    is_in_force: IsInForce = none_in_force,
) -> list[str]:
    """The conditions that the evidence does not meet, as sentences; empty: the evidence is sufficient."""
    if not evidence:
        return ["it is empty"]
    sentences: list[str] = []
    for must in must_show:
        if must.get("of") == "fault":
            sentences += _contradictions(must, evidence, "")
            continue
        for target in targets:
            facts = evidence.get(target)
            if not isinstance(facts, Mapping) or not facts:
                sentences.append(f"it says nothing of {target}")
            else:
                remover = _at(facts, str(must.get("unless") or ""))
                if isinstance(remover, str) and is_in_force(remover, target):
                    continue
                sentences += _contradictions(must, facts, f"{target}: ")
    return list(dict.fromkeys(sentences))


def _contradictions(must: Mapping[str, Any], facts: Mapping[str, Any], prefix: str) -> Iterator[str]:
    key = str(must.get("key"))
    value = _at(facts, key)
    if value is _ABSENT or value is None:
        yield f"{prefix}{key} is missing"
        return
    if "values" in must and value not in must["values"]:
        yield f"{prefix}{key} is {quoted(value)}, not {' or '.join(map(quoted, must['values']))}"
    if "unlike" in must and value in must["unlike"]:
        yield f"{prefix}{key} is {quoted(value)}"
    if "least" in must and not _reaches(value, must["least"]):
        yield f"{prefix}{key} is {quoted(value)}, at least {must['least']:g} is needed"
    if "differs_from" in must:
        other = _at(facts, must["differs_from"])
        if other is _ABSENT or other is None:
            yield f"{prefix}{must['differs_from']} is missing, and {key} must differ from it"
        elif value == other:
            yield f"{prefix}{key} is {quoted(value)}, as {must['differs_from']} is"


def _at(facts: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(facts, Mapping) or part not in facts:
            return _ABSENT
        facts = facts[part]
    return facts


def _reaches(value: Any, minimum: float) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(_reaches(part, minimum) for part in value.values())
    return isinstance(value, int | float) and value >= minimum


CHECKER: Final = Checker(
    "faults",
    "Were the planned faults injected, confirmed and healed?",
    25,
    (),
    check,
    (UNDECIDED, NOT_CONFIRMED, NOT_HEALED, NOT_DONE),
)
