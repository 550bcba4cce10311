"""Decides whether the stored verdict of a run can be believed: it must be complete, of a finished analysis,
about this run, and about the files that are in the directory now."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.analysis_revision import revision
from analysis.checker_registry import CHECKERS
from analysis.evidence.run_directory import RunDescription, RunDirectoryError, describe
from analysis.verdict import FAIL, PASS, UNKNOWN, VERDICT_FILE, Verdict, digest_of_certificate
from history import seal, strict_toml
from history.known_digests import digest_of
from history.regular_files import read_text
from installation.commands import command
from installation.sanitize import quoted


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
    stored = StoredVerdict(
        None,
        description,
        (),
        system=_text(tested, "name") if isinstance(tested, dict) else "",
        started=_text(content, "started"),
    )
    remedy = f"analyze it with: {command('analyze', str(run_dir))}"
    try:
        stored = replace(
            stored, digest=digest_of(str(run_dir / VERDICT_FILE))
        )  # first: a verdict that changes is stale
        verdict = Verdict.read(run_dir / VERDICT_FILE, any_form=any_analysis)
    except FileNotFoundError:
        return replace(stored, doubts=(f"no verdict yet; {remedy}",))
    except (OSError, ValueError) as error:
        return replace(stored, doubts=(f"the verdict cannot be read: {error}",))
    if not verdict.finished:
        doubts = verdict.reasons or (f"the verdict is of an analysis that has not finished; {remedy}",)
        return replace(stored, verdict=verdict, doubts=doubts)
    foreign = tuple(_about_another(run_dir, verdict, description))
    doubts = (*foreign, *_stale(run_dir, verdict, description, any_analysis))
    reasons = (*doubts, remedy) if doubts else ()
    return replace(stored, verdict=verdict, doubts=reasons, is_own=not foreign)


def _about_another(run_dir: Path, verdict: Verdict, description: RunDescription) -> Iterator[str]:
    """Where verdict, run.toml and directory are about different runs."""
    if description.run != run_dir.name:
        yield f"run.toml is of another run, {quoted(description.run)}"
    for subject, recorded, actual in (
        ("run", verdict.run, run_dir.name),
        ("campaign", verdict.campaign, description.campaign),
        ("cell", verdict.cell, description.cell),
        ("seed", verdict.seed, description.seed),
    ):
        if recorded != actual:
            yield f"the verdict is of another run: its {subject} is {quoted(recorded)}, not {quoted(actual)}"


def _certified(description: RunDescription) -> bool:
    """Whether a pass of such a run must have a certificate."""
    judging = [checker for checker in CHECKERS if checker.judge in (None, description.workload.judge)]
    return any(checker.certify is not None for checker in judging)


def _stale(run_dir: Path, verdict: Verdict, description: RunDescription, any_analysis: bool) -> Iterator[str]:
    """What has changed since the verdict was computed."""
    if verdict.analysis != revision() and not any_analysis:
        yield "the verdict was made by another version of the analysis"
    try:
        (content, unsealed), certificate = seal.examined(run_dir), digest_of_certificate(run_dir)
    except OSError as error:
        yield f"the evidence of the verdict cannot be read: {error}"
        return
    if verdict.evidence != content:
        yield "the verdict is stale: the run's files have changed since it was made"
    if verdict.verdict != PASS:
        return
    if verdict.evidence == content:  # the certificate is not in this digest, so it is compared separately
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
