"""The command line: declares every command and its options, and calls the module of the command that was given."""

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
Runs test campaigns against a replicated system and proves from the recorded evidence that committed data survived.

  brownout run                                  the demo campaign
  brownout run campaigns/kip101-scenario1.toml  another campaign
  brownout init                                 start to test your own system
  brownout analyze latest                       analyze a stored run again
  brownout gate store/demo                      decide over all planned runs of a campaign
"""


class _Parser(argparse.ArgumentParser):
    """argparse with exit code 64 (EX_USAGE of `sysexits.h`) for wrong usage. The subcommand that got an unknown option
    reports it, with its own usage and the nearest option that it has."""

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
        """Whether `word` is not an option, or is an option of this parser or an abbreviation of one."""
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
    """Prints version and commit. Runs git only when `--version` is given, since that takes tens of milliseconds."""

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
    """Run one command and return its exit code. Does not raise for mistakes of the user or faults of the machine."""
    os.environ.setdefault("BROWNOUT_STARTED_NS", str(time.monotonic_ns()))
    try:
        options = parser().parse_args(argv)
        code = _dispatch(options, argv)
        sys.stdout.flush()  # a full disk is detected here and not when Python ends
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
        if message := _unusable_path(error):
            print(visible(f"brownout: {message}; name another path"), file=sys.stderr)
            return EXIT_USAGE
        _report_unexpected(error)
        return EXIT_INTERNAL


def _unusable_path(error: Exception) -> str:
    """The message for a path that is unusable on any machine: its name is too long, or its symbolic links form a loop
    (Python 3.11 raises RuntimeError for that). Empty for every other error."""
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop") else ""


def _report_unexpected(error: Exception) -> None:
    """Print an error that no code handled, with its traceback. A full disk is one sentence without traceback."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = visible_line(f" ({error.filename})") if error.filename else ""
        print(
            f"brownout: the disk is full{where}; recorded files are kept; free some space and continue", file=sys.stderr
        )
        return
    print(visible("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    print("brownout: this is a bug of Brownout; the traceback above shows where", file=sys.stderr)


def _dispatch(options: argparse.Namespace, argv: list[str]) -> int:
    """Import only the module of the command: a run's first produce must not wait until the analysis is imported."""
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
        "make all runs of a campaign and analyze them",
        "Makes every run of a campaign (each cell with each seed), analyzes each, and decides over all.\n\n"
        "  brownout run                                     the demo campaign\n"
        "  brownout run campaigns/demo.toml --seeds 1-20    twenty seeds\n"
        "  brownout run X.toml --cell mutated --seed 3      one run; this repeats an earlier run\n"
        "  brownout run X.toml --resume                     continue an interrupted invocation\n"
        "  brownout run X.toml --dry-run                    print the plan only\n\n"
        "Ctrl-C stops the run, heals its faults and keeps its evidence. A second Ctrl-C aborts at once.\n"
        "Exit code: the gate's decision over the planned runs.",
    )
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
    command.add_argument("--seeds", metavar="FIRST-LAST", help="these seeds in place of the campaign's")
    world_option(command)
    command.add_argument(
        "--keep",
        action="store_true",
        help="keep the nodes after the last run or after a failure, until Ctrl-C",
    )
    command.add_argument("--resume", action="store_true", help="continue the last interrupted invocation")
    command.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    command.add_argument(
        "--no-plots",
        action="store_true",
        help="skip the plots; `brownout analyze RUN` makes them later (simulated runs have none by default)",
    )
    command.add_argument("--no-pictures", dest="no_plots", action="store_true", help=argparse.SUPPRESS)
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    engine_option(command)
    json_option(command)


def _init(commands: Commands) -> None:
    command = add(
        commands,
        "init",
        "start to test your own system",
        "Writes a system description, a client, a campaign and a CI recipe, with comments, for you to edit.\n"
        "Existing files are never overwritten. The tutorial is docs/your-system.md.\n\n"
        "  brownout init                          into ./brownout-tests\n"
        "  brownout init tests/chaos --workload append-log",
    )
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path("brownout-tests"),
        metavar="DIR",
        help="the directory to write to; created if missing (default: brownout-tests)",
    )
    command.add_argument(
        "--workload",
        choices=("register", "append-log"),
        default="register",
        help="what the client operates on: keys with read, write and compare-and-set, or a log with append and read "
        "(default: register)",
    )


def _analyze(commands: Commands) -> None:
    command = add(
        commands,
        "analyze",
        "analyze a stored run again",
        "Analyzes the evidence of a run: also of an interrupted or killed run, and of another tool's run that has the\n"
        "same files. Writes verdict.json, plots and report.html into the run's directory.\n"
        "Exit code: the worst verdict of the given runs.",
    )
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


def _report(commands: Commands) -> None:
    command = add(
        commands,
        "report",
        "render the report of a run or campaign again",
        "Renders report.html from the stored verdicts; for a campaign also summary.json and junit.xml.",
    )
    command.add_argument("path", metavar="RUN|CAMPAIGN", help="a directory in the store, a name, or `latest`")
    store_option(command)


def _gate(commands: Commands) -> None:
    command = add(
        commands,
        "gate",
        "decide over all planned runs: exit 0, 1 or 2",
        "Exit 0: every planned run met its expectation. 1: a run did not. 2: a run is missing or undecided, or its\n"
        "verdict is not trustworthy (incomplete, or made from files that were changed since). The decision over a "
        "store\n"
        "is the worst one over its campaigns.\n\n"
        "  brownout gate store/demo                     a campaign\n"
        "  brownout gate store                          all campaigns\n"
        '  brownout gate store --markdown >> "$GITHUB_STEP_SUMMARY"\n\n'
        "An invocation of the whole campaign supersedes earlier invocations in the same world. Later partial\n"
        "invocations count in addition. A gate.toml beside the store can demand more: docs/gate.md.",
    )
    command.add_argument("path", metavar="STORE|CAMPAIGN|RUN", help="a path such as store/demo, or `latest`")
    command.add_argument(
        "--invocation",
        action="append",
        default=[],
        metavar="STAMP",
        help="decide over this invocation only; STAMP or the first characters of it (repeatable)",
    )
    command.add_argument("--policy", type=Path, metavar="FILE", help="the policy (default: gate.toml beside the store)")
    store_option(command)
    form = command.add_mutually_exclusive_group()
    json_option(form)
    form.add_argument("--markdown", action="store_true", help="print Markdown, for the summary page of a CI job")


def _nodes(commands: Commands) -> None:
    nodes = add(
        commands,
        "nodes",
        "start nodes without a campaign, log in, take them down",
        "Starts the nodes of a world and keeps them until `nodes down`, for interactive work.\n\n"
        "  brownout nodes up --world vagrant      three virtual machines, provisioned\n"
        "  brownout nodes status                  which nodes are up, and the state of their brokers\n"
        "  brownout nodes ssh n1                  a shell on a node (or a command: nodes ssh n1 -- uptime)\n"
        "  brownout nodes start | stop            start or stop the brokers\n"
        "  brownout nodes down                    take the nodes down",
    )
    inner = nodes.add_subparsers(dest="action", metavar="ACTION", required=True)
    up = add(inner, "up", "start nodes", "Starts the nodes of a world and returns; they stay until `nodes down`.")
    up.add_argument("--nodes", type=int, default=3, metavar="N", help="the number of nodes (default: 3)")
    up.add_argument("--filesystem", choices=FILESYSTEMS, default="ext4", help="on the data disks (default: ext4)")
    world_option(up)
    ssh = add(
        inner, "ssh", "log in to a node, or run a command on it", "Opens a shell on a node, or runs one command there."
    )
    ssh.add_argument("node", metavar="NODE", help="such as n1")
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command (default: a shell)")
    status = add(inner, "status", "list the nodes that are up", "Lists the nodes that are up and their brokers' state.")
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
        "list systems under test, fetch their files",
        "Lists the systems that campaigns can test, and fetches the files of systems that Brownout does not contain.\n"
        "A version's lock file, systems/<system>/versions/<version>.lock, has its files with their digests. Only "
        "files\n"
        "with these digests are used.\n\n"
        "  brownout system list                           all systems, their versions, which are fetched\n"
        "  brownout system show apache-kafka 4.1.1        the files of one version\n"
        "  brownout system fetch apache-kafka 4.1.1       download them with Maven, once\n\n"
        "Without a network, `fetch` prints which files it needs and the directory for them.",
    )
    inner = system.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add(inner, "list", "list all systems", "Lists systems, their versions, and which versions are fetched.")
    json_option(listing)
    show = add(inner, "show", "show one system", "Shows a system's versions, or the files of one version.")
    show.add_argument("name", metavar="NAME", help="such as apache-kafka")
    show.add_argument("version", nargs="?", metavar="VERSION", help="such as 4.1.1: show the files of this version")
    json_option(show)
    fetch = add(
        inner,
        "fetch",
        "download the files of a version",
        "Downloads the files of a version with Maven, checks their digests, and stores them in .cache/systems/. Files\n"
        "that exist are not downloaded again. An interrupted fetch leaves no partial files.",
    )
    fetch.add_argument("name", metavar="NAME", help="such as apache-kafka")
    fetch.add_argument("version", metavar="VERSION", help="such as 4.1.1")
    json_option(fetch)
    lock = add(
        inner,
        "lock",
        "write the lock file of a version",
        "Resolves jars and their runtime dependencies with Maven, and writes their digests into the version's lock\n"
        "file: for a new version, or a new system on the JVM. Review the file and commit it.\n\n"
        "  brownout system lock apache-kafka 4.1.1 org.apache.kafka:kafka_2.13:4.1.1 --without scala-reflect",
    )
    lock.add_argument("name", metavar="NAME", help="such as apache-kafka; its directory is created if missing")
    lock.add_argument("version", metavar="VERSION", help="such as 4.1.1")
    lock.add_argument("coordinate", nargs="+", metavar="COORDINATE", help="group:artifact:version[:classifier]")
    lock.add_argument(
        "--without", action="append", default=[], metavar="ARTIFACT", help="exclude it; may contain * (repeatable)"
    )


def _image(commands: Commands) -> None:
    image = add(
        commands,
        "image",
        "build the image that nodes boot",
        "Builds the nodes' image from Debian packages: a Vagrant box for libvirt, and the same root filesystem for\n"
        "the namespaces world. The image's key is a digest of its inputs; an image that is up to date is not rebuilt.",
    )
    inner = image.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = add(inner, "build", "build the image unless it is up to date", "Builds the image; takes two minutes.")
    build.add_argument(
        "--with",
        dest="options",
        action="append",
        default=[],
        metavar="WHAT",
        help="include this software: java, for systems on the JVM (repeatable)",
    )
    build.add_argument("--force", action="store_true", help="rebuild an image that is up to date")
    show = add(inner, "show", "show the image and its state", "Shows the image that campaigns would use.")
    json_option(show)
    add(inner, "remove", "remove all images", "Removes all images that were built.")


def _doctor(commands: Commands) -> None:
    command = add(
        commands,
        "doctor",
        "what this machine can run, and what to install",
        "Checks what each world and option of Brownout needs from the machine, and how to install what is missing.\n"
        "Exit 0: campaigns can run here, at least in the process world. Exit 2: they cannot.",
    )
    command.add_argument("--clean", action="store_true", help="remove what killed runs left behind")
    json_option(command)


def _docs(commands: Commands) -> None:
    command = add(
        commands,
        "docs",
        "read the documentation",
        "Prints the documentation of this installation; on a terminal, in the pager.\n\n"
        "  brownout docs                  the list of pages\n"
        "  brownout docs your-system      one page\n"
        "  brownout docs power cut        the lines with these words, and their pages",
    )
    command.add_argument("words", nargs="*", metavar="PAGE|WORD", help="the name of a page, or words to search for")


def _mutants(commands: Commands) -> None:
    command = add(
        commands,
        "mutants",
        "list or measure the deliberate bugs that campaigns can switch on",
        "Lists the mutants of the broker: the rule that each breaks, the anomaly it must cause, and its campaign.\n\n"
        "  brownout mutants --seeds 1-20                    how many of 20 simulated runs kill each mutant\n"
        "  brownout mutants NAME --seeds 1-20 --campaign X  one mutant, under your own campaign\n\n"
        "Ctrl-C stops and prints the results so far. Unknown runs are not counted: shares are of the decided runs.\n"
        "Exit 1: a benign mutant raised an alarm. Exit 2: a mutant has no decided run.",
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
        help="the campaign to run (repeatable). One without a cell for a mutant is run with the mutant switched on "
        "(default: the campaign that the mutant names, else chaos-simulated)",
    )
    command.add_argument(
        "--jobs", type=positive, default=None, metavar="N", help="concurrent runs (default: the number of cores)"
    )
    command.add_argument("--write", action="store_true", help="write the result into docs/mutants.md")
    json_option(command)


def _install_packages(commands: Commands) -> None:
    command = add(
        commands,
        "install-packages",
        "install system packages (root, Debian)",
        "Installs Debian packages with apt-get, without recommended packages and without starting their services.\n"
        "`brownout doctor` lists the missing ones.",
    )
    command.add_argument("names", nargs="+", metavar="NAME", help="a Debian package, or `java` for a suitable runtime")


def _test(commands: Commands) -> None:
    command = add(
        commands,
        "test",
        "run the tests",
        "Runs the tests with pytest on all cores. The quick tier runs each test once; of groups of similar tests\n"
        "(breaks, mutated runs, seeds) it runs the changed ones and a part that rotates with the commit. Ctrl-C ends\n"
        "pytest and every process that the tests started.\n\n"
        "  brownout test                          the quick tier\n"
        "  brownout test --all                    every test, as CI does\n"
        "  brownout test -- -k quorum             the tests that pytest selects with these arguments, on one core\n"
        "  brownout test -- -n 2 tests/broker     the same on two cores",
    )
    tier = command.add_mutually_exclusive_group()
    tier.add_argument("--all", dest="tier", action="store_const", const="all", help="run every test")
    tier.add_argument(
        "--rest", dest="tier", action="store_const", const="rest", help="run what the quick tier leaves out"
    )
    command.set_defaults(tier="quick")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- PYTEST ARGUMENTS", help="passed to pytest")


def _quorum(commands: Commands) -> None:
    quorum = add(commands, "quorum", "inspect a metadata quorum", "Inspects the metadata quorum of a running cluster.")
    inner = quorum.add_subparsers(dest="action", metavar="ACTION", required=True)
    command = add(
        inner,
        "describe",
        "status and replication of the quorum",
        "Prints the same as `kafka-metadata-quorum describe` (KIP-595).\n\n"
        "  brownout quorum describe --bootstrap-server 127.0.0.1:9092 --replication",
    )
    command.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="one or more brokers of the cluster"
    )
    command.add_argument("--replication", action="store_true", help="one line per replica instead of the status")
    command.add_argument("--status", action="store_true", help="the status (the default)")
    command.add_argument("--timeout", type=float, default=10.0, metavar="S", help="the timeout (default: 10 s)")
    json_option(command)


def _log(commands: Commands) -> None:
    log = add(commands, "log", "inspect log files", "Inspects the log directories that brokers write.")
    inner = log.add_subparsers(dest="action", metavar="ACTION", required=True)
    command = add(
        inner,
        "dump",
        "print the batches of a partition's files",
        "Prints the same as `kafka-dump-log`: one line per batch, and with --records one line per record.\n\n"
        "  brownout log dump store/latest/nodes/n1/data/log-0 --records",
    )
    command.add_argument("directory", type=Path, metavar="DIR", help="a partition's directory, or one segment file")
    command.add_argument("--records", action="store_true", help="print the records, too")
    json_option(command)
