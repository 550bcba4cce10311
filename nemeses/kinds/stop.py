"""Stop: a clean shutdown with SIGTERM, as in every upgrade."""

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.service import EndingKind, Services


class Stop(EndingKind):
    """Evidence: the main process has exited after SIGTERM within the deadline, and so have the processes that it left
    behind; its port is closed; after the heal the port is open."""

    name = "stop"
    mark = FaultMark.SQUARE
    action = "SIGTERM to the service's main process, then SIGTERM to child processes that outlive it"
    proven_by = (
        "they are gone within the system's stop deadline and its port is closed; afterwards a new process answers. A "
        "process that has not exited by then is a mismatch"
    )
    destroys = frozenset({Damage.PROGRESS})
    rests_on = frozenset({"machine", "process", "execution", "disk"})
    injected_by = "stop"

    def inject(self, by: Services, fault: Fault) -> Evidence:
        return by.end(fault.targets, "TERM")

    def sentence(self, fault: Fault) -> str:
        return f"the service on {listed(fault.targets)} gets SIGTERM and shuts down"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        if "error" in facts or "state" not in facts:
            return str(facts.get("error", "not seen"))
        if facts["state"] != "gone":
            return f"it had not exited after {facts.get('waited')} s (process state {facts['state']})"
        phrase = f"it exited within {int(facts.get('waited', 0)) + 1} s"  # whole seconds of a clock
        children = str(facts.get("left", "")).split()
        return f"{phrase}; child processes that outlived it were ended: {len(children)}" if children else phrase
