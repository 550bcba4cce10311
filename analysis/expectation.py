"""Decides whether a run meets the expectation of its campaign's cell.

Theory of operation. A cell expects a verdict. For *unknown* it names the accepted reasons: the run must have at least
one of them and no other. For *fail* it names an anomaly, and what must hold in addition, so that the expected bug
cannot hide a second one:

- `before-faults`: what was acknowledged before the first fault is in the final log;
- `above-uploads`: what was acknowledged above the last segment of remote storage is in the final log;
- `no-other-anomaly`: no anomaly besides the expected one and those that the cell names in `may_show`;
- `no-` and an anomaly's name: not this anomaly;
- a class of docs/anomalies.md: no anomaly of this class.

A cell does not tolerate another anomaly whose promise stands alone (`Promise.stands_alone`), because such an anomaly is
no consequence of a loss. The cell can name it in `may_show`, such as the exit of a broker that finds its metadata
wrong. Other anomalies are tolerated: replicas, oracles and readers may show the same loss. Invariant: a demand that was
not checked does not hold. The decision uses nothing but the verdict.

A cell with `at_least` expects a loss that needs luck: a run that passes is accepted, and the gate counts the runs of
the cell that failed as expected.
"""

from collections.abc import Iterator
from typing import Final

from analysis.checker_registry import CHECKERS, CLASSES, STANDING_ALONE
from analysis.checkers.partition_logs import CHECKER as PARTITION_LOGS
from analysis.checkers.partition_logs import NOT_READ
from analysis.core.anomaly import OWN
from analysis.doubt import CHECKER_CRASHED
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN, Expectation, Verdict
from installation.counted import counted

BEFORE_FAULTS: Final = "before-faults"
ABOVE_UPLOADS: Final = "above-uploads"
NO_OTHER: Final = "no-other-anomaly"
NO: Final = "no-"
LOST_BEFORE_FAULTS: Final = "lost_before_faults"
"""The statistic that decides `before-faults`; see `analysis.pipeline`."""
ACKNOWLEDGED_ABOVE_UPLOADS: Final = "acknowledged_above_uploads"
LOST_ABOVE_UPLOADS: Final = "lost_above_uploads"
"""The statistics that decide `above-uploads`; see `analysis.pipeline`."""
DEMANDS: Final = (
    BEFORE_FAULTS,
    ABOVE_UPLOADS,
    NO_OTHER,
    *(f"{NO}{name}" for name in CLASSES),
    *sorted(set(CLASSES.values())),
)
"""The demands that a cell can state in `must_hold`, besides anomalies and their classes."""


def contradicts(demand: str, anomaly: str | None) -> bool:
    """Whether the expected anomaly itself violates this demand."""
    return anomaly is not None and demand in (f"{NO}{anomaly}", _class_of(anomaly))


def _class_of(anomaly: str) -> str:
    """The class of an anomaly, by its name; a name that no checker declares is the campaign's own."""
    return CLASSES.get(anomaly, OWN.code)


def unmet(expected: Expectation, verdict: Verdict) -> tuple[str, ...]:
    """The parts of the expectation that the run did not meet, as sentences; empty if it is met."""
    if verdict.verdict == PASS and expected.at_least is not None:
        return ()
    if verdict.verdict != expected.verdict:
        return (f"the verdict is {verdict.verdict}, but {expected} was expected",)
    if verdict.verdict == UNKNOWN:
        return tuple(_other_reasons(expected, verdict))
    if verdict.verdict != FAIL:
        return ()
    names = {name for anomaly in verdict.anomalies for name in (anomaly.name, anomaly.kind)}
    if expected.anomaly not in (None, *names):
        return (f"the expected anomaly {expected.anomaly} was not found",)
    broken = (sentence for demand in expected.must_hold for sentence in _broken(demand, expected, verdict))
    return tuple(dict.fromkeys((*broken, *_standing_alone(expected, names))))


def _other_reasons(expected: Expectation, verdict: Verdict) -> Iterator[str]:
    if not expected.reasons:
        yield "the run is unknown, and its expectation names no accepted reason"
    elif not set(verdict.codes) & set(expected.reasons):
        yield f"the run has none of the expected reasons; its reasons are {', '.join(verdict.codes) or 'not named'}"
    elif unexpected := [code for code in verdict.codes if code not in expected.reasons]:
        yield f"the run is also unknown for other reasons: {', '.join(unexpected)}"


def _standing_alone(expected: Expectation, names: set[str]) -> Iterator[str]:
    if expected.anomaly is None:
        return
    for name in sorted(names - set(expected.may_show)):
        klass = _class_of(name)
        if klass in STANDING_ALONE and klass != _class_of(expected.anomaly):
            yield f"{name} was found, which is not a consequence of {expected.anomaly}"


def _broken(demand: str, expected: Expectation, verdict: Verdict) -> Iterator[str]:
    """Why a demand does not hold, as sentences."""
    if demand == BEFORE_FAULTS:
        yield from _lost_before_faults(verdict)
        return
    if demand == ABOVE_UPLOADS:
        yield from _lost_above_uploads(verdict)
        return
    accepted = set[str | None]()
    if demand == NO_OTHER:
        accepted = {expected.anomaly, *expected.may_show}
        forbidden = set(CLASSES) - accepted
    else:
        forbidden = {name for name, klass in CLASSES.items() if demand in (f"{NO}{name}", klass)}
    if not forbidden:
        yield f"{demand} is not a known demand, so it cannot be checked"
    names = {anomaly.name for anomaly in verdict.anomalies if anomaly.kind in forbidden}
    if names := names - set(accepted):
        yield f"{demand} must hold, but {', '.join(sorted(names))} was found"
    elif open_checks := _undecided(forbidden, verdict):
        yield f"{demand} must hold, but {', '.join(open_checks)} could not decide it"


def _undecided(names: set[str], verdict: Verdict) -> list[str]:
    """The checkers of this run that look for one of these anomalies and could not decide."""
    verdicts = {check.name: check.verdict for check in verdict.checks}
    looking = [checker.name for checker in CHECKERS if names & {kind.name for kind in checker.anomalies}]
    return [name for name in looking if verdicts.get(name, NOT_APPLICABLE) not in (PASS, FAIL, NOT_APPLICABLE)]


def _lost_before_faults(verdict: Verdict) -> Iterator[str]:
    lost = verdict.stats.get(LOST_BEFORE_FAULTS)
    if not _is_checked(verdict) or NOT_READ.code in verdict.codes or type(lost) is not int:
        yield f"{BEFORE_FAULTS} must hold, but the final reads of the log are incomplete"
    elif lost:
        loss = f"{counted(lost, 'record')} acknowledged before the first fault"
        yield f"{BEFORE_FAULTS} must hold, but the log lacks {loss}"


def _lost_above_uploads(verdict: Verdict) -> Iterator[str]:
    acknowledged, lost = (verdict.stats.get(name) for name in (ACKNOWLEDGED_ABOVE_UPLOADS, LOST_ABOVE_UPLOADS))
    if not _is_checked(verdict) or type(acknowledged) is not int or type(lost) is not int:
        yield f"{ABOVE_UPLOADS} must hold, but the final reads of the log or the remote metadata are incomplete"
    elif not acknowledged:
        yield f"{ABOVE_UPLOADS} must hold, but no record above remote storage was acknowledged"
    elif lost:
        loss = f"{counted(lost, 'record')} acknowledged above remote storage"
        yield f"{ABOVE_UPLOADS} must hold, but the log lacks {loss}"


def _is_checked(verdict: Verdict) -> bool:
    """Whether the clients' operations on logs could be checked."""
    verdicts = {check.name: check.verdict for check in verdict.checks}
    return verdicts.get(PARTITION_LOGS.name) in (PASS, FAIL) and CHECKER_CRASHED.code not in verdict.codes
