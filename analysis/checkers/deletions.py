"""Deletions of records (DeleteRecords). `analysis/core/deletion_rules.py` states the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.remote_store import is_tiered, keeps_committed, suffered_by
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import Damage
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.deletion_rules import ReplicaStart
    from analysis.evidence.run_directory import RunDescription

DELETED: Final = Promise("DEL", "what DeleteRecords deletes stays deleted, and nothing else is deleted")
ANOMALIES: Final = (
    AnomalyKind(
        "deletion-undone",
        DELETED,
        "DeleteRecords was answered, and the low watermark of the answer is too low, a later read shows a deleted "
        "record, or a replica's log finally starts below.",
        ("K107-1", "K107-2"),
    ),
    AnomalyKind(
        "deletion-beyond-request", DELETED, "A log starts above the highest offset up to which clients deleted records."
    ),
)
NOT_DECIDED: Final = Reason("deletions-undecided", "Evidence about deletions of records is missing or contradictory.")
STEP: Final = "(delete-records "
FILES: Final = (
    r"nodes/[^/]+/data(/(log-start-offset-checkpoint|__remote.*|"
    r"(?!__)[^/]+-[0-9]+(/([^/]+\.log|remote-log-start|leader-epoch-checkpoint))?))?"
)


def check(run: CheckedRun) -> Outcome:
    """Compare the answers with the reads and with the replicas' logs."""
    from analysis.core import deletion_rules as rules
    from analysis.core.rows import DamagedError
    from analysis.engines.deletion_reads import reads_again

    deletions = run.deletions
    if not deletions.requests and not deletions.defects and not asks(run.description):
        return Outcome(NOT_APPLICABLE, "no client deleted records")
    answered = sum(request.is_answered for request in deletions.requests)
    doubts = [*deletions.defects, *([] if answered else ["no deletion of records was answered"])]
    bounded = not run.forgetting
    candidates = list(rules.wrong_answers(deletions, bounded=bounded))
    try:
        is_fetch = run.description.world == "simulation"
        shown_again = reads_again(run.tables, deletions, run.spread(), from_fetches=is_fetch)
        candidates += rules.read_again(deletions, shown_again)
    except DamagedError as error:
        doubts.append(f"the operations cannot be checked: {error}")
    candidates += rules.wrong_starts(deletions, list(_starts(run, doubts)), bounded=bounded)
    excuse = _may_be_undone(run)
    doubts += [
        f"{anomaly.name}: {anomaly.sentence}; {excuse}"
        for anomaly in candidates
        if excuse and anomaly.name == rules.UNDONE
    ]
    anomalies = tuple(anomaly for anomaly in candidates if not excuse or anomaly.name != rules.UNDONE)
    detail = f"{answered} of {counted(len(deletions.requests), 'deletion')} answered"
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", anomalies, tuple(doubts))
    if doubts:
        return Outcome(UNKNOWN, detail, doubts=tuple(doubts))
    return Outcome(PASS, f"{detail}: no read and no replica has a record below")


def asks(description: RunDescription) -> bool:
    """Whether the plan of a run has deletions."""
    return description.workload.deletes_every_s > 0 or any(STEP in step for step in description.steps)


def _may_be_undone(run: CheckedRun) -> str:
    """Why a deletion that was answered may be undone lawfully; empty if it may not."""
    if not keeps_committed(run, run.plan.nodes):
        return "an unclean election or damage to a disk may have undone it"
    if not run.description.metadata.traced and suffered_by(run, run.plan.nodes, frozenset({Damage.MEMORY})):
        return "a broker was killed, and this system writes the starts of logs to disk only from time to time"
    return ""


def _starts(run: CheckedRun, doubts: list[str]) -> Iterator[ReplicaStart]:
    """Where the replicas' logs start in the end, for partitions with deletions."""
    from analysis.core.deletion_rules import ReplicaStart
    from analysis.engines.replica import STORE
    from analysis.replicafiles.kafka import LOG_STARTS, log_start, read_remote, segments_of
    from analysis.replicafiles.log import ReplicaFileError

    deletions = run.deletions
    if not run.description.has_replica_files or "final" not in run.history.phase_names:
        return
    places = {node: run.directory / "nodes" / node / "data" for node in run.plan.nodes}
    for key in sorted(deletions.requested):
        is_remote = is_tiered(run.description)
        remote = read_remote(places, run.directory / STORE, key) if is_remote else None
        for node in run.plan.replicas.get(key, ()):
            place = places[node]
            segments = segments_of(key, place) if place.is_dir() else []
            if not segments:
                continue  # the checker of replicas reports that the replica is missing
            try:
                start = log_start(key, place, int(segments[0].stem), remote)
            except ReplicaFileError as error:
                doubts.append(f"{node} has a damaged {error}")
                continue
            if start < deletions.answered.get(key, 0) and not (place / LOG_STARTS).is_file():
                doubts.append(f"{node} has no {LOG_STARTS}, so the start of {key[0]}-{key[1]} is not known there")
            else:
                yield ReplicaStart(node, key, start)


CHECKER: Final = Checker(
    "deletions",
    "Does what DeleteRecords deleted stay deleted, and nothing else?",
    22,
    ANOMALIES,
    check,
    (NOT_DECIDED,),
    may_rest=lambda description: not asks(description),
    reads="|".join((PLAN, JOURNAL, OPERATIONS, FILES)),
)
