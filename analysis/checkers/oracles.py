"""What the oracles of a simulated run have found: they look after every step at the brokers' own state and disks.

The oracles' record is `history/oracles.json`. It is believed only if it is complete and of this run: it has the run's
name, every oracle with its number of comparisons, and the number of the simulation's steps. `simulation.json`, with
the digest of the simulation, must be there and of this run, too. Another record is rejected with its findings.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.evidence.run_toml import SIMULATION
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history import strict_json
from history.journal.writer import CLIENT
from history.regular_files import read_bytes
from installation.counted import counted
from installation.sanitize import quoted

RECORD: Final = "history/oracles.json"
SUMMARY: Final = "simulation.json"

SAFE_STATE: Final = Promise("ORC", "the brokers keep their promises to each other at every step")


def _unsafe(name: str, meaning: str, guards: tuple[str, ...]) -> AnomalyKind:
    return AnomalyKind(name, SAFE_STATE, meaning, guards)


ANOMALIES: Final = (
    _unsafe(
        "epoch-fell",
        "A replica or voter used an older epoch than before, in memory or, after a restart, from disk.",
        ("K101-1", "K595-5", "K595-14"),
    ),
    _unsafe(
        "high-watermark-fell",
        "A replica's high watermark decreased during the life of its process, without an unclean election.",
        ("H5", "H9", "H25"),
    ),
    _unsafe(
        "two-leaders-of-one-epoch",
        "Two processes led one epoch of a partition or of the quorum; the disks of dead nodes count.",
        ("H18", "K595-13", "K595-14", "K595-21"),
    ),
    _unsafe(
        "committed-without-majority",
        "The quorum's leader committed a record that is not in the logs of a majority of the voters.",
        ("K595-36",),
    ),
    _unsafe(
        "log-mismatch",
        "Two logs have different records at one offset of one epoch, or the same records after different ones.",
        ("H1", "H3", "H11", "K595-35", "K101-10"),
    ),
    _unsafe(
        "leader-incomplete",
        "A leader that was elected cleanly, or as the most complete replica, lacks committed records.",
        ("H16", "K595-18", "K704-1"),
    ),
    _unsafe(
        "isr-too-narrow", "A leader counts fewer replicas than those from which the controller may elect.", ("H13",)
    ),
    _unsafe(
        "committed-not-durable",
        "Committed records were only in the page cache: of a majority of the voters, or of an in-sync "
        "replica that must flush them.",
        ("K595-7",),
    ),
    _unsafe(
        "high-watermark-invalid",
        "A high watermark is past the end of the log, of an in-sync replica or of what leaders "
        "committed, or rose with fewer than min.insync.replicas.",
        ("H6", "H7", "H13", "H15", "H16"),
    ),
    _unsafe("committed-prefix-changed", "A replica truncated committed records.", ("K101-7", "H25", "K595-40")),
    _unsafe(
        "vote-before-disk",
        "A voter sent an epoch or a vote that was not certainly on its disk.",
        ("K595-13", "K595-19", "K595-31"),
    ),
    _unsafe(
        "lease-shared",
        "A leader was elected, or committed, while the leader of an older epoch still had its lease, or the "
        "controller would have let this happen: it did not know of a lease, or took a late commit for a proof that it "
        "leads.",
        ("H31",),
    ),
    _unsafe(
        "epochs-contradict-log",
        "A replica's epochs, in memory or in the epoch file, differ from those of its log's records.",
        ("K101-3", "K101-8", "K101-12", "H8", "H10", "H27"),
    ),
    _unsafe(
        "isr-not-granted",
        "The controller has a replica in an ISR that is unreachable, that runs another process than the "
        "one whose fetches were counted, or that its leader has not requested for that state.",
        ("H13", "H14", "H15"),
    ),
    _unsafe(
        "election-not-allowed",
        "The controller elected a replica that was not eligible, skipped the recovery of an uncleanly elected one, or "
        "would have decided wrongly about a hypothetical request of an administrator or a broker.",
        ("K704-1", "K704-4", "K704-9"),
    ),
    _unsafe(
        "member-incomplete",
        "A replica that is in the ISR, proposed for it or eligible to lead lacks committed records, or may lack them.",
        ("H5", "H16"),
    ),
    _unsafe(
        "counted-not-shared",
        "A leader counts records that a follower does not have, or a fetch of an older epoch.",
        ("H3", "H6", "H15"),
    ),
    _unsafe(
        "followed-unmatched",
        "A follower started to fetch after a log prefix that differs from its leader's, or a hypothetical one would "
        "have started at a wrong offset of its leader's log.",
        ("H1", "K101-7", "H29", "H34", *(f"K1023-{number}" for number in range(4, 11))),
    ),
    _unsafe(
        "served-in-recovery",
        "An uncleanly elected leader appended, or committed, before the end of its recovery, or would "
        "have answered a hypothetical request during it.",
        ("K704-5",),
    ),
    _unsafe("vote-against-log", "A voter voted for a candidate whose log is behind its own.", ("K595-18",)),
    _unsafe(
        "committed-old-epoch", "The quorum's leader committed up to a record of an epoch before its own.", ("K595-36",)
    ),
    _unsafe(
        "led-without-votes",
        "A node led an epoch of the quorum without the votes of a majority of the voters.",
        ("K595-21",),
    ),
    _unsafe(
        "leads-unheard",
        "A leader of the quorum would have led for more than 1.5 fetch timeouts without fetches from a "
        "majority of the voters.",
        ("K595-43", "H19"),
    ),
    _unsafe(
        "snapshot-mismatch",
        "A snapshot of the metadata log, real or hypothetical, differs from the state that results from "
        "the records before its end.",
        ("H16", "K704-9"),
    ),
    _unsafe(
        "isr-would-be-granted",
        "The controller would have granted a hypothetical request for an ISR that it must reject.",
        ("H13", "H14", "H15", "K704-4"),
    ),
    _unsafe(
        "fetch-would-be-counted",
        "A leader would have counted a hypothetical fetch of another epoch, of a diverging log, or of an "
        "earlier process of the follower.",
        ("H3", "H6", "H15"),
    ),
    _unsafe(
        "request-would-be-answered",
        "A leader would have answered a hypothetical Fetch, ListOffsets or OffsetForLeaderEpoch with "
        "another epoch than its own, or a consumer while it had no lease.",
        ("H3", "H31"),
    ),
    _unsafe(
        "quorum-request-would-be-taken",
        "A member of the quorum would have reacted wrongly to a hypothetical request, answer, restart or shutdown.",
        (
            *(
                f"K595-{number}"
                for number in (*range(12, 15), *range(16, 20), *range(21, 30), 32, 33, 34, 35, 36, 39, 42)
            ),
            *("K595-43", "K595-47", "H7", "H18", "H22", "H24", "H30"),
        ),
    ),
    _unsafe(
        "commit-would-be-taken",
        "A coordinator of groups would have answered a hypothetical request of a client wrongly, or have missed the "
        "end of a session or of a rebalance.",
        ("CG-1", "CG-2", "CG-3", "CG-4"),
    ),
    _unsafe(
        "producers-contradict-log",
        "A replica's state of idempotent producers differs from the batches of its log, or its leader would have "
        "answered a hypothetical batch wrongly.",
        ("K98-3", "K98-4", "K98-6", "K98-7", "K98-8"),
    ),
    _unsafe(
        "sequence-gap",
        "A log holds a batch of an idempotent producer whose first sequence is not the next one: the "
        "batches in between are rejected forever, or are duplicated.",
        ("K98-2", "K98-10"),
    ),
    _unsafe(
        "offsets-contradict-log",
        "A coordinator would have returned an uncommitted offset of a group, or omitted a committed one.",
        ("CG-3", "CG-4"),
    ),
    _unsafe(
        "batch-not-valid", "A log holds a batch whose checksum, counts or length do not match its bytes.", ("K101-13",)
    ),
    _unsafe(
        "stands-still",
        "A majority of the voters and enough in-sync replicas were unaffected by faults for longer than "
        "the bound, and there was no leader, or it committed nothing; or a broker never returned to its event loop.",
        ("K595-43", "H14"),
    ),
    _unsafe(
        "isr-keeps-unreachable",
        "A replica that was unreachable from all brokers for longer than the bound stayed in the ISR, "
        "while a majority of the voters and another member were unaffected by faults.",
        ("H14",),
    ),
    _unsafe(
        "recovery-point-ahead",
        "The recovery point on a node's disk is past the part of the log on that disk.",
        ("LOG-2", "LOG-3"),
    ),
    _unsafe(
        "answered-start-fell",
        "A leader's log starts before an offset below which DeleteRecords has deleted the records, as it was answered.",
        ("K107-1", "K107-2"),
    ),
    _unsafe(
        "assignment-contradicts-log",
        "A coordinator would have shown an assignment that is not committed, or the log of groups has two assignments "
        "of one generation, an older generation after a newer one, or a partition with two owners.",
        ("CG-1",),
    ),
    _unsafe("producer-id-shared", "Two processes of brokers may have assigned the same producer id.", ("K98-1",)),
    _unsafe(
        "log-start-fell",
        "The start of a replica's log decreased during the life of its process, and the log was not replaced.",
        ("K107-1",),
    ),
)


@dataclass(frozen=True)
class Rest:
    """Why an oracle may have compared nothing, and whether that applies to a run; without a plan it applies."""

    why: str
    holds: Callable[[CheckedRun], bool] = lambda _: True


def _one_voter(run: CheckedRun) -> bool:
    voters = {settings["quorum.voters"] for settings in run.description.setting_layers if "quorum.voters" in settings}
    return voters == {"1"} or run.description.topology.nodes == 1


def _one_replica(run: CheckedRun) -> bool:
    return all(len(nodes) < 2 for nodes in run.plan.replicas.values())


def _no_member(run: CheckedRun) -> bool:
    return not any(line["event"] == CLIENT and line["role"] == "member" for line in run.history.journal)


_COMPACTED: Final = Rest("compacted logs are not looked at")
MAY_REST: Final[Mapping[str, Rest]] = {
    "committed-prefix-changed": Rest("no log was cut"),
    "isr-too-narrow": _COMPACTED,
    "lease-shared": Rest("there never were two leaders at a time"),
    "member-incomplete": _COMPACTED,
    "counted-not-shared": Rest("a leader never had a follower"),
    "followed-unmatched": Rest("no follower had a record when it started"),
    "served-in-recovery": Rest("no leader had to recover"),
    "vote-against-log": Rest("no node voted for another"),
    "leads-unheard": Rest("one voter alone is a majority", _one_voter),
    "isr-would-be-granted": Rest("no partition had a second replica", _one_replica),
    "fetch-would-be-counted": Rest("no partition had a second replica", _one_replica),
    "request-would-be-answered": _COMPACTED,
    "quorum-request-would-be-taken": Rest("one voter alone is a majority", _one_voter),
    "commit-would-be-taken": Rest("no group had a member", _no_member),
    "producers-contradict-log": _COMPACTED,
    "sequence-gap": Rest("no producer was idempotent, or compacted logs are not looked at"),
    "offsets-contradict-log": Rest("no group had a member", _no_member),
    "stands-still": Rest("no majority was untouched for as long as the bound"),
    "recovery-point-ahead": Rest("no recovery point was written, or compacted logs are not looked at"),
    "answered-start-fell": Rest("no deletion of records was answered"),
    "assignment-contradicts-log": Rest("no group had a member", _no_member),
    "producer-id-shared": Rest("no broker had ids of producers to assign"),
    "log-start-fell": Rest("no log's start has moved"),
    "isr-keeps-unreachable": Rest("no member of an ISR was out of reach while a majority was untouched"),
}
"""Oracles that may have compared nothing in a complete run, and when. Every other one compares in each run that elects
a leader of the quorum and commits metadata with a topic; every complete run does both."""

OF_QUORUM: Final = frozenset(
    (
        "committed-without-majority",
        "vote-before-disk",
        "vote-against-log",
        "committed-old-epoch",
        "led-without-votes",
        "leads-unheard",
        "quorum-request-would-be-taken",
        "snapshot-mismatch",
    )
)
"""Oracles of the quorum alone."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Finding(msgspec.Struct):
    """An oracle's first failure for a log, its time `at` in virtual seconds, and the number of failures."""

    oracle: str
    topic: str
    partition: int
    at: float
    sentence: str
    witness: tuple[dict[str, Any], ...]
    count: Annotated[int, msgspec.Meta(ge=1)]


class _Simulated(msgspec.Struct):
    """The simulation of a run, and its number of steps."""

    run: str
    steps: _Count


class _Record(_Simulated):
    """`looks`: visits of brokers; `checks`: comparisons by oracle; `of_quorum`: those about the metadata log, None if
    unknown."""

    looks: _Count
    checks: dict[str, _Count]
    findings: tuple[_Finding, ...]
    of_quorum: dict[str, _Count] | None = None


Read = TypeVar("Read", bound=_Simulated)

UNREAD: Final = Reason("oracles-unread", "The record of the oracles is missing, incomplete or of another run.")
IDLE: Final = Reason("oracle-idle", "An oracle made no comparison in a run in which it must.")


def check(run: CheckedRun) -> Outcome:
    """Read the oracles' record and report its findings, if it is of this run and complete."""
    if run.description.world != SIMULATION:
        if strange := [name for name in (RECORD, SUMMARY) if (run.directory / name).exists()]:
            doubt = (
                f"the run is of the {run.description.world} world, and has {strange[0]}, as only simulated ones have"
            )
            return Outcome(UNKNOWN, doubt, doubts=(doubt,))
        return Outcome(NOT_APPLICABLE, "only a simulated run lets its brokers' state be seen at every step")
    try:
        record = _read(run, RECORD, _Record)
        doubts = tuple(_not_whole(run, record))
    except _UnreadableError as error:
        return Outcome(UNKNOWN, str(error), doubts=(str(error),))
    if doubts:
        return Outcome(UNKNOWN, "the oracles' record is not whole", doubts=doubts)
    anomalies, resting = tuple(map(_anomaly, record.findings)), IDLE.say(_resting(run, record))
    if anomalies:
        return Outcome(FAIL, f"{counted(len(anomalies), 'oracle')} failed, counted per log", anomalies, resting)
    if resting:
        return Outcome(UNKNOWN, f"{counted(len(resting), 'oracle')} compared nothing", doubts=resting)
    comparisons = sum(record.checks.values())
    limit = "".join(
        f"; {name} had nothing to compare: {permission.why}"
        for name, permission in MAY_REST.items()
        if not record.checks[name]
    )
    text = f"{counted(comparisons, 'comparison')} by {len(ANOMALIES)} oracles over {counted(record.steps, 'step')}"
    return Outcome(PASS, text + _of_partitions(record) + limit)


def _of_partitions(record: _Record) -> str:
    """The number of comparisons about partitions, and the oracles for both that compared only the quorum."""
    if record.of_quorum is None:
        return ""
    of_partitions = {name: count - record.of_quorum.get(name, 0) for name, count in record.checks.items()}
    idle = [
        name for name, count in of_partitions.items() if not count and record.checks[name] and name not in OF_QUORUM
    ]
    return f", {sum(of_partitions.values()):,} of them of partitions" + (
        f" (none by {', '.join(idle)})" if idle else ""
    )


class _UnreadableError(Exception):
    """A file that is missing or invalid; the message names it."""


def _read(run: CheckedRun, name: str, kind: type[Read]) -> Read:
    """Raises `_UnreadableError`."""
    try:
        return msgspec.convert(strict_json.decode(read_bytes(run.directory / name)), type=kind)
    except FileNotFoundError:
        raise _UnreadableError(f"{name} is missing: nothing says what the oracles saw") from None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise _UnreadableError(f"{name} cannot be read: {error}") from error


def _not_whole(run: CheckedRun, record: _Record) -> Iterator[str]:
    """What is missing from the record, or is of another run. Raises `_UnreadableError`."""
    for name, content in ((RECORD, record), (SUMMARY, _read(run, SUMMARY, _Simulated))):
        if content.run != run.description.run:
            yield f"{name} is of the run {quoted(content.run)}, run.toml of {quoted(run.description.run)}"
    if not (record.looks and record.steps):
        yield f"the oracles never looked: {record.looks} looks in {record.steps} steps"
    oracles = {kind.name for kind in ANOMALIES}
    yield from (f"{RECORD} says nothing of the oracle {name}" for name in sorted(oracles - record.checks.keys()))
    strange = (record.checks.keys() | {finding.oracle for finding in record.findings}) - oracles
    yield from (f"{RECORD} speaks of {name}, which is not an oracle" for name in sorted(strange))


def _resting(run: CheckedRun, record: _Record) -> Iterator[str]:
    """Oracles that compared nothing though they had to."""
    for kind in ANOMALIES:
        permission = MAY_REST.get(kind.name)
        if not record.checks[kind.name] and not (permission is not None and permission.holds(run)):
            yield f"the oracle {kind.name} compared nothing"


def _anomaly(finding: _Finding) -> Anomaly:
    sentence = f"{finding.sentence} ({finding.at:.3f} s after the simulation started)"
    return Anomaly(finding.oracle, finding.topic, finding.partition, sentence, finding.witness, finding.count)


CHECKER: Final = Checker(
    "oracles",
    "Did the brokers of a simulated run keep their promises to each other at every step?",
    27,
    ANOMALIES,
    check,
    (UNREAD, IDLE),
    may_rest=lambda description: description.world != SIMULATION,
    reads="|".join(map(re.escape, (RECORD, SUMMARY))),
)
