"""Clock jump: the real-time clock of a node is set forward or back."""

from typing import Any

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.in_force import ClockOffsets
from nemeses.kind import Facts, Need, NodeKind, RandomDraw, listed
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.clocks import SHARED, ClockReading, change, move, read_clocks, set_right, was_moved_script
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask
from nemeses.parameters import Parameter
from nemeses.ports import Host, Site

_PATIENCE_S = 20.0
_JUMP = Parameter(
    "jump_s", "s", "how far the clock is set forward, or (negative) back", 1, 86_400, signed=True, drawn=(2.0, 3600.0)
)


class Clocks(Mechanism):
    """The real-time clocks of all hosts, and their readings before each jump."""

    stage = 50
    part = "clocks"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._patience_s = _PATIENCE_S * site.time_scale

    def clear_leftovers(self) -> Evidence | None:
        """Correct every clock that was moved, by this run or by a killed one."""

        def heal(host: Host) -> Evidence:
            patience_s = self._patience_s if self.in_force.clocks.jumps.on(host.name) else 0.0
            self.in_force.clocks.jumps.end_all(host.name)
            mark = ask(host, was_moved_script(), patience_s=patience_s, scheduler=self.site.scheduler)
            return self._set_right(host, self._read(host)) if mark.get("moved") == "yes" else Evidence("confirmed", {})

        return combine(on_each(self.site, self.site.hosts, heal))

    def back(self, host: Host, jump_s: float) -> Evidence:
        """End a jump of a clock, and check that it still had the offset of this jump and of the others in force."""
        reading, clocks = self._read(host), self.in_force.clocks
        was_jumped = jump_s in clocks.jumps.on(host.name)
        expected_s = clocks.real_s(host.name, reading.steady_s)
        clocks.jumps.end(host.name, jump_s)
        healed = self._set_right(host, reading)
        if (
            healed.confirmed
            and was_jumped
            and expected_s is not None
            and abs(reading.real_s - expected_s) > abs(jump_s) / 2
        ):
            # Half of the jump: a time service corrects a clock at once, or gradually.
            return Evidence("mismatch", {**healed.detail, "error": "another program has set the clock in between"})
        return healed

    def after_boot(self, host: Host) -> Evidence | None:
        """A boot has also discarded what this run set right."""
        is_set = self.in_force.clocks.real_s(host.name, 0.0) is not None
        return self._set_right(host, self._read(host)) if is_set else None

    def jump(self, host: Host, jump_s: float) -> Evidence:
        """Set a clock, and check that it moved and the time since boot did not."""
        before = read_clocks(host, self.site.scheduler)
        if before.shared:
            return Evidence("inconclusive", {"error": SHARED})
        self.in_force.clocks.jumps.add(host.name, jump_s)
        date = move(host, jump_s)
        now = read_clocks(host, self.site.scheduler)
        self.in_force.clocks.note_set(host.name, ClockOffsets(now.real_s, now.steady_s))
        moved = change(before, now)
        detail = {"jump_s": jump_s, "offset_before_s": round(before.real_s, 4), "moved": moved.to_json(), "date": date}
        jumped = abs(moved.real_s - jump_s) <= moved.tolerance_s
        steady = abs(moved.steady_s) <= moved.tolerance_s
        return Evidence("confirmed" if jumped and steady else "mismatch", detail)

    def _read(self, host: Host) -> ClockReading:
        return read_clocks(host, self.site.scheduler, patience_s=self._patience_s)

    def _set_right(self, host: Host, reading: ClockReading) -> Evidence:
        return set_right(host, self.site.scheduler, reading, self.in_force.clocks)


class ClockJump(NodeKind[Clocks]):
    """Evidence: the real-time clock deviates by the jump, the time since boot does not. At the heal the clock still
    deviates, so that no other program has set it; then it agrees with this machine's clock."""

    name = "clock-jump"
    group, mark = FaultGroup.CLOCK, FaultMark.SQUARE
    action = "`date -s` on the node"
    proven_by = (
        "the real-time clock deviates by the jump, the time since boot does not; at the heal it still deviates, and "
        "then agrees with the orchestrator's"
    )
    destroys = frozenset({Damage.TIME_OF_DAY})
    seen = (EvidenceRule("moved"),)
    healed = (EvidenceRule("offset_s"),)
    mechanism = Clocks
    needs = frozenset[Need]({"clock"})
    parameters = (_JUMP,)
    proven_late = True
    injected_by = "set-clock"
    healed_by = "reset-clock"

    def inject(self, by: Clocks, fault: Fault) -> Evidence:
        jump_s = float(fault.parameters["jump_s"])
        return combine(on_each(by.site, fault.targets, lambda host: by.jump(host, jump_s)))

    def heal(self, by: Clocks, fault: Fault) -> Evidence:
        jump_s = float(fault.parameters["jump_s"])
        return combine(on_each(by.site, fault.targets, lambda host: by.back(host, jump_s)))

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        rng = drawn.rng()
        return {"jump_s": round(rng.choice((-1, 1)) * _JUMP.draw(rng), 3)}

    def sentence(self, fault: Fault) -> str:
        jump_s = float(fault.parameters["jump_s"])
        return f"the clock of {listed(fault.targets)} jumps {abs(jump_s):g} s {'forward' if jump_s > 0 else 'back'}"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        moved = facts.get("moved")
        if moved is None:
            return "its clock was not read"
        return (
            f"its clock moved by {moved['real_s']:+.2f} s, its time since boot by {moved['steady_s']:+.2f} s "
            f"(read within {moved['tolerance_s']:.2f} s)"
        )
