"""Injects and heals faults, each with the evidence that it took effect.

`Nemesis(site).inject(fault)` and `.heal(fault)`; `heal_all()` at the end of a run. A host that does not answer gives
inconclusive evidence, never an exception.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from nemeses.fault import Evidence, Fault, combine, worst
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.service import see_process
from nemeses.ports import Host, Site
from nemeses.registry import KINDS, AnyKind

__all__ = ["Nemesis"]


class Nemesis:
    """All mechanisms of one world. Used by one thread at a time."""

    def __init__(self, site: Site) -> None:
        self.nodes = tuple(site.hosts)
        classes = dict.fromkeys(kind.mechanism for kind in KINDS.values())
        self._mechanisms: dict[type[Mechanism], Mechanism] = {
            each: each(site) for each in sorted(classes, key=lambda each: each.stage)
        }
        self._site = site
        self._disturbed: set[str] = set()

    def arm(self) -> Evidence:
        """Prepare the hosts; called when all services have started.

        It first removes leftovers of killed runs that a run would not notice: netem rules and clock jumps. With a power
        switch, every host then gets a synced mark on its disk, which must survive every power cut."""
        cleared = self._cleared()
        armed = {f"{each.part} armed": each.arm() for each in self._mechanisms.values()}
        return combine(cleared | {part: seen for part, seen in armed.items() if seen is not None})

    def clear_leftovers(self) -> Evidence:
        """Remove what outlasts services and faults of any run: netem rules and clock jumps. The hosts have power and
        run; their services are not used."""
        return combine(self._cleared())

    def inject(self, fault: Fault) -> Evidence:
        """Inject a fault. If a target's service had ended or was suspended before for another reason, the fault is not
        confirmed, or (where the service does not matter) its evidence mentions it. Raises `ValueError` for an unknown
        kind and for invalid parameters."""
        kind = _kind(fault)
        kind.check(fault.parameters)
        already = self._look(kind.reaches(fault, self.nodes))
        evidence = kind.inject(self._mechanisms[kind.mechanism], fault)
        if kind.service != "runs":
            self._disturbed |= set(fault.targets)
        return _with(evidence, already, confirmable=not kind.needs_service)

    def heal(self, fault: Fault) -> Evidence:
        """Heal a fault and check that. Raises `ValueError` for an unknown kind."""
        kind = _kind(fault)
        if kind.service != "runs":
            self._disturbed -= set(fault.targets)
        return kind.heal(self._mechanisms[kind.mechanism], fault)

    def heal_all(self) -> Evidence:
        """Heal everything, including faults of other runs: every host has power, runs, is connected and has the right
        time, and its service runs."""
        self._disturbed.clear()
        healed = {each.part: each.heal_all() for each in self._mechanisms.values()}
        return combine({part: seen for part, seen in healed.items() if seen is not None})

    def _cleared(self) -> dict[str, Evidence]:
        cleared = {each.part: each.clear_leftovers() for each in self._mechanisms.values()}
        return {part: seen for part, seen in cleared.items() if seen is not None}

    def _look(self, names: Collection[str]) -> dict[str, str]:
        """What is wrong with the services of these nodes, except those under a fault of this nemesis."""
        seen = on_each(self._site, [name for name in names if name not in self._disturbed], _wrong)
        return {
            name: "its service could not be observed" if "error" in each.detail else str(each.detail["wrong"])
            for name, each in seen.items()
            if not each.confirmed
        }


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
    facts: dict[str, Any] = {"already": [f"{name}: {wrong}" for name, wrong in sorted(already.items())]}
    status = evidence.status if confirmable else worst([evidence.status, "inconclusive"])
    return replace(evidence, status=status, detail={**evidence.detail, **facts})


def _kind(fault: Fault) -> AnyKind:
    try:
        return KINDS[fault.kind]
    except KeyError:
        raise ValueError(f"unknown fault {fault.kind!r}; known: {', '.join(KINDS)}") from None
