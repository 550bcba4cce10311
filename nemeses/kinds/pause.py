"""Pause: SIGSTOP to a service, and later SIGCONT."""

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, NodeKind
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask, signal_script
from nemeses.ports import Host, Site


class Signals(Mechanism):
    """Suspends and resumes services with signals."""

    stage = 60
    part = "awake"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._stopped: dict[str, tuple[int, str]] = {}

    def stop(self, host: Host) -> Evidence:
        """Suspend the service of a host. Raises `HostError`."""
        self._stopped.pop(host.name, None)  # of an earlier pause without a heal
        pid = host.service_pid()
        if pid is None:
            return Evidence("inconclusive", {"absent": "no service was running"})
        answer = ask(host, signal_script(pid, "STOP"))
        judged = _judge(pid, answer, answer["after"] == "T")
        if judged.confirmed:
            self._stopped[host.name] = pid, answer["start"]
        return judged

    def resume(self, host: Host) -> Evidence:
        """Resume the service of a host. If `stop` suspended it, it must still be suspended. Raises `HostError`."""
        resumed = _resume(host)
        facts = resumed.detail
        is_same = self._stopped.pop(host.name, None) == (facts.get("pid"), facts.get("start"))
        if is_same and facts["before"] != "T":
            return Evidence("mismatch", {**facts, "error": "the service was running before SIGCONT"})
        return resumed

    def heal_all(self) -> Evidence | None:
        self._stopped.clear()  # the heal only checks that they run now
        return combine(on_each(self.site, self.site.hosts, _wake))


class Pause(NodeKind[Signals]):
    """Evidence: the state of every thread of all processes is T, still at the heal; after the heal no thread's is."""

    name = "pause"
    group, mark = FaultGroup.PROCESS, FaultMark.CIRCLE
    action = "SIGSTOP to all processes of the service, later SIGCONT"
    statement = "the service on {nodes} is suspended, and later resumed"
    proven_by = "the state of all their threads, read after each signal"
    destroys = frozenset({Damage.PROGRESS})
    service = "stopped"
    seen = (
        EvidenceRule("signalled", values=("yes",)),
        EvidenceRule("before", unlike=("T",)),
        EvidenceRule("after", values=("T",)),
    )
    healed = (EvidenceRule("signalled", values=("yes",)), EvidenceRule("after", unlike=("", "T")))
    hides = frozenset({"execution"})
    rests_on = frozenset({"machine", "process", "execution"})
    heal_rests_on = frozenset({"machine", "process"})
    mechanism = Signals
    injected_by = "pause"
    healed_by = "resume"

    def inject(self, by: Signals, fault: Fault) -> Evidence:
        return combine(on_each(by.site, fault.targets, by.stop))

    def heal(self, by: Signals, fault: Fault) -> Evidence:
        return combine(on_each(by.site, fault.targets, by.resume))

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"process state {facts.get('after')}"


def _wake(host: Host) -> Evidence:
    """Resume the service if there is one; a host without one has nothing to resume."""
    evidence = _resume(host)
    return Evidence("confirmed", evidence.detail) if "absent" in evidence.detail else evidence


def _resume(host: Host) -> Evidence:
    pid = host.service_pid()
    if pid is None:
        return Evidence("inconclusive", {"absent": "no service is running"})
    answer = ask(host, signal_script(pid, "CONT"))
    return _judge(pid, answer, answer["after"] != "" and "T" not in answer["after"])


def _judge(pid: int, answer: dict[str, str], as_wanted: bool) -> Evidence:
    detail = {"pid": pid, **answer}
    if not answer.get("start"):
        return Evidence("inconclusive", {**detail, "absent": "the service had ended before the signal"})
    return Evidence("confirmed" if as_wanted and answer.get("signalled") == "yes" else "mismatch", detail)
