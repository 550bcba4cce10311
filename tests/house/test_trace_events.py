"""The broker traces exactly the events of `broker.trace.EVENTS`: scripts wait for these names, the analysis reads
them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from broker.trace import EVENTS

BROKER = Path(__file__).resolve().parents[2] / "broker"


def emitted() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Where an event is emitted by its name, that name, and its fields."""
    for path in BROKER.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
                continue
            if call.func.attr not in ("emit", "trace"):
                continue
            of_partition = {"topic", "partition"} if call.func.attr == "trace" else set()
            fields = frozenset(keyword.arg for keyword in call.keywords if keyword.arg) | of_partition
            for constant in ast.walk(call.args[0]):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield f"{path.name}:{call.lineno}", constant.value, frozenset(fields)


def test_every_event_that_is_emitted_is_known_with_its_fields() -> None:
    for where, name, fields in emitted():
        assert name in EVENTS, where
        assert fields <= set(EVENTS[name]), where


def test_every_event_that_is_known_is_emitted() -> None:
    texts = "".join(path.read_text() for path in BROKER.rglob("*.py") if path.name != "trace.py")
    assert [name for name in EVENTS if f'"{name}"' not in texts] == []
