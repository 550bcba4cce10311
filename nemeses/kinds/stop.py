"""Stop: a clean shutdown with SIGTERM, as in every upgrade."""

from __future__ import annotations

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, listed, node_facts
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.service import Services
from nemeses.mechanisms.shell import ENDS_LEFT_S, ask, terminate_script
from nemeses.ports import Host, Site


class Stop(Kind[Services]):
    """Evidence: the main process has exited after SIGTERM within the deadline, and so have the processes that it left
    behind; its port is closed; after the heal the port is open."""

    name = "stop"
    group, mark = FaultGroup.PROCESS, FaultMark.SQUARE
    action = "SIGTERM to the service's main process, then SIGTERM to child processes that outlive it"
    proven_by = (
        "they are gone within the system's stop deadline and its port is closed; afterwards a new process answers. A "
        "process that has not exited by then is a mismatch"
    )
    destroys = frozenset({Damage.PROGRESS})
    service = "ended"
    seen = (
        EvidenceRule("signalled", values=("yes",)),
        EvidenceRule("state", values=("gone",)),
        EvidenceRule("port", values=("closed",)),
    )
    healed = (EvidenceRule("port", values=("open",), unless="withheld_by"),)
    hides = frozenset({"process"})
    rests_on = frozenset({"machine", "process", "execution", "disk"})
    heal_rests_on = frozenset()
    mechanism = Services
    injected_by = "stop"
    healed_by = "start"

    def inject(self, by: Services, fault: Fault) -> Evidence:
        return combine(on_each(by.site, fault.targets, lambda host: _stop(host, by.site)))

    def heal(self, by: Services, fault: Fault) -> Evidence:
        return by.start(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"the service on {listed(fault.targets)} gets SIGTERM and shuts down"

    def proof(self, effect: Facts, heal: Facts) -> str:
        return "; ".join(f"{name}: {_tell(facts)}" for name, facts in node_facts(effect).items())


def _stop(host: Host, site: Site) -> Evidence:
    pid = host.service_pid()
    if pid is None:
        return Evidence("inconclusive", {"error": "no service was running"})
    deadline_s = round(site.stop_deadline_s * site.time_scale)
    answer = ask(host, terminate_script(pid, host.address, host.port, deadline_s), timeout_s=deadline_s + ENDS_LEFT_S)
    detail = {"pid": pid, "deadline_s": deadline_s, **answer}
    if not answer.get("start"):
        return Evidence("inconclusive", {**detail, "error": "the service had ended before the signal"})
    ended = answer.get("signalled") == "yes" and answer.get("state") == "gone" and answer.get("port") == "closed"
    return Evidence("confirmed" if ended else "mismatch", detail)


def _tell(facts: Facts) -> str:
    if "error" in facts or "state" not in facts:
        return str(facts.get("error", "not seen"))
    if facts["state"] != "gone":
        return f"it had not exited after {facts.get('waited')} s (process state {facts['state']})"
    phrase = f"it exited within {int(facts.get('waited', 0)) + 1} s"  # whole seconds of a clock
    children = str(facts.get("left", "")).split()
    return f"{phrase}; child processes that outlived it were ended: {len(children)}" if children else phrase
