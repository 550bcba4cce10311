"""Compares the run's record with its plan: anything that is named but has no evidence makes the run unknown."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.doubt import EVIDENCE_CHANGED, Reason
from analysis.evidence.journal_order import out_of_life, out_of_order
from analysis.evidence.tester_shortages import shortages
from analysis.verdict import PASS, UNKNOWN
from history import seal
from history.journal import OUTPUTS
from history.output_files import output_files
from history.regular_files import sha256_of
from installation.counted import counted
from installation.sanitize import quoted

if TYPE_CHECKING:
    import pyarrow as pa

DONE: Final = "done"
SLACK_NS: Final = 60_000_000_000
"""How far outside of the run an operation may be, by a clock that differs slightly from the run's own."""
DATA: Final = "data"
SERVICE_LOG: Final = "service.log"

NOT_WHOLE: Final = Reason("record-not-whole", "The evidence of something in the plan or the journal is incomplete.")
NOT_FINISHED: Final = Reason("run-not-finished", "The run did not reach its end.")
PLAN_UNCLEAR: Final = Reason("plan-unclear", "run.toml lacks something, contradicts itself or contradicts the journal.")


def check(run: CheckedRun) -> Outcome:
    """Check that everything in the plan has evidence."""
    doubts = [
        *NOT_FINISHED.say(_unfinished(run)),  # first: it causes most of the other defects
        *PLAN_UNCLEAR.say(run.plan.doubts),
        *_phases(run),
        *run.history.journal_defects,
        *_order(run),
        *_identity(run),
        *_nodes(run),
        *_clients(run),
        *_outputs(run),
        *_operations(run),
        *_unjudged(run),
        *EVIDENCE_CHANGED.say(_seal(run)),
    ]
    if doubts:
        return Outcome(UNKNOWN, f"not whole for {counted(len(doubts), 'reason')}", doubts=tuple(dict.fromkeys(doubts)))
    records, nodes = run.history.records, run.plan.nodes
    operations = sum(record.operations for record in records)
    made = f"{counted(operations, 'operation')} of {counted(len(records), 'client')}"
    what = f"{made}, {counted(len(nodes), 'node')}, all phases"
    return Outcome(PASS, f"whole and sealed: {what}")


def _phases(run: CheckedRun) -> Iterator[str]:
    """Checks that each phase of the plan started, in order, and that the last one was the last."""
    names = run.history.phases["name"].to_pylist()
    if not names:
        yield NOT_FINISHED.says("the run never started")
        return
    if names[-1] != DONE:
        yield NOT_FINISHED.says(f"the run ended in phase {names[-1]}, not by its plan")
        return
    missing = [name for name in run.plan.phases if name not in names]
    for name in missing:
        yield f"the journal has no phase {name}"
    for name, times in Counter(names).items():
        if times > 1:
            yield f"the journal has the phase {name} {counted(times, 'time')}"
    if not missing and len(names) == len(run.plan.phases) and tuple(names) != run.plan.phases:
        yield f"the phases are not in their order: {', '.join(names)}"
    last = run.history.journal[-1]
    if (last["event"], last.get("name")) != ("phase", DONE):
        yield f"the journal continues after the end of the run, with {last['event']}"


def _order(run: CheckedRun) -> Iterator[str]:
    """Checks the order of all other events, if all phases are there in order."""
    if tuple(run.history.phases["name"].to_pylist()) == run.plan.phases:
        yield from out_of_order(run.history.journal)


def _unfinished(run: CheckedRun) -> Iterator[str]:
    """The errors that the run itself recorded."""
    texts = [str(line.get("text", line["event"])) for line in run.history.journal if line.get("unfinished")]
    yield from texts
    if texts:  # the tester's shortage is then the likely cause
        yield from (each.why for each in shortages(run.history.journal))


def _identity(run: CheckedRun) -> Iterator[str]:
    """Checks that the journal is of the run that run.toml describes."""
    journal, description = run.history.journal, run.description
    started = [line for line in journal if line["event"] == "run_started"]
    if len(started) != 1 or journal[0]["event"] != "run_started":
        yield f"the journal does not start with one start of a run, it has {len(started)}"
    ours = {"run": description.id, "cell": description.cell, "seed": description.seed, "world": description.world}
    for name, value in ours.items():
        if started and started[0].get(name) != value:
            yield f"the journal is of {name} {quoted(started[0].get(name))}, run.toml of {quoted(value)}"
    # Older records have no digest; their content is compared with the plan all the same.
    now = sha256_of(run.directory / "run.toml")
    if started and started[0].get("plan", now) != now:
        yield "run.toml is not the plan with which the run started: the journal has another digest of it"


def _nodes(run: CheckedRun) -> Iterator[str]:
    """Checks that each node was started and stopped, and that its files are there."""
    journal, nodes = run.history.journal, run.plan.nodes
    for what in ("started", "stopped"):
        named = [line["node"] for line in journal if line["event"] == "node" and line["what"] == what]
        yield from (f"the journal does not say that {node} was {what}" for node in nodes if node not in named)
        yield from (
            f"the journal says that {node} was {what}, which is not in the plan"
            for node in sorted(set(named) - set(nodes))
        )
    root = run.directory / "nodes"
    for node in nodes:
        if not (root / node / DATA).is_dir():
            yield f"the files of {node} are missing: no directory nodes/{node}/{DATA}"
        if not (root / node / SERVICE_LOG).is_file():
            yield f"nodes/{node}/{SERVICE_LOG} is missing"
    if root.is_dir():
        strange = sorted({path.name for path in root.iterdir()} - set(nodes))
        yield from (f"nodes/{name} is not of a node of the plan" for name in strange)


def _clients(run: CheckedRun) -> Iterator[str]:
    """Checks that each client of the plan took part, and that each participant left a whole record."""
    known = {record.client for record in run.history.records}
    yield from (f"client {name} of the plan is not in the journal" for name in run.plan.clients if name not in known)
    for record in run.history.records:
        yield from record.defects


def _outputs(run: CheckedRun) -> Iterator[str]:
    """Checks that the output of services and clients is what the journal lists at the end of a run that ended."""
    journal = run.history.journal
    if DONE not in run.history.phases["name"].to_pylist():
        return
    listed = next((line["files"] for line in journal if line["event"] == OUTPUTS), None)
    if listed is None:
        yield "the journal does not list what services and clients had printed when the run ended"
        return
    due = {f"nodes/{node}/{SERVICE_LOG}" for node in run.plan.nodes}
    yield from (f"the journal does not list {name}, which must be there" for name in sorted(due - listed.keys()))
    try:
        found = output_files(run.directory)
    except OSError as error:
        yield f"{os.path.relpath(error.filename, run.directory)} cannot be read: {error.strerror}"
        return
    for name in sorted(listed.keys() | found.keys()):
        if name not in found:
            yield f"{name} is missing, which the journal lists"
        elif name not in listed:
            yield f"{name} is missing in the journal's list of outputs of services and clients"
        elif found[name] != listed[name]:
            yield (
                f"{name} has {found[name]['bytes']} bytes, and not the content of {listed[name]['bytes']} bytes that "
                "the journal lists"
            )


def _operations(run: CheckedRun) -> Iterator[str]:
    """Checks that operations were on planned partitions and registers, during the run."""
    found, planned = run.history.places, set(run.plan.replicas)
    if planned:
        for topic, partition in sorted(found - planned):
            yield f"there are operations on {topic}-{partition}, which the plan does not name"
        for topic, partition in sorted(planned - found):
            yield f"there is no operation on {topic}-{partition}, which the plan names"
    journal = run.history.journal
    if not journal:
        return
    first, last = journal[0]["t"] - SLACK_NS, journal[-1]["t"] + SLACK_NS
    yield from out_of_life(run)
    tables = chain(run.history.register_parts("inv", "ret"), run.history.parts("inv", "ret"))
    outside = sum(_outside(table, first, last) for table in tables)
    if outside:
        yield f"{counted(outside, 'operation')} before the run's start or after its end, by their times"


def _unjudged(run: CheckedRun) -> Iterator[str]:
    """Operations of a shape that no checker of this run reads: they would be counted without a check. Operations of
    group members are excluded, because they are always checked. A workload without any checker is reported
    elsewhere."""
    sizes = {"log": run.history.size, "register": run.history.register_size}
    for judge, what in (("log", "partitions of logs"), ("register", "registers")):
        if sizes[judge] and run.description.judge in sizes and run.description.judge != judge:
            asked = f"the workload asks for {quoted(run.description.judge)}"
            yield f"{counted(sizes[judge], 'operation')} on {what}, which no checker reads: {asked}"


def _outside(table: pa.Table, first: int, last: int) -> int:
    import pyarrow.compute as pc

    from history.schemas import INF

    inv, ret = table["inv"], table["ret"]
    late = pc.and_(pc.greater(ret, last), pc.less(ret, INF))
    return int(pc.sum(pc.or_(pc.or_(pc.less(inv, first), pc.greater(inv, last)), late)).as_py() or 0)


def _seal(run: CheckedRun) -> Iterator[str]:
    """Checks that the evidence has not changed since the run ended. A run that did not end has no seal."""
    names: Sequence[Any] = run.history.phases["name"].to_pylist()
    if DONE in names or (run.directory / "history" / seal.FILE_NAME).exists():
        yield from seal.complaints(run.directory)


CHECKER: Final = Checker(
    "record",
    "Is the run's record complete by its plan, and unchanged since the end of the run?",
    5,
    (),
    check,
    (NOT_WHOLE, NOT_FINISHED, PLAN_UNCLEAR),
)
