"""Stall: a machine is suspended while its clocks continue."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.fault import Fault
from nemeses.kind import Need, listed
from nemeses.mechanisms.suspension import SuspensionKind


class Stall(SuspensionKind):
    """The machine stops, its clocks continue."""

    name = "stall"
    mark = FaultMark.CIRCLE
    action = "the whole machine is suspended from outside (SIGSTOP to the hypervisor)"
    proven_by = (
        "the suspending program confirms it, and the SSH port is silent for three times the duration of an earlier "
        "answer; afterwards the machine's clocks have continued"
    )
    destroys = frozenset({Damage.PROGRESS})
    needs = frozenset[Need]({"stall"})
    injected_by = "stall"
    stopped_state = "stalled"

    def sentence(self, fault: Fault) -> str:
        return f"the machine of {listed(fault.targets)} is suspended while its clocks continue"
