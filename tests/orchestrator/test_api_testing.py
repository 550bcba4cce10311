"""`brownout_api.testing`: unit tests of a user's classes refuse what a campaign would refuse."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from brownout_api import (
    BrokenPromise,
    Client,
    FaultKind,
    HistoryChecker,
    Operation,
    OwnWorkload,
    Refused,
    RunHistory,
    TargetNode,
    testing,
)
from history.own_classes import OwnClassError


class Cells(OwnWorkload):
    size: int = 3
    queries = ("get",)

    def operations(self, random: Random) -> Iterator[Operation]:
        while True:
            yield Operation("put", random.randrange(self.size))
            yield Operation("get")

    def final(self) -> Iterator[Operation]:
        yield Operation("get")


class Memory(Client):
    """Refuses 0, loses the answer of 1, and answers every fifth query."""

    def __init__(self, result: Any = 7) -> None:
        self.result = result
        self.queries = 0

    def put(self, operation: Operation) -> None:
        if operation.argument == 0:
            raise Refused("zero")
        if operation.argument == 1:
            raise ConnectionError("lost")

    def get(self, operation: Operation) -> Any:
        del operation
        self.queries += 1
        if self.queries % 5:
            raise ConnectionError("lost")
        return self.result


class Found(HistoryChecker):
    promise = "no answer is 7"
    anomalies: ClassVar = {"seven": "An answer is 7."}
    name = "seven"

    def check(self, history: RunHistory) -> Iterator[BrokenPromise]:
        for each in history.ok("get"):
            yield self.anomaly(self.name, "it is 7", each)


class Undeclared(Found):
    name = "eight"


class WithoutPromise(Found):
    promise = " "


class Flag(FaultKind):
    name, text = "flag", "a file is there"
    always, never = False, False

    def inject(self, node: TargetNode) -> None:
        if not self.never:
            Path(node.data_dir, "flag").touch()

    def evidence(self, node: TargetNode) -> str | None:
        return "the file is there" if self.always or Path(node.data_dir, "flag").exists() else None

    def heal(self, node: TargetNode) -> None:
        Path(node.data_dir, "flag").unlink(missing_ok=True)


class Always(Flag):
    always = True


class Never(Flag):
    never = True


class Nameless(Flag):
    name = "No name"


def test_outcomes_are_those_of_a_run() -> None:
    history = testing.play(Cells(size=3), Memory(), seed=2, count=60)
    rows = list(history)
    assert {(row.f, row.type) for row in rows} == {
        ("put", "ok"),
        ("put", "fail"),
        ("put", "info"),
        ("get", "ok"),
        ("get", "fail"),
    }
    assert [row.phase for row in rows] == ["main"] * 60 + ["final"]
    assert {row.argument for row in rows if row.type == "info"} == {1}
    assert history.workload.size == 3
    assert [row.argument for row in testing.play(Cells(), Memory(), seed=2, count=60)] == [row.argument for row in rows]


def test_an_operation_without_a_method_or_json_is_refused() -> None:
    with pytest.raises(OwnClassError, match=r"Cells.operations yielded the function 'put'; Client has no such method"):
        testing.play(Cells(), Client([], 1.0, {}))
    with pytest.raises(ValueError, match="it is not a JSON value"):
        testing.play(Cells(), Memory(result={1, 2}))


def test_a_wrong_declaration_of_a_checker_is_refused() -> None:
    history = RunHistory.of({"f": "get", "result": 7})
    assert [(each.name, each.operations[0].result) for each in testing.contradictions(Found(), history)] == [
        ("seven", 7)
    ]
    with pytest.raises(TypeError, match="check yielded 'eight', which `anomalies` does not declare"):
        testing.contradictions(Undeclared(), history)
    with pytest.raises(TypeError, match=r"WithoutPromise\.promise: a text is needed"):
        testing.contradictions(WithoutPromise(), history)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Always(), AssertionError, "before inject"),
        (Never(), AssertionError, "shows nothing of the fault"),
        (Nameless(), TypeError, r"Nameless\.name: a word in small letters is needed"),
    ],
)
def test_evidence_must_show_the_fault_exactly_while_it_is_in_force(
    tmp_path: Path, fault: FaultKind, error: type[Exception], message: str
) -> None:
    assert testing.evidence_of(Flag(), TargetNode.of(tmp_path)) == "the file is there"
    with pytest.raises(error, match=message):
        testing.evidence_of(fault, TargetNode.of(tmp_path))
