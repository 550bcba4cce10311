"""SIGSTOP of a service: a process that is silent for a while and then goes on as if nothing had happened."""

from __future__ import annotations

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, listed, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask, signal_script
from nemeses.ports import Host, Site


class Signals(Mechanism):
    """Stopping services and letting them go on, by signals."""

    stage = 60
    part = "awake"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._stopped: dict[str, tuple[int, str]] = {}

    def stop(self, host: Host) -> Evidence:
        """Stop the service of a host. Raises `HostError`."""
        self._stopped.pop(host.name, None)  # of a pause that nobody healed
        pid = host.service_pid()
        if pid is None:
            return Evidence("inconclusive", {"absent": "no service was running"})
        seen = ask(host, signal_script(pid, "STOP", until_stopped=True))
        judged = _judge(pid, seen, seen["after"] == "T")
        if judged.confirmed:
            self._stopped[host.name] = pid, seen["start"]
        return judged

    def resume(self, host: Host) -> Evidence:
        """Let the service of a host go on; one that this stopped must have stood until now. Raises `HostError`."""
        resumed = _resume(host)
        seen = resumed.detail
        is_same = self._stopped.pop(host.name, None) == (seen.get("pid"), seen.get("start"))
        if is_same and seen["before"] != "T":
            return Evidence("mismatch", {**seen, "error": "it had gone on before it was told to"})
        return resumed

    def heal_all(self) -> Evidence | None:
        self._stopped.clear()  # only whether they run now is asked
        return combine(on_each(self.site, self.site.hosts, _wake))


class Pause(Kind[Signals]):
    """Evidence: every thread's state is T, in all processes, and still is when it is healed; healed: none is."""

    name = "pause"
    deed = "SIGSTOP to the service, all its processes, later SIGCONT"
    proven_by = "the state of all their threads, read back both times"
    destroys = frozenset({Damage.PROGRESS})
    service = "stopped"
    seen = (
        EvidenceRule("signalled", values=("yes",)),
        EvidenceRule("before", unlike=("T",)),
        EvidenceRule("after", values=("T",)),
    )
    healed = (EvidenceRule("signalled", values=("yes",)), EvidenceRule("after", unlike=("", "T")))
    mechanism = Signals
    begun_by = "pause"
    ended_by = "resume"

    def inflict(self, by: Signals, fault: Fault) -> Evidence:
        return combine(on_each(by.site, fault.targets, by.stop))

    def heal(self, by: Signals, fault: Fault) -> Evidence:
        return combine(on_each(by.site, fault.targets, by.resume))

    def sentence(self, fault: Fault) -> str:
        return f"the service on {listed(fault.targets)} stands still, and later goes on as if nothing had happened"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(f"{name}: process state {facts.get('after')}" for name, facts in node_facts(seen).items())


def _wake(host: Host) -> Evidence:
    """Resume the service if there is one; a host without one has nothing asleep."""
    evidence = _resume(host)
    return Evidence("confirmed", evidence.detail) if "absent" in evidence.detail else evidence


def _resume(host: Host) -> Evidence:
    pid = host.service_pid()
    if pid is None:
        return Evidence("inconclusive", {"absent": "no service is running"})
    seen = ask(host, signal_script(pid, "CONT", until_stopped=False))
    return _judge(pid, seen, seen["after"] != "" and "T" not in seen["after"])


def _judge(pid: int, seen: dict[str, str], as_wanted: bool) -> Evidence:
    detail = {"pid": pid, **seen}
    if not seen.get("start"):
        return Evidence("inconclusive", {**detail, "absent": "the service had ended before the signal"})
    return Evidence("confirmed" if as_wanted and seen.get("signalled") == "yes" else "mismatch", detail)
