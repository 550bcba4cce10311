"""kill -9 of a broker: the page cache stays, everything in the process's memory is gone."""

from __future__ import annotations

from nemeses.fault import Evidence, Fault, combine
from nemeses.inflict.parallel import on_each
from nemeses.inflict.shell import ask, await_port_script, kill_script
from nemeses.ports import Host, Site

START_DEADLINE_S = 15


class Kill:
    """Evidence: the process (pid and start time) is gone, its port is closed; healed: the port is open again."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def inject(self, fault: Fault) -> Evidence:
        return combine(on_each(self._site, fault.targets, self._kill))

    def heal(self, fault: Fault) -> Evidence:
        scale = self._site.time_scale
        return combine(on_each(self._site, fault.targets, lambda host: start_and_verify(host, scale)))

    def _kill(self, host: Host) -> Evidence:
        pid = host.service_pid()
        if pid is None:
            return Evidence("inconclusive", {"error": "no broker was running"})
        seen = ask(host, kill_script(pid, host.address, host.port))
        detail = {"pid": pid, **seen}
        if not seen.get("start"):
            return Evidence("inconclusive", {**detail, "error": "the broker had ended before the signal"})
        gone = seen.get("signalled") == "yes" and seen["state"] == "gone" and seen["port"] == "closed"
        return Evidence("confirmed" if gone else "mismatch", detail)


def start_and_verify(host: Host, time_scale: float) -> Evidence:
    """Start the broker if it does not run, and see its port open."""
    deadline_s = round(START_DEADLINE_S * time_scale)
    host.start_service()
    pid = host.service_pid()
    if pid is None:
        return Evidence("mismatch", {"error": "the broker ended at once"})
    script = await_port_script(pid, host.address, host.port, deadline_s)
    seen = ask(host, script, timeout_s=deadline_s + 5)
    running = host.service_pid() == pid and seen["port"] == "open"
    return Evidence("confirmed" if running else "mismatch", {"pid": pid, **seen})
