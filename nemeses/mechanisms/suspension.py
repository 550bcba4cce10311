"""Suspends and resumes machines: a stalled machine's clocks continue, a frozen machine's clocks stop."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine, worst
from nemeses.kind import Facts, NodeKind
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.clocks import Change, ClockReading, change, note_move, read_clocks, set_right
from nemeses.mechanisms.parallel import guarded, on_each, required
from nemeses.ports import Host, HostError, Site

_PATIENCE_S = 30.0
_WORD_S = 5.0

StoppedState = Literal["stalled", "frozen"]


@dataclass(frozen=True)
class _Held:
    """A host's state before it was suspended, the seconds that drifts and freezes had gained its clocks by then, and
    the bounds of that time (monotonic seconds)."""

    reading: ClockReading
    gained_s: float
    started_s: float
    done_s: float


@dataclass
class _Before:
    """Observations of a running host: the time until its first answer, its clocks, or why they are unknown."""

    word_s: float | None = None
    reading: ClockReading | None = None
    error: str = ""


class Suspension(Mechanism):
    """Suspends and resumes whole machines."""

    stage = 10
    part = "suspended"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._held: dict[str, _Held] = {}

    def stop(self, targets: Collection[str], stopped_state: StoppedState) -> Evidence:
        suspender = required(self.site.suspender, "this world has nothing that stops machines")
        looks = self._look(targets)
        if stopped_state == "frozen":
            noted = self._note(looks)
            if not noted.confirmed:
                return noted
        started_s = self.site.scheduler.monotonic()
        answers = (suspender.stall if stopped_state == "stalled" else suspender.freeze)(targets)
        done_s = self.site.scheduler.monotonic()
        for name, look in looks.items():
            self._held.pop(name, None)  # of an earlier suspension without a heal
            if look.reading is not None:
                gained_s = self.in_force.clocks.count(name, look.reading.at_s)
                self._held[name] = _Held(look.reading, gained_s, started_s, done_s)
            if stopped_state == "frozen":
                self.in_force.clocks.freeze(name, started_s, frozen=True)

        def prove(host: Host) -> Evidence:
            state = suspender.state(host.name)
            detail: dict[str, Any] = {**answers.get(host.name, {}), "state": state}
            if state != stopped_state:
                return Evidence("mismatch", detail)
            look = looks[host.name]
            if look.word_s is None:
                return Evidence("inconclusive", {**detail, "error": look.error or "it did not answer before either"})
            patience_s = 3 * look.word_s + 0.2
            word_s = self.site.first_word_s(host, patience_s)
            detail |= {"answered_before_s": round(look.word_s, 3), "silent_s": round(patience_s, 3)}
            if word_s is not None:
                return Evidence("mismatch", {**detail, "answers_after_s": round(word_s, 3)})
            if look.reading is None:
                # Only the clocks distinguish a freeze from a stall: without this reading that cannot be proven later.
                return Evidence("inconclusive", {**detail, "error": look.error})
            return Evidence("confirmed", detail)

        return combine(on_each(self.site, targets, prove))

    def resume(self, targets: Collection[str], stopped_state: StoppedState) -> Evidence:
        suspender = required(self.site.suspender, "this world has nothing that stops machines")
        started_s = self.site.scheduler.monotonic()
        answers = suspender.resume(targets)
        done_s = self.site.scheduler.monotonic()
        for name in targets:
            self.in_force.clocks.freeze(name, done_s, frozen=False)

        def prove(host: Host) -> Evidence:
            state = suspender.state(host.name)
            if state != "running":
                return Evidence("mismatch", {**answers.get(host.name, {}), "state": state})
            back = self._back(host, stopped_state, started_s, done_s)
            return Evidence(back.status, {**answers.get(host.name, {}), "state": state, **back.detail})

        return combine(on_each(self.site, targets, prove))

    def heal_all(self) -> Evidence | None:
        """Resume every suspended machine, including those that another run suspended."""
        suspender = self.site.suspender
        if suspender is None:
            return None
        states = {name: suspender.state(name) for name in self.site.hosts}
        healed = {name: Evidence("confirmed", {"state": state}) for name, state in states.items()}
        for name, state in states.items():
            if state != "running":
                healed[name] = guarded(self.resume, (name,), state)
        return combine(healed)

    def _look(self, targets: Collection[str]) -> dict[str, _Before]:
        """Observe each target while it runs."""
        looks: dict[str, _Before] = {}

        def note(host: Host) -> Evidence:
            looks[host.name] = look = _Before()
            try:
                look.word_s = self.site.first_word_s(host, _WORD_S * self.site.time_scale)
                look.reading = read_clocks(host, self.site.scheduler)
            except HostError as error:
                look.error = str(error)
            return Evidence("confirmed", {})

        on_each(self.site, targets, note)
        return looks

    def _note(self, looks: Mapping[str, _Before]) -> Evidence:
        """Make whatever resumes the machines later correct their clocks, which will lag: this run may have ended by
        then."""

        def note(host: Host) -> Evidence:
            reading = looks[host.name].reading
            is_shared = reading is not None and reading.shared
            return Evidence("confirmed", {}) if is_shared else note_move(host)

        return combine(on_each(self.site, looks, note))

    def _back(self, host: Host, state: StoppedState, started_s: float, done_s: float) -> Evidence:
        now = read_clocks(host, self.site.scheduler, patience_s=_PATIENCE_S * self.site.time_scale)
        stop = self._held.pop(host.name, None)
        # A host that was healed before, or that this run did not suspend, proves nothing; it runs and answers.
        judged = Evidence("confirmed", {})
        if stop is not None:
            shortest_s, longest_s = started_s - stop.done_s, done_s - stop.started_s
            drifted_s = 0.0 if state == "frozen" else self.in_force.clocks.count(host.name, now.at_s) - stop.gained_s
            judged = _judge(state, change(stop.reading, now), drifted_s, shortest_s, longest_s)
        if state == "stalled":
            return judged
        righted = set_right(host, self.site.scheduler, now, self.in_force.clocks)
        return Evidence(worst([judged.status, righted.status]), {**judged.detail, "set_right": righted.detail})


def _judge(state: StoppedState, moved: Change, drifted_s: float, shortest_s: float, longest_s: float) -> Evidence:
    """Whether the clocks show a suspension with a duration between these two. `drifted_s`: what the clocks of a stalled
    machine have gained by the drifts in force."""
    detail = {"stopped_s": [round(shortest_s, 3), round(longest_s, 3)], "moved": moved.to_json()}
    if shortest_s <= moved.tolerance_s:
        return Evidence("inconclusive", {**detail, "error": "smaller than the uncertainty of a reading"})
    if state == "stalled":
        went_on = all(abs(moved_s - drifted_s) <= moved.tolerance_s for moved_s in (moved.steady_s, moved.real_s))
        return Evidence("confirmed" if went_on else "mismatch", detail)
    # The time since boot is the proof: a time service may already have corrected the real-time clock.
    stood = shortest_s - moved.tolerance_s <= -moved.steady_s <= longest_s + moved.tolerance_s
    return Evidence("confirmed" if stood else "mismatch", detail)


class SuspensionKind(NodeKind[Suspension]):
    """Evidence: the suspender reports it, and the host is silent for longer than an earlier answer took; healed: it
    runs and answers, and its clocks have continued (stalled) or lost the time in between (frozen).

    After a freeze the real-time clock is corrected, so that the heal leaves nothing behind."""

    group = FaultGroup.MACHINE
    service = "unseen"
    seen = (EvidenceRule("state", values=("stalled", "frozen")),)
    healed = (EvidenceRule("state", values=("running",)), EvidenceRule("moved"))
    hides = frozenset({"machine"})
    heal_rests_on = frozenset()
    mechanism = Suspension
    proven_late = True
    healed_by = "resume"
    stopped_state: ClassVar[StoppedState]

    def inject(self, by: Suspension, fault: Fault) -> Evidence:
        return by.stop(fault.targets, self.stopped_state)

    def heal(self, by: Suspension, fault: Fault) -> Evidence:
        return by.resume(fault.targets, self.stopped_state)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        phrase = f"{facts.get('state', 'not seen to stop')}, silent for {facts.get('silent_s', 0):.1f} s when asked"
        moved = heal.get("moved")
        if moved is not None:
            phrase += f"; afterwards its time since boot was off by {moved['steady_s']:+.2f} s"
        return phrase
