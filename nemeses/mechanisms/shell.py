"""Questions of faults to hosts: each is one function, whose result is the shell script that answers it.

A host runs the script, in one round trip; the answer is its `key=value` lines, which the function's docstring defines.
A simulated host has no shell: a method with the question's name and parameters answers instead
(`orchestrator/worlds/simulation/host.py`). The questions of a single mechanism are in the mechanism's module.

A service may be several processes: an operation acts on its main process and all descendants, and is checked on all of
them.

The scripts need a POSIX shell, sed and kill; the network probes need bash, for its /dev/tcp and /dev/udp. They are not
Python programs sent to the host: a look at a process takes 1.6 ms of processor time in a shell and 9.6 ms in python3
(36 ms with the modules that connect and hash), on the processors that the brokers use, and emulation multiplies it.
"""

import functools
import operator
import shlex
from collections.abc import Callable
from typing import Any, Final, ParamSpec

from installation.sanitize import brief
from nemeses.ports import Host, HostError
from nemeses.scheduling import REAL_TIME, Scheduler

_AGAIN_S = 0.2
ENDS_LEFT_S: Final = 15.0
"""For an answer after the deadline of a service, while the processes that it left are ended."""


def _counted(times: int) -> str:
    """The words of a shell loop that runs `times` times, without forking `seq`."""
    return " ".join("." * times)


# `look PID`: sets `state` and `start`, both empty if the process does not exist. `start` is `TICKS@BOOT`: when it was
# started in clock ticks since this boot. With the pid it identifies a process uniquely: the kernel reuses pids, and a
# machine that boots twice gives a service the same pid, often at the same tick. The locale is C, here and below: in
# others `.` is a character, and the kernel cuts a program's name after 15 bytes, even within a character.
PROCESS = """\
read -r boot </proc/sys/kernel/random/boot_id
look() {
  s=$(LC_ALL=C sed 's/.*) //' "/proc/$1/stat" 2>/dev/null); set -- $s; state=$1; start=${20:+${20}@$boot}
}
"""
# The states of all threads of these processes, once each: a process is stopped when every thread is. Ended threads are
# left out. (`cat` continues when a file disappears meanwhile; `sed` would not.)
_THREADS = """\
threads() {
  files=; for each; do files="$files /proc/$each/task/[0-9]*/stat"; done
  t=$(cat /dev/null $files 2>/dev/null | LC_ALL=C sed 's/.*) \\(.\\).*/\\1/' | sort -u | tr -d 'ZX\\n')
}
"""
# `tree PID...`: sets `all` to these processes, their descendants and the members of their sessions: a service starts a
# session, whose members stay in it when their parents end, and some of its children may start other sessions.
# `reach SIGNAL PID`: sends the signal to all of them, after PID has got it, including those that were forked meanwhile.
_TREE = f"""\
tree() {{
  all=$*; again=yes
  seen=$(cat /proc/[0-9]*/stat 2>/dev/null |
    LC_ALL=C sed -n 's/^\\([0-9]*\\) .*) . \\([0-9]*\\) [0-9]* \\([0-9]*\\) .*/\\1:\\2:\\3/p')
  while [ -n "$again" ]; do
    again=
    for each in $seen; do
      session=${{each##*:}}; each=${{each%:*}}
      case " $all " in
        *" ${{each%:*}} "*) ;;
        *" ${{each#*:}} "* | *" $session "*) all="$all ${{each%:*}}"; again=yes;;
      esac
    done
  done
}}
reach() {{
  reached=$2
  for round in {_counted(10)}; do
    tree "$2"; [ "$all" != "$reached" ] || break
    reached=$all; kill -"$1" $reached 2>/dev/null
  done
}}
"""
_OTHERS = 'others=${all#"$main"}; others=${others# }; [ -z "$others" ] || echo "others=$others"'

LEFT = f"""\
{_THREADS}{_TREE}
left() {{
  main=$1; roots=; shift
  for each; do
    look "${{each%:*}}"; [ -z "$start" ] || [ "$start" != "${{each#*:}}" ] || roots="$roots ${{each%:*}}"
  done
  look "$main"
  case "$state" in ''|Z|X) tree "$main" $roots; all=${{all#"$main"}};; *) tree $roots;; esac
  threads $all; [ -n "$t" ] || all=
}}
end_left() {{
  end=$1; ended=; forced=; shift
  for round in {_counted(10)}; do left "$@"; [ -n "$all" ] || return 0; sleep 0.05; done
  while left "$@"; [ -n "$all" ]; do
    now=$(date +%s); signal=TERM
    if [ "$now" -ge "$end" ]; then
      [ -n "$forced" ] || {{ forced=$t; last=$(( now + 5 )); }} # not what they do once they have been killed
      [ "$now" -lt "$last" ] || return 1
      signal=9
    fi
    for each in $all; do
      case "$signal $ended " in "TERM "*" $each "*) continue;; esac
      kill -$signal "$each" 2>/dev/null
      case " $ended " in *" $each "*) ;; *) ended="$ended $each";; esac
    done
    sleep 0.05
  done
}}
"""
"""Shell functions, after `PROCESS`, for what an ended main process of a service leaves behind. `left PID PID:START...`
(its pid; other processes of the service with their start times): sets `all`. `end_left END PID PID:START...`: ends them
as systemd does, with SIGTERM, and at END (seconds of the epoch) with SIGKILL. `ended`: the pids that got a signal;
`forced`: their states at END, empty if SIGTERM was enough. It fails if a process is still there."""


P = ParamSpec("P")


class Script(str):
    """A question's script. `answered_by` calls the method of the question's name with its arguments on an object."""

    __slots__ = ("answered_by",)
    answered_by: Callable[[object], Any]


QUESTIONS: Final[dict[str, Callable[..., Script]]] = {}
"""Every question that was imported, by name."""


def question(written: Callable[P, str]) -> Callable[P, Script]:
    """Make a question of a function `<name>_script` that returns a script's text."""
    name = written.__name__.removesuffix("_script")

    @functools.wraps(written)
    def asked(*args: P.args, **kwargs: P.kwargs) -> Script:
        script = Script(written(*args, **kwargs))
        script.answered_by = operator.methodcaller(name, *args, **kwargs)
        return script

    QUESTIONS[name] = asked
    return asked


def brief_command(command: str) -> str:
    """A command for a message: one line of limited length."""
    return brief(" ".join(command.split()), 80)


def ask(
    host: Host,
    script: str,
    *,
    timeout_s: float = 10.0,
    patience_s: float = 0.0,
    scheduler: Scheduler = REAL_TIME,
) -> dict[str, str]:
    """Run a script and read its `key=value` lines. Raises `HostError` when it fails or prints nothing of the kind.

    With `patience_s` of the scheduler's time, a failed request to the host is repeated for that time: only for scripts
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
        output = (result.stderr or result.stdout).strip()
        raise HostError(f"{host.name}: a probe failed with exit code {result.exit_code}: {output!r}")
    return answers


@question
def process_script(pid: int) -> str:
    """Prints `start` (empty: the process does not exist) and `threads`, the set of its threads' states."""
    return f"""{PROCESS}{_THREADS}
look {pid}
case "$state" in ''|Z|X) start=;; esac
threads {pid}
echo "start=$start"; echo "threads=$t"
"""


@question
def kill_script(pid: int, address: str, port: int) -> str:
    """Sends SIGKILL; prints `start` before it, then `state` (`gone`: no process is left) and `port`, each up to two
    seconds later, and `others`: the service's other processes, if it has any.

    The port can outlive the process's main thread: another thread that waits for the disk still holds the files."""
    return f"""{PROCESS}{_THREADS}{_TREE}
main={pid}; look {pid}; before=$start; echo "start=$before"
tree {pid}
if [ "$all" != {pid} ]; then kill -STOP {pid}; reach STOP {pid}; fi # none may fork between the list and the kill
{_OTHERS}
kill -9 {pid} && echo signalled=yes
[ -z "$others" ] || kill -9 $others 2>/dev/null
for i in {_counted(200)}; do
  look {pid}
  if [ -z "$state" ] || [ "$state" = Z ] || [ "$state" = X ] || [ "$start" != "$before" ]; then
    state=gone; t=; [ -z "$others" ] || threads $others
    [ -n "$t" ] || break
    state=$t
  fi
  sleep 0.01
done
echo "state=$state"
port=open
for i in {_counted(100)}; do
  if {_connects(address, port)}; then sleep 0.02; else port=closed; break; fi
done
echo "port=$port"
"""


@question
def signal_script(pid: int, signal: str) -> str:
    """Send STOP or CONT to all processes, and observe all threads for up to a second until they are stopped, or no
    longer.

    Prints `start`, `before` and `after`: the set of thread states, such as `S` or `RS` (`after=T`: stopped); `others`
    if there are other processes than the main one."""
    condition = '[ "$t" = T ]' if signal == "STOP" else 'case "$t" in *T*) false;; *) true;; esac'
    return f"""{PROCESS}{_THREADS}{_TREE}
main={pid}; look {pid}; echo "start=$start"
tree {pid}; threads $all; echo "before=$t"
kill -{signal} {pid} && echo signalled=yes
reach {signal} {pid}
{_OTHERS}
for i in {_counted(100)}; do
  threads $all
  if {condition}; then break; fi
  sleep 0.01
done
echo "after=$t"
"""


@question
def terminate_script(pid: int, address: str, port: int, seconds: int, signal: str = "TERM") -> str:
    """Sends SIGTERM, or another signal, to the main process. Prints `start` before it, then `state` (`gone`, or its
    state at the deadline), `waited` (s), `port`, and `left`: the processes that it left behind, which then got SIGTERM,
    too. A process that runs at the deadline has not ended."""
    return f"""{PROCESS}{LEFT}
tree {pid}; born=
for each in ${{all#{pid}}}; do look "$each"; born="$born $each:$start"; done
look {pid}; before=$start; echo "start=$before"
since=$(date +%s); end=$(( since + {seconds} ))
kill -{signal} {pid} && echo signalled=yes
while look {pid}; do
  case "$state" in ''|Z|X) state=gone; break;; esac
  if [ "$start" != "$before" ]; then state=gone; break; fi
  if [ "$(date +%s)" -ge "$end" ]; then break; fi
  sleep 0.05
done
said=$state
if [ "$said" = gone ]; then
  end_left $end {pid} $born
  [ -z "$ended" ] || echo "left=$ended"
  said=${{forced:-gone}}
fi
echo "state=$said"; echo "waited=$(( $(date +%s) - since ))"
if {_connects(address, port)}; then echo port=open; else echo port=closed; fi
"""


@question
def end_left_script(pid: int, seconds: int) -> str:
    """End what an ended main process has left behind, with SIGTERM and after `seconds` with SIGKILL. Prints `left`, the
    pids; `state`: `gone`, `killed` if SIGTERM was not enough, or their states."""
    return f"""{PROCESS}{LEFT}
if end_left $(( $(date +%s) + {seconds} )) {pid}; then state=${{forced:+killed}}; else state=$forced; fi
echo "left=${{ended# }}"; echo "state=${{state:-gone}}"
"""


@question
def await_port_script(pid: int, address: str, port: int, seconds: int) -> str:
    """Waits for the port to open while the process exists; prints `port=open` or `port=closed`."""
    return f"""end=$(( $(date +%s) + {seconds} ))
until {_connects(address, port)}; do
  if [ ! -d /proc/{pid} ] || [ "$(date +%s)" -ge "$end" ]; then echo port=closed; exit 0; fi
  sleep 0.05
done
echo port=open
"""


@question
def list_files_script(directory: str, pattern: str) -> str:
    """For each file of a directory that matches the pattern: its path below it, with its size; and `listed`."""
    size = '[ -f "$file" ] && echo "$file=$(($(wc -c < "$file")))"'
    return f"cd {shlex.quote(directory)} || exit\nfor file in {pattern}; do\n{size}\ndone\necho listed=yes"


@question
def datagrams_script(addresses: list[str]) -> str:
    """One datagram to the discard port of each address, so that the counters count; prints `sent`, their number."""
    sends = "".join(f"echo probe > /dev/udp/{address}/9; " for address in addresses)
    return f"bash -c {shlex.quote(sends)} 2>/dev/null; echo sent={len(addresses)}"


@question
def reach_script(targets: list[tuple[str, str, int]]) -> str:
    """Connect to each (name, address, port), concurrently; prints `<name>=open` or `<name>=closed`."""
    lines = [
        f"( if {_connects(address, port)}; then echo {name}=open; else echo {name}=closed; fi ) &"
        for name, address, port in targets
    ]
    return "\n".join([*lines, "wait"])


@question
def refusal_script(targets: list[tuple[str, str, int]]) -> str:
    """Connect to each (name, address, port), concurrently; prints `<name>=refused` if that fails at once,
    `<name>=silent` without an answer within a second, `<name>=open`."""
    lines = [
        f"( {_connects(address, port)}; case $? in 0) echo {name}=open;; 124) echo {name}=silent;; "
        f"*) echo {name}=refused;; esac ) &"
        for name, address, port in targets
    ]
    return "\n".join([*lines, "wait"])


@question
def connect_times_script(address: str, port: int, times: int, seconds: int) -> str:
    """Connect `times` times, one after the other, within `seconds` in total; prints `connect<n>`, the microseconds of
    each successful connect."""
    loop = f"""for i in {" ".join(map(str, range(times)))}; do
  a=$EPOCHREALTIME
  exec 3<>/dev/tcp/{address}/{port} || continue
  b=$EPOCHREALTIME; exec 3>&-
  echo "connect$i=$(( ${{b/./}} - ${{a/./}} ))"
done"""
    return f"LC_ALL=C timeout {seconds} bash -c {shlex.quote(loop)} 2>/dev/null; echo done=yes"


@question
def burst_script(address: str, count: int) -> str:
    """Send `count` datagrams to the discard port of an address as fast as a shell can; prints `sent`, their number."""
    loop = f"exec 3>/dev/udp/{address}/9; for ((i = 0; i < {count}; i++)); do echo probe >&3; done"
    return f"bash -c {shlex.quote(loop)} 2>/dev/null; echo sent={count}"


def _connects(address: str, port: int) -> str:
    return f"timeout 1 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null"
