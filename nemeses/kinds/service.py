"""The end of a service by a signal."""

from typing import Final

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.service import KILL, EndingKind, Services
from nemeses.parameters import Word

SIGNALS: Final = ("ABRT", "HUP", "INT", KILL, "QUIT", "SEGV", "TERM")


class Kill(EndingKind):
    """The page cache survives, the process's memory is lost. SIGKILL ends all processes of the service at once. Another
    signal goes to its main process, which may catch it; what it leaves behind is ended, too.

    Evidence: the process (pid and start time) and its children are gone and its port is closed; after the heal the
    port is open.
    """

    name = "kill"
    mark = FaultMark.CROSS
    action = "SIGKILL to all processes of the service; with `signal`, that signal to its main process"
    proven_by = "they are gone and its port is closed; afterwards a new process answers"
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY})
    rests_on = frozenset({"machine", "process"})
    parameters = (
        Word(
            "signal",
            "the signal that ends it; a suspended service ends only by the default, and the simulation has no other",
            SIGNALS,
            KILL,
        ),
    )
    injected_by = "kill"

    def inject(self, by: Services, fault: Fault) -> Evidence:
        return by.end(fault.targets, fault.parameters.get("signal", KILL))

    def sentence(self, fault: Fault) -> str:
        signal = fault.parameters.get("signal", KILL)
        what = "is killed" if signal == KILL else f"gets SIG{signal} and ends"
        return f"the service on {listed(fault.targets)} {what}; its machine continues"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"process state {facts.get('state')}"


class Stop(EndingKind):
    """A clean shutdown, as in every upgrade. Evidence: the main process has exited after SIGTERM within the deadline,
    and so have the processes that it left behind; its port is closed; after the heal the port is open."""

    name = "stop"
    mark = FaultMark.SQUARE
    action = "SIGTERM to the service's main process, then SIGTERM to child processes that outlive it"
    statement = "the service on {nodes} gets SIGTERM and shuts down"
    proven_by = (
        "they are gone within the system's stop deadline and its port is closed; afterwards a new process answers. A "
        "process that has not exited by then is a mismatch"
    )
    destroys = frozenset({Damage.PROGRESS})
    rests_on = frozenset({"machine", "process", "execution", "disk"})
    injected_by = "stop"

    def inject(self, by: Services, fault: Fault) -> Evidence:
        return by.end(fault.targets, "TERM")

    def phrase(self, facts: Facts, heal: Facts) -> str:
        if "error" in facts or "state" not in facts:
            return str(facts.get("error", "not seen"))
        if facts["state"] != "gone":
            return f"it had not exited after {facts.get('waited')} s (process state {facts['state']})"
        phrase = f"it exited within {int(facts.get('waited', 0)) + 1} s"  # whole seconds of a clock
        children = str(facts.get("left", "")).split()
        return f"{phrase}; child processes that outlived it were ended: {len(children)}" if children else phrase
