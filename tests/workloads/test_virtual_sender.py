"""Idempotent producers of the simulated world: batches in flight, ordered retries, replaced producer ids."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, cast

import pytest

from broker.errors import ErrorCode
from broker.producers.producer_ids import Identity
from simulator.client import NEW, RefusedError, SimulatedClient, UncertainError
from workloads.settings import ALL, ClientSettings
from workloads.virtual.log import IN_FLIGHT, Sender, Sent
from workloads.virtual.pipe import VirtualControl

ANSWERED_S = 0.01
NOW_MS = 1_000


class Request(NamedTuple):
    producer_id: int
    sequence: int
    records: int
    epoch: int = 0


Answer = ErrorCode | None
"""None: no answer."""


@dataclass
class Broker:
    """A client's connection to a broker that answers each request by `answer`, which gets its number, from 0 on."""

    answer: Callable[[int, Request], Answer]

    def __post_init__(self) -> None:
        self.requests: list[Request] = []
        self.open = self.most_open = 0
        self.ids = 0
        self.timestamps: list[int] = []

    async def init_producer_id(self, _timeout: float, last: Identity) -> Identity:
        if last != NEW:
            return Identity(last.producer_id, last.epoch + 1)
        self.ids += 1
        return Identity(self.ids, 0)

    async def find_leader(self, _topic: str, _partition: int, _timeout: float) -> int:
        return 1

    async def produce(
        self,
        _topic: str,
        _partition: int,
        values: Sequence[bytes],
        *,
        timestamp: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        **_: Any,
    ) -> int:
        self.timestamps.append(timestamp)
        request = Request(producer_id, sequence, len(values), producer_epoch)
        number = len(self.requests)
        self.requests.append(request)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(ANSWERED_S)
        self.open -= 1
        answer = self.answer(number, request)
        if answer is None:
            raise UncertainError("no answer")
        if answer != ErrorCode.NONE:
            raise RefusedError(answer)
        return request.sequence


def sent(broker: Broker, records: int, *, batch_records: int = 1, timeout_s: float = 5.0, seed: int = 1) -> list[Sent]:
    """The outcomes of `records` appends to one partition, all given at once."""
    parameters = {"idempotent": True, "batch_records": batch_records}
    settings = ClientSettings("p", 1, 1, 1, seed, "n1:1", "log", 1, "", parameters=parameters)

    async def story() -> list[Sent]:
        times = count(NOW_MS)
        sender = Sender(settings, VirtualControl(lambda _: None), cast(SimulatedClient, broker), lambda: next(times))
        appends: list[Awaitable[Sent]] = [sender.send(0, b"%d" % n, ALL, timeout_s) for n in range(records)]
        return await asyncio.gather(*appends)

    return asyncio.run(story())


def accept(_number: int, _request: Request) -> Answer:
    return ErrorCode.NONE


def test_up_to_five_batches_are_in_flight_and_each_has_its_sequence() -> None:
    broker = Broker(accept)
    assert sent(broker, 8) == [Sent("ok", number, "") for number in range(8)]
    assert broker.most_open == IN_FLIGHT
    assert broker.requests == [Request(1, number, 1) for number in range(8)]


def test_a_batch_that_is_sent_again_keeps_its_timestamp() -> None:
    """Otherwise the two copies of a batch would differ."""
    broker = Broker(lambda number, _: None if number == 0 else ErrorCode.NONE)
    sent(broker, 1)
    assert broker.timestamps == [NOW_MS, NOW_MS]


@pytest.mark.conforms("K98-3")
def test_some_acknowledged_batches_are_sent_again_as_after_a_lost_answer() -> None:
    broker = Broker(accept)
    assert sent(broker, 200) == [Sent("ok", number, "") for number in range(200)]
    repeated = len(broker.requests) - len(set(broker.requests))
    assert 0 < repeated < 20


def test_the_workload_bounds_the_records_of_a_batch() -> None:
    broker = Broker(accept)
    assert [each.offset for each in sent(broker, 7, batch_records=3)] == list(range(7))
    assert broker.requests == [Request(1, 0, 3), Request(1, 3, 3), Request(1, 6, 1)]


def test_refused_batches_are_sent_again_in_the_order_of_their_sequences() -> None:
    broker = Broker(lambda number, _: ErrorCode.NOT_LEADER_OR_FOLLOWER if number < 3 else ErrorCode.NONE)
    assert [each.outcome for each in sent(broker, 3)] == ["ok"] * 3
    assert [request.sequence for request in broker.requests] == [0, 1, 2, 0, 1, 2]
    assert broker.ids == 1


def test_a_batch_received_before_its_predecessor_is_sent_again() -> None:
    """The first request got no answer; the broker has nothing of it, and refuses the second."""
    answers: list[Answer] = [None, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    broker = Broker(lambda number, _: answers[number] if number < 2 else ErrorCode.NONE)
    assert [each.outcome for each in sent(broker, 2)] == ["ok"] * 2
    assert [request.sequence for request in broker.requests] == [0, 1, 0, 1]


@pytest.mark.parametrize(("seed", "successor"), [(4, (1, 1)), (1, (2, 0))])
def test_another_epoch_or_id_follows_when_every_batch_in_flight_has_an_outcome(
    seed: int, successor: tuple[int, int]
) -> None:
    """The broker accepted the second batch in place of the first, which it can never accept."""

    def answer(number: int, request: Request) -> Answer:
        if (request.sequence, request.producer_id, request.epoch) == (0, 1, 0):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    broker = Broker(answer)
    outcomes = [each.outcome for each in sent(broker, 12, seed=seed)]
    assert outcomes == ["info", *["ok"] * 11]
    identities = [(request.producer_id, request.epoch) for request in broker.requests]
    renewed = [number for number, identity in enumerate(identities) if identity == successor]
    assert [broker.requests[number].sequence for number in renewed] == list(range(len(renewed)))
    late = [request for request in broker.requests[renewed[0] :] if (request.producer_id, request.epoch) != successor]
    assert late == [Request(1, 0, 1)] * (successor == (1, 1)), "the given-up batch alone, once, if its epoch is fenced"


def test_a_batch_without_an_answer_times_out() -> None:
    broker = Broker(lambda _number, request: None if request.epoch == 0 else ErrorCode.NONE)
    outcomes = sent(broker, 2, timeout_s=0.3)
    assert [each.outcome for each in outcomes] == ["info", "info"]
    assert outcomes[0].error == "no answer"
