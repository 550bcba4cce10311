"""The operations of the register workload: the recorded outcome for each answer of a client."""

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from analysis.core.registers import check
from history.record.client_reader import StreamRecord, read_recordings
from history.record.schemas import READ
from history.record.shapes import REGISTER
from history.record.values import NOT_A_VALUE
from history.record.writer import OperationWriter
from tests.workloads.running import own, settings
from workloads.control import Control
from workloads.kinds.register import KIND, RegisterProcess
from workloads.user_module import ClientClassError

ANSWERS = '''
from workloads.api import Refused, RegisterClient

class Scripted(RegisterClient):
    """Answers every operation as the option says."""

    def _answer(self):
        self.endpoint = self.endpoints[0]
        answer = self.options["answer"]
        if answer == "refused":
            raise Refused("not the leader")
        if answer in ("mismatch", "garbled"):
            raise Refused("mismatch" if answer == "mismatch" else b"no \\xff".decode(errors="surrogateescape"))
        if answer == "lost":
            raise ConnectionResetError("gone")
        return {"none": None, "text": "7", "false": False}[answer]

    def read(self, key): return self._answer()
    def write(self, key, value): return self._answer()
    def compare_and_set(self, key, expected, new): return self._answer()
'''


@dataclass(frozen=True)
class Invoked:
    f: str
    key: str
    value: int
    expected: int | None = None


class Record:
    """What was recorded, as (f, outcome, what was said), and the endpoint of each."""

    process = 1
    phase = "main"

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, Any]] = []
        self.endpoints: list[str] = []
        self.invoked: list[Invoked] = []

    def start(self, function: str, **columns: Any) -> Invoked:
        self.invoked.append(Invoked(function, value=len(self.invoked), **columns))
        return self.invoked[-1]

    def end(self, invocation: Any, outcome: str, *, error: str, endpoint: str, value: int | None = None) -> None:
        self.rows.append((invocation.f, "mismatch" if error == "mismatch" else outcome, error or value))
        self.endpoints.append(endpoint)

    def tick(self) -> None: ...

    def flush(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def process(tmp_path: Path, client_class: str, record: Record, **parameters: int) -> RegisterProcess:
    options = {"file": str(tmp_path / "store"), "answer": client_class}
    mine = own(tmp_path, client_class, options=options)
    if not client_class[0].isupper():
        (tmp_path / "scripted.py").write_text(ANSWERS)
        mine = own(tmp_path, "", client_class=f"{tmp_path / 'scripted.py'}:Scripted", options=options)
    its = settings(tmp_path, "register", "c", 1, own=mine, parameters={"keys": 1, **parameters})
    return RegisterProcess(its, Control(io.StringIO(), io.StringIO()), cast(OperationWriter, record))


def only(what: str) -> Mapping[str, int]:
    return {"reads": 0, "writes": 0, "cas": 0, what: 1}


def test_a_correct_client_is_recorded_as_it_answered(tmp_path: Path) -> None:
    record = Record()
    writer = process(tmp_path, "Registers", record, **only("writes"))
    assert [writer.operate(), writer.operate()] == ["ok", "ok"]
    assert writer.read_all(0, float("inf")) == (True, 1, 1)
    assert record.rows == [("write", "ok", None), ("write", "ok", None), ("read", "ok", 1)]
    assert writer.probe(0) is None


def test_a_compare_and_set_expects_the_last_value_seen_by_the_client(tmp_path: Path) -> None:
    record = Record()
    mine, other = (process(tmp_path, "Registers", record, **only("cas")) for _ in range(2))
    assert [mine.operate(), mine.operate(), other.operate()] == ["ok", "ok", "fail"]
    assert [each.expected for each in record.invoked] == [None, 0, None]
    assert record.rows[-1] == ("cas", "mismatch", "mismatch")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("refused", {"reads": ("fail", "fail"), "writes": ("fail", "fail"), "cas": ("fail", "fail")}),
        ("lost", {"reads": ("fail", "fail"), "writes": ("info", "info"), "cas": ("info", "info")}),
        ("text", {"reads": ("fail", "fail"), "cas": ("info", "info")}),
        ("none", {"reads": ("ok", "ok"), "writes": ("ok", "ok"), "cas": ("info", "info")}),
        ("false", {"cas": ("fail", "mismatch")}),
    ],
)
def test_each_way_of_ending_has_its_outcome(tmp_path: Path, answer: str, expected: Mapping[str, Sequence[str]]) -> None:
    for what, (counted, recorded) in expected.items():
        record = Record()
        assert process(tmp_path, answer, record, **only(what)).operate() == counted
        assert record.rows[0][1] == recorded, what
        assert record.endpoints == ["n2:2"], what


NAMING = {
    "another address": 'endpoint = "10.0.0.1:1"',
    "not a text": "endpoint = 9",
    "a list": "endpoint = []",
    "a property that raises": "endpoint = property(lambda self: 1 / 0)",
    "nothing": "",
}


@pytest.mark.parametrize("named", NAMING.values(), ids=NAMING)
def test_an_endpoint_that_the_client_was_not_given_is_not_recorded(tmp_path: Path, named: str) -> None:
    (tmp_path / "naming.py").write_text(
        f"""
from tests.workloads.own_clients import Registers

class Naming(Registers):
    {named or "pass"}
"""
    )
    options = {"file": str(tmp_path / "store")}
    mine = own(tmp_path, "", client_class=f"{tmp_path / 'naming.py'}:Naming", options=options)
    record = Record()
    its = settings(tmp_path, "register", "c", 1, own=mine, parameters={"keys": 1, **only("writes")})
    naming = RegisterProcess(its, Control(io.StringIO(), io.StringIO()), cast(OperationWriter, record))
    assert naming.operate() == "ok"
    assert record.endpoints == [""]


def test_an_impossible_value_is_recorded_and_found(tmp_path: Path) -> None:
    with OperationWriter(
        REGISTER, tmp_path / "history" / "operations", client="c", session=1, process=1, producer=1
    ) as writer:
        client = process(tmp_path, "Overflowing", cast(Record, writer))
        assert client.probe(0) is None
        assert client.read_all(0, time.monotonic() + 60) == (True, 1, 1)
        assert {client.operate() for _ in range(20)} <= {"ok", "fail"}
    (part,) = read_recordings(REGISTER, [StreamRecord(tmp_path / "history" / "operations" / "c-1.registers")])
    assert (part.closed, part.defects) == (True, [])
    found = [row["value"] for row in part.completed.to_pylist() if row["f"] == READ]
    assert set(found) == {NOT_A_VALUE}
    (anomaly,) = check(part.completed).anomalies
    assert "k0 = -2, which was never written" in anomaly.sentence


@pytest.mark.parametrize(("answer", "error"), [("mismatch", "refused: mismatch"), ("garbled", "no ?")])
def test_every_refusal_is_recorded_as_a_failure(tmp_path: Path, answer: str, error: str) -> None:
    with OperationWriter(
        REGISTER, tmp_path / "history" / "operations", client="c", session=1, process=1, producer=1
    ) as writer:
        client = process(tmp_path, answer, cast(Record, writer))
        assert {client.operate() for _ in range(20)} == {"fail"}
    (part,) = read_recordings(REGISTER, [StreamRecord(tmp_path / "history" / "operations" / "c-1.registers")])
    assert (part.closed, part.defects, part.completed.num_rows) == (True, [], 20)
    assert set(part.completed["error"].to_pylist()) == {error}


def test_operations_are_mixed_by_their_weights(tmp_path: Path) -> None:
    record = Record()
    client = process(tmp_path, "Registers", record, reads=8, writes=1, cas=1)
    for _ in range(200):
        client.operate()
    shares = [sum(each.f == f for each in record.invoked) for f in ("read", "write", "cas")]
    assert shares[0] > 130
    assert min(shares[1:]) > 5


def test_a_class_that_is_not_whole_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ClientClassError, match=r"own_clients\.py:\d+: Partial does not define compare_and_set, write"):
        process(tmp_path, "Partial", Record())


def test_the_first_connection_timeout_grows_with_the_time_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments_s = iter((0.0, 0.0, 119.0, 119.0, 121.0, 121.0))  # the clock is asked before and after each try
    monkeypatch.setattr("workloads.connection.time", SimpleNamespace(monotonic=lambda: next(moments_s)))
    its = settings(tmp_path, "register", "c", 1, own=own(tmp_path, "Unreachable"), time_scale=4.0)
    client = RegisterProcess(its, Control(io.StringIO(), io.StringIO()), cast(OperationWriter, Record()))
    for _ in range(2):
        assert "ConnectionRefusedError: not yet" in str(client.connected())
    with pytest.raises(ClientClassError, match="ConnectionRefusedError: not yet"):
        client.connected()


def test_a_final_read_without_an_answer_is_not_complete(tmp_path: Path) -> None:
    assert process(tmp_path, "lost", Record()).read_all(0, 0.0) == (False, 1, 0)


def test_a_mix_without_changes_is_a_problem() -> None:
    assert KIND.problem({"writes": 0, "cas": 0}) is not None
    assert KIND.problem({"writes": 0, "cas": 1}) is None
