"""A machine that stops together with its clocks: when it goes on it believes that no time has passed."""

from __future__ import annotations

from history.damage import Damage
from nemeses.fault import Evidence, Fault
from nemeses.kind import Need, listed
from nemeses.mechanisms.suspension import Suspension, SuspensionKind


class ClockFreeze(SuspensionKind):
    """The machine and all its clocks stop."""

    name = "clock-freeze"
    deed = "the machine stopped together with its clocks"
    proven_by = (
        "as for `stall`; afterwards its time since boot is behind by the time it was stopped. Then its real-time clock "
        "is set right"
    )
    destroys = frozenset({Damage.PROGRESS, Damage.ELAPSED_TIME})
    needs = frozenset[Need]({"freeze"})
    begun_by = "freeze"

    def inflict(self, by: Suspension, fault: Fault) -> Evidence:
        return by.stop(fault.targets, "frozen")

    def heal(self, by: Suspension, fault: Fault) -> Evidence:
        return by.resume(fault.targets, "frozen")

    def sentence(self, fault: Fault) -> str:
        return f"the machine of {listed(fault.targets)} stops together with its clocks, and later goes on behind time"
