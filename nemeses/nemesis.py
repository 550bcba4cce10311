"""Injects and heals faults, each with the evidence that it took effect.

`Nemesis(site).inject(fault)` and `.heal(fault)`; `heal_all()` at the end of a run. A host that does not answer gives
inconclusive evidence, never an exception.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from nemeses.fault import Evidence, Fault, combine, worst
from nemeses.in_force import STARTS_ON, FaultsInForce
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import guarded, on_each
from nemeses.mechanisms.service import see_process, start_and_verify
from nemeses.ports import Host, Site
from nemeses.registry import KINDS, AnyKind

__all__ = ["Nemesis"]
_UNCHANGED: Final = Evidence("confirmed", {})


class Nemesis:
    """All mechanisms of one world. Used by one thread at a time."""

    def __init__(self, site: Site, kinds: Mapping[str, AnyKind] = KINDS) -> None:
        """`kinds`: all kinds of fault that it can inject, by name."""
        self.nodes = tuple(site.hosts)
        self.kinds = kinds
        classes = dict.fromkeys(kind.mechanism for kind in kinds.values())
        self._mechanisms: dict[type[Mechanism], Mechanism] = {
            mechanism: mechanism(site) for mechanism in sorted(classes, key=lambda mechanism: mechanism.stage)
        }
        self._site = site
        self._in_force = FaultsInForce(site.hosts)
        for mechanism in self._mechanisms.values():
            mechanism.in_force = self._in_force

    def arm(self) -> Evidence:
        """Prepare the hosts; called when all services have started.

        It first removes leftovers of killed runs that a run would not notice: netem rules and clock jumps. With a power
        switch, every host then gets a synced mark on its disk, which must survive every power cut."""
        cleared = self._cleared()
        armed = {f"{mechanism.part} armed": mechanism.arm() for mechanism in self._mechanisms.values()}
        return combine(cleared | {part: evidence for part, evidence in armed.items() if evidence is not None})

    def clear_leftovers(self) -> Evidence:
        """Remove what outlasts services and faults of any run: netem rules and clock jumps. The hosts have power and
        run; their services are not used."""
        return combine(self._cleared())

    def inject(self, fault: Fault) -> Evidence:
        """Inject a fault. If a target's service had ended or was suspended before for another reason, the fault is not
        confirmed, or (where the service does not matter) its evidence mentions it. Raises `ValueError` for an unknown
        kind and for invalid parameters."""
        kind = self._kind(fault)
        kind.check(fault.parameters)
        prevented = self.prevented(fault)
        targets = tuple(name for name in fault.targets if name not in prevented)
        if prevented and not targets:
            self._in_force.add(fault, (), kind.hides, ())
            return combine(prevented)
        part = fault if len(targets) == len(fault.targets) else replace(fault, targets=targets)
        already = self._look(kind.reaches(part, self.nodes))
        evidence = guarded(kind.inject, self._mechanisms[kind.mechanism], part)
        acts_on = () if evidence.status == "prevented" else targets
        self._in_force.add(fault, acts_on, kind.hides, kind.cuts(part, self.nodes))
        with_rest = replace(evidence, detail={**evidence.detail, **{name: e.detail for name, e in prevented.items()}})
        whole_evidence = _and(with_rest, {"done again": self._done_again()})
        return _with(whole_evidence, already, confirmable=not kind.needs_service)

    def prevented(self, fault: Fault) -> dict[str, Evidence]:
        """The targets on which a fault in force leaves this one nothing to act on. A fault that acts between nodes is
        prevented altogether, if it is on one of them."""
        kind = self._kind(fault)
        culprits = {name: self._in_force.hiding(name, kind.rests_on) for name in kind.reaches(fault, self.nodes)}
        if kind.takes == "groups" and (culprit := next(filter(None, culprits.values()), "")):
            culprits = dict.fromkeys(fault.targets, culprit)
        return {
            name: Evidence("prevented", {"prevented_by": kind_in_force})
            for name, kind_in_force in culprits.items()
            if kind_in_force
        }

    def hidden(self, fault: Fault) -> str:
        """The kind of a fault that was injected after this one and hides its heal; empty without one."""
        kind = self._kind(fault)
        by = (self._in_force.hiding(name, kind.heal_rests_on, since=fault) for name in fault.targets)
        return next(filter(None, by), "")

    def heal(self, fault: Fault) -> Evidence:
        """Heal a fault and check that. A service that the heals of other faults would have started, if this one had not
        kept it from running, starts. Raises `ValueError` for an unknown kind."""
        kind = self._kind(fault)
        acted_on = self._in_force.end(fault)
        if fault.targets and acted_on is not None and not acted_on:
            return combine(dict.fromkeys(fault.targets, Evidence("prevented", {"prevented": True})))
        part = (
            fault
            if acted_on is None or len(acted_on) == len(fault.targets)
            else replace(fault, targets=tuple(name for name in fault.targets if name in acted_on))
        )
        healed = guarded(kind.heal, self._mechanisms[kind.mechanism], part)
        return _and(healed, {"done again": self._done_again(), "started": self._start_withheld()})

    def heal_all(self) -> Evidence:
        """Heal everything, including faults of other runs: every host has power, runs, is connected and has the right
        time, and its service runs."""
        self._in_force.clear()
        healed = {mechanism.part: guarded(mechanism.heal_all) for mechanism in self._mechanisms.values()}
        return combine({part: evidence for part, evidence in healed.items() if evidence is not None})

    def withheld(self) -> frozenset[str]:
        """The hosts whose service would run, if no fault in force kept it from running."""
        return frozenset(self._in_force.withheld)

    def _done_again(self) -> dict[str, Evidence]:
        """What the faults in force do to the hosts that were booted, and what their new disks lack, done again."""
        booted, self._in_force.booted = self._in_force.booted, set()
        replaced, self._in_force.new_disks = self._in_force.new_disks, set()
        evidence = dict[str, Evidence]()
        for mechanism in self._mechanisms.values():
            for names, action in ((booted, mechanism.after_boot), (replaced, mechanism.after_new_disk)):
                results = on_each(self._site, sorted(names), lambda host, action=action: action(host) or _UNCHANGED)  # type: ignore[misc]
                evidence |= {
                    f"{mechanism.part} of {name}": part for name, part in results.items() if part is not _UNCHANGED
                }
        return evidence

    def _start_withheld(self) -> dict[str, Evidence]:
        """Start the services that no fault in force keeps from running any longer."""
        free = [name for name in sorted(self._in_force.withheld) if not self._in_force.hiding(name, STARTS_ON)]
        self._in_force.withheld -= set(free)
        return on_each(self._site, free, lambda host: start_and_verify(host, self._site, self._in_force))

    def _kind(self, fault: Fault) -> AnyKind:
        try:
            return self.kinds[fault.kind]
        except KeyError:
            raise ValueError(f"unknown fault {fault.kind!r}; known: {', '.join(self.kinds)}") from None

    def _cleared(self) -> dict[str, Evidence]:
        cleared = {mechanism.part: mechanism.clear_leftovers() for mechanism in self._mechanisms.values()}
        return {part: evidence for part, evidence in cleared.items() if evidence is not None}

    def _look(self, names: Collection[str]) -> dict[str, str]:
        """What is wrong with the services of these nodes, except those under a fault of this nemesis."""
        disturbed = self._in_force.disturbed()
        states = on_each(self._site, [name for name in names if name not in disturbed], _wrong)
        return {
            name: "its service could not be observed" if "error" in state.detail else str(state.detail["wrong"])
            for name, state in states.items()
            if not state.confirmed
        }


def _and(evidence: Evidence, actions: Mapping[str, Mapping[str, Evidence]]) -> Evidence:
    """Evidence together with that of further actions, if there were any."""
    done = {action: combine(results) for action, results in actions.items() if results}
    status = worst([evidence.status, *(result.status for result in done.values())])
    return Evidence(status, {**evidence.detail, **{action: result.detail for action, result in done.items()}})


def _wrong(host: Host) -> Evidence:
    process = see_process(host)
    if process is None:
        return Evidence("mismatch", {"wrong": "its service had ended before"})
    if process.is_stopped:
        return Evidence("mismatch", {"wrong": "its service was suspended before"})
    return Evidence("confirmed", {})


def _with(evidence: Evidence, already: dict[str, str], *, confirmable: bool) -> Evidence:
    """The evidence of a fault, combined with what was wrong with its targets before."""
    if not already:
        return evidence
    facts: dict[str, Any] = {"already": [f"{name}: {problem}" for name, problem in sorted(already.items())]}
    status = evidence.status if confirmable else worst([evidence.status, "inconclusive"])
    return replace(evidence, status=status, detail={**evidence.detail, **facts})
