"""The options of `explore`, `replay` and `shrink`, the commands that search with simulated runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from orchestrator.command.options import Commands, add, engine_option, json_option, positive, store_option

COMMANDS: Final = frozenset({"explore", "replay", "shrink"})


def dispatch(options: argparse.Namespace) -> int:
    """Run the command in `options.command`, one of `COMMANDS`; returns its exit code."""
    if options.command == "explore":
        from orchestrator.command import explore as exploring

        return exploring.main(options)
    if options.command == "shrink":
        from orchestrator.command import shrink as shrinking

        return shrinking.main(options)
    from orchestrator.command import replay as replaying

    return replaying.main(options)


def explore(commands: Commands) -> None:
    """`brownout explore`."""
    command = add(
        commands,
        "explore",
        "coverage-guided search for failures, in the simulation",
        "Runs seeds of a campaign with random faults in the simulation, on all cores, and varies the schedules of the\n"
        "runs that reached new abstract states. Keeps the cheapest run of each anomaly in the store, as an ordinary "
        "run\n"
        "with a report. Continue from there with: brownout replay, brownout shrink.\n\n"
        "  brownout explore demo --runs 500                     stops at the first failure\n"
        "  brownout explore X.toml --runs 2000 --keep-going\n"
        "  brownout explore X.toml --cell mutated --compare     guided and random, the same number of runs each\n"
        "  brownout explore X.toml --master spark://host:7077 --round 64\n"
        "                                                       on a cluster\n"
        "  brownout explore X.toml --resume                     continue an exploration that was interrupted or\n"
        "                                                       stopped at a failure\n\n"
        "Campaign, first seed, number of runs and size of a round determine the result; the number of cores does not.\n"
        "Ctrl-C keeps all finished runs (with Spark, all finished rounds). Exit 0: only the cell's expected result "
        "was\n"
        "found (no anomaly, or the mutant's). 1: another result was found. 2: no run was decided.\n\n"
        "Workers of a Spark cluster need this project and its Python at the same paths as this machine, Java, and\n"
        "write access at the store's path. The driver sends campaigns to them; no runs are stored there. They connect\n"
        "back to this machine; SPARK_LOCAL_IP=ADDRESS sets the address for that.",
    )
    command.add_argument("campaign", metavar="CAMPAIGN", help="a file, or the name of a campaign of Brownout")
    command.add_argument("--cell", metavar="NAME", help="a cell of the campaign (default: the first that must pass)")
    # The default is None, so that --resume can reject these options when they are given.
    command.add_argument("--runs", type=positive, metavar="N", help="the number of runs of each arm (default: 200)")
    command.add_argument(
        "--round",
        type=positive,
        metavar="N",
        help="runs per round; coverage is evaluated at the end of a round. For a cluster: at least its number of "
        "cores (default: 4)",
    )
    command.add_argument("--first", type=int, metavar="SEED", help="the first seed (default: 1)")
    command.add_argument("--keep-going", action="store_true", default=None, help="do not stop at the first failure")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--random", action="store_true", default=None, help="new seeds only, no variations")
    how.add_argument(
        "--compare", action="store_true", default=None, help="guided, then random with the same number of runs"
    )
    command.add_argument("--resume", action="store_true", help="continue the last exploration of the campaign")
    engine_option(command)
    command.add_argument("--master", metavar="URL", help="the Spark master (default: local, with all cores)")
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    json_option(command)


def replay(commands: Commands) -> None:
    """`brownout replay`."""
    command = add(
        commands,
        "replay",
        "repeat a simulated run, with its trace and plots",
        "Repeats a run of the simulation and checks that it is the same, by a digest over all events.\n"
        "The new run also has trace.txt (each node's events and output, in virtual time) and messages.jsonl; its "
        "report\n"
        "has plots of the nodes' lifetimes and a space-time diagram around the anomaly.\n\n"
        "  brownout replay latest\n"
        "  brownout replay store/demo/20260801T10000042-main-7\n"
        "  brownout replay 7 --campaign demo                    a seed, stored or new\n"
        "  brownout replay 7 --campaign X.toml --cell mutated\n\n"
        "Exit 0: the same run. 1: a different run by the same code, so something does not depend on the seed only.\n"
        "2: not comparable: code or evidence changed since, or the seed has no stored run.",
    )
    command.add_argument("run", metavar="RUN|SEED", help="a run's directory, its name, `latest`, or a seed")
    command.add_argument("--campaign", metavar="CAMPAIGN", help="the seed's campaign: a file, or a name of Brownout's")
    command.add_argument("--cell", metavar="NAME", help="a cell of the campaign (default: its only cell)")
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    json_option(command)


def shrink(commands: Commands) -> None:
    """`brownout shrink`."""
    command = add(
        commands,
        "shrink",
        "reduce a failed simulated run to the smallest campaign that still fails",
        "Removes faults, steps, clients, nodes and time from a failed run of the simulation while the same anomaly\n"
        "remains, and writes the rest as a campaign of steps. That campaign runs in every world that has its faults.\n"
        "Finally runs it with ten other seeds and reports how many show the anomaly.\n\n"
        "  brownout shrink latest\n"
        "  brownout shrink store/X/RUN --budget 10m --output campaigns/smaller.toml\n"
        "  brownout run store/X/RUN/shrunk.toml --world simulation --seeds 1-20\n"
        "  brownout run store/X/RUN/shrunk.toml --world namespaces\n\n"
        "Ctrl-C keeps the smallest campaign so far. Exit 2: the anomaly does not reproduce as scripted steps, or the\n"
        "budget was used up before it did.",
    )
    command.add_argument("run", metavar="RUN", help="a failed run's directory, its name, or `latest`")
    command.add_argument("--anomaly", metavar="NAME", help="the anomaly to keep (default: the one the cell expects)")
    command.add_argument(
        "--budget", default="200", metavar="RUNS|TIME", help="the limit of the search: 200, 90s, 10m, 1h (default: 200)"
    )
    command.add_argument(
        "--tries",
        type=positive,
        default=2,
        metavar="N",
        help="seeds per candidate; as many of them must show the anomaly as at the start (default: 2)",
    )
    command.add_argument(
        "--output", type=Path, metavar="FILE", help="the file for the campaign (default: RUN/shrunk.toml)"
    )
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    json_option(command)
