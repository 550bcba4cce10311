"""Reads the clocks of hosts relative to this machine's, moves them, and corrects them."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from nemeses.fault import Evidence
from nemeses.in_force import ClockChanges, ClockOffsets
from nemeses.mechanisms.shell import ask, question
from nemeses.ports import Host, HostError
from nemeses.scheduling import Scheduler

# Exists while a clock is wrong because of us. A boot removes it, as it removes what `date` did to the clock.
_MOVED = "/run/brownout/clock-moved"
_NOTE = f"mkdir -p /run/brownout; echo moved > {_MOVED}"
_READS = 5
_SHARP_S = 0.05  # a reading with at most this uncertainty is not repeated
_UPTIME_STEP_S = 0.01
_MOST_DRIFT = 1e-3  # seconds per second, twice the largest slew of a kernel
_AGAIN_S = 0.2
SHARED = "this host has this machine's own clock, which is never set"


@question
def read_clocks_script() -> str:
    """Prints `up`: seconds since boot; `real`: seconds since the epoch; `switches`: the kernel's count of context
    switches."""
    # All values are read within one round trip. The shell's own `read` needs no process; `date` needs one.
    return """\
while read -r key value rest; do [ "$key" = ctxt ] && echo "switches=$value"; done < /proc/stat
read -r up rest < /proc/uptime; echo "up=$up"
echo "real=$(LC_ALL=C date +%s.%N)"
"""


@question
def move_clock_script(by_s: float) -> str:
    """Set the real-time clock forward or (negative) back, and note that; the answer is the output of `date`.

    `date` itself reads and sets the clock, so that the round trip does not matter; but it must not run twice."""
    return f"{_NOTE}; LC_ALL=C date -s '{by_s:+.6f} seconds' 2>&1"


@question
def note_move_script() -> str:
    """Note that the real-time clock is about to be wrong on purpose. The answer is empty."""
    return _NOTE


@question
def forget_move_script() -> str:
    """The clock is right again: remove the note. The answer is empty."""
    return f"rm -f {_MOVED}"


@question
def was_moved_script() -> str:
    """Prints `moved`: whether the clock was set wrong on purpose and has not been corrected since."""
    return f"[ -e {_MOVED} ] && echo moved=yes || echo moved=no"


@dataclass(frozen=True)
class ClockReading:
    """A host's clocks at one moment, as offsets from this machine's clocks.

    `real_s`: the real-time clock. `steady_s`: the time since boot relative to the monotonic clock; only its changes are
    meaningful. The host read both at some time between sending the command and receiving its answer, so each true value
    is within `uncertainty_s`, half of the round trip. `shared`: the host runs on this machine's kernel, and therefore
    has its real-time clock.
    """

    real_s: float
    steady_s: float
    uncertainty_s: float
    at_s: float
    shared: bool


@dataclass(frozen=True)
class Change:
    """The change of the clocks between two readings, apart from the passage of time; exact to `tolerance_s`."""

    real_s: float
    steady_s: float
    tolerance_s: float

    def to_json(self) -> dict[str, float]:
        return {
            "real_s": round(self.real_s, 4),
            "steady_s": round(self.steady_s, 4),
            "tolerance_s": round(self.tolerance_s, 4),
        }


def read_clocks(host: Host, scheduler: Scheduler, *, patience_s: float = 0.0) -> ClockReading:
    """The most precise of a few readings. Raises `HostError` when the host does not answer within `patience_s`."""
    best: ClockReading | None = None
    for _ in range(_READS):
        reading = _read_once(host, scheduler, patience_s)
        if best is None or reading.uncertainty_s < best.uncertainty_s:
            best = reading
        if best.uncertainty_s < _SHARP_S:
            break
    assert best is not None, "at least one reading is made"
    return best


def change(before: ClockReading, after: ClockReading) -> Change:
    """The change of a host's clocks from one reading to the next."""
    tolerance_s = before.uncertainty_s + after.uncertainty_s + _UPTIME_STEP_S
    tolerance_s += _MOST_DRIFT * (after.at_s - before.at_s)
    return Change(after.real_s - before.real_s, after.steady_s - before.steady_s, tolerance_s)


def set_right(host: Host, scheduler: Scheduler, reading: ClockReading, changes: ClockChanges) -> Evidence:
    """Set a host's real-time clock, last read as `reading`, to this machine's and read it back. It stays ahead by the
    jumps in force."""
    if reading.shared:
        return Evidence("confirmed", {"shared": SHARED})
    jumped_s = changes.jumped_s(host.name)
    output = move(host, jumped_s - reading.real_s)
    now = read_clocks(host, scheduler)
    tolerance_s = change(reading, now).tolerance_s
    detail = {"found_s": _short(reading.real_s), "offset_s": _short(now.real_s), "tolerance_s": _short(tolerance_s)}
    if abs(now.real_s - jumped_s) > tolerance_s:
        return Evidence("mismatch", {**detail, "date": output})
    changes.note_set(host.name, ClockOffsets(now.real_s, now.steady_s))
    if jumped_s:
        return Evidence("confirmed", {**detail, "jumped_s": jumped_s})
    host.run(forget_move_script())
    return Evidence("confirmed", detail)


def _read_once(host: Host, scheduler: Scheduler, patience_s: float) -> ClockReading:
    give_up_s = scheduler.monotonic() + patience_s
    while True:
        switches = _context_switches()
        real_s, sent_s = scheduler.wall(), scheduler.monotonic()
        try:
            answer = ask(host, read_clocks_script())
            break
        except HostError:
            if scheduler.monotonic() >= give_up_s:
                raise
            scheduler.sleep(_AGAIN_S)
    middle_s = (scheduler.monotonic() - sent_s) / 2
    try:
        return ClockReading(
            real_s=float(answer["real"]) - (real_s + middle_s),
            steady_s=float(answer["up"]) - (sent_s + middle_s),
            uncertainty_s=middle_s,
            at_s=sent_s + middle_s,
            shared=switches is not None and switches <= int(answer["switches"]) <= (_context_switches() or 0),
        )
    except (KeyError, ValueError) as error:
        raise HostError(f"{host.name}: its clocks cannot be read: {answer}") from error


def move(host: Host, by_s: float) -> str:
    """Set a clock forward or back; returns the output of `date`."""
    return host.run(move_clock_script(by_s)).stdout.strip()


def note_move(host: Host) -> Evidence:
    """Make the next heal of everything, or the next run, correct the clock: something else is about to make it wrong.
    Raises `HostError`."""
    noted = host.run(note_move_script())
    return Evidence("confirmed" if noted.ok else "inconclusive", {} if noted.ok else {"error": noted.stderr.strip()})


def _context_switches() -> int | None:
    """The number of context switches of this kernel since its boot; None if the kernel does not report it. No namespace
    hides the number and no two kernels have the same at the same moment, so it identifies containers."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            if line.startswith("ctxt "):
                return int(line.split()[1])
    return None


def _short(seconds: float) -> float:
    return round(seconds, 4)
