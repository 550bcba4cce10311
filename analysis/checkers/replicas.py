"""The replicas' own files, in the format that the run names. `analysis/core/replicas.py` states the rules.

The high watermarks in earlier dumps are compared with the nodes' traces, too: D7 compares a dump below the high
watermarks in its checkpoint, so an absent or older checkpoint would hide a changed prefix. A node with a trace reports
each high watermark after the write to its disk. Invariant: the checkpoint in a dump has at least the last value that
its node had reported before the dump, unless the node reports a lower value later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, first_of
from analysis.checkers.partition_logs import DUPLICATE, LOST, PHANTOM
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.evidence.run_directory import moment
from analysis.evidence.run_toml import KAFKA_FORMAT, NO_FORMAT
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.record.values import FROM_ZERO
from installation.counted import counted

if TYPE_CHECKING:
    from pathlib import Path

    from analysis.core.replica_evidence import Circumstances, ReplicaReport
    from analysis.evidence.earlier_dumps import Demanded
    from analysis.evidence.run_directory import NodeEvents

SAME_LOG: Final = Promise("DIV", "replicas hold the same log")
RECOVERS: Final = Promise("STK", "the cluster recovers", stands_alone=True)
SEQUENCES: Final = Promise("SEQ", "the records of an idempotent producer are written in sequence")
INTACT: Final = Promise("COR", "a record's bytes do not change", stands_alone=True)

ANOMALIES: Final = (
    LOST,
    AnomalyKind("replica-divergence", SAME_LOG, "Two replicas hold different records at a committed or shared offset."),
    AnomalyKind("epoch-regression", SAME_LOG, "Leader epochs decrease along a log or along its epoch file."),
    AnomalyKind(
        "epoch-start-mismatch", SAME_LOG, "A leader epoch starts at different offsets, or is missing in the epoch file."
    ),
    AnomalyKind(
        "replica-order-mismatch",
        SAME_LOG,
        "A replica lacks a record that was reported to clients, or has a different one.",
    ),
    AnomalyKind("prefix-changed", SAME_LOG, "Records below a replica's high watermark differ in a later dump."),
    AnomalyKind(
        "not-converged",
        RECOVERS,
        "After the last heal, the logs start or end at different offsets, or their tails are not committed.",
    ),
    AnomalyKind(
        "final-end-mismatch",
        RECOVERS,
        "The ends of the logs differ from the final reads, and no append of unknown outcome explains it.",
    ),
    AnomalyKind(
        "phantom-on-replica", PHANTOM, "A replica holds a record that no client sent there, or that was rejected."
    ),
    AnomalyKind("duplicate-on-replica", DUPLICATE, "A record that was sent once has two offsets on a replica."),
    AnomalyKind(
        "sequence-gap-on-replica",
        SEQUENCES,
        "A replica's log holds a batch of an idempotent producer that does not continue its previous one: the batches "
        "in between are refused for ever, or are there twice.",
    ),
    AnomalyKind("corrupt-record", INTACT, "A record's bytes differ from those that its client sent."),
)
PROGRESS: Final = "replica_progress"
FILES: Final = (
    r"nodes/[^/]+/(events\.jsonl|(data|earlier)(/(meta\.properties|(replication|log-start)-offset-checkpoint|"
    r"(?!__)[^/]+-[0-9]+[^/]*(/([^/]+\.log|leader-epoch-checkpoint|remote-log-start|partition\.metadata))?))?)"
)
"""The nodes' files that this checker reads: without indexes and the system's own topics."""

UNDECIDED: Final = Reason("replicas-undecided", "Files of replicas are missing, unreadable or insufficient.")


def check(run: CheckedRun) -> Outcome:
    """Read and compare the files of all nodes."""
    from analysis.engines.replica import DATA, EARLIER, check_replicas, rows_of, tasks_of
    from analysis.engines.row_groups import row_groups_of
    from analysis.evidence.earlier_dumps import demanded
    from analysis.replicafiles import kafka, kafka_nodes

    description = run.description
    if description.replicas.format == NO_FORMAT:
        return Outcome(NOT_APPLICABLE, "this system's replicas are not read")
    if not description.has_replica_files:
        formats = f"{KAFKA_FORMAT}, {NO_FORMAT}"
        return Outcome(
            UNKNOWN, f"replicas of the format {description.replicas.format!r} cannot be read; known are {formats}"
        )
    plan, settings = run.plan, description.setting_layers
    circumstances = _circumstances(
        run,
        compacts=any(map(kafka.compacts, settings)),
        forgets_producers=any(map(kafka.forgets_producers, settings)),
    )
    interval_s = max(map(kafka.mark_interval_s, settings or ({},))) * description.time_scale
    dumps = demanded(run.history.journal, plan.nodes, description.world, interval_s)
    tasks = tasks_of(
        run.directory,
        row_groups_of(run.tables),
        plan.replicas,
        circumstances,
        dumps,
        deleted=run.removable,
        preallocates=any(map(kafka.preallocates, settings)),
        has_objects=not any(map(kafka.stores_elsewhere, settings)),
    )
    report = check_replicas(tasks, run.spread(rows_of(tasks)))
    collected = {name: {node: run.directory / "nodes" / node / name for node in plan.nodes} for name in (DATA, EARLIER)}
    unmoved = frozenset(key for key in plan.replicas if key[1] not in dumps.moved)
    doubts = (
        *(() if plan.replicas else ("it is not known which nodes hold replicas",)),
        *(() if report.records else ("no record was compared",)),
        *kafka_nodes.survey(collected[DATA]),
        *_earlier(dumps, collected[EARLIER]),
        *kafka_nodes.survey_earlier(
            {node: collected[EARLIER][node] for node in plan.nodes if node in dumps.nodes and node not in dumps.lost},
            collected[DATA],
            moved=dumps.moved,
        ),
        *lowered(run.events, dumps, run.history.journal, collected[EARLIER], unmoved),
        *report.undecided,
    )
    return _outcome(run, circumstances, report, doubts or tuple(_gaps_of_evidence(run, report)))


def _gaps_of_evidence(run: CheckedRun, report: ReplicaReport) -> Iterator[str]:
    """Replicas that reported records as committed that no log of their partition finally holds. Topics outside of the
    plan are the system's own: their files were not read."""
    for node in run.plan.nodes:
        marks: dict[tuple[str, int], int] = {}
        for event in run.events.get(node, ()):
            topic, partition, mark = (event.get(name) for name in ("topic", "partition", "high_watermark"))
            if event["event"] != PROGRESS or type(partition) is not int or type(mark) is not int:
                continue
            if (topic, partition) in run.plan.replicas:
                marks[str(topic), partition] = max(marks.get((str(topic), partition), 0), mark)
        for (topic, partition), mark in sorted(marks.items()):
            end = max((ends[0] for ends in report.ends.get((topic, partition), {}).values()), default=0)
            if mark > end:
                yield (
                    f"{node} reported that {topic}-{partition} was committed up to {mark}, "
                    f"but its longest log has {end}"
                )


def _circumstances(run: CheckedRun, *, compacts: bool, forgets_producers: bool) -> Circumstances:
    from analysis.core.replica_evidence import Circumstances

    reached = run.history.phase_names
    stopped = {line["node"] for line in run.history.journal if line.get("what") == "stopped"}
    return Circumstances(
        quiet="final" in reached,
        stopped=stopped >= set(run.description.node_names),
        compacts=compacts,
        forgets_producers=forgets_producers,
        from_zero=run.description.replicas.sequences == FROM_ZERO,
        records=run.description.records,
        record_bytes=run.description.workload.record_bytes,
        all_sent=_all_sent(run),
    )


def _all_sent(run: CheckedRun) -> bool:
    """Whether all that clients sent is recorded."""
    records = run.history.records
    is_recorded = all(record.is_whole and record.announced for record in records)
    return is_recorded and {record.client for record in records} >= set(run.plan.clients)


def _earlier(dumps: Demanded, places: Mapping[str, Path]) -> Iterator[str]:
    """Checks that each node that the journal lists has an earlier dump, and no other."""
    yield from dumps.doubts
    if missing := [node for node in dumps.nodes if node in places and not places[node].is_dir()]:
        yield f"the earlier dumps of {', '.join(missing)} are missing"
    strange = [node for node, place in places.items() if node not in dumps.nodes and place.exists()]
    if strange and not dumps.failed:
        yield f"there are earlier dumps of {', '.join(strange)}, but the journal does not list them"


def _outcome(run: CheckedRun, circumstances: Circumstances, report: ReplicaReport, doubts: tuple[str, ...]) -> Outcome:
    from history.record.values import VALUE_FIRST

    limit = "" if report.earlier else "; there is no earlier dump: D7 not checked"
    if run.description.records == VALUE_FIRST:
        limit += "; clients made the records: the first 8 bytes of each are checked, D9 is not checked"
    limit += _without_epochs(report.without_epochs)
    if circumstances.compacts:
        limit += "; the log is compacted: D5 and D6 do not apply to records that all replicas lack"
    subject = f"the files of {', '.join(run.description.node_names)}"
    if report.anomalies:
        return Outcome(FAIL, f"{anomaly_count(report.anomalies)} in {subject}{limit}", report.anomalies, doubts)
    if doubts:
        return Outcome(UNKNOWN, f"undecided for {counted(len(doubts), 'reason')}{limit}", doubts=doubts)
    return Outcome(PASS, f"{subject} agree: {counted(report.records, 'record')} compared{limit}")


def _without_epochs(logs: Sequence[tuple[str, int]]) -> str:
    """The checks that were skipped because these logs (name, message format) have records without leader epochs."""
    if not logs:
        return ""
    formats = sorted({number for _, number in logs})
    format_text = "format " + str(formats[0]) if len(formats) == 1 else "formats " + " and ".join(map(str, formats))
    names = sorted({name for name, _ in logs})
    return f"; leader epochs do not exist in message {format_text}: D2-D4 not checked in {first_of(names, ', ')}"


WRITTEN: Final = "high_watermark_checkpointed"

Event = Mapping[str, Any]
Key = tuple[str, int]


def lowered(
    events: NodeEvents, dumps: Demanded, journal: Sequence[Event], places: Mapping[str, Path], keys: frozenset[Key]
) -> Iterator[str]:
    """Sentences: high watermarks in dumps that are below the reported ones. `places`: the directories of the dumps;
    `keys`: the partitions to compare. If a fault changed a clock, the order of reports and dump is not known."""
    from analysis.replicafiles.checkpoints import HIGH_WATERMARKS, read_high_watermarks
    from analysis.replicafiles.log import ReplicaFileError

    heals = (line["wall"] for line in journal if (line.get("event"), line.get("name")) == ("phase", "heal"))
    heal_start = next(heals, None)
    if heal_start is None or any(str(line.get("kind", "")).startswith("clock-") for line in journal):
        return
    for node in dumps.nodes:
        if node not in places or node in dumps.lost:
            continue
        try:
            marks = read_high_watermarks(places[node] / HIGH_WATERMARKS) or {}
        except ReplicaFileError:
            continue  # each replica of the node reports it
        for key, mark in sorted(_written(events.get(node, ()), heal_start * 1e9).items()):
            if key in keys and marks.get(key, 0) < mark:
                yield (
                    f"the earlier dump of {node} has the high watermark {marks.get(key, 0)} of {key[0]}-{key[1]}, "
                    f"but the node had reported that {mark} was on its disk"
                )


def _written(events: Sequence[Event], heal_start: float) -> dict[Key, int]:
    """By partition, the least high watermark that the disk may have had since `heal_start`, wall clock in ns."""
    marks: dict[Key, int] = {}
    for event in events:
        topic, partition, mark = (event.get(name) for name in ("topic", "partition", "high_watermark"))
        if event.get("event") != WRITTEN or type(partition) is not int or type(mark) is not int:
            continue
        key = str(topic), partition
        if moment(event) < heal_start:
            marks[key] = mark
        elif key in marks:
            marks[key] = min(marks[key], mark)
    return marks


CHECKER: Final = Checker(
    "replicas",
    "Do a partition's replicas hold the same log, and the log that clients observed?",
    20,
    ANOMALIES,
    check,
    (UNDECIDED,),
    may_rest=lambda description: description.replicas.format == NO_FORMAT,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, FILES)),
)
