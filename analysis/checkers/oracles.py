"""What the oracles of a simulated run have found: they look after every step at the brokers' own state and disks.

Their record is `history/oracles.json`. It is believed only when it is of this run and of all of it: it says the run's
name, seed and digest, every oracle with what it compared, and as many steps as the simulation took. Of any other record
not even a finding is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history import strict_json
from history.journal import CLIENT
from history.regular_files import read_bytes

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
        "A leader was elected, or committed, while one of an older epoch still had its lease.",
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
        "A leader that was elected uncleanly appended to its log, or committed, before its recovery was over, or would "
        "have answered whoever had asked it then.",
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
    AnomalyKind(
        "led-without-votes",
        SAFE_STATE,
        "A node led an epoch of the quorum for which a majority of the voters had not voted for it.",
        ("K595-21",),
    ),
    AnomalyKind(
        "leads-unheard",
        SAFE_STATE,
        "A leader of the quorum would have led on for more than one and a half fetch timeouts, or for ever, while no "
        "majority of the voters fetched from it.",
        ("K595-43", "H19"),
    ),
    AnomalyKind(
        "snapshot-mismatch",
        SAFE_STATE,
        "A snapshot of the metadata log does not hold what the records in front of its end come to, or would not, had "
        "there been one at that moment.",
        ("H16", "K704-9"),
    ),
    AnomalyKind(
        "isr-would-be-granted",
        SAFE_STATE,
        "The controller would have granted an ISR that it must refuse, had a broker asked for it at that moment.",
        ("H13", "H14", "H15", "K704-4"),
    ),
    AnomalyKind(
        "fetch-would-be-counted",
        SAFE_STATE,
        "A leader would have counted a fetch of another epoch, of a log that parts from its own, or of an earlier "
        "process than it has heard of, had there been one at that moment.",
        ("H3", "H6", "H15"),
    ),
    AnomalyKind(
        "request-would-be-answered",
        SAFE_STATE,
        "A leader would have answered a Fetch, ListOffsets or OffsetForLeaderEpoch that names another epoch than its "
        "own, or a consumer while it had no lease, had there been one at that moment.",
        ("H3", "H31"),
    ),
    AnomalyKind(
        "commit-would-be-taken",
        SAFE_STATE,
        "A coordinator would have taken an OffsetCommit of another generation than its group was in, had there been "
        "one at that moment.",
        ("CG-1",),
    ),
    AnomalyKind(
        "producers-contradict-log",
        SAFE_STATE,
        "What a replica knows of idempotent producers is not what the batches of its log say.",
        ("K98-6", "K98-7", "K98-8"),
    ),
    AnomalyKind(
        "sequence-gap",
        SAFE_STATE,
        "A log holds a batch of an idempotent producer whose first sequence is not the next one: what the producer "
        "sent in between is refused for ever, or is there twice.",
        ("K98-2", "K98-10"),
    ),
    AnomalyKind(
        "offsets-contradict-log",
        SAFE_STATE,
        "A coordinator would have shown an offset of a group that was not committed, or not one that was.",
        ("CG-3", "CG-4"),
    ),
    AnomalyKind(
        "batch-not-valid",
        SAFE_STATE,
        "A log holds a batch whose checksum, counts or length its own bytes contradict.",
        ("K101-13",),
    ),
    AnomalyKind(
        "stands-still",
        SAFE_STATE,
        "A majority of the voters and enough in-sync replicas were untouched by faults for longer than the bound, and "
        "no leader was there, or it committed nothing of what it had.",
        ("K595-43", "H14"),
    ),
    AnomalyKind(
        "isr-keeps-unreachable",
        SAFE_STATE,
        "A replica that no other broker could reach for longer than the bound stayed in the ISR, while a majority of "
        "the voters and another member were untouched by faults.",
        ("H14",),
    ),
)


@dataclass(frozen=True)
class Rest:
    """Why an oracle may have compared nothing, and whether that is so of a run; what no plan says is taken to be."""

    why: str
    holds: Callable[[CheckedRun], bool] = lambda _: True


def _one_voter(run: CheckedRun) -> bool:
    told = {each["quorum.voters"] for each in run.description.settings if "quorum.voters" in each}
    return told == {"1"} or run.description.nodes == 1


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
    "counted-not-shared": Rest("there was no follower"),
    "followed-unmatched": Rest("no follower had a record when it began"),
    "served-in-recovery": Rest("no leader had to recover"),
    "vote-against-log": Rest("nobody was voted for by another"),
    "leads-unheard": Rest("one voter alone is a majority", _one_voter),
    "isr-would-be-granted": Rest("no partition had a second replica", _one_replica),
    "fetch-would-be-counted": Rest("no partition had a second replica", _one_replica),
    "request-would-be-answered": _COMPACTED,
    "commit-would-be-taken": Rest("no group had a member", _no_member),
    "producers-contradict-log": _COMPACTED,
    "sequence-gap": Rest("no producer was idempotent, or compacted logs are not looked at"),
    "offsets-contradict-log": Rest("no group had a member", _no_member),
    "stands-still": Rest("no majority was untouched for as long as the bound"),
    "isr-keeps-unreachable": Rest("no member of an ISR was out of reach while a majority was untouched"),
}
"""Oracles that may have compared nothing in a run of which all is seen, and when. Every other one compares in each run
that elects a leader of the quorum and commits metadata with a topic, which none can do without."""

OF_QUORUM: Final = frozenset(
    (
        "committed-without-majority",
        "vote-before-disk",
        "vote-against-log",
        "committed-old-epoch",
        "led-without-votes",
        "leads-unheard",
        "snapshot-mismatch",
    )
)
"""Oracles of the quorum alone."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Finding(msgspec.Struct):
    """An oracle's first failure for a log, `at` so many virtual seconds, and how often there was one."""

    oracle: str
    topic: str
    partition: int
    at: float
    sentence: str
    witness: tuple[dict[str, Any], ...]
    count: Annotated[int, msgspec.Meta(ge=1)]


class _Simulated(msgspec.Struct):
    """Which simulation it was: of which run, with which seed of its world, what happened, in how many steps."""

    run: str
    seed: int
    digest: str
    steps: _Count


class _Record(_Simulated):
    """`looks`: at brokers; `checks`: comparisons by oracle; `of_quorum`: those of the metadata log, None where that was
    not told."""

    looks: _Count
    checks: dict[str, _Count]
    findings: tuple[_Finding, ...]
    of_quorum: dict[str, _Count] | None = None


Read = TypeVar("Read", bound=_Simulated)

UNREAD: Final = Reason("oracles-unread", "The record of the oracles is missing, not whole or of another run.")
IDLE: Final = Reason("oracle-idle", "An oracle compared nothing in a run in which it has to.")


def check(run: CheckedRun) -> Outcome:
    """Read the oracles' record, and take over what they found: when it is this run's, and whole."""
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
        return Outcome(FAIL, f"{len(anomalies)} oracles failed, each for a log", anomalies, resting)
    if resting:
        return Outcome(UNKNOWN, f"{len(resting)} oracles compared nothing", doubts=resting)
    comparisons = sum(record.checks.values())
    limit = "".join(
        f"; {name} had nothing to compare: {rest.why}" for name, rest in MAY_REST.items() if not record.checks[name]
    )
    told = f"{comparisons:,} comparisons by {len(ANOMALIES)} oracles over {record.steps:,} steps"
    return Outcome(PASS, told + _of_partitions(record) + limit)


def _of_partitions(record: _Record) -> str:
    """How much of it was about partitions, and what only about the quorum, though it is about both."""
    if record.of_quorum is None:
        return ""
    left = {name: count - record.of_quorum.get(name, 0) for name, count in record.checks.items()}
    idle = [name for name, count in left.items() if not count and record.checks[name] and name not in OF_QUORUM]
    return f", {sum(left.values()):,} of them of partitions" + (f" (none by {', '.join(idle)})" if idle else "")


class _UnreadableError(Exception):
    """A file that is not there or is not what it should be; the message names it."""


def _read(run: CheckedRun, name: str, kind: type[Read]) -> Read:
    """Raises `_UnreadableError`."""
    try:
        return msgspec.convert(strict_json.decode(read_bytes(run.directory / name)), type=kind)
    except FileNotFoundError:
        raise _UnreadableError(f"{name} is missing: nothing says what the oracles saw") from None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise _UnreadableError(f"{name} cannot be read: {error}") from error


def _not_whole(run: CheckedRun, record: _Record) -> Iterator[str]:
    """What of the record is missing, or of another run. Raises `_UnreadableError`."""
    if record.run != run.description.id:
        yield f"{RECORD} is of the run {record.run}, run.toml of {run.description.id}"
    summary = _read(run, SUMMARY, _Simulated)
    for key in _Simulated.__struct_fields__:
        ours, its = getattr(record, key), getattr(summary, key)
        if ours != its:
            yield f"{RECORD} is of {key} {ours!r}, the simulation of {its!r}"
    if not (record.looks and record.steps):
        yield f"the oracles never looked: {record.looks} looks in {record.steps} steps"
    known = {kind.name for kind in ANOMALIES}
    yield from (f"{RECORD} says nothing of the oracle {name}" for name in sorted(known - record.checks.keys()))
    strange = (record.checks.keys() | {found.oracle for found in record.findings}) - known
    yield from (f"{RECORD} speaks of {name}, which is no oracle" for name in sorted(strange))


def _resting(run: CheckedRun, record: _Record) -> Iterator[str]:
    """Oracles that ought to have compared something."""
    for kind in ANOMALIES:
        rest = MAY_REST.get(kind.name)
        if not record.checks[kind.name] and not (rest is not None and rest.holds(run)):
            yield f"the oracle {kind.name} compared nothing"


def _anomaly(found: _Finding) -> Anomaly:
    sentence = f"{found.sentence} ({found.at:.3f} s after the simulation began)"
    return Anomaly(found.oracle, found.topic, found.partition, sentence, found.witness, found.count)


CHECKER: Final = Checker(
    "oracles",
    "Did the brokers of a simulated run keep, at every step, what they promise to each other?",
    27,
    ANOMALIES,
    check,
    (UNREAD, IDLE),
    may_rest=lambda description: description.world != SIMULATION,
    reads="|".join(map(re.escape, (RECORD, SUMMARY))),
)
