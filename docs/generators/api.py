"""Writes docs/api.md, the reference of `brownout_api`, from its docstrings: `python -m docs.generators.api`."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import brownout_api
from brownout_api import testing

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "api.md"
INTRODUCTION: Final = """# The reference of brownout_api

Made by `python -m docs.generators.api` from the docstrings. A test fails if this page is out of date. A user's programs
import these names: `from brownout_api import Client, Refused`.
"""


def page() -> str:
    """The page as it should be."""
    names = sorted(set(brownout_api.__all__), key=lambda name: (name.islower(), name.lower()))
    sections = ["".join(_section(name, getattr(brownout_api, name))) for name in names]
    of_testing = [f"## testing\n\n{inspect.getdoc(testing)}\n\n"]
    of_testing += ["".join(_section(f"testing.{name}", getattr(testing, name))) for name in testing.__all__]
    return f"{INTRODUCTION}\n{''.join(sections + of_testing)}".rstrip() + "\n"


def _section(name: str, thing: Any) -> Iterator[str]:
    yield f"## {name}\n\n"
    if not callable(thing):
        module = ast.parse(inspect.getsource(sys.modules[type(thing).__module__]))
        yield f"{dict(_attributes(module.body))[f'{name}: Final = {thing}']}\n\n"
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(tree, ast.FunctionDef):
        yield f"```python\n{_head(tree)}\n```\n"
    yield f"{inspect.getdoc(thing)}\n\n"
    if isinstance(tree, ast.ClassDef) and (rows := list(_members(tree))):
        yield "| | |\n|---|---|\n" + "".join(f"| `{_cell(head)}` | {_cell(text)} |\n" for head, text in rows) + "\n"


def _members(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The public attributes and methods that a class defines, each with its text."""
    yield from _attributes(tree.body)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        if node.name == "__init__":
            yield from ((head, below) for head, below in _attributes(node.body) if below)
            if text:
                yield _head(node).replace("__init__", tree.name, 1), text
        elif any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list):
            yield f"{node.name}: {ast.unparse(node.returns or ast.Constant(None))}", text
        elif not node.name.startswith("_"):
            yield _head(node), text


def _attributes(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The public names that these statements assign, each with the text below it."""
    for node, below in zip(body, [*body[1:], None], strict=True):
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            yield ast.unparse(node), str(text)
        elif isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])).startswith("self.") and text:
            yield name.removeprefix("self."), str(text)


def _head(node: ast.FunctionDef) -> str:
    """A function's name, parameters and result; of a method without `self`."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return re.sub(r"^(self|cls)(, |$)", "", ast.unparse(node.args)).join((f"{node.name}(", f"){returns}"))


def _cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
