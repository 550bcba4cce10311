"""The replicas' own files, in the format that the run names. `analysis/core/replicas.py` has the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analysis.checkers.partition_logs import LOST
from analysis.checking import Checker, Outcome, Run
from analysis.core.anomaly import AnomalyKind, Promise
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN

SAME_LOG: Final = Promise("DIV", "replicas hold the same log")
RECOVERS: Final = Promise("STK", "the cluster recovers")

ANOMALIES: Final = (
    LOST,
    AnomalyKind("replica-divergence", SAME_LOG, "Two replicas hold different records at a committed or shared offset."),
    AnomalyKind("epoch-regression", SAME_LOG, "Leader epochs fall along a log or along its epoch file."),
    AnomalyKind("epoch-start-mismatch", SAME_LOG, "A leader epoch starts at different offsets, or is not on file."),
    AnomalyKind("replica-order-mismatch", SAME_LOG, "A replica holds another record than clients were told of."),
    AnomalyKind("prefix-changed", SAME_LOG, "What lay below a replica's high watermark is different in a later dump."),
    AnomalyKind(
        "not-converged", RECOVERS, "After healing, the logs end at different offsets or the rest is not committed."
    ),
)
MOST_NAMED: Final = 3


def check(run: Run) -> Outcome:
    """Read and compare the files of all nodes."""
    from analysis.logjob import files_of
    from analysis.replicafiles.formats import FORMATS, NONE
    from analysis.replicajob import check_replicas, tasks_of
    from analysis.rundir import node_names

    description = run.description
    if not description.requirements.replicas:
        return Outcome(NOT_APPLICABLE, "the campaign does not ask for the replicas to be compared")
    if description.replica_format == NONE:
        return Outcome(NOT_APPLICABLE, "this system's replicas are not read")
    if description.replica_format not in FORMATS:
        known = ", ".join((*FORMATS, NONE))
        return Outcome(
            UNKNOWN, f"replicas of the format {description.replica_format!r} cannot be read; known are {known}"
        )
    nodes = node_names(run.directory)
    if not nodes:
        return Outcome(UNKNOWN, "no replica's files were collected")
    missing = description.nodes - len(nodes)
    doubts = (f"the files of {missing} of {description.nodes} nodes are missing",) if missing > 0 else ()
    reached = set(run.history.phases["name"].to_pylist())
    stopped = {line["node"] for line in run.history.journal if line.get("what") == "stopped"}
    tasks = tasks_of(
        run.directory,
        files_of(run.tables),
        format=description.replica_format,
        quiet="final" in reached,
        stopped=stopped >= set(nodes),
    )
    report = check_replicas(tasks, run.spark)
    limit = _without_epochs(report.without_epochs)
    who = f"the files of {', '.join(nodes)}"
    if report.anomalies:
        return Outcome(FAIL, f"{len(report.anomalies)} anomalies in {who}{limit}", report.anomalies, doubts)
    if report.undecided:
        return Outcome(UNKNOWN, f"undecided: {_some(report.undecided, '; ')}{limit}", doubts=doubts)
    return Outcome(PASS, f"{who} agree: {report.records:,} records compared{limit}", doubts=doubts)


def _without_epochs(logs: Sequence[tuple[str, int]]) -> str:
    """What could not be checked, because these logs (name, message format) have records without leader epochs."""
    if not logs:
        return ""
    formats = sorted({number for _, number in logs})
    of = "format " + str(formats[0]) if len(formats) == 1 else "formats " + " and ".join(map(str, formats))
    names = sorted({name for name, _ in logs})
    return f"; leader epochs do not exist in message {of}: D2-D4 not checked in {_some(names, ', ')}"


def _some(items: Sequence[str], separator: str) -> str:
    more = len(items) - MOST_NAMED
    return separator.join(items[:MOST_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")


CHECKER: Final = Checker(
    "replicas", "Do a partition's replicas hold the same log, and the log that clients saw?", 20, ANOMALIES, check
)
