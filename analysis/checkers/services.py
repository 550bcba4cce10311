"""The system's own processes: how they ended and what they logged, according to the journal.

The orchestrator watches the processes and their logs and records in the journal what it did not cause itself. An exit
that a fault or the end of the run caused is not a finding and is not recorded there. That a process kept running must
be observed, too: each one is checked once more before it is stopped, and its exit is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from analysis.checker import JOURNAL, CheckedRun, Checker, Outcome
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise, anomaly_count
from analysis.doubt import TESTER_SHORT, Reason
from analysis.evidence.tester_shortages import Shortage, cause_at, lost_journal, shortages
from analysis.verdict import FAIL, PASS, UNKNOWN
from history.journal.service_events import ENDED_BADLY, NOT_UP, RESTARTED, RUNNING, STOOD_STILL, STOPPED

if TYPE_CHECKING:
    from history.journal.service_events import FatalLine, ServiceExit

    D = TypeVar("D", ServiceExit, FatalLine)

UNEXPECTED_EXIT: Final = AnomalyKind(
    "unexpected-exit",
    Promise("UEX", "a process of the system runs until the run or a fault ends it", stands_alone=True),
    "A process of the system exited, restarted or was suspended without an order of the run, or did "
    "not shut down cleanly.",
)
FATAL_LOG_LINE: Final = AnomalyKind(
    "fatal-log-line",
    Promise("FTL", "the system does not log a state that it declares fatal", stands_alone=True),
    "A process of the system logged a line that the system declares fatal.",
)
NOT_SEEN: Final = Reason("process-not-seen", "There is no evidence that a process ran to the end, or how it exited.")
# Typical words of runtimes that give up; the text after them is mostly the place, not the cause.
_TELLING: Final = re.compile(
    r"assert(ion)?\b.*(fail|error)|AssertionError|panic:|OutOfMemoryError|Segmentation fault|core dumped", re.IGNORECASE
)


def check(run: CheckedRun) -> Outcome:
    """Every unexpected exit and every fatal line in the journal is a finding; one anomaly for each node."""
    exits, lines = run.history.service_exits, run.history.fatal_lines
    causes = [*shortages(run.history.journal), *lost_journal(run.history.journal)]
    anomalies = (*_exits(_proven(exits, causes)), *_fatal_lines(_proven(lines, causes)))
    doubts = (*TESTER_SHORT.say(_of_the_tester(exits, lines, causes)), *_doubts(run, {ending.node for ending in exits}))
    if anomalies:
        nodes = sorted({str(anomaly.witness[0]["node"]) for anomaly in anomalies})
        return Outcome(FAIL, f"{anomaly_count(anomalies)} of the processes on {', '.join(nodes)}", anomalies, doubts)
    if doubts:
        return Outcome(UNKNOWN, "not every process was seen to run to the end, and to end in order", doubts=doubts)
    return Outcome(PASS, "no process was seen to exit unexpectedly or to log a fatal line")


def _proven(events: Sequence[D], causes: Sequence[Shortage]) -> list[D]:
    """The events that the tester cannot have caused."""
    return [event for event in events if not cause_at(event.t, causes)]


def _of_the_tester(
    exits: Sequence[ServiceExit], lines: Sequence[FatalLine], causes: Sequence[Shortage]
) -> Iterator[str]:
    for ending in exits:
        if cause := cause_at(ending.t, causes):
            yield f"the process on {ending.node} {_exit_phrase(ending)}, but {cause}"
    for line in lines:
        if cause := cause_at(line.t, causes):
            yield f"the process on {line.node} logged what the system declares fatal ({line.pattern}), but {cause}"


def _doubts(run: CheckedRun, exited_nodes: set[str]) -> Iterator[str]:
    """Processes that were not seen to run after the last heal, or whose exit is unknown. Applies only to a run that
    ended; an unfinished run has its own doubt. `exited_nodes`: those with an anomaly."""
    if "done" not in run.history.phase_names:
        return
    journal = run.history.journal
    healed = max((line["t"] for line in journal if line.get("event") in ("fault_healed", "heal_all")), default=0)
    nodes = [line for line in journal if line.get("event") == "node"]
    running = {line["node"] for line in nodes if line["what"] == RUNNING and line["t"] >= healed}
    statuses = {line["node"]: line.get("status") for line in nodes if line["what"] == STOPPED}
    absent = {line["node"] for line in nodes if line["what"] == STOPPED and line.get("ran") is False}
    for name in run.description.node_names:
        if name in exited_nodes:
            continue
        if name not in running:
            yield f"the process on {name} was not seen to run after the last heal"
        elif name in absent:
            yield f"when the process on {name} was asked to stop, it was already gone"
        elif statuses.get(name) is None:
            yield f"how the process on {name} ended, when it was asked to, is not known"


def _exits(exits: Sequence[ServiceExit]) -> Iterator[Anomaly]:
    for node in sorted({ending.node for ending in exits}):
        mine = [ending for ending in exits if ending.node == node]
        exit = mine[0]
        last_words = f"; its last words: {_telling_line(exit.last_words)}" if exit.last_words.strip() else ""
        core = f"; it left a core dump: {exit.core}" if exit.core else ""
        sentence = f"the process on {node} {_exit_phrase(exit)}{core}{last_words}"
        witness = tuple(
            {"op": ending.way, "node": node, "at": ending.t, "ended": ending.how, "last_words": ending.last_words}
            for ending in mine
        )
        yield Anomaly(UNEXPECTED_EXIT.name, "", -1, sentence, witness, len(mine))


def _exit_phrase(exit: ServiceExit) -> str:
    match exit.way:
        case way if way == RESTARTED:
            return f"ended {exit.how}, and another one was started in its place, though the run had not caused that"
        case way if way == NOT_UP:
            went = "" if exit.exit_code != 0 else "; a command of system.toml is to stay in the foreground"
            return f"ended {exit.how} when it had just been started, though nothing was done to it{went}"
        case way if way == STOOD_STILL:
            return "was suspended (all its threads were stopped), though the run had not suspended it"
        case way if way == ENDED_BADLY:
            return f"ended {exit.how} when it was asked to end, which its system does not declare (stop_exit_codes)"
    return f"ended {exit.how}, though nothing was done to it"


def _fatal_lines(lines: Sequence[FatalLine]) -> Iterator[Anomaly]:
    for node in sorted({line.node for line in lines}):
        mine = [line for line in lines if line.node == node]
        sentence = f"the process on {node} logged what the system declares fatal ({mine[0].pattern}): {mine[0].line}"
        witness = tuple(
            {"op": "log line", "node": node, "at": line.t, "pattern": line.pattern, "line": line.line} for line in mine
        )
        yield Anomaly(FATAL_LOG_LINE.name, "", -1, sentence, witness, len(mine))


def _telling_line(text: str) -> str:
    """The line with the cause, if a runtime's typical words mark it; else the last line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return next((line for line in lines if _TELLING.search(line)), lines[-1])


CHECKER: Final = Checker(
    "services",
    "Did the system's processes keep running, and log no line that the system declares fatal?",
    30,
    (UNEXPECTED_EXIT, FATAL_LOG_LINE),
    check,
    (NOT_SEEN,),
    reads=JOURNAL,
)
