"""SIGSTOP of a broker: a process that is silent for a while and then goes on as if nothing had happened."""

from __future__ import annotations

from nemeses.fault import Evidence, Fault, combine
from nemeses.inflict.parallel import on_each
from nemeses.inflict.shell import ask, signal_script
from nemeses.ports import Host, Site


class Pause:
    """Evidence: every thread's state is T; healed: none is."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def inject(self, fault: Fault) -> Evidence:
        return combine(on_each(self._site, fault.targets, self._stop))

    def heal(self, fault: Fault) -> Evidence:
        return combine(on_each(self._site, fault.targets, self._resume))

    @staticmethod
    def wake(host: Host) -> Evidence:
        """Resume the broker if there is one; a host without one has nothing asleep."""
        evidence = Pause._resume(host)
        return Evidence("confirmed", evidence.detail) if "absent" in evidence.detail else evidence

    @staticmethod
    def _stop(host: Host) -> Evidence:
        pid = host.service_pid()
        if pid is None:
            return Evidence("inconclusive", {"absent": "no broker was running"})
        seen = ask(host, signal_script(pid, "STOP", until_stopped=True))
        return _judge(pid, seen, seen["after"] == "T")

    @staticmethod
    def _resume(host: Host) -> Evidence:
        pid = host.service_pid()
        if pid is None:
            return Evidence("inconclusive", {"absent": "no broker is running"})
        seen = ask(host, signal_script(pid, "CONT", until_stopped=False))
        return _judge(pid, seen, seen["after"] != "" and "T" not in seen["after"])


def _judge(pid: int, seen: dict[str, str], as_wanted: bool) -> Evidence:
    detail = {"pid": pid, **seen}
    if not seen.get("start"):
        return Evidence("inconclusive", {**detail, "absent": "the broker had ended before the signal"})
    return Evidence("confirmed" if as_wanted and seen.get("signalled") == "yes" else "mismatch", detail)
