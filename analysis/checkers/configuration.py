"""The nodes' configuration files: each node has those that `run.toml` states, line by line.

`[configuration.<node>]` of run.toml has, for each file, its lines as glob patterns. In a pattern, `*` stands for what
depends on the run's name and on the place of the node: addresses, ports, directories. `[settings]` of run.toml, by
which other checkers judge, is what these files set. Its times are those of an ordinary world, and those of the files
are multiplied by the world's time scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape
from itertools import zip_longest
from typing import Final

from analysis.checker import PLAN, CheckedRun, Checker, Outcome
from analysis.doubt import Reason
from analysis.evidence.run_directory import RunDescription
from analysis.verdict import NOT_APPLICABLE, PASS, UNKNOWN
from history.regular_files import read_text
from history.time_scale import scaled
from installation.counted import counted
from installation.sanitize import quoted

KAFKA: Final = "kafka"
"""The replica format of systems whose settings are in properties files."""
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
                found = read_text(run.directory / path).splitlines()
            except (OSError, UnicodeDecodeError) as error:
                yield f"{path}, which shows how {node} was configured, cannot be read: {error}"
                continue
            if difference := different_line(stated, found):
                yield f"{path} is not the configuration that run.toml states: {difference}"
        yield from _other_settings(node, description)


def different_line(stated: Sequence[str], found: Sequence[str]) -> str:
    """The first difference, as the end of a sentence; empty without one."""
    for number, (due, line) in enumerate(zip_longest(stated, found), 1):
        if due is None:
            return f"line {number} is {quoted(line)}, and there should be none"
        if line is None:
            return f"it has no line {quoted(due)}"
        if not fnmatchcase(line, due):
            return f"line {number} is {quoted(line)}, not {quoted(due)}"
    return ""


def _other_settings(node: str, description: RunDescription) -> Iterator[str]:
    """Settings of `run.toml` that the stated files of a node do not set, or set to another value."""
    sets: dict[str, str] = {}
    for lines in description.configuration[node].values():
        sets |= {_key(line): line.partition("=")[2] for line in lines if "=" in line}
    settings = description.node_settings.get(node, {})
    in_files = description.replica_format == KAFKA and not sets.keys().isdisjoint(settings)
    for key, value in settings.items():
        if key not in sets:
            if in_files:
                yield f"[settings] of run.toml has {key} = {value} for {node}, whose configuration files do not set it"
        elif "*" not in sets[key] and sets[key] not in map(escape, _values(value, description.time_scale)):
            yield f"[settings] of run.toml has {key} = {value} for {node}, and its configuration files have {sets[key]}"


def _values(value: str, time_scale: float) -> Iterator[str]:
    """A setting as a file may have it: unchanged, or as a time of a slower world."""
    yield value
    if value.isascii() and value.isdigit():
        yield str(scaled(int(value), time_scale))


def _key(line: str) -> str:
    """The key that a line of a properties file sets; empty for another line."""
    key, equals, _ = line.partition("=")
    return key.strip() if equals and not line.lstrip().startswith("#") else ""


def _states_none(description: RunDescription) -> bool:
    return not description.configuration


CHECKER: Final = Checker(
    "configuration",
    "Were the nodes given the configuration that run.toml states?",
    7,
    (),
    check,
    (MISCONFIGURED,),
    may_rest=_states_none,
    reads=f"{PLAN}|nodes/[^/]+/(?!(data|earlier)(/|$)).*",
)
