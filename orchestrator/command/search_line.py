"""The command lines of what is done with many simulated runs, and with one that is worth it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from orchestrator.command.options import Commands, add, engine_option, json_option, positive, store_option

COMMANDS: Final = frozenset({"explore", "replay", "shrink"})


def dispatch(options: argparse.Namespace) -> int:
    """Do what one of `COMMANDS` asks; its exit code."""
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
        "make many simulated runs of a campaign, led by where they have been",
        "Runs seeds of a campaign with random faults in the simulated world, on all cores, and varies the schedules\n"
        "of those that reached abstract states nobody was in before. The cheapest run of each anomaly is kept in the\n"
        "store as an ordinary run, with its report; from there: brownout replay, brownout shrink.\n\n"
        "  brownout explore demo --runs 500                     until the first failure\n"
        "  brownout explore X.toml --runs 2000 --keep-going\n"
        "  brownout explore X.toml --cell mutated --compare     guided and plain random, with as many runs each\n"
        "  brownout explore X.toml --master spark://host:7077 --round 64\n"
        "                                                       on a cluster\n"
        "  brownout explore X.toml --resume                     go on where it was interrupted, or behind the failure\n"
        "                                                       at which it stopped\n\n"
        "The same campaign, first seed, number and rounds of runs explore the same, on any number of cores. Ctrl-C\n"
        "keeps what was found: each run that was made, with Spark each round. Exit 0: what was found is what is\n"
        "expected of the cell (nothing, or a mutant's anomaly). 2: all that could tell was unknown.\n\n"
        "A cluster's workers need this project and its Python at the same paths as here, Java, and a place to write\n"
        "at the store's path; campaigns are sent to them, runs are not kept there. They connect back to this machine\n"
        "(SPARK_LOCAL_IP=ADDRESS brownout explore ... says by which address).",
    )
    command.add_argument("campaign", metavar="CAMPAIGN", help="a file, or the name of one of Brownout's")
    command.add_argument("--cell", metavar="NAME", help="of the campaign (default: the first that is to pass)")
    # None where it is not given: --resume takes none of them.
    command.add_argument("--runs", type=positive, metavar="N", help="how many runs, of each way (default: 200)")
    command.add_argument(
        "--round",
        type=positive,
        metavar="N",
        help="runs that are made side by side, before anything is learned of them; for a cluster at least as many as "
        "it has cores (default: 4)",
    )
    command.add_argument("--first", type=int, metavar="SEED", help="the first seed (default: 1)")
    command.add_argument("--keep-going", action="store_true", default=None, help="do not stop at the first failure")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--random", action="store_true", default=None, help="seeds only, no variations")
    how.add_argument(
        "--compare", action="store_true", default=None, help="guided, then random with as many runs; keeps going"
    )
    command.add_argument("--resume", action="store_true", help="go on with the last exploration of the campaign")
    engine_option(command)
    command.add_argument("--master", metavar="URL", help="the Spark master (default: local, with all cores)")
    command.add_argument("--quiet", action="store_true", help="no progress, only the result")
    store_option(command)
    json_option(command)


def replay(commands: Commands) -> None:
    """`brownout replay`."""
    command = add(
        commands,
        "replay",
        "make a simulated run again, with its trace and pictures",
        "Makes a run of the simulated world again and checks that it is the same, by the digest of all that happened.\n"
        "Beside its record the new run has trace.txt (what each node did and said, in virtual time), messages.jsonl,\n"
        "and in its report the nodes' lives and a space-time diagram around what went wrong.\n\n"
        "  brownout replay latest\n"
        "  brownout replay store/demo/20260801T10000042-main-7\n"
        "  brownout replay 7 --campaign demo                    a seed, whether it was run before or not\n"
        "  brownout replay 7 --campaign X.toml --cell mutated\n\n"
        "Exit 0: the same run. 1: another one, of the same code: something is not decided by the seed. 2: nobody can\n"
        "tell, for the code or what is stored of the run has changed since, or the seed was never run.",
    )
    command.add_argument("run", metavar="RUN|SEED", help="a run's directory, its name, `latest`, or a seed")
    command.add_argument("--campaign", metavar="CAMPAIGN", help="of the seed: a file, or the name of one of Brownout's")
    command.add_argument("--cell", metavar="NAME", help="of the campaign (default: its only one)")
    command.add_argument("--quiet", action="store_true", help="no progress, only the result")
    store_option(command)
    json_option(command)


def shrink(commands: Commands) -> None:
    """`brownout shrink`."""
    command = add(
        commands,
        "shrink",
        "find the smallest schedule that still shows a simulated run's anomaly",
        "Takes faults, steps, clients, nodes and time away from a failed run of the simulated world, as long as the\n"
        "same anomaly stays, and writes what is left as a campaign of steps. That is an ordinary campaign: it runs in\n"
        "every world that has its faults. At the end it is run with ten seeds, to say how surely it shows it.\n\n"
        "  brownout shrink latest\n"
        "  brownout shrink store/X/RUN --budget 10m --output campaigns/smaller.toml\n"
        "  brownout run store/X/RUN/shrunk.toml --world simulation --seeds 1-20\n"
        "  brownout run store/X/RUN/shrunk.toml --world namespaces\n\n"
        "Ctrl-C keeps the smallest so far. Exit 2: as steps it does not show the anomaly any more, or the budget does\n"
        "not even tell that.",
    )
    command.add_argument("run", metavar="RUN", help="a failed run's directory, its name, or `latest`")
    command.add_argument("--anomaly", metavar="NAME", help="what has to stay (default: what is expected of the cell)")
    command.add_argument(
        "--budget", default="200", metavar="RUNS|TIME", help="how much may be tried: 200, 90s, 10m, 1h (default: 200)"
    )
    command.add_argument(
        "--tries",
        type=positive,
        default=2,
        metavar="N",
        help="seeds with which each candidate is run; as many as at first have to show the anomaly (default: 2)",
    )
    command.add_argument(
        "--output", type=Path, metavar="FILE", help="where the campaign goes (default: RUN/shrunk.toml)"
    )
    command.add_argument("--quiet", action="store_true", help="no progress, only the result")
    store_option(command)
    json_option(command)
