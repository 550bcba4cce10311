"""The ids of producers: from blocks of the controller's, and the epochs of those that name their last one."""

import asyncio
from typing import Any, cast

import pytest

from broker.errors import ErrorCode
from broker.producers.producer_ids import BLOCK_SIZE, MAX_EPOCH, Identity, next_epoch
from broker.protocol.messages.producer_apis import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from broker.server.handlers.producer_ids_handler import ProducerIdsHandler


class Controller:
    """The controller as brokers reach it: gives a block each time, unless it is away."""

    def __init__(self) -> None:
        self.next = 0
        self.asked: list[int] = []
        self.away = False
        self.attempts = 0

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:  # noqa: ARG002
        request = cast(AllocateProducerIdsRequest, message)
        await asyncio.sleep(0)
        self.attempts += 1
        if self.away:
            raise ConnectionError("away")
        self.asked.append(request.broker_id)
        first, self.next = self.next, self.next + BLOCK_SIZE
        return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)

    def broker(self, node_id: int) -> ProducerIdsHandler:
        return ProducerIdsHandler(
            node_id=node_id,
            peers=self,
            controller_id=lambda: 9,
            broker_epoch=lambda: 5,
            first_unused=lambda: self.next,
            timeout_s=1.0,
        )


NOT_TRANSACTIONAL = InitProducerIdRequest(transactional_id=None)


def ask(
    broker: ProducerIdsHandler, *, transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id, 0, producer_id, producer_epoch)
    return asyncio.run(broker.init_producer_id(request, 5))


@pytest.mark.conforms("K98-1")
def test_no_two_producers_get_one_id() -> None:
    controller = Controller()
    brokers = [controller.broker(number) for number in (1, 2)]

    async def all_at_once() -> list[InitProducerIdResponse]:
        asked = [brokers[n % 2].init_producer_id(NOT_TRANSACTIONAL, 5) for n in range(2 * BLOCK_SIZE + 50)]
        return await asyncio.gather(*asked)

    answers = asyncio.run(all_at_once())
    assert {(it.error_code, it.producer_epoch) for it in answers} == {(0, 0)}
    assert len({it.producer_id for it in answers}) == len(answers)
    assert sorted(controller.asked) == [1, 1, 2, 2], "a block at a time"


def test_a_restarted_broker_starts_a_new_block() -> None:
    controller = Controller()
    assert [ask(controller.broker(1)).producer_id for _ in range(3)] == [0, BLOCK_SIZE, 2 * BLOCK_SIZE]


def test_without_a_controller_a_client_is_asked_to_retry() -> None:
    controller = Controller()
    controller.away = True
    broker = controller.broker(1)
    assert ask(broker).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    controller.away = False
    assert ask(broker).producer_id == 0


def test_waiters_of_a_failed_attempt_do_not_wait_for_another() -> None:
    controller = Controller()
    controller.away = True
    broker = controller.broker(1)

    async def all_at_once() -> None:
        await asyncio.gather(*(broker.init_producer_id(NOT_TRANSACTIONAL, 5) for _ in range(20)))

    asyncio.run(all_at_once())
    assert controller.attempts == 1


@pytest.mark.conforms("K98-9")
def test_a_transactional_id_is_refused() -> None:
    answer = ask(Controller().broker(1), transactional_id="t")
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.producer_id == -1


@pytest.mark.conforms("K360-2")
def test_a_producer_with_its_last_epoch_gets_the_next() -> None:
    broker = Controller().broker(1)
    first = ask(broker)
    answer = ask(broker, producer_id=first.producer_id, producer_epoch=0)
    assert (answer.producer_id, answer.producer_epoch) == (first.producer_id, 1)


@pytest.mark.conforms("K360-2")
@pytest.mark.parametrize(
    "before",
    [Identity(4, MAX_EPOCH - 1), Identity(BLOCK_SIZE, 0), Identity(1 << 62, 3), Identity(-7, 3), Identity(4, -3)],
)
def test_a_producer_at_the_largest_epoch_gets_another_id(before: Identity) -> None:
    assert next_epoch(before, BLOCK_SIZE) is None
    broker = Controller().broker(1)
    ask(broker)
    answer = ask(broker, producer_id=before.producer_id, producer_epoch=before.epoch)
    assert (answer.producer_id, answer.producer_epoch) == (1, 0)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (0, -1)])
def test_an_incomplete_producer_identity_is_refused(producer_id: int, epoch: int) -> None:
    answer = ask(Controller().broker(1), producer_id=producer_id, producer_epoch=epoch)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
