"""The operations on partition logs: appends, reads and end queries. `analysis/engines/log.py` states the theorem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, apart_from_forgotten
from analysis.core.anomaly import AnomalyKind, Promise, anomaly_count
from analysis.doubt import Reason
from analysis.verdict import CERTIFICATE, FAIL, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.incomplete_clients import Owners

WRITE_LOST: Final = Promise("AWL", "an acknowledged write persists")
ORDER: Final = Promise("SR", "reads and order respect real time")
PHANTOM: Final = Promise("PH", "reads return only what was written", stands_alone=True)
WATERMARK: Final = Promise("HWR", "the high watermark does not decrease")
OFFSET: Final = Promise("OFR", "an offset names one record")
DUPLICATE: Final = Promise("DUP", "a record has one offset")
GAP: Final = Promise("GAP", "no offset is skipped")

LOST: Final = AnomalyKind(
    "lost-acknowledged-write", WRITE_LOST, "A write was acknowledged, and it is not in the final log."
)
POLL_SKIP: Final = AnomalyKind("poll-skip", GAP, "A read skipped an offset between those that it returned.")
ANOMALIES: Final = (
    LOST,
    AnomalyKind("committed-then-truncated", WRITE_LOST, "A record was read, and it is not in the final log."),
    AnomalyKind("offset-mismatch", OFFSET, "Acknowledgements and reads show different records at one offset."),
    AnomalyKind("duplicate", DUPLICATE, "A record that was sent once has two offsets."),
    AnomalyKind("phantom", PHANTOM, "A read returned a record that no client sent to this partition."),
    AnomalyKind("aborted-read", PHANTOM, "A read returned a record whose append was rejected."),
    AnomalyKind("gap", GAP, "The log extends past an offset at which no record can be."),
    POLL_SKIP,
    AnomalyKind(
        "poll-regression",
        GAP,
        "A read returned an offset below the requested one or below one that it had already returned.",
    ),
    AnomalyKind("append-reorder", ORDER, "An append was invoked after one at a later offset had been acknowledged."),
    AnomalyKind("future-read", ORDER, "A read returned a record before it was sent, or past the end that it reported."),
    AnomalyKind("stale-read", ORDER, "A query omits a record that had been acknowledged before the query was sent."),
    AnomalyKind("session-violation", ORDER, "A client saw a shorter log than before."),
    AnomalyKind("producer-order", ORDER, "Two records of one producer are not in the order in which it sent them."),
    AnomalyKind(
        "non-monotonic-high-watermark", WATERMARK, "A query shows a shorter log than a query that had completed before."
    ),
)

UNDECIDED: Final = Reason(
    "log-undecided", "The clients' observations of a partition can be neither explained nor refuted."
)
NOT_READ: Final = Reason("final-read-missing", "A partition or a register was not read to its end after the last heal.")


def check(run: CheckedRun) -> Outcome:
    """Check all partitions under the campaign's level of upper bounds."""
    from analysis.core.rows import DamagedError
    from analysis.engines.log import report_of

    bound = run.description.checks.upper_bound
    try:
        plan, spread, checked = run.log_ranges
        report = report_of(checked, plan, spread, upper_bound=bound, owners=owners_of(run))
    except DamagedError as error:
        return Outcome(UNKNOWN, f"the operations cannot be checked: {error}")
    # Without `gap`: a skipped offset was certainly taken by an append, whether or not its record is still there.
    anomalies, forgotten = apart_from_forgotten(report.anomalies, POLL_SKIP.name, run.forgetting)
    unread = [place for place, partition in sorted(report.partitions.items()) if partition.final_end is None]
    doubts = [
        *forgotten,
        *report.undecided,
        *NOT_READ.say(f"{topic}-{partition} was not read to its end after healing" for topic, partition in unread),
    ]
    records = sum(partition.length for partition in report.partitions.values())
    size = f"{counted(records, 'record')} in {counted(len(report.partitions), 'partition')}"
    if report.ok:
        return Outcome(PASS, f"linearizable: {size}; upper bounds {bound}", doubts=tuple(doubts))
    if not anomalies:
        return Outcome(UNKNOWN, f"linearizable but for records that may be removed; {size}", (), tuple(doubts))
    return Outcome(FAIL, f"not linearizable: {anomaly_count(anomalies)}; {size}", anomalies, tuple(doubts))


def owners_of(run: CheckedRun) -> Owners:
    """The clients that may have sent unrecorded values."""
    from analysis.core.incomplete_clients import Owners

    return Owners(run.may_have_written, run.may_lack_writes)


def certify(run: CheckedRun) -> Outcome:
    """Write the linearization of a history without anomaly and have it confirmed by the verifier."""
    from analysis.engines.log import report_of, write_certificate
    from analysis.verifiers.log import CertificateError, verify

    bound = run.description.checks.upper_bound
    plan, spread, checked = run.log_ranges
    report = report_of(checked, plan, spread, upper_bound=bound)
    if not report.ok or report.undecided or not plan.rows:
        reason = "; ".join(report.undecided) or "the history is empty"
        return Outcome(UNKNOWN, f"no linearization could be written: {reason}")
    path = write_certificate(run.directory / CERTIFICATE, run.directory, plan, checked, spread, upper_bound=bound)
    try:
        return Outcome(PASS, verify(path.parent, run.directory, upper_bound=bound, spread=spread))
    except CertificateError as error:
        return Outcome(UNKNOWN, f"the verifier refused the certificate: {error}")


CHECKER: Final = Checker(
    "partition logs",
    "Do the clients' observations of each partition form one linearizable log?",
    10,
    ANOMALIES,
    check,
    (UNDECIDED, NOT_READ),
    judge="log",
    certify=certify,
    reads="|".join((PLAN, JOURNAL, OPERATIONS)),
)
