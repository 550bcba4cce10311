"""A clean shutdown: what operators do all day, and what must lose nothing and nobody."""

from __future__ import annotations

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, listed, node_facts
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.service import Services
from nemeses.mechanisms.shell import ask, terminate_script
from nemeses.ports import Host, Site


class Stop(Kind[Services]):
    """Evidence: the process that was asked to end has ended by itself in time, and what it left behind when it was told
    to; its port is closed; healed: the port is open again."""

    name = "stop"
    deed = "SIGTERM to the service's main process: it ends in its own way. What it leaves behind gets SIGTERM, too"
    proven_by = (
        "they are gone within the system's stop deadline and its port closed; afterwards a new one answers. What does "
        "not end by then is a mismatch"
    )
    destroys = frozenset({Damage.PROGRESS})
    service = "ended"
    seen = (
        EvidenceRule("signalled", values=("yes",)),
        EvidenceRule("state", values=("gone",)),
        EvidenceRule("port", values=("closed",)),
    )
    healed = (EvidenceRule("port", values=("open",)),)
    mechanism = Services
    begun_by = "stop"
    ended_by = "start"

    def inflict(self, by: Services, fault: Fault) -> Evidence:
        return combine(on_each(by.site, fault.targets, lambda host: _stop(host, by.site)))

    def heal(self, by: Services, fault: Fault) -> Evidence:
        return by.start(fault.targets)

    def sentence(self, fault: Fault) -> str:
        return f"the service on {listed(fault.targets)} is asked to shut down, and ends in its own way"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(f"{name}: {_tell(facts)}" for name, facts in node_facts(seen).items())


def _stop(host: Host, site: Site) -> Evidence:
    pid = host.service_pid()
    if pid is None:
        return Evidence("inconclusive", {"error": "no service was running"})
    deadline_s = round(site.stop_deadline_s * site.time_scale)
    seen = ask(host, terminate_script(pid, host.address, host.port, deadline_s), timeout_s=deadline_s + 15)
    detail = {"pid": pid, "deadline_s": deadline_s, **seen}
    if not seen.get("start"):
        return Evidence("inconclusive", {**detail, "error": "the service had ended before the signal"})
    ended = seen.get("signalled") == "yes" and seen.get("state") == "gone" and seen.get("port") == "closed"
    return Evidence("confirmed" if ended else "mismatch", detail)


def _tell(facts: Facts) -> str:
    if "error" in facts or "state" not in facts:
        return str(facts.get("error", "not seen"))
    if facts["state"] != "gone":
        return f"it had not ended after {facts.get('waited')} s (process state {facts['state']})"
    words = f"it ended by itself within {int(facts.get('waited', 0)) + 1} s"  # whole seconds of a clock
    left = str(facts.get("left", "")).split()
    return f"{words}; processes that it left behind were ended, too: {len(left)}" if left else words
