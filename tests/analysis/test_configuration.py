"""Configuration files of nodes against the lines that run.toml states."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checkers.configuration import check, different_line

STATED = ("node.id=1", "listeners=PLAINTEXT://*:*", "", "session.timeout.ms=1500", "min.insync.replicas=2")
FOUND = ["node.id=1", "listeners=PLAINTEXT://10.0.0.1:9092", "", "session.timeout.ms=1500", "min.insync.replicas=2"]


def test_settings_that_depend_on_the_place_may_differ() -> None:
    assert different_line(STATED, FOUND) == ""


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
    assert words in different_line(STATED, found)


def test_lines_of_another_order_are_a_difference() -> None:
    assert "line 3 is 'session.timeout.ms=1500'" in different_line(STATED, [*FOUND[:2], *FOUND[3:], FOUND[2]])


def test_files_as_stated_pass_and_a_missing_one_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "nodes" / "n1" / "server.properties"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(FOUND) + "\n")
    description = SimpleNamespace(configuration={"n1": {"server.properties": STATED}}, node_names=("n1",))
    run: Any = SimpleNamespace(description=description, directory=tmp_path)
    assert check(run).verdict == "pass"
    path.unlink()
    assert check(run).verdict == "unknown"
