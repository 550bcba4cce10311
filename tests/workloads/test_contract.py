"""Classes of users that return something that their methods must not return: each is ended at its first operation."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from history.reader import read_run
from history.record.schemas import INFO, OK
from history.record.shapes import LOG, REGISTER
from history.record.writer import OperationWriter
from tests.analysis.log_checks import check
from tests.workloads.own_clients import Careless, CarelessLog
from tests.workloads.running import own, settings, start
from workloads import contract
from workloads.api import NO_OFFSET
from workloads.client_record import open_record
from workloads.contract import ContractError
from workloads.control import Control
from workloads.kinds.append_log import _Log, _Producer
from workloads.kinds.register import RegisterProcess
from workloads.process import ClientError
from workloads.user_module import ClientClassError


async def coroutine() -> None: ...


NOT_A_NUMBER = (None, "7", 7.0, True, b"7", [7], object(), Exception("no"))
BROKEN: dict[Callable[[Any], Any], tuple[object, ...]] = {
    contract.appended: (*NOT_A_NUMBER, -1, -1001),
    contract.ended: (*NOT_A_NUMBER, -1),
    contract.records: (
        *(None, 7, "ab", b"ab", {0: 1}, {(0, 1)}, iter([(0, 1)]), [7], ["ab"], [(0,)], [(0, 1, 2)], [None]),
        *([(each, 1)] for each in (*NOT_A_NUMBER, -1)),
        *([(0, each)] for each in NOT_A_NUMBER),
    ),
    contract.shows_ends: (None, 1, "yes"),
    contract.held: NOT_A_NUMBER[1:],
    contract.written: (False, True, 0, "ok", {"done": True}),
    contract.was_set: (None, 0, 1, "ok", {"done": True}),
}


@pytest.mark.parametrize("checked", BROKEN, ids=lambda each: each.__name__)
def test_a_result_of_another_type_breaks_the_contract(checked: Callable[[Any], Any]) -> None:
    for value in BROKEN[checked]:
        with pytest.raises(ContractError) as error:
            checked(value)
        assert re.match(r"returned .+, not ", str(error.value)), value


def test_a_method_that_is_a_coroutine_breaks_the_contract() -> None:
    for checked in BROKEN:
        value = coroutine()
        with pytest.raises(ContractError, match="returned <coroutine object"):
            checked(value)
        value.close()


def test_results_within_the_contract_are_taken() -> None:
    assert [contract.appended(each) for each in (0, 7, NO_OFFSET)] == [0, 7, -1]
    assert contract.ended(3) == 3
    assert [contract.records(each) for each in ([], (), [(0, 5), [2, 6]])] == [[], [], [(0, 5), (2, 6)]]
    assert [contract.held(each) for each in (None, -3, 0)] == [None, -3, 0]
    assert contract.was_set(True)
    contract.written(None)


@pytest.mark.parametrize("wrong", [[(3, 1), (2, 1)], [(1, 1), (1, 2)], [(1 << 62, 1)]])
def test_an_impossible_answer_of_the_system_is_a_mistake_of_one_operation(wrong: list[tuple[int, int]]) -> None:
    with pytest.raises(TypeError):
        contract.records(wrong)


def place(cls: type, method: str) -> str:
    """How a message names a method of a class of `own_clients`, as a pattern."""
    return rf"own_clients\.py:{vars(cls)[method].__code__.co_firstlineno}: {cls.__name__}\.{method} returned "


def control() -> Control:
    return Control(io.StringIO(), io.StringIO())


@pytest.mark.parametrize("what", ["append", "read", "end"])
def test_a_log_client_is_ended_at_the_first_operation_that_breaks_its_contract(what: str, tmp_path: Path) -> None:
    its = settings(tmp_path, "append-log", "p1", 1, own=own(tmp_path, "CarelessLog"))
    with OperationWriter(LOG, its.directory, client="p1", session=1, process=1, producer=1) as writer:
        process: _Log = _Producer(its, control(), writer)
        operate: Callable[[], object] = {
            "append": lambda: process.append(0),
            "read": lambda: process._read(0),
            "end": lambda: process._end(0),
        }[what]
        operate()
        with pytest.raises(ClientClassError, match=place(CarelessLog, what)):
            operate()
    (row,) = read_run(tmp_path).logs.rows.to_pylist()
    assert f"CarelessLog.{what} returned None" in row["error"], "the operation is recorded"
    assert (row["type"] == INFO) == (what == "append")


@pytest.mark.parametrize("what", ["read", "write", "compare_and_set"])
def test_a_register_client_is_ended_at_the_first_operation_that_breaks_its_contract(what: str, tmp_path: Path) -> None:
    its = settings(tmp_path, "register", "client-1", 1, own=own(tmp_path, "Careless"))
    with open_record(its, REGISTER) as writer:
        process = RegisterProcess(its, control(), writer)
        operate: Callable[[], object] = {
            "read": lambda: process._read("k0"),
            "write": lambda: process._write("k0"),
            "compare_and_set": lambda: process._compare_and_set("k0"),
        }[what]
        assert process.connected() is None
        operate()
        with pytest.raises(ClientClassError, match=place(Careless, what)):
            process.connected()


def test_the_process_of_a_client_that_breaks_its_contract_ends(tmp_path: Path) -> None:
    its = settings(tmp_path, "append-log", "p1", 1, own=own(tmp_path, "CarelessLog"))
    producer = start("append-log", "producer", its, tmp_path)
    try:
        producer.start()
        with pytest.raises(ClientError, match=place(CarelessLog, "append")):
            producer.wait_stopped(20)
    finally:
        producer.close()


def test_an_append_without_an_offset_is_acknowledged_and_found_by_reads(tmp_path: Path) -> None:
    mine = own(tmp_path, "Unnamed")
    producer = start("append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=mine), tmp_path)
    results = producer.append(0, acks=-1, count=3, timeout_s=5)
    its = settings(tmp_path, "append-log", "c1", 2, own=mine, producer=-1)
    consumer = start("append-log", "consumer", its, tmp_path)
    assert consumer.read_all(0, 60.0).complete
    for client in (producer, consumer):
        client.close()
    assert [(each.outcome, each.offset) for each in results] == [("ok", -1)] * 3
    operations = read_run(tmp_path).logs.rows
    rows = [row for row in operations.to_pylist() if row["value"] >= 0]
    assert [(row["type"], row["offset"]) for row in rows] == [(OK, -1)] * 3
    report = check(operations)
    assert report.anomalies == ()
    assert report.undecided == ()
