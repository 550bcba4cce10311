"""Every key of a TOML document is found on its line."""

import math
import tomllib
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from history.strict_toml import written
from orchestrator.campaign.toml_text import dump
from systems.toml_tables import key_lines

DOCUMENT = '''\
# a comment with [brackets] and = signs
name = "x"
text = """
[not.a.table]
key = 1
"""

[broker]
"min.insync.replicas" = 2   # quoted
plain.dotted = 1
[broker.n1]
list = [
  1,  # one
  2,
]
inline = { a = 1, "b.c" = [{ d = 2 }] }

[[step]]
do = "one"
[step.where]
x = 1
[[step]]
do = 'two # not a comment'
'''


def test_lines_of_all_kinds_of_keys() -> None:
    lines = key_lines(DOCUMENT)
    assert lines["name",] == 2
    assert lines["text",] == 3
    assert ("not",) not in lines
    assert lines["broker", "min.insync.replicas"] == 9
    assert lines["broker", "plain", "dotted"] == 10
    assert lines["broker", "n1"] == 11
    assert lines["broker", "n1", "list"] == 12
    assert lines["broker", "n1", "list", 1] == 14
    assert lines["broker", "n1", "inline", "b.c", 0, "d"] == 16
    assert lines["step", 0, "do"] == 19
    assert lines["step", 0, "where", "x"] == 21
    assert lines["step", 1] == 22
    assert lines["step", 1, "do"] == 23


def paths(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    found: set[tuple[str | int, ...]] = {path} if path else set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found |= paths(inner, (*path, index))
    return found


def test_every_key_that_tomllib_sees_has_a_line() -> None:
    assert paths(tomllib.loads(DOCUMENT)) <= key_lines(DOCUMENT).keys()


def test_written_toml_reads_back_the_same() -> None:
    data = {
        "text": 'quotes " and \\ and\nlines \x7f ä',
        "number": 3,
        "share": 0.5,
        "yes": True,
        "nothing": None,
        "list": ["a", "b"],
        "pairs": [[1, 2], [3]],
        "empty": {},
        "table": {"dotted.key": "v", "inner": {"x": 1}},
    }
    expected = {key: value for key, value in data.items() if value is not None}
    assert tomllib.loads(dump(data)) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((True, "true"), (False, "false"), (0, "0"), (-3, "-3"), (0.5, "0.5"), (10.0, "10.0"), (1e21, "1e+21")),
        *((math.inf, "inf"), ("", '""'), ("off", '"off"'), ('say "x"', '"say \\"x\\""'), ([], "[]"), ({}, "{}")),
        *((["kill", "pause"], '["kill", "pause"]'), ([[1, 2], [3]], "[[1, 2], [3]]"), ([True], "[true]")),
        *(({"a": 1, "b.c": "x"}, '{ a = 1, "b.c" = "x" }'), ([{"a": None, "b": [1]}], "[{ b = [1] }]")),
        *((date(2030, 1, 31), "2030-01-31"), (time(7, 32), "07:32:00")),
        (datetime(2030, 1, 31, 7, 32, tzinfo=UTC), "2030-01-31T07:32:00+00:00"),
    ],
    ids=str,
)
def test_a_value_is_written_as_toml_has_it(value: Any, text: str) -> None:
    assert written(value) == text
    read = tomllib.loads(f"value = {text}")["value"]
    assert read == ([{"b": [1]}] if text == "[{ b = [1] }]" else value)


@pytest.mark.parametrize("value", [None, [None], b"x"], ids=repr)
def test_a_value_that_toml_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="TOML cannot express"):
        written(value)


def test_dumped_toml_reads_back_with_arrays_of_tables() -> None:
    data = {
        "name": "x",
        "nemesis": {
            "kind": "steps",
            "step": [{"do": "wait", "where": {"role": "leader", "p": 0}}, {"do": "cut", "between": [["n1"], ["n2"]]}],
        },
        "cell": [{"name": "main", "expect": {"verdict": "pass"}}],
        "empty": [],
    }
    text = dump(data)
    assert tomllib.loads(text) == data
    assert text.count("[[nemesis.step]]") == 2
