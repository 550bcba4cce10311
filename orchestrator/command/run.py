"""`brownout run`: makes the runs of a campaign and decides over them."""

import argparse
import contextlib
import getpass
import json
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from analysis.evidence.run_toml import SIMULATION
from installation.commands import command
from installation.files import default_store
from installation.python_modules import module_command, module_environment
from orchestrator.campaign.lookup import DEMO, find, shortest, shown
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun, check_size, count_of, expand, expansion
from orchestrator.campaign.seed_list import SEEDS, check_seed, read_seed_list
from orchestrator.campaign.systems import prepare_systems, programs_of, rehearse_systems
from orchestrator.command.gate import print_result, renew_documents, renew_index
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import (
    engine_option,
    inventory_for,
    json_option,
    positive,
    store_option,
    world_option,
)
from orchestrator.errors import EXIT_INTERRUPTED, Interrupted, UsageError
from orchestrator.gate.decision import GateResult, gate
from orchestrator.gate.policy_file import find_policy
from orchestrator.machine import packages as system_packages
from orchestrator.printing import say
from orchestrator.running.engine import Engine, choose_engine
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.runner import (
    CampaignInvocation,
    Runner,
    RunOptions,
    find_rootfs,
    lab_spec,
    make_in_parallel,
    plan_invocation,
    require_faults,
    require_parallel,
    resume_invocation,
)
from orchestrator.store.directories import Store
from orchestrator.store.plans import open_stamp
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.selection import Selection, lab_named, require_machines, select_lab

# The command sets these for its second start, in a sandbox: the lab, why it was chosen, the outer process id.
_LAB_VARIABLE = "BROWNOUT_LAB"
_REASON_VARIABLE = "BROWNOUT_LAB_REASON"
_OUTSIDE_VARIABLE = "BROWNOUT_OUTSIDE"


def main(options: argparse.Namespace) -> int:
    """Make the runs of a campaign; returns the exit code. Raises `UsageError`."""
    campaign = load(find(DEMO if options.campaign is None else options.campaign))
    for seed in options.seed:
        check_seed(seed, "--seed")
    listed = read_seed_list(options.seeds)
    if options.seed and listed:
        check_size(campaign, cells=options.cell, seeds=listed)  # before a range becomes a list
    seeds = [*options.seed, *listed] if options.seed else listed  # a range is not expanded: it may be huge
    store = Store(options.store or default_store())
    inventory, where = _inventory(options, campaign), _where(options)
    password = _become_password(options, inventory)
    spec = lab_spec(campaign, store, inventory, cells=options.cell, become_password=password)
    rehearse_systems(campaign, options.cell)
    choice = {"cells": options.cell, "seeds": seeds, "select": options.select, "where": where}
    if options.dry_run:
        dry_run(campaign, _wanted_world(options, campaign), spec, as_json=options.json, **choice)
        return 0
    _require_meanwhile(options, _wanted_world(options, campaign))
    check_size(campaign, cells=options.cell, seeds=seeds)
    simulated = _wanted_world(options, campaign) == SIMULATION
    engine_kind, options.engine_reason = choose_engine(options.engine, simulated=simulated)
    find_policy(store.names, None)  # needed at the end; reports errors in it now
    selection = _choose_lab(_wanted_world(options, campaign), campaign, spec, options)
    if options.jobs > 1:
        require_parallel(selection.lab.name, engine_kind)
    surroundings: dict[str, Any] = {"world": selection.lab.name, "time_scales": selection.lab.time_scales(spec)}
    if options.resume:
        if options.cell or seeds or options.select:
            raise UsageError("--resume uses the stored plan; leave out --cell, --seed, --seeds and --select")
        invocation = resume_invocation(store, campaign, where=where, **surroundings)
    else:
        invocation = plan_invocation(store, campaign, **choice, **surroundings)
    # Plots would take longer than a simulated run; `brownout analyze` makes them for the runs that are of interest.
    engine = Engine(engine_kind, plots=not (simulated or options.no_plots))
    meanwhile = analyzes_meanwhile(options, selection.lab)
    run_options = RunOptions(
        selection,
        engine,
        inventory,
        options.keep,
        _shell_prefix(),
        meanwhile=meanwhile,
        become_password=password,
    )
    return _make_runs(invocation, store, run_options, options)


def analyzes_meanwhile(options: argparse.Namespace, lab: type[Lab]) -> bool:
    """Whether a run is analyzed while the next one is made: as the options say, else where that delays no load."""
    if options.analyze_meanwhile is not None:
        return bool(options.analyze_meanwhile)
    return lab.has_own_processors and not options.keep


def _require_meanwhile(options: argparse.Namespace, world: str | None) -> None:
    """Raise `UsageError` where runs cannot be analyzed while others are made."""
    if not options.analyze_meanwhile:
        return
    if world == SIMULATION:
        raise UsageError(f"--analyze-meanwhile: the {SIMULATION} world uses one processor; make runs with --jobs N")
    if options.keep:
        raise UsageError("--analyze-meanwhile: --keep needs the verdict before the next run; leave out one of the two")


def _make_runs(
    invocation: CampaignInvocation, store: Store, run_options: RunOptions, options: argparse.Namespace
) -> int:
    engine, selection, is_stopped = run_options.engine, run_options.selection, False
    campaign_dir = store.campaign_dir(invocation.campaign.name)
    renew_documents(campaign_dir, store.names)  # if this process is killed, no document of before says pass
    with Progress(quiet=options.quiet) as progress:
        interrupts = Interrupts(
            on_first=lambda: progress.say("stopping; press Ctrl-C again to abort"),
            on_second=lambda: progress.say("aborting"),
        )
        count = len(invocation.todo)
        progress.say(f"{invocation.campaign.name}: {count} run{'' if count == 1 else 's'}, {selection.lab.name} world")
        progress.say(f"world: {selection.reason}", dim=True)
        progress.say(f"engine: {engine.kind} ({options.engine_reason})", dim=True)
        runner = Runner(store, run_options, progress, interrupts)
        try:
            with interrupts.installed():
                if options.jobs > 1:
                    make_in_parallel(invocation, store, run_options, progress, interrupts, options.jobs)
                else:
                    runner.make_all(invocation)
                with interrupts.shielded():
                    engine.stop()
        except Interrupted:
            engine.abandon()
            is_stopped = True
    if is_stopped:  # after the progress line was removed, so that the commands below can be copied
        with contextlib.suppress(OSError):  # the terminal may be closed
            _print_how_to_continue(invocation, store, options, runner.unjudged)
            sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)  # does not wait for a Spark session that is still starting
    renew_documents(campaign_dir, store.names)
    renew_index(store.root)
    result = gate(campaign_dir, invocations=[invocation.stamp])
    _print(result, as_json=options.json)
    if options.resume and open_stamp(campaign_dir) is not None:
        say(
            f"an earlier invocation is unfinished: {_resume_command(invocation, store, options)}",
            file=sys.stderr,
        )
    return result.decision.exit_code


def _inventory(options: argparse.Namespace, campaign: Campaign) -> Path | None:
    """The inventory from the command line or the campaign. Raises `UsageError`."""
    world, inventory = _wanted_world(options, campaign), options.inventory
    if world == "inventory":
        require_machines("the inventory world")
        if inventory is None and campaign.topology.inventory is not None:
            inventory = campaign.path.parent / campaign.topology.inventory
    return inventory_for(world, inventory, "give --inventory FILE, or inventory = in [topology]")


def _become_password(options: argparse.Namespace, inventory: Path | None) -> str | None:
    """The sudo password that the user types for the inventory's hosts. Raises `UsageError`."""
    if not options.ask_become_pass or options.dry_run:
        return None
    if inventory is None:
        raise UsageError("--ask-become-pass: only hosts of an inventory need a password; leave it out")
    with contextlib.suppress(EOFError):
        if password := getpass.getpass("sudo password of the hosts: "):
            return password
    raise UsageError("--ask-become-pass: no password was given; type it, or set ansible_become_password")


def _wanted_world(options: argparse.Namespace, campaign: Campaign) -> str:
    implied = "inventory" if options.inventory is not None else campaign.topology.world
    return options.world or implied


def _where(options: argparse.Namespace) -> list[str]:
    """The options on the command line that select the world, for the command that resumes or replays."""
    world = ["--world", options.world] if options.world else []
    return [*world, *(["--inventory", str(options.inventory)] if options.inventory else [])]


def _choose_lab(name: str, campaign: Campaign, spec: LabSpec, options: argparse.Namespace) -> Selection:
    """The lab for this machine. If it needs a sandbox, replaces this process by the same command inside the sandbox.

    Raises `UsageError` when the campaign's script needs a fault that the lab's world cannot inject, or when the lab
    lacks something that cannot be installed; `InputError` when a system under test lacks something.
    """
    from orchestrator.machine import sandbox

    if sandbox.current_sandbox() is not None and _LAB_VARIABLE in os.environ:
        return Selection(lab_named(os.environ.pop(_LAB_VARIABLE)), os.environ.pop(_REASON_VARIABLE))
    if spec.directory.parent.is_dir():
        from orchestrator.nodes import leftovers

        leftovers.remove_labs(spec.directory.parents[1])
    selection = select_lab(name, campaign.topology.filesystem)
    require_faults(campaign, selection.lab, selection.reason)
    find_rootfs(campaign, selection.lab.name)
    system_packages.ensure(programs_of(campaign, options.cell), f"the system that {shown(campaign.path)} tests")
    with Progress(quiet=options.quiet) as progress:
        prepare_systems(campaign, options.cell, progress.say)
    selection.lab.prepare(spec)
    if selection.lab.needs_sandbox:
        os.environ[_LAB_VARIABLE], os.environ[_REASON_VARIABLE] = selection.lab.name, selection.reason
        os.environ[_OUTSIDE_VARIABLE] = str(os.getpid())  # exec keeps it
        os.environ.update(module_environment())
        sandbox.enter_sandbox(module_command("orchestrator", *options.command_line))
    return selection


def _shell_prefix() -> str:
    """What a user outside of the sandbox puts before a command that must run inside."""
    outside = os.environ.get(_OUTSIDE_VARIABLE)
    # The sandbox's first process is the newest child of its outer parent.
    return f"nsenter --all --target $(pgrep --newest --parent {outside})" if outside else ""


def _print_how_to_continue(
    invocation: CampaignInvocation, store: Store, options: argparse.Namespace, unjudged: Sequence[Path]
) -> None:
    campaign_dir = store.campaign_dir(invocation.campaign.name)
    say(
        f"brownout: stopped; all processes have ended, and the recorded files are in {campaign_dir}\n"
        f"  analyze the last run:  {command('analyze', str(shortest(store.root / 'latest')))}\n"
        + "".join(f"  not analyzed yet:      {command('analyze', str(shortest(run)))}\n" for run in unjudged)
        + f"  continue:              {_resume_command(invocation, store, options)}",
        file=sys.stderr,
    )


def _resume_command(invocation: CampaignInvocation, store: Store, options: argparse.Namespace) -> str:
    password = ["--ask-become-pass"] if options.ask_become_pass else []
    elsewhere = [] if store.root == default_store().resolve() else ["--store", str(store.root)]
    return command("run", shown(invocation.campaign.path), "--resume", *elsewhere, *_where(options), *password)


def _print(result: GateResult, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.to_json(), indent=1))
        return
    print_result(result)
    only = result.directory / result.entries[0].run / "report.html" if len(result.entries) == 1 else None
    say(f"report: {shortest(only if only is not None and only.exists() else result.directory / 'report.html')}")


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "campaign",
        nargs="?",
        default=None,
        metavar="CAMPAIGN",
        help="a TOML file, or a name in campaigns/ of the current directory or of Brownout (default: demo)",
    )
    command.add_argument("--cell", action="append", default=[], metavar="NAME", help="only this cell (repeatable)")
    command.add_argument(
        "--seed", action="append", type=int, default=[], metavar="N", help="only this seed (repeatable)"
    )
    command.add_argument("--seeds", metavar=SEEDS, help="these seeds in place of the campaign's, such as 1-20 or 1,3,7")
    command.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only runs whose name CELL-SEED matches, such as 'fixed-*' or '*-[1-5]' (repeatable)",
    )
    world_option(command)
    command.add_argument(
        "--ask-become-pass",
        action="store_true",
        help="ask for the sudo password of the inventory's hosts (inventory world)",
    )
    command.add_argument(
        "--keep",
        action="store_true",
        help="keep the nodes after the last run or after a failure, until Ctrl-C",
    )
    command.add_argument("--resume", action="store_true", help="continue the last interrupted invocation")
    command.add_argument(
        "--jobs",
        type=positive,
        default=1,
        metavar="N",
        help="make N runs at the same time (simulation world only; default: 1)",
    )
    command.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    command.add_argument(
        "--no-plots",
        action="store_true",
        help="skip the plots; `brownout analyze RUN` makes them later (simulated runs have none by default)",
    )
    command.add_argument("--no-pictures", dest="no_plots", action="store_true", help=argparse.SUPPRESS)
    command.add_argument(
        "--analyze-meanwhile",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="analyze each run while the next one is made, in a process of the lowest priority (not in the simulation; "
        "default: only where the nodes are other machines, in the inventory world)",
    )
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    engine_option(command)
    json_option(command)


# ---- brownout run --dry-run: the runs that a campaign stands for, and where they would be made; nothing is started.

MOST_SHOWN = 40
_COLUMNS = ("cell", "seed", "mutants", "expect", "replay")


def dry_run(
    campaign: Campaign,
    world: str,
    spec: LabSpec,
    *,
    cells: Sequence[str],
    seeds: Sequence[int],
    select: Sequence[str],
    where: Sequence[str],
    as_json: bool,
) -> None:
    """Print the plan: as a table its first runs, as JSON all of them, one after the other.

    Raises `UsageError` for what would be refused before the first run: a world that this machine cannot give or that
    cannot do what the script needs, an inventory that is not understood or too small, a cell that is not there.
    """
    selection = _world(campaign, world, spec)
    runs: Iterable[PlannedRun] = expansion(campaign, "dry", cells=cells, seeds=seeds, where=where)
    count = count_of(campaign, cells=cells, seeds=seeds)
    if select:
        runs = expand(campaign, "dry", cells=cells, seeds=seeds, select=select, where=where)
        count = len(runs)
    if as_json:
        _print_json(campaign, selection, runs)
        return
    from orchestrator.printing import show

    title = f"{campaign.name}: {count:,} run{'s' if count > 1 else ''}, {selection.lab.name} world ({selection.reason})"
    show(title, [_row(run) for run in islice(runs, MOST_SHOWN)], _COLUMNS)
    if count > MOST_SHOWN:
        print(f"and {count - MOST_SHOWN:,} more; --json prints all of them")
    for step in campaign.nemesis.steps:
        say(f"  {step.title}{' - ' + step.why if step.why else ''}")


def _world(campaign: Campaign, world: str, spec: LabSpec) -> Selection:
    selection = select_lab(world, campaign.topology.filesystem)
    if spec.inventory is None:
        require_faults(campaign, selection.lab, selection.reason)
    else:
        require_faults(campaign, selection.lab(spec), selection.reason)  # what it can do stands in the inventory
    return selection


def _row(run: PlannedRun) -> dict[str, Any]:
    return {
        "cell": run.cell.name,
        "seed": run.seed,
        "mutants": list(run.cell.mutants),
        "expect": str(run.cell.expect),
        "nemesis_seed": run.derived_seed("nemesis"),
        "replay": run.replay,
    }


def _print_json(campaign: Campaign, selection: Selection, runs: Iterable[PlannedRun]) -> None:
    """A million runs are printed as they are planned, and never held."""
    head = {"campaign": campaign.name, "world": selection.lab.name, "world_reason": selection.reason}
    print(json.dumps(head, indent=1)[:-2] + ',\n "runs": [')
    separator = ""
    for run in runs:
        print(f"{separator}  {json.dumps(_row(run))}", end="")
        separator = ",\n"
    print("\n ]\n}")


COMMAND: Final = Command(
    name="run",
    place=10,
    summary="make all runs of a campaign and analyze them",
    description="""\
Makes every run of a campaign (each cell with each seed), analyzes each, and decides over all.

  brownout run                                     the demo campaign
  brownout run campaigns/demo.toml --seeds 1-20    twenty seeds
  brownout run campaigns/demo.toml --seeds 1,3,7   three seeds
  brownout run X.toml --cell mutated --seed 3      one run; this repeats an earlier run
  brownout run X.toml --select 'fixed-*'           the runs with such a name CELL-SEED
  brownout run swarm --jobs 2                      simulated runs, two at a time
  brownout run X.toml --resume                     continue an interrupted invocation
  brownout run X.toml --dry-run                    print the plan only

Ctrl-C stops the run, heals its faults and keeps its evidence. A second Ctrl-C aborts at once.
Exit code: the gate's decision over the planned runs.
""",
    options=_options,
    main=main,
)
