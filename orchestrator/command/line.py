"""The command line: what can be asked, and how it is answered. The work is done in `orchestrator.command`."""

from __future__ import annotations

import argparse
import difflib
import errno
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from installation.sanitize import visible, visible_line
from orchestrator.campaign.model import FILESYSTEMS
from orchestrator.cleanup import described
from orchestrator.command import search_line
from orchestrator.command.options import (
    EXIT_CODES,
    Commands,
    add,
    engine_option,
    json_option,
    positive,
    store_option,
    world_option,
)
from orchestrator.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USAGE, UsageError
from systems.errors import ClusterError, InputError
from systems.toml_tables import suggestion

_DESCRIPTION = """\
Runs test campaigns against a replicated system and proves from what was recorded that committed data survived.

  brownout run                                  the demo campaign
  brownout run campaigns/kip101-scenario1.toml  another one
  brownout init                                 begin to test a system of your own
  brownout analyze latest                       judge a stored run again
  brownout gate store/demo                      decide over all its runs
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with the exit code for wrong usage that `sysexits.h` has. What is not known is refused by the command
    that it was given to, which prints its own usage and the nearest name that it has."""

    _given: Sequence[str] = ()

    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = [word for word in self._given if not self._is_known(word)]
        if unknown and message.startswith("the following arguments are required"):
            message = f"unrecognized arguments: {unknown[0]}{self._nearest(unknown)}"
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}\nfor more: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = sys.argv[1:] if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return found, unknown

    def _is_known(self, word: str) -> bool:
        """Whether it is no option, or one of this parser's, which may be shortened."""
        names = [name for action in self._actions for name in action.option_strings]
        return not word.startswith("--") or any(name.startswith(word.partition("=")[0]) for name in names)

    def _nearest(self, unknown: Sequence[str]) -> str:
        known = [name for action in self._actions for name in action.option_strings]
        given = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
        close = difflib.get_close_matches(given, known, 1)
        return f"; did you mean {close[0]}?" if close else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is not known; {suggestion(value, list(action.choices))}")


class _Version(argparse.Action):
    """Asks git only when it is asked."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from orchestrator.running.versions import commit, release

        print(f"{parser.prog} {release()} (commit {commit()})")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    root = _Parser(
        prog="brownout",
        description=_DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action=_Version, help="print version and commit")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for declare in (
        _run,
        _init,
        _analyze,
        _report,
        _gate,
        search_line.explore,
        search_line.replay,
        search_line.shrink,
        _system,
        _nodes,
        _image,
        _doctor,
        _docs,
        _install_packages,
        _mutants,
        _test,
        _quorum,
        _log,
    ):
        declare(commands)
    return root


def main(argv: list[str]) -> int:
    """Run one command; its exit code. Never raises for what a user or a machine can do wrong."""
    os.environ.setdefault("BROWNOUT_STARTED_NS", str(time.monotonic_ns()))
    try:
        options = parser().parse_args(argv)
        code = _dispatch(options, argv)
        sys.stdout.flush()  # a disk that is full is met here, not when Python ends
        return code
    except InputError as error:
        print(visible(f"brownout: {described(error)}"), file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("brownout: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except ClusterError as error:
        print(visible(f"brownout: {described(error)}"), file=sys.stderr)
        return EXIT_INTERNAL
    except Exception as error:
        if told := _no_path(error):
            print(visible(f"brownout: {told}; name another path"), file=sys.stderr)
            return EXIT_USAGE
        _tell_of(error)
        return EXIT_INTERNAL


def _no_path(error: Exception) -> str:
    """What is wrong with a path that nobody can make good, wherever it was met: its name is too long, or its links lead
    in a circle, which Python 3.11 says in its own way. Empty for all else."""
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop") else ""


def _tell_of(error: Exception) -> None:
    """What nobody foresaw, with where it happened; a full disk is told in a sentence."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = visible_line(f" ({error.filename})") if error.filename else ""
        print(
            f"brownout: the disk is full{where}; what was recorded stays: free some space, then go on", file=sys.stderr
        )
        return
    print(visible("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    print("brownout: this is a bug of Brownout itself; the text above says where", file=sys.stderr)


def _dispatch(options: argparse.Namespace, argv: list[str]) -> int:
    """Import only what the command needs: the first produce of a run should not wait for the analysis to load."""
    command: str = options.command
    if command == "run":
        from orchestrator.command import run

        return run.main(options, argv)
    if command == "init":
        from orchestrator.command import init

        return init.main(options.directory, options.workload)
    if command in search_line.COMMANDS:
        return search_line.dispatch(options)
    if command == "gate":
        from orchestrator.command import gate

        return gate.main(options)
    if command in ("analyze", "report"):
        from orchestrator.command import analyze

        return analyze.main(options)
    if command == "nodes":
        from orchestrator.command import nodes

        return nodes.main(options, argv)
    if command == "image":
        from orchestrator.command import image

        return image.main(options)
    if command == "system":
        from orchestrator.command import system

        return system.main(options)
    if command in ("quorum", "log"):
        from orchestrator.command import inspect

        return inspect.main(options)
    if command == "install-packages":
        from orchestrator.machine import packages

        return packages.install(options.names)
    if command == "docs":
        from orchestrator.command import documentation

        return documentation.main(options.words)
    if command == "mutants":
        from orchestrator.command import mutants

        return mutants.main(options)
    if command == "test":
        from orchestrator.command import test

        return test.main(options)
    from orchestrator.command import doctor

    return doctor.main(clean=options.clean, as_json=options.json)


def _run(commands: Commands) -> None:
    command = add(
        commands,
        "run",
        "make all runs of a campaign and judge them",
        "Makes every run of a campaign (each cell with each seed), judges each, and decides over them.\n\n"
        "  brownout run                                     the demo\n"
        "  brownout run campaigns/demo.toml --seeds 1-20    twenty seeds\n"
        "  brownout run X.toml --cell mutated --seed 3      one run of it: this is how a run is replayed\n"
        "  brownout run X.toml --resume                     go on where an interrupted invocation stopped\n"
        "  brownout run X.toml --dry-run                    only say what would be done\n\n"
        "Ctrl-C ends the run in order and keeps what was recorded; a second Ctrl-C ends it at once.",
    )
    command.add_argument(
        "campaign",
        nargs="?",
        default=None,
        metavar="CAMPAIGN",
        help="a TOML file, or the name of one in campaigns/ here or of those that Brownout brings (default: demo)",
    )
    command.add_argument("--cell", action="append", default=[], metavar="NAME", help="only this cell (may be repeated)")
    command.add_argument(
        "--seed", action="append", type=int, default=[], metavar="N", help="only this seed (repeatable)"
    )
    command.add_argument("--seeds", metavar="FIRST-LAST", help="these seeds instead of the campaign's")
    world_option(command)
    command.add_argument(
        "--keep",
        action="store_true",
        help="keep the world after the last run or a failure, until Ctrl-C",
    )
    command.add_argument("--resume", action="store_true", help="go on with the last, interrupted invocation")
    command.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    command.add_argument(
        "--no-pictures",
        action="store_true",
        help="draw nothing, as of simulated runs: `brownout analyze RUN` draws a run that is to be looked at",
    )
    command.add_argument("--quiet", action="store_true", help="no progress, only the result")
    store_option(command)
    engine_option(command)
    json_option(command)


def _init(commands: Commands) -> None:
    command = add(
        commands,
        "init",
        "begin to test a system of your own",
        "Writes a description of your system, a client, a campaign and a CI recipe, with comments, to be changed.\n"
        "Files that are there are never overwritten. docs/your-system.md is the tutorial.\n\n"
        "  brownout init                          into ./brownout-tests\n"
        "  brownout init tests/chaos --workload append-log",
    )
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path("brownout-tests"),
        metavar="DIR",
        help="where to; made if it is not there (default: brownout-tests)",
    )
    command.add_argument(
        "--workload",
        choices=("register", "append-log"),
        default="register",
        help="what the client does: keys that are read, written, compared and set, or a log that is appended to "
        "(default: register)",
    )


def _analyze(commands: Commands) -> None:
    command = add(
        commands,
        "analyze",
        "judge a stored run again",
        "Judges what a run recorded: also a run that was interrupted or killed, and a run of another system that has\n"
        "the same files. Writes verdict.json, plots and report.html into the run's directory.",
    )
    command.add_argument("run", nargs="+", metavar="RUN", help="a run's directory, its name, or `latest`")
    store_option(command)
    engine_option(command)
    command.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master, such as spark://host:7077 for a cluster whose workers see the store and this project "
        "under the same paths (default: local[2])",
    )
    json_option(command)


def _report(commands: Commands) -> None:
    command = add(
        commands,
        "report",
        "render the report of a run or campaign again",
        "Renders report.html from the verdicts that are there; for a campaign also summary.json and junit.xml.",
    )
    command.add_argument("path", metavar="RUN|CAMPAIGN", help="a directory in the store, a name, or `latest`")
    store_option(command)


def _gate(commands: Commands) -> None:
    command = add(
        commands,
        "gate",
        "decide over all that was planned: exit 0, 1 or 2",
        "Exit 0 when every planned run came to what was expected of it, 1 when one came to something else, 2 when\n"
        "one is missing, could not be judged, or has a verdict that cannot be believed: only half of one, or made of\n"
        "other files than are there now. Of a store every campaign is decided over, and the gravest counts.\n\n"
        "  brownout gate store/demo                     a campaign\n"
        "  brownout gate store                          all campaigns\n"
        '  brownout gate store --markdown >> "$GITHUB_STEP_SUMMARY"\n\n'
        "An invocation of the whole campaign takes the place of those before it in the same world; what came later\n"
        "counts too. gate.toml beside the store may ask for more: docs/gate.md.",
    )
    command.add_argument("path", metavar="STORE|CAMPAIGN|RUN", help="for example store/demo, or `latest`")
    command.add_argument(
        "--invocation",
        action="append",
        default=[],
        metavar="STAMP",
        help="decide over this invocation instead of those that count, by its stamp or the begin of it (repeatable)",
    )
    command.add_argument("--policy", type=Path, metavar="FILE", help="instead of gate.toml beside the store")
    store_option(command)
    form = command.add_mutually_exclusive_group()
    json_option(form)
    form.add_argument("--markdown", action="store_true", help="print Markdown on standard output, for a job's page")


def _nodes(commands: Commands) -> None:
    nodes = add(
        commands,
        "nodes",
        "bring nodes up without a campaign, enter them, take them down",
        "Brings the nodes of a world up and keeps them until they are taken down: to look around, to try things.\n\n"
        "  brownout nodes up --world vagrant      three virtual machines, provisioned\n"
        "  brownout nodes status                  which nodes are up, and what runs on them\n"
        "  brownout nodes ssh n1                  a shell on one (or: nodes ssh n1 -- uptime)\n"
        "  brownout nodes start | stop            the brokers on them\n"
        "  brownout nodes down",
    )
    inner = nodes.add_subparsers(dest="action", metavar="ACTION", required=True)
    up = add(inner, "up", "bring nodes up", "Makes the nodes of a world and returns; they stay until `nodes down`.")
    up.add_argument("--nodes", type=int, default=3, metavar="N", help="how many (default: 3)")
    up.add_argument("--filesystem", choices=FILESYSTEMS, default="ext4", help="of the data disks (default: ext4)")
    world_option(up)
    ssh = add(
        inner, "ssh", "enter a node, or run a command on it", "Opens a shell on a node, or runs one command there."
    )
    ssh.add_argument("node", metavar="NODE", help="such as n1")
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="instead of a shell")
    status = add(inner, "status", "which nodes are up", "Lists the nodes that are up, and whether their brokers run.")
    json_option(status)
    for name, summary in (
        ("start", "start the brokers"),
        ("stop", "stop the brokers"),
        ("down", "take the nodes down"),
    ):
        add(inner, name, summary, summary.capitalize() + ".")


def _system(commands: Commands) -> None:
    system = add(
        commands,
        "system",
        "the systems that can be tested, and their files",
        "Lists the systems that campaigns can test, and fetches the files of those that do not come with Brownout.\n"
        "Which files a version consists of, and the hash of each, is written down in its lock file,\n"
        "systems/<system>/versions/<version>.lock; nothing else is ever used.\n\n"
        "  brownout system list                           all systems, their versions, which are fetched\n"
        "  brownout system show apache-kafka 4.1.1        the files of one version\n"
        "  brownout system fetch apache-kafka 4.1.1       get them by Maven, once\n\n"
        "Without a network `fetch` says which files it wants and into which directory to put them by hand.",
    )
    inner = system.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add(inner, "list", "the systems there are", "Lists systems, their versions, and which are fetched.")
    json_option(listing)
    show = add(inner, "show", "what is known of one", "Shows a system's versions, or the files of one version.")
    show.add_argument("name", metavar="NAME", help="such as apache-kafka")
    show.add_argument("version", nargs="?", metavar="VERSION", help="such as 4.1.1: its files")
    json_option(show)
    fetch = add(
        inner,
        "fetch",
        "get the files of a version",
        "Gets the files of a version by Maven, checks their hashes, and keeps them in .cache/systems/. What is there\n"
        "is not fetched again; an interrupted fetch leaves nothing behind.",
    )
    fetch.add_argument("name", metavar="NAME", help="such as apache-kafka")
    fetch.add_argument("version", metavar="VERSION", help="such as 4.1.1")
    json_option(fetch)
    lock = add(
        inner,
        "lock",
        "write the lock file of a version",
        "Asks Maven for jars and all that they need when they run, and writes their hashes into the version's lock\n"
        "file: for a new version, or a new system on the JVM. Review the file, and keep it with the sources.\n\n"
        "  brownout system lock apache-kafka 4.1.1 org.apache.kafka:kafka_2.13:4.1.1 --without scala-reflect",
    )
    lock.add_argument("name", metavar="NAME", help="such as apache-kafka; its directory is made if need be")
    lock.add_argument("version", metavar="VERSION", help="such as 4.1.1")
    lock.add_argument("coordinate", nargs="+", metavar="COORDINATE", help="group:artifact:version[:classifier]")
    lock.add_argument(
        "--without", action="append", default=[], metavar="ARTIFACT", help="leave these out; may have * (repeatable)"
    )


def _image(commands: Commands) -> None:
    image = add(
        commands,
        "image",
        "build what virtual machines boot",
        "Builds the nodes' image from Debian packages: a Vagrant box for libvirt, and the same root filesystem for\n"
        "the namespace world. Everything is kept by its content: what is up to date is not built again.",
    )
    inner = image.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = add(inner, "build", "build it if it is not up to date", "Builds the image; two minutes, once.")
    build.add_argument(
        "--with",
        dest="options",
        action="append",
        default=[],
        metavar="WHAT",
        help="have this in it, too: java, for systems that run on it (repeatable)",
    )
    build.add_argument("--force", action="store_true", help="build it anew even when it is up to date")
    show = add(inner, "show", "where it is, and whether it is up to date", "Shows the image that campaigns would use.")
    json_option(show)
    add(inner, "remove", "remove all images", "Removes every image that was built.")


def _doctor(commands: Commands) -> None:
    command = add(
        commands,
        "doctor",
        "what this machine can run, and what to install",
        "Checks what each part of Brownout needs of the machine, and says how to get what is missing.\n"
        "Exit 0 when a campaign can run here (perhaps only in the process world), else 2.",
    )
    command.add_argument("--clean", action="store_true", help="remove what killed runs may have left behind")
    json_option(command)


def _docs(commands: Commands) -> None:
    command = add(
        commands,
        "docs",
        "read the documentation",
        "Prints what is installed, on a terminal by the pager.\n\n"
        "  brownout docs                  the list of pages\n"
        "  brownout docs your-system      one page\n"
        "  brownout docs power cut        the lines that have these words, with their pages",
    )
    command.add_argument("words", nargs="*", metavar="PAGE|WORD", help="the name of a page, or words to find")


def _mutants(commands: Commands) -> None:
    command = add(
        commands,
        "mutants",
        "the deliberate bugs that campaigns can switch on",
        "Lists the mutants of the broker: the rule that each breaks, the anomaly it must cause, and the schedule.\n\n"
        "  brownout mutants --seeds 1-20                    how many of 20 simulated runs kill each, and by what\n"
        "  brownout mutants NAME --seeds 1-20 --campaign X  one of them, under a campaign of your own\n\n"
        "Ctrl-C prints what was found until then. A run that is unknown says nothing of a mutant: shares are of those\n"
        "that were decided. Exit 1: a benign mutant raised an alarm. 2: of some mutant no run was decided.",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="only these mutants")
    command.add_argument(
        "--seeds", metavar="FIRST-LAST", help="run each mutant in the simulated world with these seeds"
    )
    command.add_argument(
        "--campaign",
        action="append",
        default=[],
        metavar="CAMPAIGN",
        help="under which they are tried (may be repeated); one that has no cell of a mutant is run with each switched "
        "on (default: the campaigns that the mutants' schedules name, and for others chaos-simulated)",
    )
    command.add_argument(
        "--jobs", type=positive, default=None, metavar="N", help="runs at the same time (default: one a processor)"
    )
    command.add_argument("--write", action="store_true", help="write the result into docs/mutants.md")
    json_option(command)


def _install_packages(commands: Commands) -> None:
    command = add(
        commands,
        "install-packages",
        "install system packages (root, Debian)",
        "Installs Debian packages by apt-get, without what they only recommend and without starting what they bring.\n"
        "`brownout doctor` names those that are missing.",
    )
    command.add_argument("names", nargs="+", metavar="NAME", help="a Debian package, or `java` for a fitting runtime")


def _test(commands: Commands) -> None:
    command = add(
        commands,
        "test",
        "run the tests",
        "Runs the tests with pytest on all cores: each test once, and of the tests that stand for many alike (broken\n"
        "rules, mutated runs, seeds) the changed ones and a part that rotates with the commit. Ctrl-C ends pytest and\n"
        "every process that the tests started.\n\n"
        "  brownout test                          the quick tier\n"
        "  brownout test --all                    every test, as CI does\n"
        "  brownout test -- -k quorum             what pytest selects with these arguments, on one core\n"
        "  brownout test -- -n 2 tests/broker     the same on two cores",
    )
    tier = command.add_mutually_exclusive_group()
    tier.add_argument("--all", dest="tier", action="store_const", const="all", help="run every test")
    tier.add_argument(
        "--rest", dest="tier", action="store_const", const="rest", help="run what the quick tier leaves out"
    )
    command.set_defaults(tier="quick")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- PYTEST ARGUMENTS", help="handed to pytest")


def _quorum(commands: Commands) -> None:
    quorum = add(commands, "quorum", "look at a metadata quorum", "Looks at the metadata quorum of a running cluster.")
    inner = quorum.add_subparsers(dest="action", metavar="ACTION", required=True)
    command = add(
        inner,
        "describe",
        "status and replication of the quorum",
        "Prints what `kafka-metadata-quorum describe` prints (KIP-595).\n\n"
        "  brownout quorum describe --bootstrap-server 127.0.0.1:9092 --replication",
    )
    command.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="any brokers of the cluster"
    )
    command.add_argument("--replication", action="store_true", help="one line per replica instead of the status")
    command.add_argument("--status", action="store_true", help="the status (the default)")
    command.add_argument("--timeout", type=float, default=10.0, metavar="S", help="give up after so many seconds")
    json_option(command)


def _log(commands: Commands) -> None:
    log = add(commands, "log", "look into log files", "Looks into the log directories that brokers write.")
    inner = log.add_subparsers(dest="action", metavar="ACTION", required=True)
    command = add(
        inner,
        "dump",
        "print the batches of a partition's files",
        "Prints what `kafka-dump-log` prints: one line for each batch, and with --records one for each record.\n\n"
        "  brownout log dump store/latest/nodes/n1/data/log-0 --records",
    )
    command.add_argument("directory", type=Path, metavar="DIR", help="a partition's directory, or one segment file")
    command.add_argument("--records", action="store_true", help="the records as well")
    json_option(command)
