"""Remote storage (KIP-405): the store against its metadata and the replicas. `analysis/core/remote_rules.py` has the
rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.metadata_quorum import KRAFT
from analysis.checkers.replicas import FILES, INTACT, SAME_LOG
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import Damage, suffered
from history.journal.writer import JOINED
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.engines.replica import StoreTask
    from analysis.evidence.run_directory import RunDescription
    from analysis.replicafiles.remote_metadata import DeclaredSegments

KEPT: Final = Promise("TIER", "remote storage has what local files no longer have")

ANOMALIES: Final = (
    AnomalyKind(
        "remote-segment-incomplete", KEPT, "A segment that the metadata declare complete is missing or damaged."
    ),
    AnomalyKind("removed-before-upload", KEPT, "A replica has removed records that no complete remote segment has."),
    AnomalyKind(
        "remote-record-differs", SAME_LOG, "A remote segment holds another record than a replica, in the same epoch."
    ),
    AnomalyKind("orphaned-object", INTACT, "The store has an object of a segment that is unknown or deleted."),
    AnomalyKind(
        "tiered-bounds-violated",
        KEPT,
        "The borders of a replica's log were out of order: log start, local start, last tiered offset, high watermark, "
        "log end.",
    ),
    AnomalyKind(
        "remote-object-differs",
        KEPT,
        "An object of a complete segment contradicts its records, its metadata, the segment before or a replica.",
    ),
    AnomalyKind(
        "remote-metadata-contradicts",
        SAME_LOG,
        "Replicas of the remote metadata differ, or a segment's state followed one that it cannot follow.",
    ),
    AnomalyKind(
        "uncommitted-record-in-store", KEPT, "A complete remote segment has a record that the log does not have."
    ),
    AnomalyKind(
        "follower-starts-below-log", KEPT, "A follower started its log again below the start of every other replica's."
    ),
    AnomalyKind(
        "local-records-dropped",
        KEPT,
        "A follower with records started its log again above the first record in its leader's own files.",
    ),
    AnomalyKind(
        "object-removed-unasked", KEPT, "A broker removed an object, and the metadata have no deletion of its segment."
    ),
)
LOSSES: Final = frozenset({Damage.DISK, Damage.NEWER_STATE, Damage.SYNCED})
"""Damage after which a replica may lack files that it did not remove."""
FALSE_STARTS: Final = LOSSES | {Damage.TIME_OF_DAY, Damage.CLOCK_PACE}
"""Damage after which a node's events do not show where its log started at which time."""
UNCLEAN: Final = "unclean.leader.election.enable"
FLUSH: Final = "log.flush.interval.messages"
NOT_READ: Final = Reason(
    "remote-storage-unread", "The metadata or the objects of remote storage are missing or cannot be read."
)
ELSEWHERE: Final = "the campaign names an object store of its own, so the run does not contain its objects"


def check(run: CheckedRun) -> Outcome:
    """Read the metadata, the objects and the replicas, and compare them."""
    from analysis.core import remote_rules as rules
    from analysis.engines.replica import STORE, compare_store
    from analysis.replicafiles.kafka import stores_elsewhere
    from analysis.replicafiles.remote_metadata import read_metadata
    from analysis.replicafiles.remote_segments import objects_in

    if not is_tiered(run.description):
        return Outcome(NOT_APPLICABLE, "the topic is not in remote storage")
    if not run.description.has_replica_files:
        return Outcome(UNKNOWN, "this system's replicas cannot be read", doubts=NOT_READ.say(["no reader"]))
    nodes = _places(run)
    metadata, objects = read_metadata(nodes, _earlier(run)), objects_in(run.directory / STORE)
    is_elsewhere = any(map(stores_elsewhere, run.description.setting_layers))
    required = run.description.checks.min_remote_segments
    # A run that needs no remote segment may end before its first upload, which creates the metadata topic.
    is_unused = required == 0 and not is_elsewhere and not metadata.ends and not any(objects.values())
    doubts = [*metadata.doubts, *_dropped_early(run, nodes)]
    doubts += _missing_metadata(run, metadata, nodes) if not is_unused else ()
    doubts += [ELSEWHERE] if is_elsewhere else []
    tasks = [] if is_elsewhere else list(_tasks(run, nodes, is_known=not metadata.doubts))
    compared = compare_store(tasks, run.spread(sum(task.rows for task in tasks)))
    segments, anomalies = compared.segments, list(compared.anomalies)
    names = dict(enumerate(run.plan.nodes, 1))
    late = set(rules.late_objects(metadata, run.events, names)) if run.description.metadata.traced else set[str]()
    anomalies += rules.orphaned(metadata, objects, late) if not metadata.doubts else ()
    anomalies += rules.contradictory(metadata)
    if run.description.metadata.traced:
        doubts += rules.unlike_reported(metadata, run.events)
        doubts += rules.without_borders(run.plan.replicas, run.events) if not is_unused else ()
        ended = {node: suffered(run.history.journal, node, frozenset({Damage.MEMORY})) for node in run.plan.nodes}
        doubts += rules.unreported(metadata, run.events, names, ended)
    for node, events in run.events.items():
        anomalies += rules.unasked(metadata, node, events) if not metadata.doubts else ()
        other_nodes = [name for name in run.events if name != node]
        anomalies += rules.out_of_bounds(node, events, [run.events[name] for name in other_nodes])
        if not suffered_by(run, other_nodes, FALSE_STARTS):
            anomalies += rules.wrong_starts(node, events, [run.events[name] for name in other_nodes])
    if segments < required and not is_elsewhere:
        doubts.append(
            f"{counted(segments, 'segment')} completely in remote storage; {required} needed (min_remote_segments)"
        )
    detail = (
        f"{counted(segments, 'complete segment')}, {counted(sum(map(len, objects.values())), 'object')} in the store"
    )
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", tuple(anomalies), NOT_READ.say(doubts))
    if doubts:
        return Outcome(UNKNOWN, detail, doubts=NOT_READ.say(doubts))
    return Outcome(PASS, f"{detail}: all are whole and equal the replicas" if segments else f"{detail}: none is needed")


def _tasks(run: CheckedRun, nodes: Mapping[str, Path], *, is_known: bool) -> Iterator[StoreTask]:
    """One for each partition. `is_known`: the metadata are whole, so what they do not have was never in the store."""
    from analysis.engines.replica import STORE, StoreTask
    from analysis.replicafiles.kafka import forgets_producers

    for key, names in run.plan.replicas.items():
        lost = {name for name in names if suffered(run.history.journal, name, LOSSES)}
        intact = frozenset(names) - lost if is_known else frozenset[str]()
        yield StoreTask(
            key,
            {node: place.resolve() for node, place in nodes.items()},
            tuple(names),
            (run.directory / STORE).resolve(),
            intact,
            keeps_committed(run, names),
            any(map(forgets_producers, run.description.setting_layers)),
            run.removable.get(key, 0),
        )


def _dropped_early(run: CheckedRun, nodes: Mapping[str, Path]) -> Iterator[str]:
    """Replicas whose files start above their log's start, although `local.retention.bytes` keeps more than they have.
    This setting decides if it is the only retention, and if no fault or truncation cost a replica records."""
    from analysis.engines.replica import STORE
    from analysis.replicafiles.kafka import log_start, read_remote, segments_of
    from analysis.replicafiles.log import ReplicaFileError

    retention = run.description.workload.topic_settings.get("local.retention.bytes", "")
    limits = [
        run.description.workload.topic_settings.get(name)
        for name in ("local.retention.ms", "retention.ms", "retention.bytes")
    ]
    if not retention.isdecimal() or any(value != "-1" for value in limits):
        return
    faults = frozenset(Damage) - {Damage.PROGRESS, Damage.SPEED, Damage.PACKETS}
    for key, names in run.plan.replicas.items():
        remote = read_remote(nodes, run.directory / STORE, key)
        for node in names:
            segments = segments_of(key, nodes[node]) if node in nodes else []
            reports = [
                event for event in run.events.get(node, ()) if (event.get("topic"), event.get("partition")) == key
            ]
            is_cut = any(
                event["event"] == "truncated" and event["to_offset"] < event["from_offset"] for event in reports
            )
            if not segments or is_cut or suffered(run.history.journal, node, faults if not reports else LOSSES):
                continue
            starts = {event["local_start_offset"] for event in reports if event["event"] == "bootstrapped"}
            starts |= {line["segments"][0] for line in run.history.journal if _joined(line, node, key[1])}
            size, start = sum(segment.stat().st_size for segment in segments), int(segments[0].stem)
            try:
                is_above = start > log_start(key, nodes[node], start, remote)
            except ReplicaFileError:
                is_above = start > 0
            if is_above and start not in starts and size < int(retention):
                yield (
                    f"the files of {node} start at {start} of {key[0]}-{key[1]} and have {size:,} bytes, although "
                    f"local.retention.bytes keeps {int(retention):,}"
                )


def _earlier(run: CheckedRun) -> Mapping[str, Path]:
    """The earlier dumps of the nodes' data directories, if no fault can have cost a committed record."""
    from analysis.engines.replica import EARLIER
    from analysis.evidence.earlier_dumps import demanded

    dumps = demanded(run.history.journal, run.plan.nodes, run.description.world)
    if not keeps_committed(run, run.plan.nodes):
        return {}
    return {node: run.directory / "nodes" / node / EARLIER for node in dumps.nodes}


def _joined(line: Mapping[str, Any], node: str, partition: int) -> bool:
    key = (line.get("event"), line.get("node"), line.get("partition"))
    return key == (JOINED, node, partition) and bool(line["segments"])


def _missing_metadata(run: CheckedRun, metadata: DeclaredSegments, nodes: Mapping[str, Path]) -> Iterator[str]:
    """Replicas of the metadata topic that a node must have, by the metadata log of the cluster, and that are absent or
    end below a high watermark on some disk, although no fault can have cost them records. Above it the leader, and
    followers that were faster, may have more when the nodes stop. No replica may have more than all that led it; a
    snapshot of the metadata does not name those of earlier epochs."""
    from analysis.replicafiles.checkpoints import HIGH_WATERMARKS, read_high_watermarks
    from analysis.replicafiles.cluster_metadata import read_cluster_metadata
    from analysis.replicafiles.log import ReplicaFileError
    from analysis.replicafiles.remote_metadata import TOPIC

    names = dict(enumerate(run.description.node_names, 1))
    marks = []
    for node, place in nodes.items():
        try:
            marks.append(read_high_watermarks(place / HIGH_WATERMARKS) or {})
        except ReplicaFileError as error:
            yield f"the high watermarks on {node} cannot be read: {error}"
    for place in nodes.values() if run.description.metadata.format == KRAFT else ():
        cluster = read_cluster_metadata(place)
        topic = cluster.topics.get(TOPIC)
        for number, partition in sorted(topic.partitions.items()) if topic is not None and not cluster.doubts else ():
            ends = metadata.ends.get(number, {})
            due = max((on_disk.get((TOPIC, number), 0) for on_disk in marks), default=0)
            written = max((ends.get(names.get(id_, ""), 0) for id_ in partition.leaders.values()), default=0)
            for node in (names.get(node_id, "") for node_id in partition.replicas):
                lost = suffered(run.history.journal, node, LOSSES | {Damage.UNSYNCED})
                if ends.get(node, -1) < due and not lost:
                    has = f"ends at {ends[node]}" if node in ends else "is missing"
                    yield f"the replica of {TOPIC}-{number} on {node} {has}, and {due} is committed"
                elif 0 in partition.leaders and ends.get(node, -1) > written and not lost:
                    yield f"the replica of {TOPIC}-{number} on {node} ends at {ends[node]}, its leaders at {written}"
        if topic is not None:
            return
    if run.description.metadata.format == KRAFT:
        yield f"no node's metadata log has the topic {TOPIC}"


def is_tiered(description: RunDescription) -> bool:
    return description.workload.topic_settings.get("remote.storage.enable") == "true"


def keeps_committed(run: CheckedRun, names: Iterable[str]) -> bool:
    """Whether replicas can have lost no committed record: no unclean election, and no loss on their disks."""
    settings = run.description.setting_layers
    if any(row.get(UNCLEAN) == "true" for row in settings) or any(UNCLEAN in step for step in run.description.steps):
        return False
    is_flushed = any(row.get(FLUSH) == "1" for row in settings)
    return not suffered_by(run, names, LOSSES if is_flushed else LOSSES | {Damage.UNSYNCED})


def suffered_by(run: CheckedRun, nodes: Iterable[str], damage: frozenset[Damage]) -> bool:
    return any(suffered(run.history.journal, node, damage) for node in nodes)


def _places(run: CheckedRun) -> Mapping[str, Path]:
    places = {node: run.directory / "nodes" / node / "data" for node in run.plan.nodes}
    return {node: place for node, place in places.items() if place.is_dir()}


CHECKER: Final = Checker(
    "remote store",
    "Does remote storage have what its metadata declare, and what replicas have removed?",
    24,
    ANOMALIES,
    check,
    (NOT_READ,),
    may_rest=lambda description: not is_tiered(description),
    reads="|".join(
        (PLAN, JOURNAL, FILES, r"shared(/.*)?", r"nodes/[^/]+/events\.jsonl", r"nodes/[^/]+/(data|earlier)/__remote.*")
    ),
)
