"""`brownout analyze` and `report`: analyze stored runs again, render reports again."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from installation.commands import command
from installation.files import default_store
from orchestrator.campaign.engine import BROKEN, LOCAL, Engine, choose_engine, judge
from orchestrator.campaign.gate import gate
from orchestrator.campaign.policy_file import find_policy
from orchestrator.campaign.reports import write_documents
from orchestrator.campaign.store import RunDirectory, Store, names_of_store
from orchestrator.command.gate import is_campaign, renew_documents
from orchestrator.command.printing import say, verdict_line
from orchestrator.errors import EXIT_OF_VERDICT, UsageError


def main(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `UsageError` for a path that is not a run or campaign."""
    store = Store(options.store or default_store())
    if options.command == "analyze":
        return _analyze(store, options)
    return _report(store.locate(options.path))


def _analyze(store: Store, options: argparse.Namespace) -> int:
    """Analyze each run; the exit code is that of the worst verdict."""
    runs = [store.find_run(name) for name in options.run]
    named = {run.path.parent: store.locate(name) for run, name in zip(runs, options.run, strict=True)}
    # The scratch directory is beside the verdict, since that place must be writable anyway.
    kind, _ = choose_engine(options.engine or (None if options.master is None else "spark"))
    engine = Engine(kind, runs[0].path / ".spark", options.master or LOCAL)
    verdicts, refused = [], []
    opened: set[Path] = set()

    def renew(campaign_dir: Path) -> None:
        renew_documents(campaign_dir, names_of_store(campaign_dir, named[campaign_dir]))

    try:
        for run in runs:
            try:
                with run.held():
                    if run.path.parent not in opened:  # if this process is killed, no document of before says pass
                        opened.add(run.path.parent)
                        _open(run)
                        renew(run.path.parent)
                    verdicts.append((run, judge(run.path, engine)))
            except UsageError as error:
                refused.append(error)
    finally:
        engine.stop()
    for campaign_dir in sorted(opened):
        renew(campaign_dir)
    if options.json:
        said = [(run.path / "verdict.json").read_text(encoding="utf-8") for run, _ in verdicts]
        print(json.dumps([json.loads(text) for text in said], indent=1))
    else:
        for run, _ in verdicts:
            _print_verdict(run)
    for problem in refused if verdicts else refused[1:]:
        say(f"brownout: {problem}", file=sys.stderr)
    if refused and not verdicts:
        raise refused[0]
    codes = [*(EXIT_OF_VERDICT[verdict.verdict] for _, verdict in verdicts), *(2 for _ in refused)]
    return next((code for code in (1, 2) if code in codes), 0)


def _open(run: RunDirectory) -> None:
    """Set the run's verdict to unknown before the analysis. Errors are ignored: the analysis reports them."""
    from analysis.evidence.run_directory import RunDirectoryError
    from analysis.placeholder_verdict import begin

    with contextlib.suppress(OSError, RunDirectoryError):
        begin(run.path)


def _print_verdict(run: RunDirectory) -> None:
    from analysis.verdict import Verdict

    verdict = Verdict.read(run.path / "verdict.json")
    verdict_line(verdict.verdict, f"{run.id}, expected {verdict.expected}{'' if verdict.met else ': NOT met'}")
    for why in (*verdict.unmet, *([f"codes: {', '.join(verdict.codes)}"] if verdict.codes else [])):
        say(f"  {why}")
    for reason in verdict.reasons:
        say(f"  {reason}")
    page = run.path / "report.html"
    say(f"  report: {page}" if page.exists() else f"  the report could not be rendered: {run.path / BROKEN}")


def _report(named: Path) -> int:
    path = named.resolve()
    try:
        print(_rendered(named, path))
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: {error.strerror}; the report is written beside the verdict: copy the "
            "directory to a "
            "place where you can write"
        ) from error
    return 0


def _rendered(named: Path, path: Path) -> Path:
    from analysis.report import render_run
    from analysis.stored_verdict import standing_of

    if (path / "run.toml").exists():
        if not (path / "verdict.json").exists():
            raise UsageError(f"{path} has no verdict yet; make it with: {command('analyze', str(path))}")
        try:
            return render_run(path, standing_of(path))
        except ValueError as error:
            raise UsageError(str(error)) from error
    if not is_campaign(path):
        raise UsageError(f"{path} is not a campaign in the store: it has no run and no plan; see store/<campaign>")
    return write_documents(gate(path, policy=find_policy((named.parent, path.parent), None)))
