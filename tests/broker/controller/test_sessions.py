"""Sessions never end before the leases that they guard."""

import random

import pytest

from broker.clock_rates import PACE
from broker.controller.active import Sessions

SESSION, LEASE = 3.0, 2.0
WAIT = LEASE * PACE
"""The longest time that the slowest clock's lease lasts by the fastest clock."""


@pytest.mark.conforms("H31")
def test_an_unresponsive_broker_keeps_its_session_until_its_lease_ends() -> None:
    sessions = Sessions(SESSION, LEASE, 0.0, [1], SESSION)
    sessions.renew(1, 10.0)
    sessions.end_with_lease(1, 0.0)
    assert sessions.next_deadline() == 10.0 + WAIT
    assert sessions.expired(12.4) == []
    sessions.renew(1, 12.4)
    assert sessions.next_deadline() == 15.4


@pytest.mark.conforms("H31")
def test_a_lease_is_waited_for_as_long_as_clocks_may_differ() -> None:
    assert pytest.approx(1.1 / 0.9) == PACE
    sessions = Sessions(SESSION, LEASE, 0.0, [1], SESSION)
    sessions.renew(1, 10.0)
    slow, fast = 0.9, 1.1
    assert sessions.lease_ends_at(1) == pytest.approx(10.0 + LEASE / slow * fast)


def test_a_lease_is_waited_for_no_longer_than_a_session() -> None:
    sessions = Sessions(SESSION, 2.9, 0.0, [1], SESSION)
    sessions.renew(1, 10.0)
    assert sessions.lease_ends_at(1) == 13.0


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("earlier", [SESSION, 2 * SESSION])
def test_an_earlier_controllers_lease_is_waited_for(earlier: float) -> None:
    sessions = Sessions(SESSION, LEASE, 10.0, [1], 10.0 + earlier)
    assert sessions.next_deadline() == 10.0 + earlier
    sessions.end_with_lease(1, 0.0)
    assert sessions.next_deadline() == 10.0 + earlier
    sessions.open(1, 10.5)
    sessions.end_with_lease(1, 0.0)
    assert sessions.next_deadline() == 10.0 + earlier, "registering again takes no lease away"


@pytest.mark.conforms("H31")
def test_a_broker_without_the_answer_keeps_an_earlier_controllers_lease() -> None:
    sessions = Sessions(SESSION, LEASE, 10.0, [1], 10.0 + 2 * SESSION)
    sessions.renew(1, 10.1)
    assert sessions.lease_ends_at(1) == sessions.next_deadline() == 16.0
    sessions.renew(1, 14.0)
    assert (sessions.lease_ends_at(1), sessions.next_deadline()) == (14.0 + WAIT, 17.0)


def test_an_earlier_controllers_lease_does_not_shorten_a_session() -> None:
    sessions = Sessions(SESSION, LEASE, 10.0, [1], 11.0)
    assert (sessions.lease_ends_at(1), sessions.next_deadline()) == (11.0, 13.0)


def test_a_closed_session_accepts_no_renewal() -> None:
    sessions = Sessions(SESSION, LEASE, 0.0, [1], SESSION)
    sessions.close(1)
    sessions.renew(1, 1.0)
    sessions.end_with_lease(1, 0.0)
    assert sessions.next_deadline() is None
    sessions.open(1, 5.0)
    sessions.end_with_lease(1, 0.0)
    assert sessions.next_deadline() == 5.0 + WAIT


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", range(200))
def test_a_session_never_ends_within_a_lease(seed: int) -> None:
    rng = random.Random(seed)
    earlier = rng.uniform(SESSION, 3 * SESSION)
    now, lease_until = 0.0, earlier
    sessions = Sessions(SESSION, LEASE, now, [1], earlier)
    for _ in range(30):
        after = rng.uniform(0.0, 1.5)
        now += after
        if sessions.expired(now):
            assert now >= lease_until
            return
        match rng.choice(("renew", "renew unheard", "looks dead", "stall")):
            case "renew":
                sessions.renew(1, now)
                lease_until = now + LEASE
            case "renew unheard":
                sessions.renew(1, now)
            case "looks dead":
                sessions.end_with_lease(1, 0.0)
            case "stall":
                sessions.extend(after)
