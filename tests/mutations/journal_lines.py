"""Mutations of the run's journal."""

from collections.abc import Callable

from tests.mutations.mutation import PASSES, Catalog, Want, fails, unknown
from tests.mutations.stored import Line, Stored, event, phase

mutation = Catalog("journal")

JOURNAL = "history/journal.jsonl"
TELLS = unknown("journal|never began|phase")


mutation.add("deleted", lambda run: run.remove(JOURNAL), TELLS)
mutation.add("emptied", lambda run: run.empty(JOURNAL), TELLS)
mutation.add("torn in its last line", lambda run: run.edit(JOURNAL, lambda data: data[:-11]), TELLS)
mutation.add("torn in its middle", lambda run: run.edit(JOURNAL, lambda data: data[: len(data) // 2]), TELLS)
mutation.add("lacks its last newline", lambda run: run.edit(JOURNAL, lambda data: data[:-1]), TELLS)
mutation.add(
    "ends after the load", lambda run: run.edit(JOURNAL, lambda data: data[: data.index(b'"name": "heal"') + 17]), TELLS
)


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


mutation.add(
    "an empty line", lambda run: run.edit(JOURNAL, lambda data: data.replace(b"\n", b"\n\n", 1)), unknown("journal")
)


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
        f"lacks the phase {name}",
        lambda run: run.drop_lines(phase(name)),
        unknown("journal's phases are|ended in phase"),
    )


for _name in ("setup", "main", "heal", "quiesce", "final", "collect", "done"):
    _without_phase(_name)


@mutation(unknown("n2", "stopped"))
def a_node_never_stopped(run: Stored) -> None:
    run.drop_lines(event("node", node="n2", what="stopped"))


mutation.add(
    "no node ever stopped", lambda run: run.drop_lines(event("node", what="stopped")), unknown("n1", "stopped")
)


@mutation(unknown("n3", "started"))
def a_node_never_started(run: Stored) -> None:
    run.drop_lines(event("node", node="n3", what="started"))


mutation.add(
    "no node ever started", lambda run: run.drop_lines(event("node", what="started")), unknown("n1", "started")
)


@mutation(unknown("n2"), fails("unexpected-exit"))
def a_node_was_not_seen_running_at_the_end(run: Stored) -> None:
    run.drop_lines(event("node", node="n2", what="running"))


@mutation(unknown("n2"), fails("unexpected-exit"))
def a_node_did_not_run_when_it_was_to_be_stopped(run: Stored) -> None:
    run.change_lines(event("node", node="n2", what="stopped"), lambda line: line.update(ran=False))


@mutation(unknown("producer-1"))
def a_client_never_ended(run: Stored) -> None:
    run.drop_lines(event("client_ended", client="producer-1"))


mutation.add(
    "a client never started", lambda run: run.drop_lines(event("client", client="producer-1")), unknown("producer-1")
)


@mutation(unknown("producer-1", "-9"))
def a_client_was_killed_with_its_record_closed(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(exit_code=-9))


@mutation(unknown("producer-1", "ended with exit code 1"))
def a_client_failed_with_its_record_closed(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(exit_code=1))


@mutation(unknown("producer-1", "exit code was not observed"))
def the_end_of_a_client_was_not_observed(run: Stored) -> None:
    run.change_lines(event("client_ended", client="producer-1"), lambda line: line.update(exit_code=None))


mutation.add("a step was not done", lambda run: run.drop_lines(event("step_done", step=3)), unknown("step"))


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


@mutation(PASSES)
def a_remark_more(run: Stored) -> None:
    """Benign."""
    run.insert_line(phase("quiesce"), event="note", text="the weather is fine")
