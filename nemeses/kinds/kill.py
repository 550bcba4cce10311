"""Kill: SIGKILL, or another signal, to a service. The page cache survives, the process's memory is lost.

SIGKILL ends all processes of the service at once. Another signal goes to its main process, which may catch it; what it
leaves behind is ended, too."""

from __future__ import annotations

from typing import Final

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, listed, node_facts
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.service import Services
from nemeses.mechanisms.shell import ENDS_LEFT_S, ask, kill_script, terminate_script
from nemeses.parameters import Word
from nemeses.ports import Host, Site

KILL: Final = "KILL"
SIGNALS: Final = ("ABRT", "HUP", "INT", KILL, "QUIT", "SEGV", "TERM")


class Kill(Kind[Services]):
    """Evidence: the process (pid and start time) and its children are gone and its port is closed; after the heal the
    port is open."""

    name = "kill"
    group, mark = FaultGroup.PROCESS, FaultMark.CROSS
    action = "SIGKILL to all processes of the service; with `signal`, that signal to its main process"
    proven_by = "they are gone and its port is closed; afterwards a new process answers"
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY})
    service = "ended"
    seen = (
        EvidenceRule("signalled", values=("yes",)),
        EvidenceRule("state", values=("gone",)),
        EvidenceRule("port", values=("closed",)),
    )
    healed = (EvidenceRule("port", values=("open",), unless="withheld_by"),)
    hides = frozenset({"process"})
    rests_on = frozenset({"machine", "process"})
    heal_rests_on = frozenset()
    mechanism = Services
    parameters = (
        Word(
            "signal",
            "the signal that ends it; a suspended service ends only by the default, and the simulation has no other",
            SIGNALS,
            KILL,
        ),
    )
    injected_by = "kill"
    healed_by = "start"

    def inject(self, by: Services, fault: Fault) -> Evidence:
        signal = fault.parameters.get("signal", KILL)
        return combine(on_each(by.site, fault.targets, lambda host: _kill(host, by.site, signal)))

    def heal(self, by: Services, fault: Fault) -> Evidence:
        return by.start(fault.targets)

    def sentence(self, fault: Fault) -> str:
        signal = fault.parameters.get("signal", KILL)
        what = "is killed" if signal == KILL else f"gets SIG{signal} and ends"
        return f"the service on {listed(fault.targets)} {what}; its machine continues"

    def proof(self, effect: Facts, heal: Facts) -> str:
        return "; ".join(f"{name}: process state {facts.get('state')}" for name, facts in node_facts(effect).items())


def _kill(host: Host, site: Site, signal: str) -> Evidence:
    pid = host.service_pid()
    if pid is None:
        return Evidence("inconclusive", {"error": "no service was running"})
    if signal == KILL:
        answer = ask(host, kill_script(pid, host.address, host.port))
    else:
        deadline_s = round(site.stop_deadline_s * site.time_scale)
        script = terminate_script(pid, host.address, host.port, deadline_s, signal)
        answer = ask(host, script, timeout_s=deadline_s + ENDS_LEFT_S)
    detail = {"pid": pid, **answer}
    if not answer.get("start"):
        return Evidence("inconclusive", {**detail, "error": "the service had ended before the signal"})
    was_killed = answer.get("signalled") == "yes" and answer["state"] == "gone" and answer["port"] == "closed"
    return Evidence("confirmed" if was_killed else "mismatch", detail)
