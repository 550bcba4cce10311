"""The shell of a fault: one script, one round trip, answered by `key=value` lines.

The scripts need a POSIX shell, sed and kill; the network probes need bash, for its /dev/tcp and /dev/udp.
"""

from __future__ import annotations

import shlex

from nemeses.ports import Host, HostError
from nemeses.questions import (
    AboutProcess,
    AwaitPort,
    Kill,
    Reach,
    Refuse,
    Script,
    SendBurst,
    SendDatagrams,
    Signal,
    TimeConnects,
)
from nemeses.scheduling import REAL_TIME, Scheduler

_AGAIN_S = 0.2

# Prints a process's state and its start time (clock ticks since boot), which together with the pid names one process
# for good: pids are used again, starts are not. Prints nothing when there is no such process.
_PROCESS = """\
look() { s=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null); set -- $s; state=$1; start=${20}; }
"""
# The states of all threads, once each: a process is stopped when every thread is.
_THREADS = """\
threads() { t=$(sed 's/.*) \\(.\\).*/\\1/' /proc/$1/task/*/stat 2>/dev/null | sort -u | tr -d '\\n'); }
"""


def ask(
    host: Host,
    script: str,
    *,
    timeout_s: float = 10.0,
    patience_s: float = 0.0,
    scheduler: Scheduler = REAL_TIME,
) -> dict[str, str]:
    """Run a script and read its `key=value` lines. Raises `HostError` when it fails or prints nothing of the kind.

    With `patience_s` of the scheduler's time a host that cannot be asked is asked again for so long: only for scripts
    that may run twice."""
    give_up_s = scheduler.monotonic() + patience_s
    while True:
        try:
            result = host.run(script, timeout_s=timeout_s)
            break
        except HostError:
            if scheduler.monotonic() >= give_up_s:
                raise
            scheduler.sleep(_AGAIN_S)
    answers = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    if not result.ok or not answers:
        said = (result.stderr or result.stdout).strip()
        raise HostError(f"{host.name}: a probe failed with exit code {result.exit_code}: {said!r}")
    return answers


def process_script(pid: int) -> Script:
    """Answers `start` (nothing: there is no such process) and `threads`, the set of its threads' states."""
    text = f"""{_PROCESS}{_THREADS}
look {pid}
case "$state" in ''|Z|X) start=;; esac
threads {pid}
echo "start=$start"; echo "threads=$t"
"""
    return Script(text, AboutProcess(pid))


def kill_script(pid: int, address: str, port: int) -> Script:
    """SIGKILL and what was seen of it: `start` before; `state` and `port` after, up to two seconds later each.

    The port can outlive the process's main thread: another thread that waits for the disk still holds the files."""
    text = f"""{_PROCESS}
look {pid}; before=$start; echo "start=$before"
kill -9 {pid} && echo signalled=yes
for i in {_counted(200)}; do
  look {pid}
  if [ -z "$state" ] || [ "$state" = Z ] || [ "$state" = X ] || [ "$start" != "$before" ]; then state=gone; break; fi
  sleep 0.01
done
echo "state=$state"
port=open
for i in {_counted(100)}; do
  if {_connects(address, port)}; then sleep 0.02; else port=closed; break; fi
done
echo "port=$port"
"""
    return Script(text, Kill(pid, address, port))


def signal_script(pid: int, signal: str, *, until_stopped: bool) -> Script:
    """Send a signal and watch all threads for up to a second until they are (or are no longer) stopped.

    Answers `start`, `before` and `after`: the set of thread states, such as `S` or `RS`; `after=T` is stopped."""
    wanted = '[ "$t" = T ]' if until_stopped else 'case "$t" in *T*) false;; *) true;; esac'
    text = f"""{_PROCESS}{_THREADS}
look {pid}; echo "start=$start"
threads {pid}; echo "before=$t"
kill -{signal} {pid} && echo signalled=yes
for i in {_counted(100)}; do
  threads {pid}
  if {wanted}; then break; fi
  sleep 0.01
done
echo "after=$t"
"""
    return Script(text, Signal(pid, signal))


def await_port_script(pid: int, address: str, port: int, seconds: int) -> Script:
    """Waits for the port to open, as long as the process is there; answers `port=open` or `port=closed`."""
    text = f"""end=$(( $(date +%s) + {seconds} ))
until {_connects(address, port)}; do
  if [ ! -d /proc/{pid} ] || [ "$(date +%s)" -ge "$end" ]; then echo port=closed; exit 0; fi
  sleep 0.05
done
echo port=open
"""
    return Script(text, AwaitPort(pid, address, port, seconds))


def datagrams_script(addresses: list[str]) -> Script:
    """One datagram to the discard port of each address: something for the counters to count, with no answer awaited."""
    sends = "".join(f"echo probe > /dev/udp/{address}/9; " for address in addresses)
    text = f"bash -c {shlex.quote(sends)} 2>/dev/null; echo sent={len(addresses)}"
    return Script(text, SendDatagrams(tuple(addresses)))


def reach_script(targets: list[tuple[str, str, int]]) -> Script:
    """Connect to each (name, address, port), all at once; answers `<name>=open` or `<name>=closed`."""
    lines = [
        f"( if {_connects(address, port)}; then echo {name}=open; else echo {name}=closed; fi ) &"
        for name, address, port in targets
    ]
    return Script("\n".join([*lines, "wait"]), Reach(tuple(targets)))


def refusal_script(targets: list[tuple[str, str, int]]) -> Script:
    """Connect to each (name, address, port), all at once; answers `<name>=refused` where that fails at once,
    `<name>=silent` where nothing comes within a second, `<name>=open`."""
    lines = [
        f"( {_connects(address, port)}; case $? in 0) echo {name}=open;; 124) echo {name}=silent;; "
        f"*) echo {name}=refused;; esac ) &"
        for name, address, port in targets
    ]
    return Script("\n".join([*lines, "wait"]), Refuse(tuple(targets)))


def connect_times_script(address: str, port: int, times: int, seconds: int) -> Script:
    """Connect so many times, one after the other, for at most `seconds` in all; `connect<n>` is the microseconds of
    each that succeeded."""
    loop = f"""for i in {" ".join(map(str, range(times)))}; do
  a=$EPOCHREALTIME
  exec 3<>/dev/tcp/{address}/{port} || continue
  b=$EPOCHREALTIME; exec 3>&-
  echo "connect$i=$(( ${{b/./}} - ${{a/./}} ))"
done"""
    text = f"LC_ALL=C timeout {seconds} bash -c {shlex.quote(loop)} 2>/dev/null; echo done=yes"
    return Script(text, TimeConnects(address, port, times, seconds))


def burst_script(address: str, count: int) -> Script:
    """So many datagrams to the discard port of an address, as fast as a shell can, with no answer awaited."""
    loop = f"exec 3>/dev/udp/{address}/9; for ((i = 0; i < {count}; i++)); do echo probe >&3; done"
    return Script(f"bash -c {shlex.quote(loop)} 2>/dev/null; echo sent={count}", SendBurst(address, count))


def _connects(address: str, port: int) -> str:
    return f"timeout 1 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null"


def _counted(times: int) -> str:
    """The words of a shell loop that runs `times` times, without forking `seq`."""
    return " ".join("." * times)
