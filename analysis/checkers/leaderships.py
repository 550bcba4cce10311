"""The leaders of partitions: the leader epochs in logs, the leaders that the metadata log elected, and the reports of
leaders agree.

- L1 every leader epoch in a replica's epoch file has a leader in the metadata log (D4 compares epoch files with logs);
- L2 a broker leads, or follows, in a leader epoch only as the metadata log says; the leader of an epoch that has
  records has reported that it led. The epoch file has an epoch before its leader leads (K101-3), so a process that ends
  between the two, by a fault or by its ordinary stop, leaves an epoch without a record and without a report;
- L3 within a leader epoch, the high watermark, the end and the start of the log that its leader reports never fall;
  within a process, the leader epoch and the partition epoch never fall.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.metadata_quorum import KRAFT, ONE_LEADER
from analysis.checkers.partition_logs import WATERMARK
from analysis.core.anomaly import Anomaly, AnomalyKind, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import Damage, suffered
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.evidence.run_directory import RunDescription

ANOMALIES: Final = (
    AnomalyKind("epoch-never-led", ONE_LEADER, "A replica has a leader epoch for which no leader was ever elected."),
    AnomalyKind(
        "leader-not-elected", ONE_LEADER, "A broker led an epoch of a partition without being elected for that epoch."
    ),
    AnomalyKind(
        "reported-value-fell",
        WATERMARK,
        "A leader's high watermark, log end or log start decreased within its epoch, or an epoch within a process.",
    ),
)
NOT_SHOWN: Final = Reason(
    "leaders-not-shown", "The metadata log or the brokers' reports do not show who led a partition."
)
FILES: Final = r"nodes/[^/]+/(events\.jsonl|data/(__cluster_metadata-0/.*|[^/]+-[0-9]+/leader-epoch-checkpoint))"


def check(run: CheckedRun) -> Outcome:
    """Compare the epoch files, the metadata log and the traces of all nodes."""

    if not _applies(run.description) or not run.plan.replicas:
        return Outcome(NOT_APPLICABLE, "the leaders of partitions are in no metadata log")
    traced = run.description.metadata.traced
    processes = {node: _processes(events) for node, events in run.events.items()} if traced else {}
    ended = {node for node in run.plan.nodes if suffered(run.history.journal, node, frozenset({Damage.MEMORY}))}
    anomalies, doubts, epochs = [], [], 0
    for partition in _partitions(run):
        epochs += len(partition.leaders)
        if not partition.leaders:
            doubts.append(f"no node's metadata log has {partition.name}")
            continue
        key = (partition.topic, partition.number)
        reports = {
            node: [event for part in parts for event in part if _is_of(event, key)] for node, parts in processes.items()
        }
        anomalies += [*never_led(partition), *not_elected(partition, reports)]
        doubts += unreported(partition, run.plan.replicas[key], reports, ended) if traced else ()
        for node, parts in sorted(processes.items()):
            for part in parts:
                anomalies += fallen(partition, node, [event for event in part if _is_of(event, key)])
    detail = f"{counted(epochs, 'leader epoch')} of {counted(len(run.plan.replicas), 'partition')}"
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", tuple(anomalies), NOT_SHOWN.say(doubts))
    if doubts:
        return Outcome(UNKNOWN, detail, doubts=NOT_SHOWN.say(doubts))
    return Outcome(PASS, f"{detail}: logs, metadata log{' and reports' if traced else ''} agree")


def _applies(description: RunDescription) -> bool:
    return description.metadata.format == KRAFT


def _partitions(run: CheckedRun) -> Iterator[Leaderships]:
    """The partitions of the plan. An election that any node's metadata log has did happen."""
    from analysis.replicafiles.cluster_metadata import read_cluster_metadata

    names = dict(enumerate(run.description.node_names, 1))
    places = {node: run.directory / "nodes" / node / "data" for node in run.plan.nodes}
    clusters = [read_cluster_metadata(place) for place in places.values() if place.is_dir()]
    for topic, number in run.plan.replicas:
        leaders: dict[int, str] = {}
        for cluster in clusters:
            metadata = cluster.topics[topic].partitions.get(number) if topic in cluster.topics else None
            leaders = elected_by(metadata.leaders, names) | leaders if metadata is not None else leaders
        epochs = {node: _epochs(place / f"{topic}-{number}") for node, place in places.items()}
        yield Leaderships(topic, number, epochs, leaders)


def _epochs(directory: Path) -> Sequence[tuple[int, int]]:
    """The entries of an epoch file; the checker of replicas reports one that is missing or damaged."""
    from analysis.replicafiles.checkpoints import read_epochs
    from analysis.replicafiles.kafka import EPOCHS
    from analysis.replicafiles.log import ReplicaFileError

    try:
        return read_epochs(directory / EPOCHS) or ()
    except ReplicaFileError:
        return ()


def _processes(events: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The reports of each process of a node; a process numbers its reports from 0."""
    processes: list[list[Mapping[str, Any]]] = []
    for event in events:
        if event.get("seq") == 0 or not processes:
            processes.append([])
        processes[-1].append(event)
    return processes


def _is_of(event: Mapping[str, Any], key: tuple[str, int]) -> bool:
    return (event.get("topic"), event.get("partition")) == key


NEVER_LED: Final = "epoch-never-led"
NOT_ELECTED: Final = "leader-not-elected"
FELL: Final = "reported-value-fell"
ROLE: Final = "partition_role"
PROGRESS: Final = "replica_progress"
LEADER: Final = "leader"
REMOVED: Final = "partition_removed"
RISING: Final = ("high_watermark", "log_end_offset", "log_start_offset")
"""What only rises within a leader epoch, in the reports of its leader."""
RISING_IN_PROCESS: Final = ("leader_epoch", "partition_epoch")

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Leaderships:
    """`epochs`: entries (epoch, start offset) of the epoch file of each replica, by node. `leaders`: by leader epoch
    the node that was elected, empty if none was; earlier epochs than the first one are not known."""

    topic: str
    number: int
    epochs: Mapping[str, Sequence[tuple[int, int]]]
    leaders: Mapping[int, str]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


def never_led(partition: Leaderships) -> Iterator[Anomaly]:
    """L1."""
    first = min(partition.leaders, default=0)
    unled_epochs = {
        epoch: (node, start)
        for node, entries in sorted(partition.epochs.items())
        for epoch, start in entries
        if epoch >= first and not partition.leaders.get(epoch)
    }
    for epoch, (node, start) in sorted(unled_epochs.items())[:1]:
        sentence = (
            f"the epoch file of {node} has leader epoch {epoch} of {partition.name} from offset {start}, and the "
            "metadata log has no leader of that epoch"
        )
        row = {"op": "epoch", "node": node, "epoch": epoch, "offset": start, "source": "epoch file"}
        yield _anomaly(NEVER_LED, partition, sentence, [row], len(unled_epochs))


def not_elected(partition: Leaderships, reports: Mapping[str, Sequence[Event]]) -> Iterator[Anomaly]:
    """L2, by the reports of each node about the partition."""
    first = min(partition.leaders, default=0)
    for node, events in sorted(reports.items()):
        for event in events:
            if event["event"] != ROLE or event["role"] != LEADER or event["leader_epoch"] < first:
                continue
            elected = partition.leaders.get(event["leader_epoch"], "")
            if elected != node:
                sentence = (
                    f"{node} reported that it led epoch {event['leader_epoch']} of {partition.name}; the metadata log "
                    f"has {elected or 'no node'} as the leader of that epoch"
                )
                yield _anomaly(NOT_ELECTED, partition, sentence, [_row(node, event)])
                break


def unreported(
    partition: Leaderships, replicas: Sequence[str], reports: Mapping[str, Sequence[Event]], ended: Collection[str] = ()
) -> Iterator[str]:
    """Reports that the rules need and that are not there: sentences. `replicas`: the nodes that have one; `ended`:
    those on which a fault ended the process, perhaps after the epoch was on the disk and before it was reported."""
    for node in replicas:
        kinds = {event["event"] for event in reports.get(node, ())}
        yield from (
            f"{node} never reported {kind} of {partition.name}" for kind in (ROLE, PROGRESS) if kind not in kinds
        )
    for epoch in sorted(_epochs_with_records(partition, reports)):
        node = partition.leaders.get(epoch, "")
        led = {
            event["leader_epoch"]
            for event in reports.get(node, ())
            if event["event"] == ROLE and event["role"] == LEADER
        }
        if node and node not in ended and epoch not in led:
            yield f"{node} led epoch {epoch} of {partition.name} by the metadata log, and never reported that it did"


def _epochs_with_records(partition: Leaderships, reports: Mapping[str, Sequence[Event]]) -> set[int]:
    """The epochs that another one follows in an epoch file, whose start offsets rise, and those past whose start a node
    reported the end of its log."""
    ends = [
        (event["leader_epoch"], event["log_end_offset"])
        for events in reports.values()
        for event in events
        if event["event"] == PROGRESS
    ]
    epochs = {epoch for entries in partition.epochs.values() for (epoch, _), _ in pairwise(entries)}
    last_entries = {entries[-1] for entries in partition.epochs.values() if entries}
    return epochs | {
        epoch for epoch, start in last_entries if any(reported == epoch and end > start for reported, end in ends)
    }


def fallen(partition: Leaderships, node: str, process: Sequence[Event]) -> Iterator[Anomaly]:
    """L3, by the reports of one process about the partition, in order; the first fall. Only reports of one kind are
    compared: a checkpoint is reported after its write, with the value from before it."""
    highest: dict[tuple[str, str], Event] = {}
    epoch, leads = -1, False
    for event in process:
        if event["event"] == REMOVED:
            highest, epoch, leads = {}, -1, False
            continue
        if event["event"] == ROLE:
            if (event["leader_epoch"], event["role"] == LEADER) != (epoch, leads):
                highest = {key: report for key, report in highest.items() if key[1] in RISING_IN_PROCESS}
            epoch, leads = event["leader_epoch"], event["role"] == LEADER
        for field in (*RISING_IN_PROCESS, *(RISING if leads else ())):
            if type(event.get(field)) is not int:
                continue
            last = highest.setdefault((event["event"], field), event)
            if event[field] < last[field]:
                field_name = field.replace("_", " ")
                sentence = (
                    f"{node} reported the {field_name} {event[field]} of {partition.name} ({event['event']}, event "
                    f"{event['seq']}) after {last[field]} (event {last['seq']})"
                )
                yield _anomaly(FELL, partition, sentence, [_row(node, last), _row(node, event)])
                return
            highest[event["event"], field] = event


def elected_by(leaders: Mapping[int, int], names: Mapping[int, str]) -> dict[int, str]:
    """The leaders of a partition by name, empty if none was elected."""
    from analysis.replicafiles.cluster_metadata import NO_LEADER

    return {epoch: "" if node == NO_LEADER else names.get(node, f"node {node}") for epoch, node in leaders.items()}


def _row(node: str, event: Event) -> dict[str, Any]:
    fields = {key: event[key] for key in ("topic", "partition", *RISING, *RISING_IN_PROCESS) if key in event}
    return {"op": event["event"], "node": node, "wall": event.get("seen", event.get("wall")), **fields}


def _anomaly(
    kind: str, partition: Leaderships, sentence: str, witness: Sequence[Mapping[str, Any]], count: int = 1
) -> Anomaly:
    return Anomaly(kind, partition.topic, partition.number, sentence, tuple(map(dict, witness)), count)


CHECKER: Final = Checker(
    "leaderships",
    "Did only elected leaders lead, and never report less than before?",
    26,
    ANOMALIES,
    check,
    (NOT_SHOWN,),
    may_rest=lambda description: not _applies(description) or not description.workload.partitions,
    reads="|".join((PLAN, JOURNAL, FILES)),
)
