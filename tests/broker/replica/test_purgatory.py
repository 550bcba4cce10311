"""Waiting producers and parked fetches."""

import asyncio

import pytest

from broker.errors import ErrorCode
from broker.replica.purgatory import FetchWaiters, OffsetWaiters
from tests.stories import run_by

STORIES = run_by(asyncio.run)


async def test_producers_are_served_in_the_order_of_the_log() -> None:
    waiters = OffsetWaiters()
    first, second, third = (waiters.wait(offset, 5.0) for offset in (2, 4, 6))
    waiters.reached(4)
    assert (first.result(), second.result(), third.done()) == (ErrorCode.NONE, ErrorCode.NONE, False)
    waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert third.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(waiters) == 0


@pytest.mark.conforms("K101-15")
async def test_a_waiter_is_served_only_at_its_offset() -> None:
    waiters = OffsetWaiters()
    waiter = waiters.wait(4, 5.0)
    waiters.reached(3)
    assert not waiter.done()
    waiters.reached(4)
    assert waiter.result() is ErrorCode.NONE


async def test_a_batch_that_is_sent_again_waits_no_longer_than_its_own_offset() -> None:
    waiters = OffsetWaiters()
    late = waiters.wait(6, 5.0)
    again = waiters.wait(3, 5.0)
    behind = waiters.wait(6, 5.0)
    waiters.reached(3)
    assert again.result() is ErrorCode.NONE
    assert not late.done()
    waiters.reached(6)
    assert (late.result(), behind.result()) == (ErrorCode.NONE, ErrorCode.NONE)


async def test_each_producer_has_its_own_deadline() -> None:
    waiters = OffsetWaiters()
    patient = waiters.wait(2, 5.0)
    hasty = waiters.wait(4, 0.01)
    assert await hasty is ErrorCode.REQUEST_TIMED_OUT
    assert not patient.done()
    waiters.reached(2)
    assert await patient is ErrorCode.NONE


async def test_a_producer_that_went_away_is_not_missed() -> None:
    waiters = OffsetWaiters()
    waiters.wait(2, 5.0).cancel()
    other = waiters.wait(3, 5.0)
    waiters.reached(3)
    assert await other is ErrorCode.NONE


async def test_only_parked_fetches_are_woken() -> None:
    waiters = FetchWaiters()
    loop = asyncio.get_running_loop()
    stays, leaves = loop.create_future(), loop.create_future()
    waiters.park(stays)
    waiters.park(leaves)
    waiters.leave(leaves)
    waiters.wake()
    assert stays.done()
    assert not leaves.done()
    assert len(waiters) == 0
