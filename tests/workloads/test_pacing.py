"""Pacing and partition choice: seeded, and honest about lost time."""

from collections import Counter
from random import Random

import pytest

from workloads.pacing import Pacer, Slots


def issue(pacer: Pacer, seconds: float, step_s: float = 0.001) -> list[float]:
    """The times at which a client that looks every `step_s` issues operations."""
    times = []
    for tick in range(int(seconds / step_s)):
        now_s = tick * step_s
        while pacer.take(now_s):
            times.append(now_s)
    return times


def test_the_mean_rate_is_kept() -> None:
    assert len(issue(Pacer(100, Random(1), start_s=0), 20)) == pytest.approx(2000, rel=0.1)


def test_the_same_seed_issues_at_the_same_times() -> None:
    assert issue(Pacer(50, Random(7), start_s=0), 3) == issue(Pacer(50, Random(7), start_s=0), 3)


def test_a_client_that_was_blocked_does_not_flood() -> None:
    pacer = Pacer(100, Random(1), start_s=0, burst_s=0.25)
    burst = 0
    while pacer.take(60.0):
        burst += 1
    assert burst < 60


def test_waiting_ends_when_an_operation_is_due() -> None:
    pacer = Pacer(10, Random(3), start_s=0)
    wait_s = pacer.wait_s(0)
    assert wait_s > 0
    assert not pacer.take(wait_s * 0.99)
    assert pacer.take(wait_s * 1.01)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="never issues"):
        Pacer(0, Random(1), start_s=0)


def test_a_partition_is_taken_once_until_its_append_has_an_outcome() -> None:
    slots = Slots(3, Random(5))
    taken = [slots.take() for _ in range(4)]
    assert sorted(taken[:3], key=str) == [0, 1, 2]
    assert taken[3] is None
    slots.give_back(1)
    assert slots.take() == 1
    with pytest.raises(ValueError, match="was not taken"):
        Slots(1, Random(1)).give_back(0)


def test_every_partition_gets_its_share() -> None:
    slots, shares = Slots(4, Random(5)), Counter[int | None]()
    for _ in range(4000):
        partition = slots.take()
        shares[partition] += 1
        assert partition is not None
        slots.give_back(partition)
    assert set(shares) == {0, 1, 2, 3}
    assert min(shares.values()) > 800


def test_a_partition_may_have_several_appends_under_way() -> None:
    slots = Slots(2, Random(1), depth=3)
    assert sorted(slots.take() for _ in range(6)) == [0, 0, 0, 1, 1, 1]  # type: ignore[type-var]
    assert slots.take() is None
    slots.give_back(1)
    assert slots.take() == 1
    for _ in range(3):
        slots.give_back(0)
    with pytest.raises(ValueError, match="was not taken"):
        slots.give_back(0)
