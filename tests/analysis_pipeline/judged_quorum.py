"""The results of the checker of the metadata quorum for a stored quorum."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.checker import CheckedRun, Outcome
from analysis.checkers.metadata_quorum import CHECKER
from analysis.evidence.run_directory import describe, events_by_node
from history.reader import read_run
from tests.analysis_pipeline.stored_quorum import TOPIC, StoredQuorum

if TYPE_CHECKING:
    from analysis.engines.task_map import SparkTasks

LOG = f"data/{TOPIC}-0"


def judged(run: Path, spark: SparkTasks | None = None) -> Outcome:
    return CHECKER.check(CheckedRun(run, describe(run), read_run(run), events_by_node(run), spark))


def reasons_of(outcome: Outcome) -> str:
    """The detail and the doubts of an outcome, as one text."""
    return "; ".join((outcome.detail, *outcome.doubts))


def found(quorum: StoredQuorum) -> dict[str, str]:
    """The anomalies of a quorum, their sentences by their names."""
    outcome = judged(quorum.write())
    assert outcome.verdict == "fail", outcome.detail
    assert all(anomaly.witness for anomaly in outcome.anomalies)
    return {anomaly.name: anomaly.sentence for anomaly in outcome.anomalies}


def replace(quorum: StoredQuorum, node: str, old: dict[str, object], new: dict[str, object] | None) -> None:
    """In the trace of a node, put one event in the place of another (the last that is equal), or none."""
    events = quorum.traces[node]
    at = len(events) - 1 - events[::-1].index(old)
    events[at : at + 1] = [] if new is None else [new]
