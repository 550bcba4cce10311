"""The metadata quorum: the files and traces of its members. `analysis/core/quorum.py` states the rules.

The check is one task of the engine's map. On Spark a worker holds the logs of the metadata, and the driver only the
outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.partition_logs import WATERMARK, WRITE_LOST
from analysis.checkers.replicas import ANOMALIES as OF_REPLICAS
from analysis.checkers.replicas import SAME_LOG
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import OTHER_DISK, suffered
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.anomaly import Anomaly
    from analysis.core.quorum import QuorumMember
    from analysis.core.replica_evidence import ReplicaReport
    from analysis.evidence.run_directory import RunDescription
    from analysis.evidence.traces import Event
    from analysis.replicafiles.kraft import MetadataReplica

ONE_LEADER: Final = Promise("2L", "an epoch has one leader, elected by a majority")

OF_LOGS: Final = ("replica-divergence", "epoch-regression", "epoch-start-mismatch", "not-converged", "prefix-changed")
"""The anomalies of any log that also apply to the metadata log."""
ANOMALIES: Final = (
    AnomalyKind("two-leaders", ONE_LEADER, "Two nodes led the quorum in one epoch."),
    AnomalyKind("two-votes", ONE_LEADER, "A voter of the quorum voted for two candidates in one epoch."),
    AnomalyKind("elected-by-minority", ONE_LEADER, "A leader started an epoch without the votes of a majority."),
    AnomalyKind("vote-not-on-disk", ONE_LEADER, "A voter sent a vote before it was on its disk."),
    AnomalyKind(
        "election-state-regression",
        ONE_LEADER,
        "A voter's epoch decreased, or its disk had an older epoch or vote than the voter had sent.",
    ),
    AnomalyKind(
        "lost-committed-metadata",
        WRITE_LOST,
        "A later leader, or a majority of the voters, lacks metadata that was committed.",
    ),
    AnomalyKind(
        "metadata-high-watermark-regression",
        WATERMARK,
        "The quorum's high watermark decreased during the life of a process.",
    ),
    AnomalyKind(
        "applied-metadata-mismatch",
        SAME_LOG,
        "A node applied metadata that differs from the log's or another node's at that offset.",
    ),
    *(kind for kind in OF_REPLICAS if kind.name in OF_LOGS),
)
KRAFT: Final = "kraft"
NONE: Final = "none"
FILES: Final = (
    r"nodes/[^/]+/(events\.jsonl|(data|earlier)(/(meta\.properties|"
    r"__cluster_metadata-0(/([^/]+\.(log|checkpoint)|leader-epoch-checkpoint|quorum-state))?))?)"
)
"""The nodes' files that this checker reads."""

CLOCK_SLACK_NS: Final = 500_000_000
"""By how much two readings of two clocks may disagree because the machine was busy between them."""

UNDECIDED: Final = Reason("metadata-undecided", "Files or traces of the metadata quorum are missing or unreadable.")


@dataclass(frozen=True)
class QuorumTask:
    """A run: its directory, its description, the lines of its journal, and the names of the phases that it reached."""

    directory: Path
    description: RunDescription
    journal: Sequence[Event]
    phases: tuple[str, ...]


def check(run: CheckedRun) -> Outcome:
    """Read the files and traces of all planned nodes and check them."""
    description = run.description
    if description.metadata.format == NONE:
        return Outcome(NOT_APPLICABLE, "this system has no metadata quorum whose files can be read")
    if description.metadata.format != KRAFT:
        formats = f"known are {KRAFT} and {NONE}"
        return Outcome(
            UNKNOWN, f"a metadata quorum of the format {description.metadata.format!r} cannot be read; {formats}"
        )
    task = QuorumTask(run.directory, description, run.history.journal, run.history.phase_names)
    return run.spread()(_check, [task])[0]


def _check(run: QuorumTask) -> Outcome:
    from analysis.core.quorum import check_committed, check_elections, check_logs, digests_compared

    description, members = run.description, _members(run)
    if len(members) == 1 and not description.metadata.traced:
        return Outcome(NOT_APPLICABLE, "the quorum is one node without a trace: there is nothing to compare")
    logs = check_logs(members)
    earlier = _against_earlier(run, members)
    anomalies = (
        *check_elections(members),
        *check_committed(members, _quiet_from(run.journal, members)),
        *logs.anomalies,
        *earlier.anomalies,
    )
    sources = "files and traces" if description.metadata.traced else "files"
    subject = f"the {sources} of {', '.join(member.node for member in members)}"
    missing = (*_doubts(members, traced=description.metadata.traced), *_set_back(run.journal))
    doubts = tuple(dict.fromkeys((*missing, *_identities(run, members), *logs.undecided, *earlier.undecided)))
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)} in {subject}", anomalies, doubts)
    if doubts:
        return Outcome(UNKNOWN, f"undecided for {counted(len(doubts), 'reason')}", doubts=doubts)
    compared = _compared(members, logs.records)
    if description.metadata.traced:
        compared += f", by digest what {digests_compared(members)} of {counted(len(members), 'node')} applied"
    return Outcome(PASS, f"{subject} agree: {compared}")


def _members(run: QuorumTask) -> list[QuorumMember]:
    from analysis.core.quorum import QuorumMember
    from analysis.evidence.traces import Trace, read_trace
    from analysis.replicafiles.kraft import read_metadata

    stopped = {line["node"] for line in run.journal if line.get("what") == "stopped"}
    members = []
    for node in run.description.node_names:
        directory = run.directory / "nodes" / node
        if run.description.metadata.traced:
            trace = read_trace(directory / "events.jsonl", node, stopped=node in stopped)
            at_rest = node in stopped and trace.ends_in_order
        else:
            trace, at_rest = Trace(node, ()), node in stopped
        replaced = suffered(run.journal, node, OTHER_DISK)
        members.append(QuorumMember(node, read_metadata(node, directory / "data"), trace, at_rest, replaced))
    return members


def _against_earlier(run: QuorumTask, members: Sequence[QuorumMember]) -> ReplicaReport:
    """D7: what a node had reported as committed before it was dumped is unchanged in the end. If a clock was changed,
    only the snapshots in a dump show what was committed."""
    from analysis.core.quorum import HIGH_WATERMARK
    from analysis.core.replica_comparison import prefix_changes
    from analysis.core.replica_evidence import ReplicaReport
    from analysis.core.replicas import contradictory_epochs
    from analysis.evidence.earlier_dumps import demanded
    from analysis.evidence.run_directory import moment
    from analysis.replicafiles.kraft import read_metadata
    from history.record.schemas import INF

    journal = run.journal
    dumps = demanded(journal, run.description.node_names, run.description.world)
    heals = [line["wall"] * 1e9 for line in journal if line.get("event") == "phase" and line.get("name") == "heal"]
    clocks = any(str(line.get("kind", "")).startswith("clock-") for line in journal)
    anomalies: list[Anomaly] = []
    undecided: list[str] = []
    for member in members:
        later = member.replica.log
        if later is None or not heals or member.node not in set(dumps.nodes) - dumps.lost:
            continue
        dump = read_metadata(member.node, run.directory / "nodes" / member.node / "earlier")
        undecided += _doubts_of_dump(run, member, dump)
        if dump.log is None:
            undecided.append(f"the earlier dump of {member.node} has no log of the metadata")
            continue
        marks = [] if clocks else [e["offset"] for e in member.events_named(HIGH_WATERMARK) if moment(e) < heals[0]]
        reported, end = max(marks, default=-1), max(dump.log.end, dump.committed)
        if end < reported and member.node not in dumps.shortened:
            undecided.append(
                f"the earlier dump of {member.node} has metadata up to {end}, and the node had reported that it was "
                f"committed up to {reported}"
            )
        # The log may end before the newest snapshot: the node was about to start it again there.
        log = replace(dump.log, high_watermark=min(dump.log.end, max(dump.committed, reported)))
        undecided += contradictory_epochs(log)
        anomalies += filter(None, (prefix_changes(log, later, deleted_to=INF, compacts=False).found,))
    return ReplicaReport(tuple(anomalies), tuple(undecided))


def _doubts_of_dump(run: QuorumTask, member: QuorumMember, dump: MetadataReplica) -> Iterator[str]:
    """Missing and damaged files of a dump beside its log's records."""
    for name in ("quorum-state", "leader-epoch-checkpoint"):
        if not (run.directory / "nodes" / member.node / "earlier" / "__cluster_metadata-0" / name).is_file():
            yield f"the earlier dump of {member.node} has no {name} beside its metadata log"
    yield from (f"{doubt}, in the earlier dump" for doubt in dump.doubts)
    if dump.log is not None:
        yield from (f"the metadata log in the earlier dump of {member.node} {doubt}" for doubt in dump.log.doubts)


def _identities(run: QuorumTask, members: Sequence[QuorumMember]) -> Iterator[str]:
    """Missing identities in the nodes' files, and those of another disk than the node's trace names. A run that did not
    reach its final reads may have stopped before brokers wrote them."""
    from analysis.replicafiles.kafka_nodes import directory_id, missing_identities

    if "final" not in run.phases:
        return
    for member in members:
        data = run.directory / "nodes" / member.node / "data"
        yield from missing_identities(member.node, data)
        reported = [event.get("directory") for event in member.events_named("quorum_restored")]
        if reported and reported[-1] != (stored := directory_id(data)):
            yield (
                f"{member.node} has the directory.id {stored or 'none'}, but its trace names {reported[-1] or 'none'}: "
                "its files are of another disk"
            )


def _quiet_from(journal: Sequence[Event], members: Sequence[QuorumMember]) -> int | None:
    """When the cluster was left alone, in ns; None if it was not left alone before its nodes stopped, or if later times
    may look earlier."""
    starts = {line["name"]: line["wall"] for line in journal if line.get("event") == "phase"}
    if "final" not in starts or "quiesce" not in starts or not all(member.at_rest for member in members):
        return None
    return None if any(_set_back(journal)) else int(starts["quiesce"] * 1e9)


def _set_back(journal: Sequence[Event]) -> Iterator[str]:
    """Whether the wall clock, which stamps the events, was set back after the cluster had been left alone."""
    from history.journal.writer import wall_ahead

    names = [line.get("name") for line in journal]
    ahead = wall_ahead(journal[names.index("quiesce") :]) if "quiesce" in names else []
    set_back = max((highest - now for highest, now in zip(accumulate(ahead, max), ahead, strict=True)), default=0)
    if set_back > CLOCK_SLACK_NS:
        yield (
            f"the wall clock was set back by {set_back / 1e9:.1f} s after the cluster had been left alone: what was "
            "committed before that is not known"
        )


def _doubts(members: Sequence[QuorumMember], *, traced: bool) -> Iterator[str]:
    """Missing files and trace events that every member must have."""
    from analysis.core.quorum import HIGH_WATERMARK, undigested, voters_of

    voters = voters_of(members)
    ids = {member.replica.id for member in members}
    if not members:
        yield "run.toml names no nodes"
    if members and not voters:
        yield "no file or trace names the voters"
    yield from (f"voter {voter} is on no node that is known" for voter in sorted(voters - ids))
    yield from _other_voters(members, voters)
    for member in members:
        replica = member.replica
        if not member.at_rest and not member.trace.doubts:
            yield f"{member.node} was not stopped in order before its files were read"
        yield from replica.doubts
        if replica.state is None and replica.id in (*voters, None):
            yield f"{member.node} has no quorum-state file"
        yield from _unlike_reported(member, voters)
        yield from member.trace.doubts
        yield from undigested(member)
        reporting_ids = {event["node"] for process in member.trace.processes for event in process}
        if reporting_ids - {replica.id} and replica.id is not None:
            yield f"{member.node} is node {replica.id} by its files, and its trace is of another"
        if traced and not member.trace.doubts and not any(member.events_named(HIGH_WATERMARK)):
            yield f"{member.node} reported no committed metadata: nothing can be compared"
    if not any(True for member in members for _ in member.elections()):
        yield "no log holds the election of a leader, and no node reported one: nothing can be compared"


def _other_voters(members: Sequence[QuorumMember], voters: frozenset[int]) -> Iterator[str]:
    """Elections that name other voters than the rest of the evidence: a majority of those need not be one of the
    quorum's. The voters never change during a run."""
    for member in members:
        for change, row in member.elections():
            if set(change.voters) != voters:
                named = ", ".join(map(str, sorted(set(change.voters)))) or "none"
                due = ", ".join(map(str, sorted(voters)))
                yield f"the {row['op']} of epoch {change.epoch} on {member.node} names the voters {named}, not {due}"
                break


def _unlike_reported(member: QuorumMember, voters: frozenset[int]) -> Iterator[str]:
    """Elections on a member's disk that are missing in its trace."""
    state = member.replica.state
    if state is None:
        return
    if state.voters and set(state.voters) != voters:
        yield f"the quorum-state file of {member.node} names other voters than the others do"
    persisted = list(member.events_named("quorum_persisted"))
    last_event = persisted[-1] if persisted and member.at_rest else None
    if last_event is not None and _content(last_event) != state[:3]:
        yield (
            f"the quorum-state file of {member.node} has epoch {state.epoch}, leader {state.leader} and vote "
            f"{state.voted}, but the node last reported that it had written epoch {last_event['epoch']}, leader "
            f"{last_event['leader']} and vote {last_event['voted']}"
        )


def _content(event: Event) -> tuple[int, int, int]:
    """The content of the quorum-state file that an event reports: epoch, leader and vote."""
    return event["epoch"], event["leader"], event["voted"]


def _compared(members: Sequence[QuorumMember], records: int) -> str:
    from analysis.core.quorum import high_watermark_of

    epochs = len({change.epoch for member in members for change, _ in member.elections()})
    committed = max(high_watermark_of(member) for member in members)
    committed_text = f"committed up to {committed}" if committed >= 0 else "what is committed is not known"
    led = "1 epoch with one leader" if epochs == 1 else f"{epochs} epochs with one leader each"
    return f"{led}, {counted(records, 'record')} compared, {committed_text}"


CHECKER: Final = Checker(
    "metadata quorum",
    "Did the metadata quorum have one leader at a time, and do its committed records persist on every node?",
    25,
    ANOMALIES,
    check,
    (UNDECIDED,),
    may_rest=lambda description: description.metadata.format == NONE or not description.metadata.traced,
    reads="|".join((PLAN, JOURNAL, FILES)),
)
