"""`brownout analyze`: analyzes stored runs again."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Final

from installation.files import default_store
from orchestrator.campaign.engine import BROKEN, LOCAL, Engine, choose_engine, judge
from orchestrator.campaign.store import RunDirectory, Store, names_of_store
from orchestrator.command.gate import renew_documents
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import engine_option, json_option, store_option
from orchestrator.errors import EXIT_OF_VERDICT, UsageError
from orchestrator.printing import say, verdict_line


def main(options: argparse.Namespace) -> int:
    """Analyze each run; returns the exit code of the worst verdict. Raises `UsageError` for a path without a run."""
    store = Store(options.store or default_store())
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


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", nargs="+", metavar="RUN", help="a run's directory, its name, or `latest`")
    store_option(command)
    engine_option(command)
    command.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master, such as spark://host:7077; its workers need the store and this project at the same "
        "paths as this machine (default: local[2])",
    )
    json_option(command)


COMMAND: Final = Command(
    name="analyze",
    place=30,
    summary="analyze a stored run again",
    description="""\
Analyzes the evidence of a run: also of an interrupted or killed run, and of another tool's run that has the
same files. Writes verdict.json, plots and report.html into the run's directory.
Exit code: the worst verdict of the given runs.
""",
    options=_options,
    main=main,
)
