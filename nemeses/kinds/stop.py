"""A clean shutdown: what operators do all day, and what must lose nothing and nobody."""

from __future__ import annotations

from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, listed, node_facts
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.service import Services
from nemeses.mechanisms.shell import ask
from nemeses.ports import Host, Site
from nemeses.questions import Script, Terminate
from nemeses.shown import Shown


class Stop(Kind[Services]):
    """Evidence: the process that was asked to end has ended by itself in time, its port is closed; healed: the port is
    open again."""

    name = "stop"
    deed = "SIGTERM to the service: it ends in its own way"
    proven_by = (
        "the process is gone within the system's stop deadline and its port closed; afterwards a new one answers. One "
        "that does not end is a mismatch"
    )
    service = "ended"
    seen = (Shown("signalled", values=("yes",)), Shown("state", values=("gone",)), Shown("port", values=("closed",)))
    healed = (Shown("port", values=("open",)),)
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
    seen = ask(host, _script(pid, host.address, host.port, deadline_s), timeout_s=deadline_s + 15)
    detail = {"pid": pid, "deadline_s": deadline_s, **seen}
    if not seen.get("start"):
        return Evidence("inconclusive", {**detail, "error": "the service had ended before the signal"})
    ended = seen.get("signalled") == "yes" and seen.get("state") == "gone" and seen.get("port") == "closed"
    return Evidence("confirmed" if ended else "mismatch", detail)


def _script(pid: int, address: str, port: int, seconds: int) -> Script:
    """SIGTERM and what was seen of it: `start` (of the process, in ticks since boot: with the pid, one process for
    good) before; afterwards `state` (`gone`, or what it still does at the deadline), `waited` (seconds), `port`."""
    text = f"""\
look() {{ s=$(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null); set -- $s; state=$1; start=${{20}}; }}
look; before=$start; echo "start=$before"
begun=$(date +%s); end=$(( begun + {seconds} ))
kill -TERM {pid} && echo signalled=yes
while look; do
  case "$state" in ''|Z|X) state=gone; break;; esac
  if [ "$start" != "$before" ]; then state=gone; break; fi
  if [ "$(date +%s)" -ge "$end" ]; then break; fi
  sleep 0.05
done
echo "state=$state"; echo "waited=$(( $(date +%s) - begun ))"
if timeout 1 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null; then echo port=open; else echo port=closed; fi
"""
    return Script(text, Terminate(pid, address, port, seconds))


def _tell(facts: Facts) -> str:
    if "error" in facts or "state" not in facts:
        return str(facts.get("error", "not seen"))
    if facts["state"] != "gone":
        return f"it had not ended after {facts.get('waited')} s (process state {facts['state']})"
    return f"it ended by itself within {int(facts.get('waited', 0)) + 1} s"  # whole seconds of a clock
