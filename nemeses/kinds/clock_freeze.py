"""Clock freeze: a machine is suspended together with its clocks, and continues as if no time had passed."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.fault import Fault
from nemeses.kind import Need, listed
from nemeses.mechanisms.suspension import SuspensionKind


class ClockFreeze(SuspensionKind):
    """The machine and all of its clocks stop."""

    name = "clock-freeze"
    mark = FaultMark.SQUARE
    action = "the machine is suspended together with its clocks"
    proven_by = (
        "as for `stall`; afterwards its time since boot lags by the duration of the suspension. Then its real-time "
        "clock is corrected"
    )
    destroys = frozenset({Damage.PROGRESS, Damage.ELAPSED_TIME})
    needs = frozenset[Need]({"freeze"})
    injected_by = "freeze"
    stopped_state = "frozen"

    def sentence(self, fault: Fault) -> str:
        return f"the machine of {listed(fault.targets)} is suspended together with its clocks, which lag afterwards"
