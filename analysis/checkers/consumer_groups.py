"""Consumer groups: commits are kept, and no record is skipped. `analysis/core/groups.py` states the rules for what
members observed, `analysis/core/offsets_on_disk.py` those for the offsets log that the brokers left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, apart_from_forgotten, first_of
from analysis.checkers.replicas import ANOMALIES as OF_REPLICAS
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.anomaly import Anomaly
    from analysis.replicafiles.offset_commits import OffsetsLog
    from history.record.offset_record import OffsetOperation, OffsetRecord

COMMIT_STAYS: Final = Promise("GC", "a group's offset commit that was acknowledged or shown persists")
AT_LEAST_ONCE: Final = Promise("ALO", "a group receives every record at least once")

GROUP: Final = "group"
"""The kind of workload whose plan has a group."""
MEMBER: Final = "member"
RECORDED: Final = (MEMBER, "reader")
"""The roles of clients that write a record of the group: the reader fetches its offsets at the end."""
SKIPPED: Final = AnomalyKind(
    "skipped-record", AT_LEAST_ONCE, "A group committed an offset past a record that no member received."
)
ANOMALIES: Final = (
    AnomalyKind(
        "lost-acknowledged-commit",
        COMMIT_STAYS,
        "A fetch of a group's offset returned an older commit, or none, after a newer one had been "
        "acknowledged or shown; or the offsets log on disk lacks an acknowledged commit.",
    ),
    AnomalyKind(
        "phantom-commit",
        COMMIT_STAYS,
        "A fetch of a group's offset returned an offset that no client committed, or the offsets log has it.",
    ),
    SKIPPED,
    *(kind for kind in OF_REPLICAS if kind.name == "replica-divergence"),
)
_SETTING: Final = "offsets.topic.replication.factor"
DEFAULT_REPLICAS: Final = 3
"""The replicas of the offsets topic without a setting."""
FILES: Final = r"nodes/[^/]+/data(/(replication-offset-checkpoint|__consumer_offsets-[0-9]+(/[^/]+\.log)?))?"
"""The nodes' files that this checker reads."""

UNDECIDED: Final = Reason("group-record-not-whole", "The record of a group's members is incomplete.")


def check(run: CheckedRun) -> Outcome:
    """Check the group of a run; runs without members have none."""
    from analysis.core.groups import judge
    from analysis.evidence.offset_history import assignments, contradictions, incompleteness, out_of_life
    from history.journal.writer import CLIENT
    from history.record.offset_record import COMMIT, DELIVER, FETCH, GROUPS, read_offsets

    roles = {line["client"]: line["role"] for line in run.history.journal if line["event"] == CLIENT}
    group = read_offsets(run.directory, GROUPS)
    commits, fetches, deliveries = group.of(COMMIT), group.of(FETCH), group.of(DELIVER)
    if run.description.workload.kind != GROUP and MEMBER not in roles.values() and not group.clients:
        return Outcome(NOT_APPLICABLE, "no consumer group took part")
    planned = {client for client, role in roles.items() if role in RECORDED}
    judged = judge(run.description.workload.topic, commits, fetches, deliveries)
    on_disk, unread = _on_disk(run, commits)
    anomalies, forgotten = apart_from_forgotten([*judged, *on_disk], SKIPPED.name, run.forgetting)
    incomplete = tuple(incompleteness(group, "members", planned, planned))
    doubts = (
        *incomplete,
        *unread,
        *forgotten,
        *out_of_life(run.history.journal, group),
        *_unseen(run, group),
        *contradictions(group, all_kept=not run.forgetting),
    )
    acknowledged = sum(commit.acknowledged for commit in commits)
    size = (
        f"{counted(acknowledged, 'acknowledged commit')}, "
        f"{counted(len(fetches), 'fetch of offsets', 'fetches of offsets')}, "
        f"{counted(sum(delivery.offset - delivery.first + 1 for delivery in deliveries), 'record')} delivered, "
        f"{counted(assignments(group), 'assignment')} to {counted(len(group.clients), 'client')}"
    )
    if anomalies and incomplete:
        return Outcome(UNKNOWN, f"{anomaly_count(anomalies)} that missing records may explain; {size}", (), doubts)
    if anomalies:
        return Outcome(FAIL, f"{counted(len(anomalies), 'broken promise')} to the group; {size}", anomalies, doubts)
    if forgotten:
        return Outcome(UNKNOWN, f"no commit lost, but skipped records that may have been removed; {size}", (), doubts)
    return Outcome(PASS, f"no commit lost, no record skipped: {size}", doubts=doubts)


def _on_disk(run: CheckedRun, commits: Sequence[OffsetOperation]) -> tuple[list[Anomaly], list[str]]:
    """The violations that the offsets log on the nodes' disks shows, and why it shows nothing."""
    from analysis.core.offsets_on_disk import violations
    from analysis.replicafiles.offset_commits import read_offsets_logs

    if not run.description.has_replica_files or not any(commit.acknowledged for commit in commits):
        return [], []
    logs = read_offsets_logs({node: run.directory / "nodes" / node / "data" for node in run.plan.nodes})
    if doubts := list(_unread(run, logs)):
        return [], doubts
    return violations(run.description.workload.topic, commits, logs), list(_short(logs))


def _unread(run: CheckedRun, logs: Sequence[OffsetsLog]) -> Iterator[str]:
    """Replicas of the offsets topic that are missing, or that were not read to their ends."""
    if not logs:
        yield "no node has a replica of the offsets topic"
    replicas = min(_replicas_of_offsets(run), len(run.plan.nodes))
    for number in sorted({log.number for log in logs}):
        if (count := sum(log.number == number for log in logs)) < replicas:
            yield f"partition {number} of the offsets topic has a replica on {counted(count, 'node')}, not {replicas}"
    for log in logs:
        if log.problem:
            yield f"the offsets log {log.number} of {log.node} was not read to its end: {log.problem}"


def _short(logs: Sequence[OffsetsLog]) -> Iterator[str]:
    """Replicas that lack what their own node had seen committed."""
    for log in logs:
        if log.end < log.high_watermark:
            subject = f"the offsets log {log.number} of {log.node}"
            yield f"{subject} ends at {log.end}, before its high watermark {log.high_watermark}"


def _replicas_of_offsets(run: CheckedRun) -> int:
    factors = [settings[_SETTING] for settings in run.description.setting_layers if _SETTING in settings]
    return min((int(text) for text in factors if text.isascii() and text.isdigit()), default=DEFAULT_REPLICAS)


def _unseen(run: CheckedRun, group: OffsetRecord) -> Iterator[str]:
    """Partitions that were never checked, or that do not exist."""
    from analysis.evidence.event_times import began_at
    from history.record.offset_record import COMMIT, DELIVER, FETCH

    commits, fetches = group.of(COMMIT), group.of(FETCH)
    mentioned = {operation.partition for operation in (*commits, *fetches, *group.of(DELIVER))}
    if beyond := sorted(str(partition) for partition in mentioned if partition >= run.description.workload.partitions):
        yield f"members name partitions that do not exist: {first_of(beyond, ', ')}"
    for subject, partitions in (
        ("no commit was acknowledged", {commit.partition for commit in commits if commit.acknowledged}),
        ("no committed offset was fetched", {fetch.partition for fetch in fetches}),
    ):
        if empty := [
            str(partition) for partition in range(run.description.workload.partitions) if partition not in partitions
        ]:
            yield f"{subject} of partitions {first_of(empty, ', ')}"
    final = began_at(run.history.journal, "final")
    in_the_end = {fetch.partition for fetch in fetches if final is not None and fetch.inv >= final}
    if final is not None and (unread := sorted({commit.partition for commit in commits} - in_the_end)):
        names = first_of(list(map(str, unread)), ", ")
        yield f"no committed offset was fetched after healing of partitions {names}"


CHECKER: Final = Checker(
    "consumer groups",
    "Do a consumer group's commits persist, and was every record below them delivered to a member?",
    20,
    ANOMALIES,
    check,
    (UNDECIDED,),
    may_rest=lambda description: description.workload.kind != GROUP,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, "history/groups(/.*)?", FILES)),
)
