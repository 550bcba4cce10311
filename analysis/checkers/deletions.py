"""Deletions of records: by DeleteRecords, and by the topic's retention. `analysis/core/deletion_rules.py` states the
rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.remote_store import keeps_committed, suffered_by
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.evidence.run_toml import SIMULATION
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import Damage
from history.fault_looks import FaultGroup
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.deletion_rules import Retention, Sent
    from analysis.core.offset_ranges import Key
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
        "deletion-beyond-request",
        DELETED,
        "A log starts above the highest offset up to which clients deleted records, and the topic's retention keeps "
        "records below.",
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
    from analysis.engines.deleted_records import reads_again

    deletions = run.deletions
    if not deletions.requests and not deletions.defects and not asks(run.description):
        return Outcome(NOT_APPLICABLE, "no client deleted records, and no retention does")
    answered = sum(request.is_answered for request in deletions.requests)
    doubts = [*deletions.defects]
    if deletes(run.description) and not answered:
        doubts.append("no deletion of records was answered")
    bounded = not run.forgetting
    candidates = list(rules.wrong_answers(deletions, bounded=bounded))
    try:
        is_fetch = run.description.world == SIMULATION
        shown_again = reads_again(run.tables, deletions, run.spread(), from_fetches=is_fetch)
        candidates += rules.read_again(deletions, shown_again)
    except DamagedError as error:
        doubts.append(f"the operations cannot be checked: {error}")
    starts, unread = run.final_starts
    doubts += unread
    candidates += rules.wrong_starts(deletions, starts, bounded=bounded)
    if (retention := _retention(run)) is not None:
        cut = {key for key, _ in _events(run, "truncated", "log_shortened")}
        starts = [start._replace(size=rules.INF) if start.key in cut else start for start in starts]
        moved = (
            rules.ReplicaStart(event["node"], key, event["log_start_offset"], event["at_s"])
            for key, event in _events(run, "log_start_moved")
        )
        candidates += rules.expired_early([*moved, *starts], retention, deletions.requested, _sent(run))
    excuse = _may_be_undone(run)
    doubts += [
        f"{anomaly.name}: {anomaly.sentence}; {excuse}"
        for anomaly in candidates
        if excuse and anomaly.name == rules.UNDONE
    ]
    anomalies = tuple(anomaly for anomaly in candidates if not excuse or anomaly.name != rules.UNDONE)
    detail = f"{answered} of {counted(len(deletions.requests), 'deletion')} answered"
    if expired := {start.key for start in starts if start.offset > deletions.requested.get(start.key, 0)}:
        detail += f", and records of {counted(len(expired), 'partition')} expired"
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", anomalies, tuple(doubts))
    if doubts:
        return Outcome(UNKNOWN, detail, doubts=tuple(doubts))
    return Outcome(PASS, f"{detail}: no read and no replica has a record below")


def asks(description: RunDescription) -> bool:
    """Whether the plan of a run has deletions, or its topic a retention that may cause some."""
    from analysis.replicafiles.kafka import may_delete

    return deletes(description) or may_delete(description.workload.topic_settings)


def deletes(description: RunDescription) -> bool:
    """Whether clients delete records in the plan of a run."""
    return description.workload.deletes_every_s > 0 or any(STEP in step for step in description.steps)


def _may_be_undone(run: CheckedRun) -> str:
    """Why a deletion that was answered may be undone lawfully; empty if it may not."""
    if not keeps_committed(run, run.plan.nodes):
        return "an unclean election or damage to a disk may have undone it"
    if not run.description.metadata.traced and suffered_by(run, run.plan.nodes, frozenset({Damage.MEMORY})):
        return "a broker was killed, and this system writes the starts of logs to disk only from time to time"
    return ""


def _retention(run: CheckedRun) -> Retention | None:
    """The topic's retention; None without one, or if another setting removes records, too, or a clock was wrong."""
    from analysis.core.deletion_rules import INF, Retention
    from analysis.replicafiles.kafka import compacts, may_delete

    settings = run.description.workload.topic_settings
    others = [layer for layer in run.description.setting_layers if layer is not settings]
    if not may_delete(settings) or compacts(settings) or any(may_delete(layer) or compacts(layer) for layer in others):
        return None
    if any(fault.group == FaultGroup.CLOCK for fault in run.history.faults):
        return None  # a record is as old as a broker's clock says
    age_ms, size = (float(settings.get(key, "-1")) for key in ("retention.ms", "retention.bytes"))
    return Retention(INF if age_ms < 0 else age_ms / 1000, INF if size < 0 else size)


def _events(run: CheckedRun, *names: str) -> Iterator[tuple[Key, dict[str, Any]]]:
    """The nodes' events of these names about partitions of the plan, with the node and the time, `at_s`."""
    from analysis.evidence.run_directory import moment

    for node in run.plan.nodes:
        for event in run.events.get(node, ()):
            key = (event.get("topic", ""), event.get("partition", -1))
            if event["event"] in names and key in run.plan.replicas:
                yield key, {**event, "node": node, "at_s": run.history.clock.of_wall(moment(event))}


def _sent(run: CheckedRun) -> Sent:
    """The acknowledged records."""
    import numpy as np
    import pyarrow.compute as pc

    from history.record.operation_tables import by_key
    from history.record.schemas import APPEND, OK
    from history.record.shapes import LOG

    columns = ("f", "type", "topic", "partition", "offset", "inv")
    by_partition: dict[Key, list[Any]] = {}
    for part in run.history.logs.parts(*columns):
        durable = pc.and_(pc.equal(part["f"], APPEND), pc.equal(part["type"], OK))
        for key, appends in by_key(LOG, part.filter(durable)):
            times_s = (appends["inv"].to_numpy() - run.history.clock.origin_ns) / 1e9
            by_partition.setdefault(key, []).append(np.stack((appends["offset"].to_numpy(), times_s)))
    sent = {key: np.concatenate(parts, axis=1) for key, parts in by_partition.items()}
    return {key: (offsets, times_s) for key, (offsets, times_s) in sent.items()}


CHECKER: Final = Checker(
    "deletions",
    "Does what DeleteRecords deleted stay deleted, and do only records go that it deleted or that expired?",
    22,
    ANOMALIES,
    check,
    (NOT_DECIDED,),
    may_rest=lambda description: not asks(description),
    reads="|".join((PLAN, JOURNAL, OPERATIONS, FILES, r"nodes/[^/]+/events\.jsonl")),
)
