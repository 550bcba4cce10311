"""What the oracles of a simulated run have found: they look after every step at the brokers' own state and disks.

Their record is `history/oracles.json`. It is believed only when it is of this run and of all of it: it names every
oracle, and as many steps as the simulation took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from analysis.checking import Checker, Outcome, Run
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

SIMULATION: Final = "simulation"
RECORD: Final = "history/oracles.json"
SUMMARY: Final = "simulation.json"

SAFE_STATE: Final = Promise("ORC", "at every step the brokers' own state keeps what they promise to each other")

ANOMALIES: Final = (
    AnomalyKind(
        "epoch-fell",
        SAFE_STATE,
        "A replica or a voter acted in an older epoch than before, in its memory or after a restart from its disk.",
        ("K101-1", "K595-5", "K595-14"),
    ),
    AnomalyKind(
        "high-watermark-fell",
        SAFE_STATE,
        "A replica's high watermark fell while its process ran, and no unclean election had allowed it.",
        ("H5", "H9", "H25"),
    ),
    AnomalyKind(
        "two-leaders-of-one-epoch",
        SAFE_STATE,
        "Two processes led one epoch of a partition or of the quorum; what disks say of dead nodes counts.",
        ("H18", "K595-13", "K595-14", "K595-21"),
    ),
    AnomalyKind(
        "committed-without-majority",
        SAFE_STATE,
        "The quorum's leader committed what is not in the logs of a majority of the voters.",
        ("K595-36",),
    ),
    AnomalyKind(
        "log-mismatch",
        SAFE_STATE,
        "Two logs have other records at one offset of one epoch, or the same ones behind other records.",
        ("H1", "H3", "H11", "K595-35", "K101-10"),
    ),
    AnomalyKind(
        "leader-incomplete",
        SAFE_STATE,
        "A leader was elected cleanly, or as the most complete, and lacks records that were committed.",
        ("H16", "K595-18", "K704-1"),
    ),
    AnomalyKind(
        "isr-too-narrow",
        SAFE_STATE,
        "A leader counts fewer replicas than the controller may elect from.",
        ("H13",),
    ),
    AnomalyKind(
        "committed-not-durable",
        SAFE_STATE,
        "What was committed lay in the page cache only: of a majority of the voters, or of an in-sync replica where "
        "records must be flushed.",
        ("K595-7",),
    ),
    AnomalyKind(
        "high-watermark-invalid",
        SAFE_STATE,
        "A high watermark lies beyond the log, beyond what in-sync replicas have, beyond what leaders have committed, "
        "or rose below min.insync.replicas.",
        ("H6", "H7", "H13", "H15", "H16"),
    ),
    AnomalyKind(
        "committed-prefix-changed",
        SAFE_STATE,
        "A replica cut off what was committed.",
        ("K101-7", "H25", "K595-40"),
    ),
    AnomalyKind(
        "vote-before-disk",
        SAFE_STATE,
        "A voter showed an epoch or a vote that its disk did not hold for certain.",
        ("K595-13", "K595-19", "K595-31"),
    ),
    AnomalyKind(
        "lease-shared",
        SAFE_STATE,
        "A leader committed while one of an older epoch still had its lease.",
        ("H31",),
    ),
    AnomalyKind(
        "epochs-contradict-log",
        SAFE_STATE,
        "A replica's epochs, in its memory or in their file, are not those of its log's records.",
        ("K101-3", "K101-8", "K101-12", "H8", "H10", "H27"),
    ),
    AnomalyKind(
        "isr-not-granted",
        SAFE_STATE,
        "The controller has a replica in an ISR that cannot be reached, that is another process than the one "
        "whose fetches were counted, or that its leader has not asked for on top of that state.",
        ("H13", "H14", "H15"),
    ),
    AnomalyKind(
        "election-not-allowed",
        SAFE_STATE,
        "The controller had a replica lead that was not eligible, or skipped the recovery of one that was "
        "elected uncleanly.",
        ("K704-1", "K704-4", "K704-9"),
    ),
    AnomalyKind(
        "member-incomplete",
        SAFE_STATE,
        "Who is in the ISR, is proposed for it or is eligible to lead lacks records that were committed, or may "
        "lack them.",
        ("H5", "H16"),
    ),
    AnomalyKind(
        "counted-not-shared",
        SAFE_STATE,
        "A leader counts records of a follower that this one does not have, or a fetch of an older epoch.",
        ("H3", "H6", "H15"),
    ),
    AnomalyKind(
        "followed-unmatched",
        SAFE_STATE,
        "A follower began to fetch behind a log that is not its leader's.",
        ("H1", "K101-7"),
    ),
    AnomalyKind(
        "served-in-recovery",
        SAFE_STATE,
        "A leader that was elected uncleanly appended to its log, or committed, before its recovery was over.",
        ("K704-5",),
    ),
    AnomalyKind(
        "vote-against-log",
        SAFE_STATE,
        "A voter voted for a candidate whose log lacks what its own has.",
        ("K595-18",),
    ),
    AnomalyKind(
        "committed-old-epoch",
        SAFE_STATE,
        "The quorum's leader committed up to a record of an earlier epoch than its own.",
        ("K595-36",),
    ),
)
MAY_REST: Final = frozenset(
    {
        "committed-prefix-changed",
        "lease-shared",
        "isr-too-narrow",
        "member-incomplete",
        "counted-not-shared",
        "followed-unmatched",
        "served-in-recovery",
        "vote-against-log",
    }
)
"""The oracles that have nothing to compare in many a run: nobody cuts anything off, never are there two leaders at a
time, one replica has no followers and one voter no voters, nobody recovers, all topics are compacted, which are not
looked at. The quorum and the controller of their own give each of the others work."""

_NEEDED: Final = ("seed", "steps", "looks", "checks", "findings")


def check(run: Run) -> Outcome:
    """Read the oracles' record, and take over what they found."""
    if run.description.world != SIMULATION:
        return Outcome(NOT_APPLICABLE, "only a simulated run lets its brokers' state be seen at every step")
    record = _read(run.directory / RECORD)
    if isinstance(record, str):
        return Outcome(UNKNOWN, record, doubts=(record,))
    anomalies = tuple(_anomalies(record["findings"]))
    doubts = tuple(_doubts(run, record))
    if anomalies:
        return Outcome(FAIL, f"{len(anomalies)} oracles failed, each for a log", anomalies, doubts)
    if doubts:
        return Outcome(UNKNOWN, "the oracles' record is not whole", doubts=doubts)
    comparisons = sum(record["checks"].values())
    return Outcome(PASS, f"{comparisons:,} comparisons by {len(ANOMALIES)} oracles over {record['steps']:,} steps")


def _read(path: Path) -> Mapping[str, Any] | str:
    """The record, or why there is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"{RECORD} is missing: nothing says what the oracles saw"
    except (OSError, ValueError) as error:
        return f"{RECORD} cannot be read: {error}"
    lacking = [key for key in _NEEDED if key not in record] if isinstance(record, dict) else list(_NEEDED)
    if lacking:
        return f"{RECORD} lacks {', '.join(lacking)}"
    known: Mapping[str, Any] = record
    return known


def _doubts(run: Run, record: Mapping[str, Any]) -> Iterator[str]:
    """What of the record is missing, or of another run."""
    try:
        summary = json.loads((run.directory / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield f"{SUMMARY}, against which {RECORD} is held, cannot be read: {error}"
        return
    for key in ("seed", "digest", "steps"):
        if record.get(key) != summary.get(key) or key not in summary:
            yield f"{RECORD} is of {key} {record.get(key)!r}, the simulation of {summary.get(key)!r}"
    if not record["looks"]:
        yield "the oracles never looked"
    for kind in ANOMALIES:
        if kind.name not in record["checks"]:
            yield f"{RECORD} says nothing of the oracle {kind.name}"
        elif not record["checks"][kind.name] and kind.name not in MAY_REST:
            yield f"the oracle {kind.name} compared nothing"


def _anomalies(findings: Any) -> Iterator[Anomaly]:
    for found in findings:
        sentence = f"{found['sentence']} ({found['at']:.3f} s after the simulation began)"
        yield Anomaly(
            found["oracle"], found["topic"], found["partition"], sentence, tuple(found["witness"]), found["count"]
        )


CHECKER: Final = Checker(
    "oracles",
    "Did the brokers of a simulated run keep, at every step, what they promise to each other?",
    27,
    ANOMALIES,
    check,
)
