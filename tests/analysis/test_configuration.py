"""Configuration files of nodes against the lines that run.toml states."""

from __future__ import annotations

import pytest

from analysis.checkers.configuration import different_line

STATED = ("node.id=1", "listeners=PLAINTEXT://*:*", "", "session.timeout.ms=1500", "min.insync.replicas=2")
FOUND = ["node.id=1", "listeners=PLAINTEXT://10.0.0.1:9092", "", "session.timeout.ms=1500", "min.insync.replicas=2"]


def test_settings_that_depend_on_the_place_may_differ() -> None:
    assert different_line(STATED, FOUND, 1.0) == ""


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (["node.id=2", *FOUND[1:]], "line 1 is 'node.id=2', not 'node.id=1'"),
        (FOUND[:-1], "no line 'min.insync.replicas=2'"),
        ([*FOUND, "min.insync.replicas=1"], "there should be none"),
        ([*FOUND[:3], "session.timeout.ms=3000", FOUND[4]], "line 4"),
        ([], "no line 'node.id=1'"),
    ],
)
def test_any_other_line_is_a_difference(found: list[str], words: str) -> None:
    assert words in different_line(STATED, found, 1.0)


def test_with_a_time_scale_numbers_may_be_multiplied_and_lines_added() -> None:
    scaled = [*FOUND[:3], "session.timeout.ms=3000", "-XX:CompileThresholdScaling=10", FOUND[4]]
    assert different_line(STATED, scaled, 2.0) == ""


@pytest.mark.parametrize(
    "found",
    [
        [*FOUND, "min.insync.replicas=1"],
        [*FOUND[:3], "session.timeout.ms=2999", FOUND[4]],
        [*FOUND[:4], "min.insync.replicas=1"],
    ],
)
def test_with_a_time_scale_no_key_has_another_value(found: list[str]) -> None:
    assert different_line(STATED, found, 2.0)
