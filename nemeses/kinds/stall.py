"""A machine that executes nothing for a while: when it goes on, its clocks have jumped."""

from __future__ import annotations

from history.damage import Damage
from nemeses.fault import Evidence, Fault
from nemeses.kind import Need, listed
from nemeses.mechanisms.suspension import Suspension, SuspensionKind


class Stall(SuspensionKind):
    """The machine stops, its clocks go on."""

    name = "stall"
    deed = "the whole machine stopped from outside (SIGSTOP of the hypervisor)"
    proven_by = (
        "its stopper says so, and its SSH port is silent for three times as long as an answer took before; afterwards "
        "its clocks have gone on"
    )
    destroys = frozenset({Damage.PROGRESS})
    needs = frozenset[Need]({"stall"})
    begun_by = "stall"

    def inflict(self, by: Suspension, fault: Fault) -> Evidence:
        return by.stop(fault.targets, "stalled")

    def heal(self, by: Suspension, fault: Fault) -> Evidence:
        return by.resume(fault.targets, "stalled")

    def sentence(self, fault: Fault) -> str:
        return f"the machine of {listed(fault.targets)} stops while its clocks go on"
