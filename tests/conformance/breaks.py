"""The type of a break: the smallest change of the source that breaks a rule, and the tests that notice it.

A mutant of `broker/mutants.py` is a branch of the broker itself, since a campaign needs it in a running broker. Most
rules need no such branch: a break is a change of the text, made only to a copy of the tree (`broken_tree.py`). The
breaks are in the tables beside this module, one for each section of rules.
"""

import ast
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).parent


class BadTableError(ValueError):
    """A table that cannot be read; says which, and what is wrong."""


class Break(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change that breaks one rule.

    `rule`: the id; `file`: from the root of the project; `old`: text that occurs there exactly once; `new`: its
    replacement; `why`: the resulting error; `tests`: `path::name` of tests that carry the rule's mark and pass on the
    true source. At least one of them fails on the broken source.
    """

    rule: str
    file: str
    old: str
    new: str
    why: str
    tests: list[str]

    def broken(self, true: str) -> str:
        """The source with the break in it. ValueError unless `old` occurs exactly once in `true`."""
        occurs = true.count(self.old)
        if occurs != 1:
            raise ValueError(f"{self.rule}: `old` occurs {occurs} times in {self.file}, not once: {self.old!r}")
        return true.replace(self.old, self.new)


def read(table: Path) -> list[Break]:
    """The breaks of a table, in their order. Raises BadTableError for invalid TOML and for missing or unknown keys."""
    try:
        content = tomllib.loads(table.read_text(encoding="utf-8"))
        return msgspec.convert(content["break"], list[Break])
    except KeyError:
        raise BadTableError(f"{table.name}: has no [[break]]") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadTableError(f"{table.name}: {error}; a [[break]] has {', '.join(Break.__struct_fields__)}") from None


@cache
def breaks() -> dict[str, Break]:
    """All breaks, by name: that of the rule, and a number behind it from the rule's second break on (`K101-5.2`)."""
    named: dict[str, Break] = {}
    for table in sorted(TABLES.glob("*.toml")):
        for one in read(table):
            others = sum(other.rule == one.rule for other in named.values())
            named[f"{one.rule}.{others + 1}" if others else one.rule] = one
    return named


def faults(one: Break, root: Path, marks: Mapping[str, Collection[str]]) -> Iterator[str]:
    """What is wrong with a break, as sentences that name its rule and the file. `marks`: rule -> tests that name it."""
    if not one.tests:
        yield f"{one.rule}: names no tests"
    for test in one.tests:
        if test.split("[")[0] not in marks.get(one.rule, ()):
            yield f"{one.rule}: there is no {test} that is marked conforms({one.rule!r})"
    path = root / one.file
    if not path.is_file():
        yield f"{one.rule}: there is no {one.file}"
        return
    try:
        broken = one.broken(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield str(error)
        return
    if path.suffix == ".py":
        yield from faults_of_source(one, path.read_text(encoding="utf-8"), broken)


def faults_of_source(one: Break, true: str, broken: str) -> Iterator[str]:
    """A break leaves a program, and another one than it was."""
    try:
        if ast.dump(ast.parse(broken)) == _program(true):
            yield f"{one.rule}: the break changes nothing that runs in {one.file}"
    except SyntaxError as error:
        yield f"{one.rule}: {one.file} is no program any more: {error}"


@cache
def _program(true: str) -> str:
    """What a true source does; once, for many breaks are of one file."""
    return ast.dump(ast.parse(true))
