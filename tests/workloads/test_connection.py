"""A user's client object in use: the outcome of each kind of end, and the time of a new object."""

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.own_clients import Registers
from workloads.api import Refused
from workloads.connection import MOST_REFUSALS, ClientConnection
from workloads.user_module import ClientClassError


class Scripted(Registers):
    """Does what the test says; counts how often it was made and closed."""

    made: list["Scripted"]
    closed: list["Scripted"]

    def close(self) -> None:
        self.closed.append(self)


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], Scripted]:
    Scripted.made, Scripted.closed = [], []

    def one() -> Scripted:
        Scripted.made.append(Scripted(["n1:1"], 0.1, {"file": str(tmp_path / "store")}))
        return Scripted.made[-1]

    return one


def raising(error: BaseException) -> Callable[[Any], Any]:
    def call(_: Any) -> Any:
        raise error

    return call


def test_a_result_is_ok_and_a_refusal_keeps_the_object(make: Callable[[], Scripted]) -> None:
    connection = ClientConnection(make, 5.0)
    assert connection.open() is None
    assert connection.call(lambda client: client.write("k", 3)).outcome == "ok"
    refused = connection.call(raising(Refused("the queue is full")))
    assert (refused.outcome, refused.error) == ("fail", "the queue is full")
    assert connection.open() is None
    assert connection.call(lambda client: client.read("k")).value == 3
    assert connection.made == 1


def test_an_object_that_only_refuses_is_replaced(make: Callable[[], Scripted]) -> None:
    """It may be bound to a node that is dead, or that will never take an operation."""
    connection = ClientConnection(make, 5.0)
    for number in range(1, 2 * MOST_REFUSALS + 1):
        assert connection.open() is None
        assert connection.call(raising(Refused("the port is closed"))).outcome == "fail"
        assert connection.made == 1 + (number > MOST_REFUSALS)
    assert connection.open() is None
    assert connection.call(raising(Refused("the port is closed"))).outcome == "fail"
    assert connection.call(lambda client: client.write("k", 3)).outcome == "ok"
    for _ in range(MOST_REFUSALS - 1):  # only those in a row count
        connection.call(raising(Refused("the port is closed")))
    assert connection.open() is None
    assert connection.made == 3


def test_any_other_error_is_an_unknown_outcome_and_needs_a_new_object(make: Callable[[], Scripted]) -> None:
    connection = ClientConnection(make, 5.0)
    connection.open()
    lost = connection.call(raising(ConnectionResetError("gone")))
    assert (lost.outcome, lost.error, lost.mistake) == ("info", "ConnectionResetError: gone", False)
    assert connection.open() is None
    assert connection.made == 2
    assert connection.call(lambda client: client is Scripted.made[1]).value is True


def test_a_mistake_in_the_clients_code_is_reported_with_its_line(make: Callable[[], Scripted]) -> None:
    connection = ClientConnection(make, 5.0)
    connection.open()
    called = connection.call(lambda client: client.no_such_method())  # type: ignore[attr-defined]
    assert called.mistake
    assert "test_connection.py:" in called.error


def test_system_exit_and_cancellation_are_recorded_as_unknown_outcomes(make: Callable[[], Scripted]) -> None:
    connection = ClientConnection(make, 20.0)
    connection.open()
    ended = connection.call(raising(SystemExit(0)))
    assert (ended.outcome, ended.mistake) == ("info", True)
    assert re.search(r"test_connection\.py:\d+: SystemExit: 0$", ended.error)
    assert connection.open() is None
    given_up = connection.call(raising(asyncio.CancelledError("too late")))
    assert (given_up.outcome, given_up.error) == ("info", "CancelledError: too late")


def test_a_call_that_does_not_return_is_abandoned(make: Callable[[], Scripted]) -> None:
    held = threading.Event()
    connection = ClientConnection(make, 0.05)
    connection.open()
    called = connection.call(lambda _: held.wait())
    assert called.outcome == "info"
    assert re.search(r"test_connection\.py:\d+: the client did not return within 0\.05 s$", called.error)
    assert connection.open() is None
    assert connection.call(lambda client: client is Scripted.made[1]).value is True
    held.set()


def test_a_constructor_that_cannot_connect_is_tried_again_but_not_for_ever() -> None:
    def refuse() -> Registers:
        raise ConnectionRefusedError("no listener")

    patient = ClientConnection(refuse, 1.0, make_s=3600.0)
    assert "ConnectionRefusedError: no listener" in str(patient.open())
    with pytest.raises(ClientClassError, match=r"test_connection\.py:\d+: ConnectionRefusedError: no listener"):
        ClientConnection(refuse, 1.0, make_s=-1.0).open()


@pytest.mark.parametrize("mistake", [TypeError("no such option"), SystemExit("no such option")])
def test_a_constructor_with_a_mistake_is_not_tried_again(mistake: BaseException) -> None:
    def wrong() -> Registers:
        raise mistake

    named = type(mistake).__name__
    with pytest.raises(ClientClassError, match=rf"test_connection\.py:\d+: {named}: no such option"):
        ClientConnection(wrong, 20.0).open()
