"""Values in texts for people have no notation of Python."""

from typing import Any

import pytest

from installation.sanitize import plain
from nemeses import Evidence
from tests.analysis.python_literals import literals_in

VALUES: list[Any] = [
    None, True, False, 0, 1.5, "", "text", [], {}, (), ["ok"], ("ok", None), [["a", 1], ["b"]],
    {"where": {"node": "n1"}}, {"n1": {"error": "no answer", "seen": [True, None]}}, [{"a": None}], {"a": ()},
    frozenset({"ok"}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_text_of_a_value_has_no_notation_of_python(value: Any) -> None:
    assert plain(value)
    assert literals_in([plain(value)]) == []


@pytest.mark.parametrize("value", [["ok"], {"a": 1}, ("ok", 1), None, True, [["a"]]], ids=repr)
def test_the_search_finds_each_notation(value: Any) -> None:
    assert literals_in([f"it is {value}"])


@pytest.mark.parametrize(
    ("detail", "cause"),
    [
        ({"error": "this world has no power switch"}, "this world has no power switch"),
        ({"n1": {"error": "n1: cannot be reached"}, "n2": {"off": True}}, "n1: cannot be reached"),
        ({"n1": {"off": True}, "n2": {"error": "no route"}, "n3": {"error": "no route"}}, "n2: no route (and 1 more)"),
        ({"n1": {"service": {"error": "ended"}}}, "service: ended"),
        ({"n1": {"off": False, "answers": True}}, "n1: off: false, answers: true"),
        ({}, "nothing"),
    ],
)
def test_the_cause_of_missing_evidence_is_its_first_error(detail: dict[str, Any], cause: str) -> None:
    assert Evidence("inconclusive", detail).cause == cause
