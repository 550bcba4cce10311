"""Mutations of the journal's lines about faults: missing or inconsistent ones."""

from collections.abc import Callable
from typing import Any

from tests.mutations.journal_lines import moved
from tests.mutations.mutation import Catalog, unknown
from tests.mutations.stored import Line, Stored, event, phase

mutation = Catalog("faults")

F1 = unknown("f1|kill")
F2 = unknown("f2|pause")
INVOKED, INJECTED, HEALED = "fault_invoked", "fault_injected", "fault_healed"


def mine(name: str, which: str = "f1") -> Callable[[Line], bool]:
    return event(name, id=which)


def _dropped(name: str, which: str) -> None:
    wants = F1 if which == "f1" else F2
    mutation.add(f"{name} of {which} missing", lambda run: run.drop_lines(mine(name, which)), wants)


for _which in ("f1", "f2"):
    for _name in (INVOKED, INJECTED, HEALED):
        _dropped(_name, _which)


@mutation(unknown("pause", "required"))
def a_required_fault_missing(run: Stored) -> None:
    run.drop_lines(lambda line: line.get("id") == "f2")


@mutation(unknown("kill", "required"))
def all_faults_missing(run: Stored) -> None:
    run.drop_lines(lambda line: line["event"].startswith("fault_"))


@mutation(F2)
def a_fault_is_called_prevented_by_one_that_was_over(run: Stored) -> None:
    def change(line: Line) -> None:
        line.update(status="prevented", evidence={node: {"prevented_by": "kill"} for node in line["evidence"]})

    run.change_lines(mine(INJECTED, "f2"), change)


@mutation(F2)
def a_fault_is_called_prevented_by_itself(run: Stored) -> None:
    def change(line: Line) -> None:
        line.update(status="prevented", evidence={node: {"prevented_by": "pause"} for node in line["evidence"]})

    run.change_lines(mine(INJECTED, "f2"), change)


@mutation(F2)
def a_fault_is_called_prevented_by_nothing(run: Stored) -> None:
    run.change_lines(mine(INJECTED, "f2"), lambda line: line.update(status="prevented"))


@mutation(F1)
def a_service_is_called_withheld_by_a_fault_that_was_not_in_force(run: Stored) -> None:
    def change(line: Line) -> None:
        detail = line["evidence"]["healed"]["detail"]
        line["evidence"]["healed"]["detail"] = {node: {"withheld_by": "pause"} for node in detail}

    run.change_lines(mine(HEALED), change)


mutation.add(
    "evidence emptied", lambda run: run.change_lines(mine(INJECTED), lambda line: line.update(evidence={})), F1
)
mutation.add("evidence missing", lambda run: run.change_lines(mine(INJECTED), lambda line: line.pop("evidence")), F1)


@mutation(F1)
def evidence_of_a_node_emptied(run: Stored) -> None:
    def change(line: Line) -> None:
        line["evidence"] = {node: {} for node in line["evidence"]}

    run.change_lines(mine(INJECTED), change)


@mutation(F1)
def evidence_is_of_another_node(run: Stored) -> None:
    def change(line: Line) -> None:
        line["evidence"] = {"n9": next(iter(line["evidence"].values()))}

    run.change_lines(mine(INJECTED), change)


@mutation(F1)
def a_kill_after_which_the_process_ran_on(run: Stored) -> None:
    def change(line: Line) -> None:
        for each in line["evidence"].values():
            each.update(state="S", port="open")

    run.change_lines(mine(INJECTED), change)


@mutation(F2)
def a_pause_during_which_the_process_ran_on(run: Stored) -> None:
    def change(line: Line) -> None:
        for each in line["evidence"].values():
            each.update(after="S")

    run.change_lines(mine(INJECTED, "f2"), change)


@mutation(F1)
def a_fault_was_not_confirmed(run: Stored) -> None:
    run.change_lines(mine(INJECTED), lambda line: line.update(status="inconclusive"))


@mutation(F2)
def a_fault_took_no_effect(run: Stored) -> None:
    run.change_lines(mine(INJECTED, "f2"), lambda line: line.update(status="mismatch"))


@mutation(F1)
def a_heal_was_not_confirmed(run: Stored) -> None:
    run.change_lines(mine(HEALED), lambda line: line["evidence"]["healed"].update(status="inconclusive"))


@mutation(F2)
def a_heal_took_no_effect(run: Stored) -> None:
    run.change_lines(mine(HEALED, "f2"), lambda line: line["evidence"]["healed"].update(status="mismatch"))


mutation.add(
    "a heal has no evidence", lambda run: run.change_lines(mine(HEALED), lambda line: line.update(evidence={})), F1
)


@mutation(F1)
def a_heal_has_no_detail(run: Stored) -> None:
    run.change_lines(mine(HEALED), lambda line: line["evidence"]["healed"].update(detail={}))


@mutation(F1)
def a_heal_after_which_the_port_stayed_closed(run: Stored) -> None:
    def change(line: Line) -> None:
        for each in line["evidence"]["healed"]["detail"].values():
            each.update(port="closed")

    run.change_lines(mine(HEALED), change)


@mutation(unknown("f1|n9"))
def a_fault_of_an_unplanned_node(run: Stored) -> None:
    run.change_lines(mine(INVOKED), lambda line: line.update(targets=["n9"]))


mutation.add(
    "a fault of no node", lambda run: run.change_lines(mine(INVOKED), lambda line: line.update(targets=[])), F1
)
mutation.add("the healing of all missing", lambda run: run.drop_lines(event("heal_all")), unknown("heal"))


@mutation(unknown("heal"))
def the_healing_of_all_not_confirmed(run: Stored) -> None:
    run.change_lines(event("heal_all"), lambda line: line.update(status="inconclusive"))


@mutation(unknown("heal"))
def the_healing_of_all_took_no_effect(run: Stored) -> None:
    run.change_lines(event("heal_all"), lambda line: line.update(status="mismatch"))


@mutation(unknown("heal"))
def the_healing_of_all_has_no_evidence(run: Stored) -> None:
    run.change_lines(event("heal_all"), lambda line: line.update(evidence={}))


@mutation(unknown("heal"))
def the_healing_of_all_left_a_service_down(run: Stored) -> None:
    def change(line: Line) -> None:
        line["evidence"]["services"]["n2"] = {"pid": None, "port": "closed"}

    run.change_lines(event("heal_all"), change)


@mutation(unknown("f9|partition"))
def a_fault_that_was_never_healed(run: Stored) -> None:
    fields = {"id": "f9", "kind": "partition-one", "targets": ["n1"], "parameters": {}, "sentence": "n1 is cut off"}
    run.insert_line(mine(HEALED, "f2"), event=INVOKED, **fields)
    injected = {"id": "f9", "status": "confirmed", "evidence": {"n1": {"dropped": 4}}, "proof": "n1: cut"}
    run.insert_line(mine(INVOKED, "f9"), event=INJECTED, **injected)


@mutation(F1)
def a_fault_that_need_not_show_anything(run: Stored) -> None:
    run.change_lines(mine(INVOKED), lambda line: line.update(must_show={}))


# ---- heals that show less than they say


@mutation(F1)
def nothing_says_what_a_heal_must_show(run: Stored) -> None:
    run.change_lines(mine(INVOKED), lambda line: line["must_show"].pop("healed"))


@mutation(F1)
def what_a_fact_must_differ_from_is_missing(run: Stored) -> None:
    """As the boot id of before a power cut would be."""

    def change(line: Line) -> None:
        line["must_show"]["healed"] = [{"key": "pid", "of": "target", "differs_from": "pid_before"}]

    run.change_lines(mine(INVOKED), change)


def _healing(name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """The evidence of the healing of all is another."""

    def edit(line: Line) -> None:
        change(line["evidence"])

    mutation.add(
        f"the healing of all {name}",
        lambda run: run.change_lines(event("heal_all"), edit),
        unknown("healing everything", "n2"),
    )


_healing("says nothing of services", lambda evidence: evidence.pop("services"))
_healing("says nothing of a service", lambda evidence: evidence["services"].pop("n2"))
_healing("says no word of a port", lambda evidence: evidence["services"]["n2"].pop("port"))
_healing("has a text for services", lambda evidence: evidence.update(services="fine"))


# ---- faults that met nothing


def _in_phase(name: str, which: str = "f2") -> None:
    mutation.add(
        f"{which} in the phase {name}",
        lambda run: moved(run, lambda line: line.get("id") == which, behind=phase(name)),
        unknown(f"of {which}", name),
    )


for _name in ("setup", "quiesce", "final", "collect"):
    _in_phase(_name)


@mutation(unknown("f2", "healed before it had been injected"))
def a_heal_before_the_injection(run: Stored) -> None:
    moved(run, mine(INJECTED, "f2"), behind=mine(HEALED, "f2"))
