"""A machine is suspended, with its clocks or without."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.kind import Need
from nemeses.mechanisms.suspension import SuspensionKind


class ClockFreeze(SuspensionKind):
    """A machine is suspended together with its clocks, and continues as if no time had passed."""

    name = "clock-freeze"
    mark = FaultMark.SQUARE
    action = "the machine is suspended together with its clocks"
    statement = "the machine of {nodes} is suspended together with its clocks, which lag afterwards"
    proven_by = (
        "as for `stall`; afterwards its time since boot lags by the duration of the suspension. Then its real-time "
        "clock is corrected"
    )
    destroys = frozenset({Damage.PROGRESS, Damage.ELAPSED_TIME})
    needs = frozenset[Need]({"freeze"})
    injected_by = "freeze"
    stopped_state = "frozen"


class Stall(SuspensionKind):
    """A machine is suspended while its clocks continue."""

    name = "stall"
    mark = FaultMark.CIRCLE
    action = "the whole machine is suspended from outside (SIGSTOP to the hypervisor)"
    statement = "the machine of {nodes} is suspended while its clocks continue"
    proven_by = (
        "the suspending program confirms it, and the SSH port is silent for three times the duration of an earlier "
        "answer; afterwards the machine's clocks have continued"
    )
    destroys = frozenset({Damage.PROGRESS})
    needs = frozenset[Need]({"stall"})
    injected_by = "stall"
    stopped_state = "stalled"
