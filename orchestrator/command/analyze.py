"""`brownout analyze`: analyzes stored runs again."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from installation.commands import command
from installation.counted import counted
from installation.files import default_store
from orchestrator.command.gate import renew_documents
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import engine_option, json_option, store_option
from orchestrator.errors import EXIT_OF_VERDICT, UsageError
from orchestrator.printing import say, verdict_line
from orchestrator.running.engine import BROKEN, LOCAL, Engine, choose_engine, engine_asked, judge, judge_each
from orchestrator.store.directories import RunDirectory, Store, names_of_store
from orchestrator.worlds.simulation.files import SUMMARY

if TYPE_CHECKING:
    from analysis.verdict import Verdict


def main(options: argparse.Namespace) -> int:
    """Analyze each run; returns the exit code of the worst verdict. Raises `UsageError` for a path without a run."""
    store = Store(options.store or default_store())
    runs: dict[Path, RunDirectory] = {}
    named: dict[Path, Path] = {}
    for name in options.run:
        for run in store.find_runs(name):
            runs[run.path] = run
            named[run.path.parent] = store.locate(name) / run.path.relative_to(store.find(name))
    simulated = all((path / SUMMARY).is_file() for path in runs)
    kind, _ = choose_engine(engine_asked(options.engine, options.master), simulated=simulated, master=options.master)
    engine = Engine(kind, options.master or LOCAL)
    documents = _Documents(named)
    try:
        if options.master is not None:  # before a verdict is replaced
            engine.require_visible(list(runs))
        analyzed = _on_workers if kind == "spark" and len(runs) > 1 else _one_by_one
        verdicts, refused = analyzed(list(runs.values()), engine, documents)
    finally:
        engine.stop()
    documents.renew_all()
    if options.json:
        verdict_texts = [(run.path / "verdict.json").read_text(encoding="utf-8") for run, _ in verdicts]
        print(json.dumps([json.loads(text) for text in verdict_texts], indent=1))
    else:
        for run, _ in verdicts:
            _print_verdict(run)
    for problem in refused if verdicts else refused[1:]:
        say(f"brownout: {problem}", file=sys.stderr)
    if refused and not verdicts:
        raise refused[0]
    codes = [*(EXIT_OF_VERDICT[verdict.verdict] for _, verdict in verdicts), *(2 for _ in refused)]
    return next((code for code in (1, 2) if code in codes), 0)


class _Documents:
    """The documents of the campaigns whose runs are analyzed. `named`: by campaign, its path as the user named it."""

    def __init__(self, named: Mapping[Path, Path]) -> None:
        self._named = named
        self._opened: set[Path] = set()

    def open(self, run: RunDirectory) -> None:
        """The first run of a campaign counts as unknown: if this process is killed, no document of before says pass."""
        if run.path.parent not in self._opened:
            self._opened.add(run.path.parent)
            _open(run)
            self._renew(run.path.parent)

    def renew_all(self) -> None:
        for campaign_dir in sorted(self._opened):
            self._renew(campaign_dir)

    def _renew(self, campaign_dir: Path) -> None:
        renew_documents(campaign_dir, names_of_store(campaign_dir, self._named[campaign_dir]))


_Analyzed = tuple[list[tuple[RunDirectory, "Verdict"]], list[UsageError]]
"""The runs that were analyzed, with their verdicts, and why others were not."""


def _one_by_one(runs: Sequence[RunDirectory], engine: Engine, documents: _Documents) -> _Analyzed:
    verdicts, refused = [], []
    for run in runs:
        try:
            with run.held():
                documents.open(run)
                verdicts.append((run, judge(run.path, engine)))
        except UsageError as error:
            refused.append(error)
    return verdicts, refused


def _on_workers(runs: Sequence[RunDirectory], engine: Engine, documents: _Documents) -> _Analyzed:
    """One task for each run. A run whose task failed is unknown."""
    from analysis.doubt import ANALYSIS_BROKEN
    from analysis.placeholder_verdict import undecided
    from analysis.verdict import VERDICT_FILE, Verdict

    tasks = engine.tasks().of(f"analyze {counted(len(runs), 'run')}")
    locked: list[RunDirectory] = []
    refused: list[UsageError] = []
    with contextlib.ExitStack() as locks:
        for run in runs:
            try:
                locks.enter_context(run.held())
                documents.open(run)
                locked.append(run)
            except UsageError as error:
                refused.append(error)
        judged = judge_each([run.path for run in locked], tasks)
        with contextlib.closing(judged):
            for count, (path, failure) in enumerate(judged, 1):
                if failure:
                    remedy = command("analyze", str(path))
                    undecided(path, f"{failure}; analyze it: {remedy}", ANALYSIS_BROKEN)
                say(f"analyzed {count} of {len(locked)}: {path.name}", file=sys.stderr)
        return [(run, Verdict.read(run.path / VERDICT_FILE)) for run in locked], refused


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
    for reason in (*verdict.unmet, *([f"codes: {', '.join(verdict.codes)}"] if verdict.codes else [])):
        say(f"  {reason}")
    for line in (*verdict.cause_lines, *verdict.reasons):
        say(f"  {line}")
    page = run.path / "report.html"
    say(f"  report: {page}" if page.exists() else f"  the report could not be rendered: {_cause(run.path / BROKEN)}")


def _cause(broken: Path) -> str:
    """The error at the end of a traceback in a file, and the file; on a full disk the file is empty or missing."""
    lines = broken.read_text(encoding="utf-8").split("\n") if broken.is_file() else []
    error = next((line for line in reversed(lines) if line and not line.startswith(" ")), "")
    return f"{error}; traceback: {broken}" if error else f"{broken} could not be written either; is the disk full?"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="a run, or a campaign or store with all its runs; `latest`: the last run",
    )
    store_option(parser)
    engine_option(parser)
    parser.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master, such as spark://host:7077, whose workers need the store and this project at the same "
        "paths as this machine; or a Spark Connect server, sc://host:15002, whose workers need the store at the same "
        "path, and this machine no Java (default: local[2])",
    )
    json_option(parser)


COMMAND: Final = Command(
    name="analyze",
    place=30,
    summary="analyze a stored run again",
    description="""\
Analyzes the evidence of a run: also of an interrupted or killed run, and of another tool's run that has the
same files. Writes verdict.json, plots and report.html into the run's directory. A campaign or a store stands for all
of its runs. Spark analyzes several runs concurrently, one task for each.
Exit code: the worst verdict of the given runs.
""",
    options=_options,
    main=main,
)
