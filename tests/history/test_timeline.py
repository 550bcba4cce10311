"""The time axis of a run: its clock, its phases, and the spans of its faults."""

import math
from typing import Any

import pytest

from history.damage import Damage, suffered
from history.journal.timeline import FAULT_EVENTS, HEALED, INJECTED, INVOKED, RunClock, RunPhase, fault_spans, phases_of

CLOCK = RunClock(origin_ns=1_000_000_000)


def line(event: str, t_s: float, fault: str = "f1", **fields: Any) -> dict[str, Any]:
    return {"event": event, "id": fault, "t": round(t_s * 1e9), **fields}


KILL = line(INVOKED, 2, kind="kill", targets=["n1"], sentence="n1 is killed", may_destroy=["memory"])
DONE = line(INJECTED, 3, status="inconclusive", proof="gone", evidence={"n1": "gone"})
HEAL = line(HEALED, 5, evidence={"healed": "up"})


def test_a_span_has_the_times_of_its_lines_on_the_clock_of_the_run() -> None:
    (fault,) = fault_spans([KILL, DONE, HEAL], CLOCK)
    assert (fault.id, fault.name, fault.sentence) == ("f1", "kill n1", "n1 is killed")
    assert (fault.start_s, fault.end_s) == (2.0, 4.0)
    assert [fault.at(event, -1) for event in FAULT_EVENTS] == [2 * 10**9, 3 * 10**9, 5 * 10**9]
    assert [fault.position(event, -1) for event in FAULT_EVENTS] == [0, 1, 2]
    assert fault.evidence == {"n1": "gone", "healed": "up"}


@pytest.mark.parametrize(
    ("lines", "start_s", "end_s"), [([KILL], 1.0, math.inf), ([KILL, DONE], 2.0, math.inf), ([KILL, HEAL], 1.0, 4.0)]
)
def test_a_fault_starts_with_its_invocation_and_lasts_to_the_end_where_its_lines_are_absent(
    lines: list[dict[str, Any]], start_s: float, end_s: float
) -> None:
    (fault,) = fault_spans(lines, CLOCK)
    assert (fault.start_s, fault.end_s, fault.status) == (start_s, end_s, "inconclusive")


def test_status_and_proof_of_the_heal_replace_the_first_ones() -> None:
    (fault,) = fault_spans([KILL, DONE, HEAL | {"status": "confirmed", "proof": "it came back"}])
    assert (fault.status, fault.proof) == ("confirmed", "it came back")
    (fault,) = fault_spans([KILL, DONE, HEAL])
    assert (fault.status, fault.proof) == ("inconclusive", "gone")


def test_the_first_line_of_an_event_counts_and_the_others_are_kept() -> None:
    (fault,) = fault_spans([KILL, DONE, DONE | {"t": 4 * 10**9}, HEAL], CLOCK)
    assert fault.start_s == 2.0
    assert len(fault.lines[INJECTED]) == 2


def test_a_line_of_a_fault_that_was_not_invoked_before_is_left_out() -> None:
    assert fault_spans([DONE, HEAL]) == ()
    (fault,) = fault_spans([DONE, KILL])
    assert INJECTED not in fault.lines


def test_spans_are_in_the_order_of_their_invocations() -> None:
    other = line(INVOKED, 2.5, "f2", kind="pause", targets=["n2"])
    assert [fault.id for fault in fault_spans([KILL, other, DONE])] == ["f1", "f2"]


def test_a_fault_is_prevented_if_its_injection_says_so() -> None:
    (fault,) = fault_spans([KILL, DONE | {"status": "prevented"}, HEAL | {"status": "confirmed"}])
    assert fault.is_prevented
    assert not fault_spans([KILL, DONE])[0].is_prevented


def test_a_fault_does_only_the_declared_damage_and_only_to_its_targets() -> None:
    journal = [KILL, line(INVOKED, 3, "f2", kind="pause", targets=["n1"]), DONE]
    assert suffered(journal, "n1", frozenset({Damage.MEMORY, Damage.DISK})) == 1
    assert suffered(journal, "n1", frozenset({Damage.DISK})) == 0
    assert suffered(journal, "n2", frozenset({Damage.MEMORY})) == 0


def test_a_phase_ends_with_the_start_of_the_next_one() -> None:
    journal = [{"event": "phase", "name": name, "t": t} for name, t in (("setup", 1), ("main", 4))]
    assert phases_of(journal) == (RunPhase("setup", 1, 4), RunPhase("main", 4, None))
    assert phases_of([]) == ()


def test_the_zero_of_a_clock_is_the_first_line_with_both_clocks() -> None:
    journal: list[dict[str, Any]] = [{"event": "note"}, {"t": 7, "wall": 2.0}, {"t": 9, "wall": 3.0}]
    assert RunClock.of_journal(journal) == RunClock(7, 2_000_000_000)
    assert RunClock.of_journal(journal[:1]) == RunClock()
