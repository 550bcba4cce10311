"""The service on a host: starts it and checks that it runs after a fault."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.in_force import STARTS_ON, FaultsInForce
from nemeses.kind import NodeKind
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ENDS_LEFT_S, ask, await_port_script, kill_script, process_script, terminate_script
from nemeses.ports import Host, Site

KILL: Final = "KILL"


@dataclass(frozen=True)
class Process:
    """An observed process of a service. `start` (`TICKS@BOOT`, see `shell.py`) and the pid together identify it
    uniquely; `threads`: the set of its threads' states."""

    pid: int
    start: str
    threads: str

    @property
    def is_stopped(self) -> bool:
        return self.threads == "T"

    def is_same(self, other: "Process") -> bool:
        return (self.pid, self.start) == (other.pid, other.start)


def see_process(host: Host) -> Process | None:
    """The host's service now; None when it does not run. Raises `HostError`."""
    pid = host.service_pid()
    if pid is None:
        return None
    answer = ask(host, process_script(pid))
    return Process(pid, answer["start"], answer.get("threads", "")) if answer.get("start") else None


def kill_service(host: Host) -> None:
    """Kill the host's service, if it runs, also a suspended one. Raises `HostError`."""
    if (pid := host.service_pid()) is not None:
        host.run(kill_script(pid, host.address, host.port))


class Services(Mechanism):
    """Evidence: the process runs, and its port is open."""

    stage = 70
    part = "services"

    def start(self, targets: Iterable[str]) -> Evidence:
        """Start the services that do not run, and check that every port is open."""
        return combine(on_each(self.site, targets, lambda host: start_and_verify(host, self.site, self.in_force)))

    def end(self, targets: Iterable[str], signal: str) -> Evidence:
        """Send services a signal, and check that their processes are gone and their ports closed. `KILL` goes to all
        processes; another one to the main process, which has until the stop deadline."""
        return combine(on_each(self.site, targets, lambda host: self._ended(host, signal)))

    def heal_all(self) -> Evidence | None:
        return self.start(self.site.hosts)

    def _ended(self, host: Host, signal: str) -> Evidence:
        pid = host.service_pid()
        if pid is None:
            return Evidence("inconclusive", {"error": "no service was running"})
        detail: dict[str, Any] = {"pid": pid}
        if signal == KILL:
            detail |= ask(host, kill_script(pid, host.address, host.port))
        else:
            deadline_s = round(self.site.stop_deadline_s * self.site.time_scale)
            script = terminate_script(pid, host.address, host.port, deadline_s, signal)
            detail |= {"deadline_s": deadline_s, **ask(host, script, timeout_s=deadline_s + ENDS_LEFT_S)}
        if not detail.get("start"):
            return Evidence("inconclusive", {**detail, "error": "the service had ended before the signal"})
        shown = all(detail.get(rule.key) in rule.values for rule in EndingKind.seen)
        return Evidence("confirmed" if shown else "mismatch", detail)


class EndingKind(NodeKind[Services]):
    """Evidence: the processes are gone and the port is closed; after the heal the port is open."""

    group = FaultGroup.PROCESS
    service = "ended"
    seen = (
        EvidenceRule("signalled", values=("yes",)),
        EvidenceRule("state", values=("gone",)),
        EvidenceRule("port", values=("closed",)),
    )
    healed = (EvidenceRule("port", values=("open",), unless="withheld_by"),)
    hides = frozenset({"process"})
    heal_rests_on = frozenset()
    mechanism = Services
    healed_by = "start"

    def heal(self, by: Services, fault: Fault) -> Evidence:
        return by.start(fault.targets)


def start_and_verify(host: Host, site: Site, in_force: FaultsInForce) -> Evidence:
    """Start the service if it does not run, and check that its port is open. A service that a fault in force keeps from
    running is not started: the heal of that fault does it."""
    if by := in_force.hiding(host.name, STARTS_ON):
        in_force.withheld.add(host.name)
        return Evidence("confirmed", {"withheld_by": by})
    deadline_s = round(site.start_deadline_s * site.time_scale)
    host.start_service()
    pid = host.service_pid()
    if pid is None:
        return Evidence("mismatch", {"error": "the service ended at once"})
    script = await_port_script(pid, host.address, host.port, deadline_s)
    answer = ask(host, script, timeout_s=deadline_s + 5)
    running = host.service_pid() == pid and answer["port"] == "open"
    return Evidence("confirmed" if running else "mismatch", {"pid": pid, **answer})
