"""`brownout report`: renders the report of a run or campaign again."""

import argparse
from pathlib import Path
from typing import Final

from installation.commands import command
from installation.files import default_store
from orchestrator.command.gate import is_campaign
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import store_option
from orchestrator.errors import UsageError
from orchestrator.gate.decision import gate
from orchestrator.gate.policy_file import find_policy
from orchestrator.gate.reports import write_documents
from orchestrator.printing import say
from orchestrator.store.directories import Store


def main(options: argparse.Namespace) -> int:
    """Render the report; returns the exit code. Raises `UsageError` for a path that is not a run or campaign."""
    named = Store(options.store or default_store()).locate(options.path)
    path = named.resolve()
    try:
        say(str(_rendered(named, path)))
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


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", metavar="RUN|CAMPAIGN", help="a directory in the store, a name, or `latest`")
    store_option(command)


COMMAND: Final = Command(
    name="report",
    place=40,
    summary="render the report of a run or campaign again",
    description="Renders report.html from the stored verdicts; for a campaign also summary.json and junit.xml.",
    options=_options,
    main=main,
)
