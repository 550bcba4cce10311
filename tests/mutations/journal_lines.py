"""Mutations of the run's journal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.mutations.mutation import PASSES, Catalog, Want, fails, unknown
from tests.mutations.stored import Line, Stored, event, phase

mutation = Catalog("journal")

JOURNAL = "history/journal.jsonl"
TELLS = unknown("journal|never began|phase")


@mutation(TELLS)
def deleted(run: Stored) -> None:
    run.remove(JOURNAL)


@mutation(TELLS)
def emptied(run: Stored) -> None:
    run.empty(JOURNAL)


@mutation(TELLS)
def torn_in_its_last_line(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data[:-11])


@mutation(TELLS)
def torn_in_its_middle(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data[: len(data) // 2])


@mutation(TELLS)
def lacks_its_last_newline(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data[:-1])


@mutation(TELLS)
def ends_after_the_load(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data[: data.index(b'"name": "heal"') + 17])


@mutation(unknown("journal"))
def a_line_garbled_in_the_middle(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data.replace(b'"event": "heal_all"', b'"event": heal_all"', 1))


@mutation(unknown("journal"))
def bytes_that_are_not_utf8(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data.replace(b"nodes_up", b"\xff\xfe\x00_up", 1))


@mutation(unknown("journal"))
def a_line_that_is_a_number(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data.replace(b"\n", b"\n5\n", 1))


@mutation(unknown("journal"))
def a_line_changed(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data.replace(b'"name": "quiesce"', b'"name": "quiescE"', 1))


@mutation(unknown("journal"))
def a_line_lost(run: Stored) -> None:
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join([*lines[:9], *lines[10:]]))


@mutation(unknown("journal"))
def a_line_doubled(run: Stored) -> None:
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join([*lines[:9], *lines[8:]]))


@mutation(unknown("journal"))
def a_line_moved(run: Stored) -> None:
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join([*lines[:9], lines[10], lines[9], *lines[11:]]))


@mutation(unknown("journal"))
def a_line_without_a_time(run: Stored) -> None:
    run.change_lines(event("note", text="first_ack"), lambda line: line.pop("t"))


@mutation(unknown("journal"))
def a_line_without_an_event(run: Stored) -> None:
    run.change_lines(event("heal_all"), lambda line: line.pop("event"))


@mutation(unknown("journal"))
def an_empty_line(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data.replace(b"\n", b"\n\n", 1))


@mutation(unknown("journal|time|order"))
def its_lines_in_reverse(run: Stored) -> None:
    run.write_lines(run.lines()[::-1])


@mutation(unknown("journal|time|order"))
def two_lines_swapped(run: Stored) -> None:
    lines = run.lines()
    lines[-3], lines[-2] = lines[-2], lines[-3]
    at = next(n for n, line in enumerate(lines) if line.get("id") == "f1" and line["event"] == "fault_healed")
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    run.write_lines(lines)


@mutation(unknown("journal|time"))
def a_line_of_the_day_before(run: Stored) -> None:
    run.change_lines(phase("heal"), lambda line: line.update(t=line["t"] - 86_400 * 10**9))


@mutation(unknown("journal|run_started|began|twice"))
def two_runs_in_one(run: Stored) -> None:
    run.edit(JOURNAL, lambda data: data + data)


@mutation(unknown("journal|run_started|began"))
def has_no_line_for_the_start_of_the_run(run: Stored) -> None:
    run.drop_lines(event("run_started"))


@mutation(unknown("another run|journal"))
def of_another_run(run: Stored) -> None:
    run.change_lines(event("run_started"), lambda line: line.update(run="20200101T000000ff-main-9", seed=9))


def _without_phase(name: str) -> None:
    mutation.add(
        f"lacks the phase {name}", lambda run: run.drop_lines(phase(name)), unknown(f"phase {name}|ended in phase")
    )


for _name in ("setup", "main", "heal", "quiesce", "final", "collect", "done"):
    _without_phase(_name)


@mutation(unknown("phase|order"))
def phases_reordered(run: Stored) -> None:
    def swap(line: Line) -> None:
        line["name"] = {"heal": "final", "final": "heal"}[line["name"]]

    run.change_lines(lambda line: line.get("name") in ("heal", "final"), swap)


@mutation(unknown("phase"))
def a_phase_twice(run: Stored) -> None:
    run.insert_line(phase("quiesce"), event="phase", name="main")


@mutation(unknown("phase"))
def a_phase_that_there_is_not(run: Stored) -> None:
    run.change_lines(phase("quiesce"), lambda line: line.update(name="rest"))


@mutation(unknown("phase"))
def goes_on_after_its_end(run: Stored) -> None:
    run.insert_line(phase("done"), event="phase", name="main")


@mutation(unknown("n2", "stopped"))
def a_node_never_stopped(run: Stored) -> None:
    run.drop_lines(event("node", node="n2", what="stopped"))


@mutation(unknown("n1", "stopped"))
def no_node_ever_stopped(run: Stored) -> None:
    run.drop_lines(event("node", what="stopped"))


@mutation(unknown("n3", "started"))
def a_node_never_started(run: Stored) -> None:
    run.drop_lines(event("node", node="n3", what="started"))


@mutation(unknown("n1", "started"))
def no_node_ever_started(run: Stored) -> None:
    run.drop_lines(event("node", what="started"))


@mutation(unknown("n9"))
def an_unplanned_node_stopped(run: Stored) -> None:
    run.insert_line(event("node", node="n1", what="stopped"), event="node", node="n9", what="stopped")


@mutation(unknown("journal"))
def something_else_happened_to_a_node(run: Stored) -> None:
    run.insert_line(phase("heal"), event="node", node="n2", what="gone")


@mutation(unknown("n2"), fails("unexpected-exit"))
def a_node_was_not_seen_running_at_the_end(run: Stored) -> None:
    run.drop_lines(event("node", node="n2", what="running"))


@mutation(PASSES, unknown("n2"), fails("unexpected-exit"))
def another_process_ran_at_the_end_than_was_started(run: Stored) -> None:
    """Only the seal detects it: the journal does not name the processes before; an observer of another process writes a
    line."""
    run.change_lines(event("node", node="n2", what="running"), lambda line: line.update(pid=1, start="1"))


@mutation(unknown("n2"), fails("unexpected-exit"))
def a_node_did_not_run_when_it_was_to_be_stopped(run: Stored) -> None:
    run.change_lines(event("node", node="n2", what="stopped"), lambda line: line.update(ran=False))


@mutation(PASSES, fails("unexpected-exit"), unknown("n2"))
def a_node_ended_with_another_exit_code(run: Stored) -> None:
    """Only the seal detects it: the record lacks the exit codes that a system declares, and an observer of another code
    writes a line to the journal."""
    run.change_lines(event("node", node="n2", what="stopped"), lambda line: line.update(status=134))


@mutation(unknown("producer-1"))
def a_client_never_ended(run: Stored) -> None:
    run.drop_lines(event("client_ended", client="producer-1"))


@mutation(unknown("producer-1"))
def a_client_never_started(run: Stored) -> None:
    run.drop_lines(event("client", client="producer-1"))


@mutation(unknown("producer-1"))
def a_client_neither_started_nor_ended(run: Stored) -> None:
    run.drop_lines(lambda line: line.get("client") == "producer-1")


@mutation(unknown("producer-1"))
def a_client_that_left_nothing_never_was(run: Stored) -> None:
    run.drop_lines(lambda line: line.get("client") == "producer-1")
    run.remove("history/operations/producer-1-1.*")


@mutation(unknown("consumer-1"))
def a_consumer_that_left_nothing_never_was(run: Stored) -> None:
    run.drop_lines(lambda line: line.get("client") == "consumer-1")
    run.remove("history/operations/consumer-1-1.*")


@mutation(unknown("producer-1|read|record"))
def no_client_ever_was(run: Stored) -> None:
    run.drop_lines(lambda line: "client" in line)
    run.empty("history/operations")


@mutation(unknown("producer-1"))
def a_client_counted_more_than_it_recorded(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line["operations"].update(append=9_999))


@mutation(unknown("producer-1"))
def a_client_counted_nothing(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(operations=None))


@mutation(unknown("producer-1"))
def a_client_left_no_files(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(files={}))


@mutation(unknown("producer-1"))
def a_client_left_other_files(run: Stored) -> None:
    def change(line: Line) -> None:
        line["files"]["producer-1-1.arrows"]["sha256"] = "0" * 64

    run.change_lines(event("client_ended", client="producer-1"), change)


@mutation(unknown("producer-1", "-9"))
def a_client_was_killed_with_its_record_closed(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(exit_code=-9))


@mutation(unknown("producer-1", "ended with 1"))
def a_client_failed_with_its_record_closed(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(exit_code=1))


@mutation(unknown("producer-1", "exit code was not observed"))
def the_end_of_a_client_was_not_observed(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(exit_code=None))


@mutation(unknown("producer-"))
def two_clients_of_one_number(run: Stored) -> None:
    run.change_lines(event("client", client="producer-1"), lambda line: line.update(process=2))


@mutation(unknown("step"))
def a_step_was_not_done(run: Stored) -> None:
    run.drop_lines(event("step_done", step=3))


@mutation(unknown("step"))
def the_last_step_was_not_done(run: Stored) -> None:
    lines = run.lines()
    last = max(line["step"] for line in lines if line["event"] == "step_done")
    run.drop_lines(event("step_done", step=last))


@mutation(fails("unexpected-exit"))
def a_process_ended_by_itself(run: Stored) -> None:
    exit_line = {"node": "n1", "exit_code": 1, "signal": None, "last_words": "assertion failed"}
    run.insert_line(phase("main"), event="service_exit", **exit_line)


@mutation(fails("unexpected-exit"))
def a_process_was_killed_by_a_signal(run: Stored) -> None:
    exit_line = {"node": "n3", "exit_code": None, "signal": 11, "last_words": ""}
    run.insert_line(phase("quiesce"), event="service_exit", **exit_line)


@mutation(fails("unexpected-exit"), unknown("journal|service_exit"))
def an_exit_without_details(run: Stored) -> None:
    run.insert_line(phase("main"), event="service_exit", node="n1")


@mutation(fails("fatal-log-line"))
def a_process_logged_a_fatal_line(run: Stored) -> None:
    run.insert_line(phase("main"), event="fatal_line", node="n2", pattern="^Traceback", line="Traceback (most recent")


@mutation(unknown("interrupted|not finished"))
def the_run_was_interrupted(run: Stored) -> None:
    text = "the run was not finished: it was interrupted"
    run.insert_line(phase("main"), event="note", text=text, unfinished=True)


@mutation(unknown("replica|assignment|partition"))
def does_not_say_where_replicas_were_put(run: Stored) -> None:
    run.drop_lines(event("assignment"))


@mutation(unknown("replica|assignment|partition"))
def says_that_replicas_were_put_elsewhere(run: Stored) -> None:
    run.change_lines(event("assignment"), lambda line: line.update(replicas=[[1, 2], [2, 3]]))


# ---- what came at another time than a run does it


def moved(run: Stored, which: Callable[[Line], bool], *, behind: Callable[[Line], bool]) -> None:
    """These lines stand behind the first other one that is chosen, and are of its time."""
    lines = run.lines()
    mine, rest = [line for line in lines if which(line)], [line for line in lines if not which(line)]
    assert mine, "the journal has no such line"
    at = next(index for index, line in enumerate(rest) if behind(line))
    when = {key: rest[at][key] for key in ("t", "wall")}
    rest[at + 1 : at + 1] = [line | when for line in mine]
    run.write_lines(rest)


def _moved(name: str, which: Callable[[Line], bool], behind: Callable[[Line], bool], *wants: Want) -> None:
    mutation.add(name, lambda run: moved(run, which, behind=behind), *wants)


_node = partial(event, "node")
_moved(
    "a node was stopped before the final reads",
    _node(node="n2", what="stopped"),
    phase("quiesce"),
    unknown("stopped of n2", "quiesce"),
)
_moved("all nodes were stopped before the load", _node(what="stopped"), phase("setup"), unknown("stopped of n1"))
_moved(
    "nodes ran behind their end",
    _node(what="running"),
    _node(node="n3", what="stopped"),
    unknown("running of n1 behind stopped"),
)
_moved("nodes were started in the end", _node(what="started"), phase("collect"), unknown("started of n1", "collect"))
_moved("all was healed before the load", event("heal_all"), phase("setup"), unknown("heal_all", "setup"))
_moved("all was healed behind the final reads", event("heal_all"), phase("final"), unknown("heal_all", "final"))
_moved(
    "a client had ended before its operations",
    event("client_ended", client="producer-1"),
    phase("main"),
    unknown("producer-1", "before its start or after its end"),
)
_moved(
    "a client started after its operations",
    event("client", client="producer-1"),
    phase("collect"),
    unknown("producer-1", "before its start or after its end"),
)


@mutation(unknown("stopped of n1", "more than once"))
def a_node_stopped_twice(run: Stored) -> None:
    run.change_lines(event("node", node="n1", what="stopped"), lambda line: line.update(status=None))
    run.insert_line(
        event("node", node="n1", what="stopped"), event="node", node="n1", what="stopped", status=0, ran=True
    )


@mutation(unknown("assignment", "more than once"))
def says_of_two_places_where_replicas_were_put(run: Stored) -> None:
    run.insert_line(event("assignment"), event="assignment", replicas=[[3, 2], [1]])


@mutation(unknown("steps", "order"))
def its_steps_were_done_backwards(run: Stored) -> None:
    last = max(line["step"] for line in run.lines() if line["event"] == "step_done")
    run.change_lines(event("step_done"), lambda line: line.update(step=last + 1 - line["step"]))


@mutation(unknown("steps", "order"))
def a_step_was_done_twice(run: Stored) -> None:
    run.insert_line(event("step_done", step=4), event="step_done", step=4)


def _recovered(name: str, behind: Callable[[Line], bool], want: Want, **fields: object) -> None:
    """The campaign states a bound on recovery, and the journal says that it was kept."""

    def change(run: Stored) -> None:
        run.plan(r"^min_queries", "converge_s = 60\nmin_queries")
        run.insert_line(behind, event="converged", **fields)

    mutation.add(name, change, want)


_recovered("the cluster recovered before it was healed", phase("setup"), unknown("converged", "setup"), seconds=0.0)
_recovered("the cluster recovered in negative time", phase("quiesce"), unknown("converged with seconds"), seconds=-5.0)
_recovered("the cluster took longer than its phase", phase("quiesce"), unknown("to recover", "has"), seconds=50.0)


@mutation(unknown("journal", "dumped"))
def the_nodes_that_were_dumped_are_a_number(run: Stored) -> None:
    run.change_lines(lambda line: "dumped" in line, lambda line: line.update(dumped=3))


@mutation(PASSES)
def a_remark_more(run: Stored) -> None:
    """Benign."""
    run.insert_line(phase("quiesce"), event="note", text="the weather is fine")


@mutation(PASSES)
def a_remark_less(run: Stored) -> None:
    """Benign: of this nothing is concluded."""
    run.drop_lines(event("note", text="nodes_up"))


@mutation(PASSES)
def its_keys_in_another_order(run: Stored) -> None:
    """Benign."""
    run.write_lines([dict(reversed(line.items())) for line in run.lines()])
