"""Schedules of faults in action: pauses are kept, every kind occurs, and all of it is in the journal."""

import json
from pathlib import Path

import pytest

from history.journal.writer import Journal
from nemeses import ClusterView, FaultPlan, Schedule
from nemeses.fault import Evidence, Fault, combine
from nemeses.scheduling import ThreadScheduler
from orchestrator.errors import RunError
from orchestrator.running.faults import FaultLog, follow_schedule
from orchestrator.running.progress import Progress
from tests.nemeses.fakes import UnhinderedNemesis
from tests.orchestrator.unwatched import Unwatched


class Clock(ThreadScheduler):
    """Time that passes only during a wait or work."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def tick(self, until: float) -> None:
        self.now = max(self.now, until)


class SlowNemesis(UnhinderedNemesis):
    """Every injection and every heal takes two seconds."""

    def __init__(self, clock: Clock, *, heal: str = "confirmed", everything: str = "confirmed") -> None:
        self._clock = clock
        self._heal = heal
        self._everything = everything
        self.takes_s = 2.0
        self.done: list[tuple[str, str, float]] = []

    nodes: tuple[str, ...] = ()

    def inject(self, fault: Fault) -> Evidence:
        self.done.append(("inject", fault.kind, self._clock.now))
        self._clock.now += self.takes_s
        return Evidence("confirmed", {"n1": {"boot_id": "a"}})

    def heal(self, fault: Fault) -> Evidence:
        self.done.append(("heal", fault.kind, self._clock.now))
        self._clock.now += self.takes_s
        return Evidence(self._heal, {"boot_id": "a"})  # type: ignore[arg-type]

    def heal_all(self) -> Evidence:
        return Evidence(self._everything, {"left": "n2"})  # type: ignore[arg-type]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def book(nemesis: SlowNemesis, journal: Journal) -> FaultLog:
    watch = Unwatched()
    return FaultLog(nemesis, journal, Progress(quiet=True), watch)  # type: ignore[arg-type]


def plan(kind: str, at: float, duration_s: float) -> FaultPlan:
    return FaultPlan(kind, at, duration_s, "any", 0.5)


def test_pauses_are_kept_and_faults_that_do_not_fit_are_omitted_unless_new(clock: Clock, tmp_path: Path) -> None:
    nemesis = SlowNemesis(clock)
    schedule = Schedule(1, (plan("kill", 1, 1), plan("pause", 3, 1), plan("kill", 5, 1), plan("power-loss", 8, 1)))
    with Journal(tmp_path) as journal:
        view = ClusterView(("n1", "n2", "n3"))
        follow_schedule(schedule, book(nemesis, journal), lambda: view, clock.tick, ends_s=10, scheduler=clock)
    assert nemesis.done == [
        ("inject", "kill", 1),
        ("heal", "kill", 4),
        ("inject", "pause", 7),
        ("heal", "pause", 10),
        ("inject", "power-loss", 14),
        ("heal", "power-loss", 17),
    ]


def test_faults_on_time_start_at_their_times_or_after_the_previous_heal(clock: Clock, tmp_path: Path) -> None:
    nemesis = SlowNemesis(clock)
    schedule = Schedule(1, (plan("kill", 1, 1), plan("pause", 3, 1), plan("power-loss", 15, 1)))
    with Journal(tmp_path) as journal:
        follow_schedule(
            schedule, book(nemesis, journal), lambda: VIEW, clock.tick, ends_s=20, on_time=True, scheduler=clock
        )
    assert [(kind, at_s) for action, kind, at_s in nemesis.done if action == "inject"] == [
        ("kill", 1),
        ("pause", 6),
        ("power-loss", 15),
    ]


VIEW = ClusterView(("n1", "n2", "n3"))


def overlapping(clock: Clock, tmp_path: Path, *plans: FaultPlan, ends_s: float = 30) -> list[tuple[str, str, float]]:
    """What was done, and when, in a nemesis whose actions take no time."""
    nemesis = SlowNemesis(clock)
    nemesis.takes_s = 0.0
    with Journal(tmp_path) as journal:
        log, schedule = book(nemesis, journal), Schedule(1, plans)
        follow_schedule(schedule, log, lambda: VIEW, clock.tick, ends_s=ends_s, overlap=True, scheduler=clock)
    return nemesis.done


def test_faults_of_different_nodes_are_in_force_at_once(clock: Clock, tmp_path: Path) -> None:
    kill, pause = plan("kill", 1, 5), FaultPlan("pause", 2, 2, "any", 0.9)
    assert kill.resolve(VIEW).targets != pause.resolve(VIEW).targets
    assert overlapping(clock, tmp_path, kill, pause) == [
        ("inject", "kill", 1),
        ("inject", "pause", 2),
        ("heal", "pause", 4),
        ("heal", "kill", 6),
    ]


def test_a_fault_that_would_hide_anothers_proof_occurs_once_and_after_it(clock: Clock, tmp_path: Path) -> None:
    cut, dark = plan("partition-one", 1, 9), FaultPlan("power-loss", 3, 2, "any", 0.9)
    again = FaultPlan("power-loss", 12, 1, "any", 0.9)
    once_more = plan("partition-one", 12.5, 1)
    assert overlapping(clock, tmp_path, cut, dark, again, once_more) == [
        ("inject", "partition-one", 1),
        ("heal", "partition-one", 3),
        ("inject", "power-loss", 3),
        ("heal", "power-loss", 5),
        ("inject", "power-loss", 12),
        ("heal", "power-loss", 13),
    ]


def late(node: str, at: float, duration_s: float, kind: str = "packet-delay") -> FaultPlan:
    """What a node sends is late, or lost."""
    draw = next(
        draw / 97 for draw in range(97) if FaultPlan(kind, 0, 0, "any", draw / 97).resolve(VIEW).targets == (node,)
    )
    return FaultPlan(kind, at, duration_s, "any", draw, {"delay_ms": 50} if kind == "packet-delay" else {"percent": 9})


def test_one_node_stays_undisturbed_to_measure_delays_of_others(clock: Clock, tmp_path: Path) -> None:
    first, second, third = late("n1", 1, 9), late("n2", 2, 9), late("n3", 3, 1)
    assert overlapping(clock, tmp_path, first, second, third) == [
        ("inject", "packet-delay", 1),
        ("inject", "packet-delay", 2),
        ("heal", "packet-delay", 10),
        ("heal", "packet-delay", 11),
    ], "the third is left out"


def test_the_node_that_measures_the_end_of_a_delay_was_undisturbed_before_it(clock: Clock, tmp_path: Path) -> None:
    first, second, third = late("n1", 1, 2), late("n2", 2, 9), late("n3", 5, 1, "packet-loss")
    assert overlapping(clock, tmp_path, first, second, third) == [
        ("inject", "packet-delay", 1),
        ("inject", "packet-delay", 2),
        ("heal", "packet-delay", 3),
        ("heal", "packet-delay", 5),
        ("inject", "packet-loss", 5),
        ("heal", "packet-loss", 6),
    ], "n1 is undisturbed again, but how fast its answers come n2 has not measured"


def test_quiet_times_have_no_fault_but_the_first_of_a_kind() -> None:
    schedule = Schedule(1, (plan("kill", 1, 1), plan("kill", 3, 2), plan("pause", 4, 1), plan("kill", 8, 1)))
    assert [(each.kind, each.at) for each in schedule.without([(4, 6)])] == [("kill", 1), ("pause", 4), ("kill", 8)]


def test_the_journal_has_each_fault_with_its_evidence(clock: Clock, tmp_path: Path) -> None:
    nemesis = SlowNemesis(clock, heal="mismatch")
    with Journal(tmp_path) as journal:
        faults_of_run = book(nemesis, journal)
        faults_of_run.inject(Fault("power-loss", ("n1",)))
        faults_of_run.inject(Fault("kill", ("n2",)))
        assert faults_of_run.heal(lambda _: True)
        assert not faults_of_run.heal(lambda _: True)
    lines = [json.loads(line) for line in (tmp_path / "history" / "journal.jsonl").read_text().splitlines()]
    assert [(line["event"], line["id"], line.get("status")) for line in lines] == [
        ("fault_invoked", "f1", None),
        ("fault_injected", "f1", "confirmed"),
        ("fault_invoked", "f2", None),
        ("fault_injected", "f2", "confirmed"),
        # A power loss is proven by the boot id that the node comes back with; a kill was proven when it happened.
        ("fault_healed", "f1", "mismatch"),
        ("fault_healed", "f2", None),
    ]


def test_the_journal_describes_action_and_proof_of_a_fault(clock: Clock, tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        faults_of_run = book(SlowNemesis(clock), journal)
        faults_of_run.inject(Fault("clock-jump", ("n1",), parameters={"jump_s": 9.0}))
        faults_of_run.heal(lambda _: True)
    invoked, injected, healed = map(json.loads, (tmp_path / "history" / "journal.jsonl").read_text().splitlines())
    assert invoked["sentence"] == "the clock of n1 jumps 9 s forward"
    assert injected["proof"] == healed["proof"] == "n1: its clock was not read"


def test_a_failed_heal_ends_the_run(clock: Clock, tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        faults_of_run = book(SlowNemesis(clock, everything="mismatch"), journal)
        faults_of_run.inject(Fault("kill", ("n2",)))
        with pytest.raises(RunError, match=r"healing everything was mismatch: left: n2"):
            faults_of_run.heal_all()


class Hiding(SlowNemesis):
    """Its power losses hide the heals of other faults and prevent them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.dark = False

    def prevented(self, fault: Fault) -> dict[str, Evidence]:
        by = Evidence("prevented", {"prevented_by": "power-loss"})
        return dict.fromkeys(fault.targets, by) if self.dark else {}

    def hidden(self, fault: Fault) -> str:
        return "power-loss" if self.dark and fault.kind != "power-loss" else ""

    def inject(self, fault: Fault) -> Evidence:
        if self.dark:
            return combine(self.prevented(fault))
        self.dark = fault.kind == "power-loss"
        return super().inject(fault)

    def heal(self, fault: Fault) -> Evidence:
        self.dark = False
        return super().heal(fault)


def test_a_heal_that_a_later_fault_hides_waits_for_that_of_the_later_one(clock: Clock, tmp_path: Path) -> None:
    nemesis = Hiding(clock)
    with Journal(tmp_path) as journal:
        faults_of_run = book(nemesis, journal)
        faults_of_run.inject(Fault("pause", ("n1",)))
        faults_of_run.inject(Fault("power-loss", ("n1",)))
        assert faults_of_run.heal(lambda fault: fault.kind == "pause")
        assert faults_of_run.heal(lambda fault: fault.kind == "pause"), "it is still in force"
        assert [kind for what, kind, _ in nemesis.done if what == "heal"] == []
        faults_of_run.heal(lambda fault: fault.kind == "power-loss")
    assert [kind for what, kind, _ in nemesis.done if what == "heal"] == ["power-loss", "pause"]
    lines = [json.loads(line) for line in (tmp_path / "history" / "journal.jsonl").read_text().splitlines()]
    notes = [line["text"] for line in lines if line["event"] == "note"]
    assert notes == ["the heal of fault f1 waits for that of power-loss"]


def test_a_prevented_fault_does_no_damage(clock: Clock, tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        faults_of_run = book(Hiding(clock), journal)
        faults_of_run.inject(Fault("power-loss", ("n1",)))
        faults_of_run.inject(Fault("kill", ("n1",)))
    lines = [json.loads(line) for line in (tmp_path / "history" / "journal.jsonl").read_text().splitlines()]
    invoked, injected = (line for line in lines if line["id"] == "f2")
    assert invoked["may_destroy"] == []
    assert (injected["status"], injected["proof"]) == ("prevented", "n1: prevented by power-loss")
