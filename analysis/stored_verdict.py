"""Decides whether the stored verdict of a run can be believed: it must be complete, of a finished analysis, consistent,
about this run, and about the files that are in the directory now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from analysis.analysis_revision import revision
from analysis.checker import Checker
from analysis.checker_registry import CHECKERS
from analysis.evidence.run_directory import SHARE_DIGITS, RunDescription, RunDirectoryError, describe
from analysis.expectation import unmet
from analysis.verdict import (
    CERTIFICATE,
    FAIL,
    NOT_APPLICABLE,
    PASS,
    UNKNOWN,
    VERDICT_FILE,
    Verdict,
    digest_of_certificate,
)
from history import seal, strict_toml
from history.known_digests import digest_of
from history.regular_files import read_text
from installation.commands import command
from installation.sanitize import quoted

_VERDICTS: Final = (PASS, FAIL, UNKNOWN)


@dataclass(frozen=True)
class StoredVerdict:
    """A run's directory and its verdict.

    `verdict`, `description`: None if it cannot be read. `doubts`: why the verdict cannot be believed, as
    sentences. `is_own`: it is a finished verdict about this run. `system`: the name of the system under test,
    `started`: when the run started, in ISO 8601; both empty if run.toml does not say. `digest`: the SHA-256 of
    verdict.json, empty if it cannot be read.
    """

    verdict: Verdict | None
    description: RunDescription | None
    doubts: tuple[str, ...]
    is_own: bool = False
    system: str = ""
    started: str = ""
    digest: str = ""

    @property
    def proves_failure(self) -> bool:
        """A proven anomaly remains proven when files have changed since, or another version of the analysis is
        installed."""
        verdict = self.verdict
        return (
            verdict is not None
            and self.is_own
            and verdict.verdict == FAIL
            and (bool(verdict.anomalies) or any(check.verdict == FAIL for check in verdict.checks))
        )

    def believed(self, verdict: Verdict) -> Verdict:
        """The stored verdict as reports show it: unknown if it cannot be believed; a proven failure stays a failure and
        also shows the doubts about its record."""
        if not self.doubts:
            return verdict
        if self.proves_failure:
            return replace(verdict, doubts=(*verdict.doubts, *self.doubts))
        reasons = tuple(dict.fromkeys((*self.doubts, *verdict.reasons)))
        return replace(verdict, verdict=UNKNOWN, met=False, reasons=reasons)


def standing_of(run_dir: Path, *, any_analysis: bool = False) -> StoredVerdict:
    """Read and examine a run's directory; no content of it raises. `any_analysis`: accept a verdict of another version
    of the analysis."""
    try:
        content = strict_toml.decode(read_text(run_dir / "run.toml"))
        description = describe(run_dir)
    except FileNotFoundError:
        return StoredVerdict(None, None, ("there is no run.toml: the run was started and never described",))
    except (RunDirectoryError, OSError, ValueError, TypeError, AttributeError) as error:
        return StoredVerdict(None, None, (f"run.toml cannot be understood: {error}",))
    tested = content.get("system")
    known = StoredVerdict(
        None,
        description,
        (),
        system=_text(tested, "name") if isinstance(tested, dict) else "",
        started=_text(content, "started"),
    )
    again = f"analyze it with: {command('analyze', str(run_dir))}"
    try:
        known = replace(known, digest=digest_of(str(run_dir / VERDICT_FILE)))  # first: a verdict that changes is stale
        verdict = Verdict.read(run_dir / VERDICT_FILE, any_form=any_analysis)
    except FileNotFoundError:
        return replace(known, doubts=(f"no verdict yet; {again}",))
    except (OSError, ValueError) as error:
        return replace(known, doubts=(f"the verdict cannot be read: {error}",))
    if not verdict.finished:
        doubts = verdict.reasons or (f"the verdict is of an analysis that has not finished; {again}",)
        return replace(known, verdict=verdict, doubts=doubts)
    foreign = tuple(_about_another(run_dir, verdict, description))
    doubts = (*foreign, *_contradictions(verdict, description), *_stale(run_dir, verdict, description, any_analysis))
    kept = (*doubts, again) if doubts else ()
    return replace(known, verdict=verdict, doubts=kept, is_own=not foreign)


def _about_another(run_dir: Path, verdict: Verdict, description: RunDescription) -> Iterator[str]:
    """Where verdict, run.toml and directory are about different runs."""
    if description.id != run_dir.name:
        yield f"run.toml is of another run, {quoted(description.id)}"
    for what, said, true in (
        ("run", verdict.run, run_dir.name),
        ("campaign", verdict.campaign, description.campaign),
        ("cell", verdict.cell, description.cell),
        ("seed", verdict.seed, description.seed),
    ):
        if said != true:
            yield f"the verdict is of another run: its {what} is {quoted(said)}, not {quoted(true)}"


def _contradictions(verdict: Verdict, description: RunDescription) -> Iterator[str]:
    """Where the verdict contradicts itself or the requirements of run.toml."""
    said = verdict.verdict
    failed = [check.name for check in verdict.checks if check.verdict == FAIL]
    if said not in _VERDICTS:
        yield f"the verdict is {quoted(said)}, which is not one of {', '.join(_VERDICTS)}"
    if said == FAIL and not verdict.anomalies and not failed:
        yield "the verdict is fail, but it names no failure"
    if said == UNKNOWN and not verdict.reasons:
        yield "the verdict is unknown, but it names no reason"
    if said != FAIL and (verdict.anomalies or failed):
        named = [*(anomaly.name for anomaly in verdict.anomalies), *failed]
        yield f"the verdict is {said}, but it has {', '.join(named)}"
    if said == PASS:
        yield from _unearned(verdict, description)
    for what, stored, true in (
        ("world", verdict.world, description.world),
        ("mutants", verdict.mutants, description.mutants),
        ("upper bound", verdict.upper_bound, description.requirements.upper_bound),
        ("limits", verdict.limits, description.limits),
        ("versions", dict(verdict.versions), dict(description.versions)),
    ):
        if stored != true:
            yield f"the verdict has {quoted(stored)} as the run's {what}, run.toml has {quoted(true)}"
    if verdict.expected != description.expected:
        yield f"the verdict was compared with {verdict.expected}, but run.toml expects {description.expected}"
    if verdict.met != (not unmet(verdict.expected, verdict)):
        yield f"the verdict says that {verdict.expected} was {'' if verdict.met else 'not '}met, which is wrong"


def _unearned(verdict: Verdict, description: RunDescription) -> Iterator[str]:
    """What a pass lacks."""
    spite = dict.fromkeys((*verdict.never_seen, *verdict.reasons, *verdict.doubts))
    if spite:
        yield f"the verdict is pass in spite of: {'; '.join(spite)}"
    resting = _may_rest(description)
    open_checks = [
        check.name
        for check in verdict.checks
        if check.verdict not in (PASS, FAIL) and not (check.verdict == NOT_APPLICABLE and check.name in resting)
    ]
    if open_checks:
        yield f"the verdict is pass, but its checks {', '.join(open_checks)} are not"
    if not any(check.verdict == PASS for check in verdict.checks):
        yield "the verdict is pass, but no check passed"
    skipped = _applicable(description) - {check.name for check in verdict.checks}
    if skipped:
        yield f"the verdict is pass without the checks {', '.join(sorted(skipped))}"
    unproven = [str(fault.get("id")) for fault in verdict.faults if fault.get("status") != "confirmed"]
    if unproven:
        yield f"the verdict is pass, but these faults are not confirmed: {', '.join(unproven)}"
    confirmed = {fault.get("kind") for fault in verdict.faults if fault.get("status") == "confirmed"}
    absent = [kind for kind in description.requirements.required_faults if kind not in confirmed]
    if absent:
        yield f"the verdict is pass without the required faults {', '.join(absent)}"
    yield from _too_little(verdict, description)
    yield from _little_of_the_plan(verdict, description)


def _too_little(verdict: Verdict, description: RunDescription) -> Iterator[str]:
    """Figures of a pass that are missing or below the run's requirements."""
    for key, true in (
        ("planned_changes", description.planned_changes),
        ("planned_queries", description.planned_queries),
    ):
        if verdict.stats.get(key) != true:
            yield f"the verdict is pass with {key} {quoted(verdict.stats.get(key))}, but run.toml says {true}"
    for key, what, least in (
        ("acknowledged", "changes were acknowledged", description.requirements.min_ok),
        ("queries_under_load", "queries were answered under load", description.requirements.min_queries),
    ):
        counted = verdict.stats.get(key)
        if type(counted) is not int:
            yield f"the verdict is pass, but it does not say how many {what}"
        elif counted < least:
            yield f"the verdict is pass, but {counted} {what}, where {least} are needed"


def _little_of_the_plan(verdict: Verdict, description: RunDescription) -> Iterator[str]:
    """A pass whose load was a smaller share of the plan than required. Verdicts round shares."""
    if not description.planned_changes:
        return
    share, needed = verdict.stats.get("achieved_share"), description.requirements.min_share
    if not isinstance(share, int | float):
        yield "the verdict is pass, but it does not say which share of the planned changes was acknowledged"
    elif share + 10**-SHARE_DIGITS / 2 < needed:
        yield f"the verdict is pass, but {share:.0%} of the planned changes were acknowledged, not {needed:.0%}"


def _may_rest(description: RunDescription) -> set[str]:
    """The names of the checks that may be n/a for such a run."""
    return {checker.name for checker in CHECKERS if checker.may_rest(description)}


def _certified(description: RunDescription) -> bool:
    """Whether a pass of such a run must have a certificate."""
    return any(checker.certify is not None for checker in _checkers(description))


def _checkers(description: RunDescription) -> list[Checker]:
    return [checker for checker in CHECKERS if checker.judge in (None, description.judge)]


def _applicable(description: RunDescription) -> set[str]:
    """The names of the checks that a pass of such a run must have."""
    certificate = {CERTIFICATE} if _certified(description) else set()
    return {checker.name for checker in _checkers(description)} | certificate


def _stale(run_dir: Path, verdict: Verdict, description: RunDescription, any_analysis: bool) -> Iterator[str]:
    """What has changed since the verdict was computed."""
    if verdict.analysis != revision() and not any_analysis:
        yield "the verdict was made by another version of the analysis"
    try:
        (there, unsealed), certificate = seal.examined(run_dir), digest_of_certificate(run_dir)
    except OSError as error:
        yield f"the evidence of the verdict cannot be read: {error}"
        return
    if verdict.evidence != there:
        yield "the verdict is stale: the run's files have changed since it was made"
    if verdict.verdict != PASS:
        return
    if verdict.evidence == there:  # the certificate is not in this digest, so it is compared separately
        yield from unsealed
    # A verdict of an older analysis may not name its certificate.
    is_said = bool(verdict.certificate) or not any_analysis
    if is_said and verdict.certificate != certificate:
        yield "the certificate of its pass is missing, or is not the verified one"
    elif is_said and not certificate and _certified(description):
        yield "the certificate of its pass is missing, and the verdict names none"


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else str(value or "")
