"""The service on a host: starts it and checks that it runs after a fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nemeses.fault import Evidence, combine
from nemeses.in_force import STARTS_ON, FaultsInForce
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask, await_port_script, kill_script, process_script
from nemeses.ports import Host, Site


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

    def is_same(self, other: Process) -> bool:
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

    def heal_all(self) -> Evidence | None:
        return self.start(self.site.hosts)


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
