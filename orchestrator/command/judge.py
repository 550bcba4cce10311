"""`brownout analyze`, `report` and `gate`: everything that is said of runs that are in the store."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from installation.commands import command
from installation.files import default_store
from orchestrator.campaign.gate import Decision
from orchestrator.campaign.judging import Engine, JudgingError, conclude, decide_over, judge
from orchestrator.campaign.store import RunDirectory, Store
from orchestrator.errors import EXIT_INTERNAL, EXIT_OF_VERDICT, UsageError


def main(options: argparse.Namespace) -> int:
    """Raises `UsageError` for a path that is no run or campaign."""
    store = Store((options.store or default_store()).resolve())
    if options.command == "analyze":
        return _analyze(store, options)
    if options.command == "report":
        return _report(store.find(options.path))
    return _gate(store.find(options.path), as_json=options.json)


def _analyze(store: Store, options: argparse.Namespace) -> int:
    """Judge each run; the exit code is that of the gravest verdict."""
    runs = [store.find_run(name) for name in options.run]
    # The scratch is beside the verdict: that place can be written.
    engine = Engine(options.engine, runs[0].path / ".spark", options.master)
    verdicts = []
    try:
        for run in runs:
            with run.held():
                verdicts.append(judge(run.path, engine))
    except JudgingError as error:
        print(f"brownout: {error}", file=sys.stderr)
        return EXIT_INTERNAL
    finally:
        engine.stop()
    for campaign_dir in sorted({run.path.parent for run in runs}):
        conclude(campaign_dir)
    if options.json:
        print(
            json.dumps([json.loads((run.path / "verdict.json").read_text(encoding="utf-8")) for run in runs], indent=1)
        )
    else:
        _print_verdicts(runs)
    codes = [EXIT_OF_VERDICT[verdict.verdict] for verdict in verdicts]
    return next((code for code in (1, 2) if code in codes), 0)


def _print_verdicts(runs: list[RunDirectory]) -> None:
    from analysis.verdict import Verdict
    from orchestrator.command.printing import verdict_line

    for run in runs:
        verdict = Verdict.read(run.path / "verdict.json")
        what = f"{run.id}, expected {verdict.expected}{'' if verdict.met else ': NOT met'}"
        verdict_line(verdict.verdict, what)
        for reason in verdict.reasons:
            print(f"  {reason}")
        print(f"  report: {run.path / 'report.html'}")


def _report(path: Path) -> int:
    from analysis.report import render_run

    if (path / "run.toml").exists():
        if not (path / "verdict.json").exists():
            raise UsageError(f"{path} has no verdict yet; make it with: {command('analyze', str(path))}")
        print(render_run(path))
        return 0
    _require_campaign(path)
    conclude(path)
    print(path / "report.html")
    return 0


def _gate(path: Path, *, as_json: bool) -> int:
    is_run = (path / "run.toml").exists()
    campaign_dir = path.parent if is_run else path
    _require_campaign(campaign_dir)
    summary = conclude(campaign_dir)
    decision: Decision = decide_over(summary, {path.name} if is_run else None)
    runs = [run for run in summary["runs"] if not is_run or run["run"] == path.name]
    if as_json:
        result = {"campaign": campaign_dir.name, "verdict": decision.verdict, "reason": decision.reason, "runs": runs}
        print(json.dumps(result, indent=1))
    else:
        from orchestrator.command.printing import show_runs, verdict_line

        show_runs(campaign_dir.name, runs)
        verdict_line(decision.verdict, decision.reason)
    return decision.exit_code


def _require_campaign(path: Path) -> None:
    if not any(path.glob("*/run.toml")):
        raise UsageError(f"{path} is not a campaign in the store: no run lies in it; see store/<campaign>")
