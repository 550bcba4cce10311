"""Compares the run's record with its plan: anything that is named but has no evidence makes the run unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.doubt import EVIDENCE_CHANGED, Reason
from analysis.evidence.event_times import out_of_life, out_of_phase
from analysis.evidence.tester_shortages import shortages
from analysis.verdict import PASS, UNKNOWN
from history import seal
from history.journal.writer import CLIENT
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
    operations_text = f"{counted(operations, 'operation')} of {counted(len(records), 'client')}"
    subject = f"{operations_text}, {counted(len(nodes), 'node')}, all phases"
    return Outcome(PASS, f"whole and sealed: {subject}")


def _phases(run: CheckedRun) -> Iterator[str]:
    """Checks that each phase of the plan started, in order, and that faults and heals were in theirs."""
    names = run.history.phase_names
    if not names:
        yield NOT_FINISHED.says("the run never started")
        return
    if names[-1] != DONE:
        yield NOT_FINISHED.says(f"the run ended in phase {names[-1]}, not by its plan")
        return
    if tuple(names) != run.plan.phases:
        yield f"the journal's phases are {', '.join(names)}, not {', '.join(run.plan.phases)}"
        return
    yield from out_of_phase(run.history.journal)


def _unfinished(run: CheckedRun) -> Iterator[str]:
    """The errors that the run itself recorded."""
    texts = [str(line.get("text", line["event"])) for line in run.history.journal if line.get("unfinished")]
    yield from texts
    if texts:  # the tester's shortage is then the likely cause
        yield from (shortage.why for shortage in shortages(run.history.journal))


def _identity(run: CheckedRun) -> Iterator[str]:
    """Checks that the journal is of the run that run.toml describes."""
    journal, description = run.history.journal, run.description
    started = [line for line in journal if line["event"] == "run_started"]
    if len(started) != 1 or journal[0]["event"] != "run_started":
        yield f"the journal does not start with one start of a run, it has {len(started)}"
    ours = {"run": description.run, "cell": description.cell, "seed": description.seed, "world": description.world}
    for name, value in ours.items():
        if started and started[0].get(name) != value:
            yield f"the journal is of {name} {quoted(started[0].get(name))}, run.toml of {quoted(value)}"


def _nodes(run: CheckedRun) -> Iterator[str]:
    """Checks that each node was started and stopped, and that its files are there."""
    journal, nodes = run.history.journal, run.plan.nodes
    for change in ("started", "stopped"):
        named = [line["node"] for line in journal if line["event"] == "node" and line["what"] == change]
        yield from (f"the journal does not say that {node} was {change}" for node in nodes if node not in named)
        yield from (
            f"the journal says that {node} was {change}, which is not in the plan"
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
    recorded = {record.client for record in run.history.records}
    yield from (f"client {name} of the plan is not in the journal" for name in run.plan.clients if name not in recorded)
    for record in run.history.records:
        yield from record.defects


def _outputs(run: CheckedRun) -> Iterator[str]:
    """Checks that a run that ended has a file with the output of each client."""
    if DONE not in run.history.phase_names:
        return
    for client in sorted({line["client"] for line in run.history.journal if line["event"] == CLIENT}):
        if not (run.directory / "clients" / f"{client}.log").is_file():
            yield f"clients/{client}.log is missing"


def _operations(run: CheckedRun) -> Iterator[str]:
    """Checks that operations were on planned partitions and registers, during the run."""
    places, planned = run.history.logs.keys, set(run.plan.replicas)
    if planned:
        for topic, partition in sorted(places - planned):
            yield f"there are operations on {topic}-{partition}, which the plan does not name"
        for topic, partition in sorted(planned - places):
            yield f"there is no operation on {topic}-{partition}, which the plan names"
    journal = run.history.journal
    if not journal:
        return
    first, last = journal[0]["t"] - SLACK_NS, journal[-1]["t"] + SLACK_NS
    yield from out_of_life(run)
    outside = sum(_outside(table, first, last) for table in run.history.parts("inv", "ret"))
    if outside:
        yield f"{counted(outside, 'operation')} before the run's start or after its end, by their times"


def _unjudged(run: CheckedRun) -> Iterator[str]:
    """Operations of a shape that no checker of this run reads: they would be counted without a check. Operations of
    group members are excluded, because they are always checked. A workload without any checker is reported
    elsewhere."""
    from history.record.shapes import FREE

    logs, registers, calls = run.history.logs, run.history.registers, run.history.of(FREE)
    sizes = {"log": logs.size, "register": registers.size, "own": calls.size}
    subjects_of = {"log": "partitions of logs", "register": "registers", "own": "functions of the campaign's own"}
    for judge, subjects in subjects_of.items():
        if sizes[judge] and run.description.workload.judge in sizes and run.description.workload.judge != judge:
            request = f"the workload asks for {quoted(run.description.workload.judge)}"
            yield f"{counted(sizes[judge], 'operation')} on {subjects}, which no checker reads: {request}"


def _outside(table: pa.Table, first: int, last: int) -> int:
    import pyarrow.compute as pc

    from history.record.schemas import INF

    inv, ret = table["inv"], table["ret"]
    late = pc.and_(pc.greater(ret, last), pc.less(ret, INF))
    return int(pc.sum(pc.or_(pc.or_(pc.less(inv, first), pc.greater(inv, last)), late)).as_py() or 0)


def _seal(run: CheckedRun) -> Iterator[str]:
    """Checks that the evidence has not changed since the run ended. A run that did not end has no seal."""
    if DONE in run.history.phase_names or (run.directory / "history" / seal.FILE_NAME).exists():
        yield from seal.complaints(run.directory)


CHECKER: Final = Checker(
    "record",
    "Is the run's record complete by its plan, and unchanged since the end of the run?",
    5,
    (),
    check,
    (NOT_WHOLE, NOT_FINISHED, PLAN_UNCLEAR),
)
