"""`brownout gate`: decides over a run, a campaign or a store."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from analysis.verdict import first_reasons
from installation.commands import command
from installation.files import default_store
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import engine_option, json_option, store_option
from orchestrator.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNKNOWN, UsageError
from orchestrator.gate.decision import GateResult, gate, gate_together
from orchestrator.gate.policy_file import Policy, find_policy
from orchestrator.gate.reports import in_markdown, write_documents
from orchestrator.printing import say, show, show_runs, verdict_line
from orchestrator.running.engine import Engine, choose_engine, judge
from orchestrator.store.directories import LABS, LATEST, RunDirectory, Store
from orchestrator.store.index import read_index
from orchestrator.store.index_page import write_index
from orchestrator.store.matrix import read_matrix, runs_in
from orchestrator.store.plans import chosen_stamps, stamps
from orchestrator.worlds.simulation.files import SUMMARY
from systems.errors import InputError

_DOCUMENTS = ("summary.json", "report.html", "junit.xml")
_MOST_LIMITS = 20
_GRAVEST_FIRST = ((EXIT_FAIL, "fail"), (EXIT_UNKNOWN, "unknown"), (EXIT_PASS, "pass"))


def main(options: argparse.Namespace) -> int:
    """Decide and print; returns the exit code. Raises `UsageError` for a path that is not a run, campaign or store, and
    `InputError` for an invalid policy."""
    named = Store(options.store or default_store()).locate(options.path)
    path = named.resolve()
    if options.again:
        _analyze_again(path, options)
    elif options.engine:
        raise UsageError(f"--engine {options.engine}: the gate analyzes runs only with --again")
    missing: list[str] = []
    if (path / "run.toml").exists():
        if options.invocation or options.policy:
            raise UsageError(f"{path} is one run; --invocation and --policy apply to a campaign or a store")
        results = [gate(_campaign_of_run(named), run=path.name)]
    elif is_campaign(path) or (_has_documents(path) and not _campaigns(path)):
        # A campaign's directory may be a link. The link's name is the campaign's name; its target's name may differ.
        results = [_decide(named, options, find_policy((named.parent, path.parent), options.policy))]
    else:
        results, missing = _decide_over_store(path, options, find_policy((named, path), options.policy))
    code, verdict = next(
        (code, verdict)
        for code, verdict in _GRAVEST_FIRST
        if code == EXIT_PASS
        or code in [result.decision.exit_code for result in results]
        or (code == EXIT_UNKNOWN and missing)
    )
    _print(path, results, missing, verdict, options)
    return code


def _analyze_again(path: Path, options: argparse.Namespace) -> None:
    """Analyze the runs of the invocations that count, or the one run. A run that cannot be analyzed stays as it is: the
    gate names the reason."""
    is_run_path = (path / "run.toml").exists()
    campaigns = [path] if is_campaign(path) else [] if is_run_path else _campaigns(path)
    runs = [RunDirectory(path)] if is_run_path else []
    for campaign_dir in campaigns:
        plans = read_matrix(campaign_dir, chosen_stamps(campaign_dir, options.invocation)).plans
        planned = [campaign_dir / run.id for plan in plans for run in plan.runs]
        runs += [RunDirectory(run) for run in planned if (run / "run.toml").is_file()]
    if not runs:
        return
    simulated = all((run.path / SUMMARY).is_file() for run in runs)
    kind, _ = choose_engine(options.engine, simulated=simulated)
    engine = Engine(kind, plots=False)
    try:
        for number, run in enumerate(runs, 1):
            try:
                with run.held():
                    judge(run.path, engine)
                say(f"analyzed {number} of {len(runs)}: {run.path.name}", file=sys.stderr)
            except UsageError as error:
                say(f"brownout: {error}", file=sys.stderr)
    finally:
        engine.stop()


def is_campaign(path: Path) -> bool:
    """Whether this directory has plans or runs. `latest` in a copied store is a run's directory, not a campaign's."""
    return bool(stamps(path)) or any(run.name != LATEST for run in runs_in(path))


def _campaign_of_run(named: Path) -> Path:
    """The directory of a run's campaign, as named: the run or its campaign may be a link."""
    path = named.resolve()
    through = Path(os.path.normpath(named.parent / os.readlink(named))) if named.is_symlink() else named
    return through.parent if through.parent.resolve() == path.parent and through.name == path.name else path.parent


def _has_documents(path: Path) -> bool:
    """Whether this directory has a campaign's documents; its runs and plans may be removed."""
    return any((path / name).is_file() for name in _DOCUMENTS)


def _decide(campaign_dir: Path, options: argparse.Namespace, policy: Policy | None) -> GateResult:
    result = gate(campaign_dir, invocations=chosen_stamps(campaign_dir, options.invocation), policy=policy)
    _write(result)
    return result


def renew_documents(campaign_dir: Path, stores: Sequence[Path]) -> None:
    """Update the campaign's documents to the gate's current decision, after runs were made or analyzed. Errors are
    reported and do not affect the runs. `stores`: the paths of the campaign's store."""
    try:
        _write(gate(campaign_dir, policy=find_policy(stores, None)))
    except InputError as error:
        say(f"the documents of {campaign_dir} were not updated: {error}", file=sys.stderr)


def renew_index(store: Path) -> None:
    """Read a store's index and write its page. An error is reported and has no other effect."""
    try:
        write_index(store, read_index(store))
    except OSError as error:
        say(f"{store}: the page was not updated: {error.strerror}", file=sys.stderr)


def _write(result: GateResult) -> None:
    try:
        write_documents(result)
    except OSError as error:
        say(f"the documents of {result.directory} were not updated: {error.strerror}", file=sys.stderr)


def _decide_over_store(
    path: Path, options: argparse.Namespace, policy: Policy | None
) -> tuple[list[GateResult], list[str]]:
    """The results of all campaigns, and a sentence for each campaign that should exist and is missing."""
    campaigns, missing = _campaigns(path), [*_dangling(path), *_hidden(path)]
    if not campaigns and not missing:
        raise UsageError(
            f"{path} is not a run, a campaign or a store: it contains no run and no plan; see "
            f"{command('gate', '--help')}"
        )
    if options.invocation:
        raise UsageError(f"--invocation: {path} is a store; name one of its campaigns")
    names = {campaign.name for campaign in campaigns}
    absent = [] if policy is None else [name for name in policy.campaigns if name not in names]
    missing += [f"{name} is in the policy but not in the store" for name in absent]
    results = gate_together(dict.fromkeys(campaigns, ()), policy=policy)
    for result in results:
        _write(result)
    return results, missing


def _dangling(store: Path) -> list[str]:
    """A sentence for each link in a store whose target is missing or not readable."""
    return [
        f"{path.name} is a link to {os.readlink(path)}, which is missing or not readable; restore it, or remove the "
        "link"
        for path in sorted(store.iterdir())
        if path.is_symlink() and not path.exists() and path.name != LATEST and not path.name.startswith(".")
    ]


def _hidden(store: Path) -> list[str]:
    """A sentence for each campaign whose name starts with a dot, which no command lists."""
    return [
        f"{path.name} is a campaign under a hidden name; rename it, or remove it"
        for path in sorted(store.glob(".*"))
        if path.name != LABS and path.is_dir() and is_campaign(path)
    ]


def _campaigns(store: Path) -> list[Path]:
    """The campaigns in a store, including those whose runs are gone and only documents are left."""
    return [
        path
        for path in sorted(store.iterdir())
        if path.is_dir() and not (path.name == LATEST and path.is_symlink()) and not path.name.startswith(".")
        if not (path / "run.toml").exists() and (is_campaign(path) or _has_documents(path))
    ]


def _print(
    path: Path, results: Sequence[GateResult], missing: Sequence[str], verdict: str, options: argparse.Namespace
) -> None:
    is_store = bool(missing) or (results[0].directory.resolve() != path and results[0].run is None)
    reason = ", ".join([*(f"{result.directory.name} {result.decision.verdict}" for result in results), *missing])
    if options.json:
        campaigns = [result.to_json() for result in results]
        document = {"store": str(path), "verdict": verdict, "reason": reason, "campaigns": campaigns}
        print(json.dumps(document if is_store else campaigns[0], indent=1))
        return
    if options.markdown:
        print("\n".join(map(in_markdown, results)))
        if is_store:
            print(f"**The store: {verdict}**: {reason}")
        return
    for result in results:
        print_result(result)
    if is_store:
        verdict_line(verdict, reason)


def print_result(result: GateResult) -> None:
    """Print everything that the decision over a campaign rests on; the decision comes last."""
    show_runs(result.directory.name, result.to_json()["runs"])
    for entry in result.entries:
        if entry.verdict != "pass" or not entry.met:
            say(f"{entry.run}: {entry.verdict}")
            for reason in first_reasons(entry.reasons, 5):
                say(f"  {reason}")
    for doubt in result.doubts:
        say(doubt)
    if result.findings:
        show(
            f"policy {result.policy}" if result.policy else "failures",
            [{"verdict": finding.verdict, "what": finding.sentence} for finding in result.findings],
            ("verdict", "what"),
        )
    for line in basis_of(result):
        say(line)
    verdict_line(result.decision.verdict, result.decision.reason)


def basis_of(result: GateResult) -> list[str]:
    """Lines about the basis of the decision: invocations, worlds, limits, versions."""
    lines = []
    if result.run is None:
        note = ", all of them partial" if result.partial and result.invocations else ""
        lines.append(f"invocations: {', '.join(result.invocations) or 'none'}{note}")
    if result.superseded:
        lines.append(f"superseded by a later one: {', '.join(result.superseded)}")
    if result.report is not None and result.report.signatures.resolved:
        lines.append(f"resolved: {'; '.join(result.report.signatures.resolved)}")
    lines.append(f"world: {', '.join(result.worlds) or 'unknown'}")
    lines += [f"limit: {limit}" for limit in result.limits[:_MOST_LIMITS]]
    versions = ", ".join(f"{name} {' and '.join(found)}" for name, found in result.versions.items())
    lines.append(f"versions: {versions or 'unknown'}")
    return lines


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", metavar="STORE|CAMPAIGN|RUN", help="a path such as store/demo, or `latest`")
    command.add_argument(
        "--invocation",
        action="append",
        default=[],
        metavar="STAMP",
        help="decide over this invocation only; STAMP or the first characters of it (repeatable)",
    )
    command.add_argument(
        "--again",
        action="store_true",
        help="analyze each run before deciding; plots are not drawn again",
    )
    engine_option(command)
    command.add_argument("--policy", type=Path, metavar="FILE", help="the policy (default: gate.toml beside the store)")
    store_option(command)
    form = command.add_mutually_exclusive_group()
    json_option(form)
    form.add_argument("--markdown", action="store_true", help="print Markdown, for the summary page of a CI job")


COMMAND: Final = Command(
    name="gate",
    place=50,
    summary="decide over all planned runs: exit 0, 1 or 2",
    description="""\
Exit 0: every planned run met its expectation. 1: a run did not. 2: a run is missing or undecided, or its
verdict is not trustworthy (incomplete, or made from files that were changed since). The decision over a store
is the worst one over its campaigns.

  brownout gate store/demo                     a campaign
  brownout gate store                          all campaigns
  brownout gate store --markdown >> "$GITHUB_STEP_SUMMARY"
  brownout gate store/demo --again             analyzes each run first, then decides

An invocation of the whole campaign supersedes earlier invocations in the same world. Later partial
invocations count in addition. A gate.toml beside the store can demand more: docs/gate.md.
""",
    options=_options,
    main=main,
)
