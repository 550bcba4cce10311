"""Kill: SIGKILL, or another signal, to a service. The page cache survives, the process's memory is lost.

SIGKILL ends all processes of the service at once. Another signal goes to its main process, which may catch it; what it
leaves behind is ended, too."""

from typing import Final

from history.damage import Damage
from history.fault_looks import FaultMark
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, listed
from nemeses.mechanisms.service import KILL, EndingKind, Services
from nemeses.parameters import Word

SIGNALS: Final = ("ABRT", "HUP", "INT", KILL, "QUIT", "SEGV", "TERM")


class Kill(EndingKind):
    """Evidence: the process (pid and start time) and its children are gone and its port is closed; after the heal the
    port is open."""

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
