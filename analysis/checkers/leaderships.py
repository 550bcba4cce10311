"""The leaders of partitions: those in the logs, in the metadata log, and in the brokers' reports.
`analysis/core/leaderships.py` states the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.metadata_quorum import KRAFT, ONE_LEADER
from analysis.checkers.partition_logs import WATERMARK
from analysis.core.anomaly import AnomalyKind, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import Damage, suffered
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.leaderships import Leaderships
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
    from analysis.core import leaderships as rules

    if not _applies(run.description) or not run.plan.replicas:
        return Outcome(NOT_APPLICABLE, "the leaders of partitions are in no metadata log")
    traced = run.description.metadata_traced
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
        anomalies += [*rules.never_led(partition), *rules.not_elected(partition, reports)]
        doubts += rules.unreported(partition, run.plan.replicas[key], reports, ended) if traced else ()
        for node, parts in sorted(processes.items()):
            for part in parts:
                anomalies += rules.fallen(partition, node, [event for event in part if _is_of(event, key)])
    detail = f"{counted(epochs, 'leader epoch')} of {counted(len(run.plan.replicas), 'partition')}"
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", tuple(anomalies), NOT_SHOWN.say(doubts))
    if doubts:
        return Outcome(UNKNOWN, detail, doubts=NOT_SHOWN.say(doubts))
    return Outcome(PASS, f"{detail}: logs, metadata log{' and reports' if traced else ''} agree")


def _applies(description: RunDescription) -> bool:
    return description.metadata_format == KRAFT


def _partitions(run: CheckedRun) -> Iterator[Leaderships]:
    """The partitions of the plan. An election that any node's metadata log has did happen."""
    from analysis.core.leaderships import Leaderships, elected_by
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


CHECKER: Final = Checker(
    "leaderships",
    "Did only elected leaders lead, and never report less than before?",
    26,
    ANOMALIES,
    check,
    (NOT_SHOWN,),
    may_rest=lambda description: not _applies(description) or not description.partitions,
    reads="|".join((PLAN, JOURNAL, FILES)),
)
