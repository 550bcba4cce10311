"""The system's own processes: what the run's journal says of how they ended and what they logged.

The orchestrator watches the processes and their logs and notes in the journal what it did not cause itself. An end that
a fault or the end of the run brought about is no finding, and is not in these notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from analysis.checking import Checker, Outcome, Run
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.verdict import FAIL, PASS

if TYPE_CHECKING:
    from history import FatalLine, ServiceExit

UNEXPECTED_EXIT: Final = AnomalyKind(
    "unexpected-exit",
    Promise("UEX", "a process of the system runs until something is done to it"),
    "A process of the system ended though nothing was done to it.",
)
FATAL_LOG_LINE: Final = AnomalyKind(
    "fatal-log-line",
    Promise("FTL", "the system does not report a state that it calls fatal"),
    "A process of the system logged a line that the system declares fatal.",
)


def check(run: Run) -> Outcome:
    """Every end and every fatal line that the journal holds is a finding; one anomaly for each node."""
    anomalies = (*_exits(run.history.service_exits), *_fatal_lines(run.history.fatal_lines))
    if anomalies:
        nodes = sorted({str(anomaly.witness[0]["node"]) for anomaly in anomalies})
        return Outcome(FAIL, f"{len(anomalies)} anomalies of the processes on {', '.join(nodes)}", anomalies)
    return Outcome(PASS, "no process was seen to end by itself or to log a fatal line")


def _exits(exits: Sequence[ServiceExit]) -> Iterator[Anomaly]:
    for node in sorted({each.node for each in exits}):
        mine = [each for each in exits if each.node == node]
        last_words = f"; its last words: {_last_line(mine[0].last_words)}" if mine[0].last_words.strip() else ""
        sentence = f"the process on {node} ended {mine[0].how}, though nothing was done to it{last_words}"
        witness = tuple(
            {"op": "exit", "node": node, "at": each.t, "ended": each.how, "last_words": each.last_words}
            for each in mine
        )
        yield Anomaly(UNEXPECTED_EXIT.name, "", -1, sentence, witness, len(mine))


def _fatal_lines(lines: Sequence[FatalLine]) -> Iterator[Anomaly]:
    for node in sorted({each.node for each in lines}):
        mine = [each for each in lines if each.node == node]
        sentence = f"the process on {node} logged what the system declares fatal ({mine[0].pattern}): {mine[0].line}"
        witness = tuple(
            {"op": "log line", "node": node, "at": each.t, "pattern": each.pattern, "line": each.line} for each in mine
        )
        yield Anomaly(FATAL_LOG_LINE.name, "", -1, sentence, witness, len(mine))


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1].strip()


CHECKER: Final = Checker(
    "services",
    "Did the system's own processes stay up, and log nothing that the system declares fatal?",
    30,
    (UNEXPECTED_EXIT, FATAL_LOG_LINE),
    check,
)
