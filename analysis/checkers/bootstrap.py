"""Replicas that a script adds to a partition: where their logs start, and their leader epochs (KIP-1023).

The journal has the offsets that the leader stated before and after, and the new replica's files at the moment when it
was in sync. A new replica starts at the offset that the script requires, as the leader stated it at some time between
the two. Without a requirement, the settings decide: in a tiered topic it starts at the first offset that is not in
remote storage if its node has `follower.fetch.last.tiered.offset.enable`, otherwise at the start of the leader's own
files. Its epoch file has the leader's entries, also of epochs before its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.journal import JOINED, REASSIGNED
from installation.counted import counted

Line = Mapping[str, Any]

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
NOT_SHOWN: Final = Reason("bootstrap-not-shown", "The record of a new replica does not show where its log started.")


def check(run: CheckedRun) -> Outcome:
    """Compare each replica that joined with what its leader stated."""
    joined = [line for line in run.history.journal if line.get("event") == JOINED]
    reassignments = [line for line in run.history.journal if line.get("event") == REASSIGNED]
    anomalies = [each for line in joined for each in (*_wrong_start(run, line), *_other_epochs(run, line))]
    doubts = tuple(NOT_SHOWN.say(doubt for line in joined for doubt in _unknown(run, line)))
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
    if run.description.topic_settings.get("remote.storage.enable") != "true":
        return "log-start"
    node = run.description.node_settings.get(line["node"], {})
    return "pending-upload" if node.get("follower.fetch.last.tiered.offset.enable") == "true" else "local-start"


def _unknown(run: CheckedRun, line: Line) -> Iterator[str]:
    wanted = _wanted(run, line)
    if not line["segments"]:
        yield f"{line['node']} had no segment of partition {line['partition']} when it was in sync"
    if line["segments"] and run.description.metadata_traced:
        yield from _unlike_report(run, line)
    if any(line[when].get(wanted, -1) < 0 for when in ("before", "after")):
        yield f"the leader {line['leader']} did not state the {wanted} of partition {line['partition']}"


def _unlike_report(run: CheckedRun, line: Line) -> Iterator[str]:
    """A broker reports where it starts the log of a new replica, unless that is where its leader's log starts."""
    where = (run.description.topic, line["partition"])
    reports = [each for each in run.events.get(line["node"], ()) if each.get("event") == BOOTSTRAPPED]
    starts = {each["local_start_offset"] for each in reports if (each["topic"], each["partition"]) == where}
    start = line["segments"][0]
    if start not in starts and (starts or start > line["before"].get("log-start", 0)):
        yield (
            f"{line['node']} had a log of partition {line['partition']} from {start} on, and never reported that it "
            "started it there"
        )


def _wrong_start(run: CheckedRun, line: Line) -> Iterator[Anomaly]:
    wanted = _wanted(run, line)
    if any(_unknown(run, line)):
        return
    least, most, start = line["before"][wanted], line["after"][wanted], line["segments"][0]
    if least <= start <= most:
        return
    between = f"{least}" if least == most else f"{least} to {most}"
    sentence = f"the log of {line['node']} starts at {start}; the leader's {wanted} was {between}"
    yield _anomaly(WRONG_START, run, line, sentence, [{"op": "bootstrap", "node": line["node"], "offset": start}])


def _other_epochs(run: CheckedRun, line: Line) -> Iterator[Anomaly]:
    own, leaders = (tuple(map(tuple, line[key])) for key in ("epochs", "leader_epochs"))
    latest = max((epoch for epoch, _ in own), default=-1)
    due = tuple(entry for entry in leaders if entry[0] <= latest) if own else leaders
    if own == due:
        return
    sentence = (
        f"the epoch file of {line['node']} has {_told(own)}; that of the leader {line['leader']} has {_told(due)}"
    )
    witness = [
        {"op": "epoch", "node": node, "epoch": epoch, "offset": start, "source": "epoch file"}
        for node, entries in ((line["node"], own), (line["leader"], due))
        for epoch, start in entries
    ]
    yield _anomaly(OTHER_EPOCHS, run, line, sentence, witness)


def _told(entries: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"epoch {epoch} from {start}" for epoch, start in entries) or "no epoch"


def _anomaly(kind: AnomalyKind, run: CheckedRun, line: Line, sentence: str, witness: list[dict[str, Any]]) -> Anomaly:
    return Anomaly(kind.name, run.description.topic, line["partition"], sentence, tuple(witness), 1)


CHECKER: Final = Checker(
    "bootstrap",
    "Do the logs of new replicas start where they must, with their leader's epochs?",
    22,
    (WRONG_START, OTHER_EPOCHS),
    check,
    (NOT_SHOWN,),
    may_rest=lambda description: not any(" (join " in step for step in description.steps),
    reads="|".join((PLAN, JOURNAL, r"nodes/[^/]+/events\.jsonl")),
)
