"""The nodes' configuration files: each node has those that `run.toml` states, line by line.

`[configuration.<node>]` of run.toml has, for each file, its lines as glob patterns. In a pattern, `*` stands for what
depends on the run's name and on the place of the node: addresses, ports, directories.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Final

from analysis.checker import PLAN, CheckedRun, Checker, Outcome
from analysis.doubt import Reason
from analysis.verdict import NOT_APPLICABLE, PASS, UNKNOWN
from history.regular_files import read_text
from installation.counted import counted
from installation.sanitize import quoted

MISCONFIGURED: Final = Reason(
    "node-misconfigured", "A node's configuration file is missing, or is not what run.toml states."
)


def check(run: CheckedRun) -> Outcome:
    """Compare each file of each node."""
    if not run.description.configuration:
        return Outcome(NOT_APPLICABLE, "run.toml states no configuration files of nodes")
    doubts = tuple(_doubts(run))
    if doubts:
        return Outcome(UNKNOWN, "the configuration of nodes is not known", doubts=MISCONFIGURED.say(doubts))
    count = sum(map(len, run.description.configuration.values()))
    return Outcome(PASS, f"{counted(count, 'configuration file')} of nodes as run.toml states")


def _doubts(run: CheckedRun) -> Iterator[str]:
    description = run.description
    if missing := set(description.node_names) - set(description.configuration):
        yield f"run.toml states no configuration files of {', '.join(sorted(missing))}"
    for node, files in description.configuration.items():
        for name, stated in files.items():
            path = f"nodes/{node}/{name}"
            try:
                lines = read_text(run.directory / path).splitlines()
            except (OSError, UnicodeDecodeError) as error:
                yield f"{path}, which shows how {node} was configured, cannot be read: {error}"
                continue
            if difference := different_line(stated, lines):
                yield f"{path} is not the configuration that run.toml states: {difference}"


def different_line(stated: Sequence[str], lines: Sequence[str]) -> str:
    """The first difference, as the end of a sentence; empty without one."""
    for number, (due, line) in enumerate(zip_longest(stated, lines), 1):
        if due is None:
            return f"line {number} is {quoted(line)}, and there should be none"
        if line is None:
            return f"it has no line {quoted(due)}"
        if not fnmatchcase(line, due):
            return f"line {number} is {quoted(line)}, not {quoted(due)}"
    return ""


CHECKER: Final = Checker(
    "configuration",
    "Were the nodes given the configuration that run.toml states?",
    7,
    (),
    check,
    (MISCONFIGURED,),
    may_rest=lambda description: not description.configuration,
    reads=f"{PLAN}|nodes/[^/]+/(?!(data|earlier)(/|$)).*",
)
