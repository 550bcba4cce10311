"""Writes the verdict of a run whose analysis has not finished: unknown, with the reason."""

from pathlib import Path
from typing import Any, Final

from analysis.doubt import ANALYSIS_NOT_FINISHED, Reason
from analysis.evidence.run_directory import RunDirectoryError
from analysis.verdict import UNKNOWN, VERDICT_FILE, Expectation, Verdict
from history import strict_toml
from history.regular_files import draft_of, read_text, remove
from installation.commands import command

NOT_FINISHED: Final = "the analysis has not finished"


def begin(run_dir: Path) -> None:
    """Replace any stored verdict by *unknown*. Raises `RunDirectoryError` when `run_dir` is not a run.

    If even that cannot be written, such as on a full disk, the older verdict is removed all the same."""
    if not (run_dir / "run.toml").exists():
        if (run_dir / "history").is_dir():  # it was a run
            remove(run_dir / VERDICT_FILE)
        raise RunDirectoryError(f"{run_dir} is not a run: it has no run.toml; runs are in store/<campaign>/<run>")
    remedy = command("analyze", str(run_dir))
    for path in (run_dir / VERDICT_FILE, draft_of(run_dir / VERDICT_FILE)):
        if path.is_dir():  # a file cannot replace it
            remove(path)
    for name in ("tables", "certificate"):  # written again by this analysis
        remove(run_dir / name)
    if not (run_dir / "plots").is_dir():
        remove(run_dir / "plots")
    try:
        undecided(run_dir, f"{NOT_FINISHED}: it is running, or was interrupted; analyze again with: {remedy}")
    except OSError:
        remove(run_dir / VERDICT_FILE)
        raise
    remove(run_dir / "report.html")  # it shows the older verdict


def undecided(run_dir: Path, reason: str, kind: Reason = ANALYSIS_NOT_FINISHED) -> Verdict:
    """Write and return an unknown verdict with this reason. `kind`: the reason in docs/anomalies.md."""
    content = _said(run_dir)
    verdict = Verdict(
        run=run_dir.name,
        campaign=_text(content, "campaign", run_dir.parent.name),
        cell=_text(content, "cell"),
        seed=content["seed"] if type(content.get("seed")) is int else -1,
        verdict=UNKNOWN,
        expected=Expectation(),
        met=False,
        reasons=(reason,),
        anomalies=(),
        checks=(),
        faults=(),
        never_seen=(),
        stats={},
        upper_bound="",
        world=_text(content, "world", "unknown"),
        limits=(),
        replay=_text(content, "replay"),
        doubts=(reason,),
        codes=(kind.code,),
        unmet=(reason,),
    )
    verdict.write(run_dir / VERDICT_FILE)
    return verdict


def _said(run_dir: Path) -> dict[str, Any]:
    """The content of run.toml; empty if it is damaged."""
    try:
        return strict_toml.decode(read_text(run_dir / "run.toml"))
    except (OSError, ValueError):
        return {}


def _text(content: dict[str, Any], key: str, otherwise: str = "") -> str:
    value = content.get(key)
    return value if isinstance(value, str) else otherwise
