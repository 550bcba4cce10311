"""Writes docs/conformance.md from rules, marks, mutants and breaks: `python -m docs.generators.conformance`."""

import ast
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from broker.mutants import MUTANTS
from tests.conformance.breaks import breaks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
INTRODUCTION = """# What the broker conforms to

Made by `python -m docs.generators.conformance` from `docs/rules.toml`, the `@pytest.mark.conforms` marks on the tests,
the table of mutants and the tables of breaks. A test fails when this page is out of date. `--json` prints every test,
mutant and break of each rule.

*held*: a test names the rule, and that test fails on a mutant or a break of the rule. *partly*: a test names the rule.
*not yet*: no test names it. The column *killed* counts the mutants and the breaks of the rule; the tests find each of
them.

A *mutant* is a branch in the broker that a campaign's cell or a test switches on ([mutants.md](mutants.md)): a whole
cluster then runs without the rule. A *break* changes one place of the source in a copy of the project
(`tests/conformance/*.toml` has each with its reason). A break is killed when a test that names the rule passes on the
true source and fails on the broken one. A break that cannot be imported, does not end or raises a `NameError` counts as
not killed. `python -m tests.conformance` tries all breaks, with `--rule ID` those of one rule.

"""


def rules() -> list[dict[str, str]]:
    """The rules in their order: `id`, `section`, `text`."""
    content = tomllib.loads((ROOT / "docs" / "rules.toml").read_text(encoding="utf-8"))
    listed: list[dict[str, str]] = content["rule"]
    return listed


def marks() -> dict[str, list[str]]:
    """Rule id -> the tests that name it, as `path::function`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shared = [
            statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        ]
        for name, node in definitions(tree):
            for decorator in (*node.decorator_list, *(shared if name.startswith("test_") else ())):
                for rule in conforms(decorator):
                    found.setdefault(rule, []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Every function and class, methods under their class's name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield node.name, node
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}::{inner.name}", inner


def conforms(decorator: ast.expr) -> list[str]:
    """The ids of a `pytest.mark.conforms(...)` decorator; empty for any other."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.conforms"):
        return []
    return [str(argument.value) for argument in decorator.args if isinstance(argument, ast.Constant)]


@dataclass(frozen=True)
class Evidence:
    """What shows one rule: the tests that name it (`path::function`), its mutants by name, its breaks by name."""

    id: str
    section: str
    text: str
    tests: list[str]
    mutants: list[str]
    breaks: list[str]

    @property
    def state(self) -> str:
        """held, partly or not yet."""
        if not self.tests:
            return "not yet"
        return "held" if self.mutants or self.breaks else "partly"


def evidence() -> list[Evidence]:
    """All rules, in their order."""
    named = marks()
    return [
        Evidence(
            rule["id"],
            rule["section"],
            rule["text"],
            named.get(rule["id"], []),
            [mutant.name for mutant in MUTANTS.values() if mutant.rule == rule["id"]],
            [name for name, one in breaks().items() if one.rule == rule["id"]],
        )
        for rule in rules()
    ]


def page() -> str:
    """The page as it should be."""
    listed = evidence()
    counts = Counter(rule.state for rule in listed)
    total = ", ".join(f"{counts[state]} {state}" for state in ("held", "partly", "not yet"))
    lines = [INTRODUCTION + f"**{total}** of {len(listed)} rules."]
    for section, rules_of_section in groupby(listed, key=lambda rule: rule.section):
        lines += ["", f"## {section}", "| id | rule | state | a test | killed |", "|---|---|---|---|---|"]
        lines += [row(rule) for rule in rules_of_section]
    return "\n".join(lines) + "\n"


def row(rule: Evidence) -> str:
    """The rule's line of the table."""
    test = f"`{rule.tests[0]}`" if rule.tests else ""
    return f"| {rule.id} | {rule.text} | {rule.state} | {test} | {len(rule.mutants) + len(rule.breaks)} |"


def main(arguments: list[str]) -> None:
    """Write the page, or print its data as JSON."""
    if arguments == ["--json"]:
        print(json.dumps([{**asdict(rule), "state": rule.state} for rule in evidence()], indent=1))
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
