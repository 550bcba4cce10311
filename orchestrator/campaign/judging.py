"""From a run's record to its verdict, and from verdicts to the campaign's documents: what is asked of the analysis."""

from __future__ import annotations

import contextlib
import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from installation.commands import command
from orchestrator.campaign.gate import Decision, decide

if TYPE_CHECKING:
    from analysis.spark import SparkHandle
    from analysis.verdict import Verdict


class Engine:
    """What the analyses of one invocation run on: `spark`, one session started in the background, or `in-process`."""

    def __init__(self, kind: str, scratch: Path, master: str = "local[2]") -> None:
        self.kind = kind
        self._master = master
        self._scratch = scratch
        self._handle: SparkHandle | None = None

    def start(self) -> None:
        """Begin to start the session, unless that was done before."""
        if self.kind == "spark" and self._handle is None:
            from analysis.spark import SparkHandle

            self._handle = SparkHandle.start_in_background(self._scratch, master=self._master)

    @property
    def handle(self) -> SparkHandle | None:
        """The session, begun now if it was not before; None where there is to be none."""
        self.start()
        return self._handle

    def abandon(self) -> None:
        """Leave the session to its fate: it ends with this process. Does not wait for one that is still starting."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def stop(self) -> None:
        """End the session; safe to call when there is none."""
        if self._handle is not None:
            self._handle.stop()
            self._handle = None
            shutil.rmtree(self._scratch, ignore_errors=True)


class JudgingError(Exception):
    """The analysis itself broke; the run's record is as it was, and can be judged again."""


def judge(run_dir: Path, engine: Engine) -> Verdict:
    """Analyze a run and render its report. Raises `JudgingError` when the analysis breaks."""
    try:
        from analysis.pipeline import analyze
        from analysis.report import render_run

        verdict = analyze(run_dir, session=engine.handle, engine=engine.kind)
        render_run(run_dir)
        (run_dir / "analysis-error.txt").unlink(missing_ok=True)  # an earlier attempt's
    except Exception as error:
        with contextlib.suppress(OSError):  # a full disk may be what broke it
            (run_dir / "analysis-error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        raise JudgingError(
            f"the analysis of {run_dir} broke: {type(error).__name__}: {error} (whole text: analysis-error.txt there); "
            f"once that is repaired: {command('analyze', str(run_dir))}"
        ) from error
    return verdict


def conclude(campaign_dir: Path) -> Mapping[str, Any]:
    """Write the campaign's summary, report and junit.xml; the summary."""
    from analysis import junit
    from analysis.report import render_campaign
    from analysis.summary import summarize

    summary = summarize(campaign_dir)
    render_campaign(campaign_dir, summary)
    junit.write(campaign_dir, summary)
    return summary


def decide_over(summary: Mapping[str, Any], runs: set[str] | None = None) -> Decision:
    """The gate's decision over a campaign's runs, or over some of them."""
    return decide([run for run in summary["runs"] if runs is None or run["run"] in runs])
