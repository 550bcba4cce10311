"""Injects and heals the faults of a run. Each is in the journal before it starts, when it is in force with its
evidence, and when it is healed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from history.journal.writer import Journal
from nemeses import ClusterView, Evidence, Fault, Nemesis, Schedule, needing
from nemeses.kind import Facts, Need, is_prevented, node_facts, with_before
from nemeses.registry import AnyKind
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.errors import RunError
from orchestrator.running.progress import Progress
from orchestrator.running.service_watch import ServiceWatch

Tick = Callable[[float], None]
"""Waits until this time of the scheduler's clock and monitors the run meanwhile."""


class FaultLog:
    """All faults of one run, and which of them are in force."""

    def __init__(self, nemesis: Nemesis, journal: Journal, progress: Progress, watch: ServiceWatch) -> None:
        self._nemesis = nemesis
        self._watch = watch
        self._journal = journal
        self._progress = progress
        self._open: dict[str, tuple[Fault, Evidence | None]] = {}
        self._due: list[str] = []  # the faults whose heal waits for that of a later one
        self._count = 0

    @property
    def kinds(self) -> Mapping[str, AnyKind]:
        """All kinds of fault of the run, by name."""
        return self._nemesis.kinds

    def inject(self, fault: Fault) -> Evidence:
        """Inject a fault and record its evidence. A fault that those in force prevent on all of its targets destroys
        nothing."""
        self._count += 1
        identifier = f"f{self._count}"
        kind = self.kinds[fault.kind]
        self._open[identifier] = fault, None
        prevented = self._nemesis.prevented(fault)
        targets = [name for name in fault.targets if name not in prevented]
        must_show = {"seen": [fact.to_json() for fact in kind.seen], "healed": [fact.to_json() for fact in kind.healed]}
        self._journal.fault_invoked(
            identifier,
            fault.kind,
            fault.targets,
            fault.parameters,
            sentence=kind.sentence(fault),
            must_show=must_show,
            may_destroy=kind.destroys if targets or not prevented else (),
            look=(kind.group, kind.mark),
        )
        self._watch.look()  # services that ended before now did not end because of this fault
        self._watch.begin(kind.service, targets)
        evidence = self._nemesis.inject(fault)
        self._open[identifier] = fault, evidence
        proof = _proof(kind, evidence, {})
        self._journal.fault_injected(identifier, evidence.status, evidence.detail, proof=proof)
        self._progress.fault(f"{fault.kind} {', '.join(fault.targets)}: {evidence.status}")
        return evidence

    def heal(self, matches: Callable[[Fault], bool]) -> bool:
        """Heal every fault in force that matches; returns whether there was one. A heal that a later fault hides is
        done after the heal of that fault."""
        identifiers = [identifier for identifier, (fault, _) in self._open.items() if matches(fault)]
        for identifier in identifiers:
            if identifier in self._due:
                continue
            self._due.append(identifier)
            if by := self._nemesis.hidden(self._open[identifier][0]):
                self._journal.note(f"the heal of fault {identifier} waits for that of {by}")
        self._heal_due()
        return bool(identifiers)

    def heal_all(self) -> None:
        """Heal everything and check that nothing of it remains. Raises `RunError` with what remains."""
        self.heal(lambda _: True)
        self._watch.look()  # before services are started below
        evidence = self._nemesis.heal_all()
        self._watch.expect(self._nemesis.nodes)
        self._journal.event("heal_all", status=evidence.status, evidence=evidence.detail)
        if not evidence.confirmed:
            raise RunError(f"healing everything was {evidence.status}: {evidence.cause}")

    def clear_leftovers(self) -> None:
        """At the end of an unfinished run: remove the effects of faults that would outlast it. Raises `RunError` with
        what remains."""
        if not self._count:
            return
        evidence = self._nemesis.clear_leftovers()
        if not evidence.confirmed:
            raise RunError(f"effects of faults on the nodes were not removed, {evidence.status}: {evidence.cause}")

    def _heal_due(self) -> None:
        """Heal the due faults that no later one hides, until every remaining one is hidden."""
        while free := [identifier for identifier in self._due if not self._nemesis.hidden(self._open[identifier][0])]:
            self._due.remove(free[0])
            self._heal(free[0])

    def _heal(self, identifier: str) -> None:
        fault, evidence_seen = self._open.pop(identifier)
        kind, targets = self.kinds[fault.kind], fault.targets
        if evidence_seen is not None:
            targets = tuple(name for name in targets if not is_prevented(evidence_seen.detail, name))
        if kind.ends_services_late:
            self._watch.look()  # services that ended before now did not end because of the heal
            self._watch.excuse(targets)
        withheld = self._nemesis.withheld()
        evidence = self._nemesis.heal(fault)
        down = self._nemesis.withheld()
        up = [name for name in targets if name not in down]
        self._watch.end(kind.service, up if kind.service == "ended" else targets, seen=evidence.confirmed)
        if kind.ends_services_late:
            self._watch.expect(up)
        self._watch.expect(withheld - down)
        late = evidence.status if kind.proven_late and not evidence.confirmed else None
        healed = {"healed": {"status": evidence.status, "detail": evidence.detail}}
        proof = "" if evidence_seen is None else _proof(kind, evidence_seen, evidence.detail)
        self._journal.fault_healed(identifier, late, healed, proof=proof)
        self._progress.say(f"{fault.kind} {', '.join(fault.targets)}: healed, {evidence.status}", dim=True)


def _proof(kind: AnyKind, evidence: Evidence, after: Facts) -> str:
    if evidence.status == "prevented":
        return "; ".join(
            f"{name}: prevented by {facts['prevented_by']}" for name, facts in node_facts(evidence.detail).items()
        )
    return with_before(kind.proof(evidence.detail, after), evidence.detail)


def follow_schedule(
    schedule: Schedule,
    book: FaultLog,
    look: Callable[[], ClusterView],
    tick: Tick,
    *,
    ends_s: float,
    overlap: bool = False,
    on_time: bool = False,
    scheduler: Scheduler = REAL_TIME,
) -> None:
    """Inject and heal the faults of a schedule until it is over or at `ends_s`. Faults and heals take time.

    By default one fault follows the other, and the pauses between them are kept, because the cluster recovers in them.
    With `on_time`, faults start at their times instead, or when the previous one is healed. With `overlap` they start
    at their times, and several are in force at once. A fault that would hide another one's evidence, or the reverse, is
    then skipped, and so is always one that no longer fits. The first fault of a kind is never skipped: conflicting
    faults are healed first, because a node that is off or delayed cannot provide evidence.
    """
    planned_end_s = 0.0
    started_s, kinds_seen, in_force = scheduler.monotonic(), set[str](), list[_InForce]()

    def heal(entry: _InForce) -> None:
        in_force.remove(entry)
        book.heal(lambda open_fault: open_fault is entry.fault)

    def heal_until(moment_s: float) -> None:
        while in_force and min(in_force, key=_end).ends_s <= moment_s:
            due = min(in_force, key=_end)
            tick(due.ends_s)
            heal(due)

    for plan in schedule:
        heal_until(started_s + plan.at if overlap else math.inf)
        pause_s, planned_end_s = plan.at - planned_end_s, plan.heals_at
        now_s, is_new = scheduler.monotonic(), plan.kind not in kinds_seen
        begins_s = max(now_s, started_s + plan.at) if overlap or on_time else now_s + pause_s
        if not is_new and begins_s + plan.duration_s > ends_s:
            continue
        tick(begins_s)
        view = look()
        fault = plan.resolve(view, book.kinds)
        conflicts = [entry for entry in in_force if _conflict(fault, entry.fault)]
        conflicts += _crowded(fault, [entry for entry in in_force if entry not in conflicts], view.nodes)
        if conflicts and not is_new:
            continue
        for entry in conflicts:
            heal(entry)
        kinds_seen.add(plan.kind)
        book.inject(fault)
        witnesses = _witnesses(fault, in_force, view.nodes)
        if _is_netem(fault):
            for entry in in_force:
                entry.witnesses -= set(fault.targets)
        in_force.append(_InForce(scheduler.monotonic() + plan.duration_s, fault, witnesses))
    heal_until(math.inf)


@dataclass(eq=False)
class _InForce:
    """A fault and the time of its heal. `witnesses`: the nodes whose own packets netem has not touched since before the
    fault; they show how late its target sends."""

    ends_s: float
    fault: Fault
    witnesses: set[str]


def _end(entry: _InForce) -> float:
    return entry.ends_s


def _is_netem(fault: Fault) -> bool:
    return fault.kind in needing("netem")


def _witnesses(fault: Fault, in_force: Iterable[_InForce], nodes: Iterable[str]) -> set[str]:
    disturbed = {name for entry in in_force if _is_netem(entry.fault) for name in entry.fault.targets}
    return set(nodes) - disturbed - set(fault.targets)


def _crowded(fault: Fault, in_force: Sequence[_InForce], nodes: Iterable[str]) -> list[_InForce]:
    """The faults together with which too few nodes would be left to show this one, or them."""
    if not _is_netem(fault):
        return []
    alone, targets = not _witnesses(fault, in_force, nodes), set(fault.targets)
    return [entry for entry in in_force if _is_netem(entry.fault) and (alone or entry.witnesses <= targets)]


_PACKETS: tuple[Need, ...] = ("network", "netem", "wire")
_DARK: tuple[Need, ...] = ("power", "stall", "freeze")
"""Needs of kinds: what a machine must be awake for, and what makes it silent."""


def _conflict(one: Fault, other: Fault) -> bool:
    """Whether two faults in force at once would hide each other's evidence."""
    if set(one.targets) & set(other.targets):
        return True
    packets, dark = (
        [any(fault.kind in needing(need) for need in group) for fault in (one, other)] for group in (_PACKETS, _DARK)
    )
    if all(packets) and {one.kind, other.kind} & needing("network"):
        return True
    return (packets[0] and dark[1]) or (packets[1] and dark[0])
