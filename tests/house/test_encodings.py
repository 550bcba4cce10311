"""Every text that is read or written names its encoding, so that the machine's locale has no effect."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_rooms import ROOT, tracked

NO_TEXT = {"os", "tarfile", "zipfile"}
"""Modules whose `open` opens no text."""


def without_encoding(source: str) -> Iterator[int]:
    """The lines of the calls that read or write text and do not say in which encoding."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _is_text(node) and _keyword(node, "encoding") is None:
            yield node.lineno


def _is_text(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if any(_is_true(_keyword(call, key)) for key in ("text", "universal_newlines")):
        return True
    if name == "read_text":
        return not call.args
    if name == "write_text":
        return len(call.args) < 2
    return name in ("open", "fdopen", "NamedTemporaryFile", "TemporaryFile") and _opens_text(call, name)


def _opens_text(call: ast.Call, name: str) -> bool:
    """Whether it is an `open` that is certain to be one of text: other objects have methods of this name."""
    is_method = isinstance(call.func, ast.Attribute) and name == "open"
    if is_method and isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in NO_TEXT:
        return False
    place = 0 if is_method or name.endswith("File") else 1
    mode = _keyword(call, "mode") or (call.args[place] if len(call.args) > place else None)
    if mode is None:
        return not is_method and not name.endswith("File")
    text = mode.value if isinstance(mode, ast.Constant) else None
    return isinstance(text, str) and 0 < len(text) <= 3 and set(text) <= set("rwaxt+")


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def test_every_text_file_is_opened_with_an_encoding() -> None:
    found = [
        f"{name}:{line}"
        for name in tracked()
        if name.endswith(".py") and not name.startswith("tests/")
        for line in without_encoding((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("call", "is_found"),
    [
        ("open(path)", True),
        ("open(path, 'w')", True),
        ("open(path, 'rb')", False),
        ("open(path, encoding='ascii')", False),
        ("path.open('a')", True),
        ("disk.open(path, create=True)", False),
        ("path.read_text()", True),
        ("path.write_text(text)", True),
        ("path.write_text(text, 'utf-8')", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("os.fdopen(number, 'w')", True),
        ("tempfile.NamedTemporaryFile('w')", True),
        ("tempfile.NamedTemporaryFile()", False),
        ("subprocess.run(command, text=True)", True),
        ("subprocess.run(command, text=True, encoding='utf-8')", False),
        ("subprocess.run(command)", False),
    ],
)
def test_the_rule_can_fail(call: str, is_found: bool) -> None:
    assert bool(list(without_encoding(call))) is is_found


def test_the_check_covers_the_rooms() -> None:
    assert Path("orchestrator/command/line.py") in map(Path, tracked())
