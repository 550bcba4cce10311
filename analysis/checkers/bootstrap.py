"""Replicas that a script adds to a partition: where their logs start, and their leader epochs (KIP-1023).

A new replica starts at the offset that the script requires, as the leader stated it at some time between the acceptance
of the replica and the moment when it was in sync. Without a requirement, the settings decide: in a tiered topic it
starts at the first offset that is not in remote storage if its node has `follower.fetch.last.tiered.offset.enable`,
otherwise at the start of the leader's own files. No later file of the replica starts below. Its epoch file has the
leader's entries up to its start (K1023-11): when it was in sync, by the copy of both files in the journal, and in the
collected files, from the start of the log on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.replicas import FILES
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.damage import Damage, suffered
from history.journal.writer import JOINED, REASSIGNED
from installation.counted import counted

Line = Mapping[str, Any]
Entries = tuple[tuple[int, int], ...]
"""Leader epochs: (epoch, first offset)."""

BOOTSTRAP: Final = Promise("BST", "a new replica starts where it must", stands_alone=True)
BOOTSTRAPPED: Final = "bootstrapped"
WRONG_START: Final = AnomalyKind(
    "wrong-bootstrap-offset",
    BOOTSTRAP,
    "The log of a new replica starts at another offset than the script or the settings require.",
)
OTHER_EPOCHS: Final = AnomalyKind(
    "bootstrap-epochs-differ", BOOTSTRAP, "The epoch file of a new replica contradicts its leader's."
)
NOT_SHOWN: Final = Reason(
    "bootstrap-not-shown", "The record and the files of a new replica do not show where its log started."
)
STARTED_AGAIN: Final = frozenset({Damage.DISK, Damage.NEWER_STATE, Damage.SYNCED})
"""Damage after which a node may have started the log of its replica again."""


@dataclass(frozen=True)
class _Files:
    """What a node's collected files have of a replica. `first`: the offset of its first segment; `log_start`: the first
    offset of the log, which may be in remote storage; `epochs`: its epoch file."""

    first: int
    log_start: int
    epochs: Entries


def check(run: CheckedRun) -> Outcome:
    """Compare each replica that joined with what its leader stated, and with its leader's files."""
    joined = [line for line in run.history.journal if line.get("event") == JOINED]
    reassignments = [line for line in run.history.journal if line.get("event") == REASSIGNED]
    anomalies = [anomaly for line in joined for anomaly in (*_wrong_start(run, line), *_other_epochs(run, line))]
    doubts = tuple(NOT_SHOWN.say(doubt for line in joined for doubt in (*_unknown(run, line), *_unread(run, line))))
    if len(reassignments) > len(joined):
        doubts += tuple(
            NOT_SHOWN.say([f"not seen in sync: {counted(len(reassignments) - len(joined), 'new replica')}"])
        )
    summary = "; ".join(map(sentence_of, joined))
    if anomalies:
        return Outcome(FAIL, summary, tuple(anomalies), doubts)
    if doubts:
        return Outcome(UNKNOWN, summary or "no new replica was seen in sync", doubts=doubts)
    return Outcome(PASS, summary) if joined else Outcome(NOT_APPLICABLE, "no replica was added")


def sentence_of(line: Line) -> str:
    """What a replica's bootstrap took, in a sentence."""
    start = line["segments"][0] if line["segments"] else "no offset"
    return (
        f"{line['node']} was in sync {line['seconds']:g} s after it became a replica of partition {line['partition']}: "
        f"its log starts at {start} and has {line['moved']:,} bytes"
    )


def figures(journal: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of the last replica that joined; empty without one. Offsets are those at its acceptance.
    `join_epochs_below`: the leader epochs that it knows of records below its own files; a system may start further
    epochs with the reassignment."""
    joined = [line for line in journal if line.get("event") == JOINED and line["segments"]]
    if not joined:
        return {}
    line = joined[-1]
    offsets = {f"join_{name.replace('-', '_')}": offset for name, offset in line["before"].items()}
    return {
        **offsets,
        "join_start": line["segments"][0],
        "join_segments": len(line["segments"]),
        "join_epochs_below": sum(start < line["segments"][0] for _, start in line["epochs"]),
        "join_bytes": line["moved"],
        "join_s": line["seconds"],
    }


def _wanted(run: CheckedRun, line: Line) -> str:
    """The name of the offset at which the new log must start."""
    if line["starts_at"] is not None:
        return str(line["starts_at"])
    if run.description.workload.topic_settings.get("remote.storage.enable") != "true":
        return "log-start"
    node = run.description.node_settings.get(line["node"], {})
    return "pending-upload" if node.get("follower.fetch.last.tiered.offset.enable") == "true" else "local-start"


def _unknown(run: CheckedRun, line: Line) -> Iterator[str]:
    key = _wanted(run, line)
    if not line["segments"]:
        yield f"{line['node']} had no segment of partition {line['partition']} when it was in sync"
    if line["segments"] and run.description.metadata.traced:
        yield from _unlike_report(run, line)
    if any(line[side].get(key, -1) < 0 for side in ("before", "after")):
        yield f"the leader {line['leader']} did not state the {key} of partition {line['partition']}"


def _unlike_report(run: CheckedRun, line: Line) -> Iterator[str]:
    """A broker reports where it starts the log of a new replica, unless that is where its leader's log starts. Local
    retention may have moved that start by the time the files are read; the broker reports this, too."""
    reports, start = _reports(run, line), line["segments"][0]
    starts = {report["local_start_offset"] for report in reports}
    if start not in starts and (starts or start > line["before"].get("log-start", 0)):
        yield (
            f"{line['node']} had a log of partition {line['partition']} from {start} on, and never reported that it "
            "started it there"
        )


def _reports(run: CheckedRun, line: Line) -> list[Mapping[str, Any]]:
    """The broker's reports of the start of its log, from the bootstrap on."""
    from analysis.core.remote_rules import BORDERS

    place = (run.description.workload.topic, line["partition"])
    reports = [
        report
        for report in run.events.get(line["node"], ())
        if report.get("event") in (BOOTSTRAPPED, BORDERS) and (report["topic"], report["partition"]) == place
    ]
    first = next((at for at, report in enumerate(reports) if report["event"] == BOOTSTRAPPED), len(reports))
    return reports[first:]


def _start(run: CheckedRun, line: Line) -> int:
    """Where the log of the new replica started: by the broker's report, or else by its files."""
    first: int = line["segments"][0]
    reports = _reports(run, line) if run.description.metadata.traced else []
    reported = [report["local_start_offset"] for report in reports if report["event"] == BOOTSTRAPPED]
    return max((start for start in reported if start <= first), default=first)


def _wrong_start(run: CheckedRun, line: Line) -> Iterator[Anomaly]:
    offset_name = _wanted(run, line)
    if any(_unknown(run, line)):
        return
    lowest, highest, start = line["before"][offset_name], line["after"][offset_name], _start(run, line)
    between = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    shown_start, source = start, ""
    later = _files(run, line["node"], line["partition"])
    if lowest <= start <= highest and isinstance(later, _Files) and not _started_again(run, line, lowest):
        shown_start, source = min(start, later.first), " in the collected files"
    if lowest <= shown_start <= highest:
        return
    sentence = f"the log of {line['node']} starts at {shown_start}{source}; the leader's {offset_name} was {between}"
    yield _anomaly(WRONG_START, run, line, sentence, [{"op": "bootstrap", "node": line["node"], "offset": shown_start}])


def _started_again(run: CheckedRun, line: Line, lowest: int) -> bool:
    """Whether the node may have started the log of its replica again after it joined, at an offset below `least`."""
    place = (run.description.workload.topic, line["partition"])
    return bool(suffered(run.history.journal, line["node"], STARTED_AGAIN)) or any(
        (event["topic"], event["partition"]) == place and event["to_offset"] < lowest
        for event in run.events.get(line["node"], ())
        if event.get("event") == "truncated"
    )


def _other_epochs(run: CheckedRun, line: Line) -> Iterator[Anomaly]:
    """The first difference: when the replica was in sync, or at the end, when elections may have replaced both files.

    At the end they are compared from the start of the log to the start of the new replica. The oldest entry moves with
    the start of the log, and nodes write that start with a delay: the later one counts. Below the highest offset from
    which clients asked to keep records, one of the two logs may start later than the other."""
    node, leader = line["node"], line["leader"]
    own_then, leaders_then = (tuple(map(tuple, line[key])) for key in ("epochs", "leader_epochs"))
    latest = max((epoch for epoch, _ in own_then), default=-1)
    due_then = tuple(entry for entry in leaders_then if entry[0] <= latest) if own_then else leaders_then
    if own_then != due_then:
        yield _epochs_differ(run, line, own_then, due_then, "")
        return
    own_files, leader_files = (_files(run, name, line["partition"]) for name in (node, leader))
    if isinstance(own_files, str) or isinstance(leader_files, str) or not line["segments"]:
        return
    from analysis.core.remote_rules import entries_from
    from analysis.evidence.deletions import deletions_of

    topic = run.description.workload.topic
    requested_start = deletions_of(topic, run.history.journal).requested.get((topic, line["partition"]), 0)
    start = max(
        own_files.log_start, leader_files.log_start, requested_start, *(first for _, first in leader_files.epochs[:1])
    )
    end = max(line["segments"][0], start)
    has, due = (
        entries_from([entry for entry in files.epochs if entry[1] <= end], start) for files in (own_files, leader_files)
    )
    if has == due:
        return
    yield _epochs_differ(run, line, has, due, f" from offset {start} to {end} in the end")


def _epochs_differ(
    run: CheckedRun, line: Line, entries_of_node: Entries, entries_of_leader: Entries, range_text: str
) -> Anomaly:
    node, leader = line["node"], line["leader"]
    sentence = (
        f"the epoch file of {node} has {_told(entries_of_node)}{range_text}; "
        f"that of the leader {leader} has {_told(entries_of_leader)}"
    )
    witness = [
        {"op": "epoch", "node": name, "epoch": epoch, "offset": start, "source": "epoch file"}
        for name, entries in ((node, entries_of_node), (leader, entries_of_leader))
        for epoch, start in entries
    ]
    return _anomaly(OTHER_EPOCHS, run, line, sentence, witness)


def _unread(run: CheckedRun, line: Line) -> Iterator[str]:
    """Why the files of a new replica and of its leader cannot be compared."""
    for node in (line["node"], line["leader"]):
        files = _files(run, node, line["partition"])
        if isinstance(files, str):
            yield files


def _files(run: CheckedRun, node: str, partition: int) -> _Files | str:
    """The collected files of a node's replica, or why they cannot be read."""
    from analysis.replicafiles.checkpoints import read_epochs, read_high_watermarks
    from analysis.replicafiles.kafka import EPOCHS, LOG_STARTS, segments_of
    from analysis.replicafiles.log import ReplicaFileError

    key = (run.description.workload.topic, partition)
    replica = f"the replica of {key[0]}-{partition} on {node}"
    if not run.description.has_replica_files:
        return f"{replica} cannot be read: its files have no reader"
    data = run.directory / "nodes" / node / "data"
    segments = segments_of(key, data)
    try:
        epochs = read_epochs(data / f"{key[0]}-{partition}" / EPOCHS)
        starts = read_high_watermarks(data / LOG_STARTS) or {}
    except ReplicaFileError as error:
        return f"{replica} cannot be read: {error}"
    if not segments or epochs is None:
        return f"{replica} has no {'epoch file' if segments else 'segment'}"
    return _Files(int(segments[0].stem), starts.get(key, 0), epochs)


def _told(entries: Entries) -> str:
    return ", ".join(f"epoch {epoch} from {start}" for epoch, start in entries) or "no epoch"


def _anomaly(kind: AnomalyKind, run: CheckedRun, line: Line, sentence: str, witness: list[dict[str, Any]]) -> Anomaly:
    return Anomaly(kind.name, run.description.workload.topic, line["partition"], sentence, tuple(witness), 1)


CHECKER: Final = Checker(
    "bootstrap",
    "Do the logs of new replicas start where they must, with their leader's epochs?",
    22,
    (WRONG_START, OTHER_EPOCHS),
    check,
    (NOT_SHOWN,),
    may_rest=lambda description: not any(" (join " in step for step in description.steps),
    reads="|".join((PLAN, JOURNAL, FILES)),
)
