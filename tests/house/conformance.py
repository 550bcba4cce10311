"""Makes docs/conformance.md from rules, marks on tests, mutants and breaks: `python -m tests.house.conformance`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from broker.mutants import MUTANTS
from tests.conformance.breaks import breaks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
INTRODUCTION = """# What the broker conforms to

Made by `python -m tests.house.conformance` from `docs/rules.toml`, the `@pytest.mark.conforms` marks on the tests, the
table of mutants and the tables of breaks; a test fails when this page is out of date.

*held*: a test names the rule, and a mutant or a break of it is killed. *partly*: a test names it. *not yet*: nothing
does.

A *mutant* is a branch of the broker itself, off unless a campaign's cell or a test names it ([mutants.md](mutants.md)):
with it a whole cluster runs that breaks the rule. A *break* is a change of one place in the source, made to a copy of
the project and nowhere else (`tests/conformance/*.toml`, each with what is wrong then): it is killed when tests that
name the rule, and pass on the true source, fail on the broken one. What cannot be imported, does not end, gives up
waiting or fails for a name that is not there kills nothing. The tests try all of them, and so
does `python -m tests.conformance`, with `--rule ID` those of one rule.

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
        for name, node in definitions(tree):
            for decorator in node.decorator_list:
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


def page() -> str:
    """The page as it should be."""
    named, mutants = marks(), {mutant.rule: mutant.name for mutant in MUTANTS.values()}
    broken: dict[str, str] = {}
    for one in breaks().values():
        broken.setdefault(one.rule, one.file)
    lines, counts, section = [], {"held": 0, "partly": 0, "not yet": 0}, ""
    for rule in rules():
        if rule["section"] != section:
            section = rule["section"]
            lines += ["", f"## {section}", "| id | rule | state | shown by |", "|---|---|---|---|"]
        tests = named.get(rule["id"], [])
        mutant, file = mutants.get(rule["id"]), broken.get(rule["id"])
        state = "held" if tests and (mutant or file) else "partly" if tests else "not yet"
        counts[state] += 1
        shown = ", ".join(f"`{test.removeprefix('tests/')}`" for test in tests[:2])
        shown += f" and {len(tests) - 2} more" if len(tests) > 2 else ""
        shown += f"; mutant `{mutant}`" if mutant else ""
        shown += f"; break of `{file}`" if file else ""
        lines.append(f"| {rule['id']} | {rule['text']} | {state} | {shown} |")
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    return INTRODUCTION + f"**{total}** of {sum(counts.values())} rules.\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
