"""Load in bursts: the same amount as without them, and none during a rest."""

from random import Random

import pytest

from workloads.kinds.log_bursts import Bursts


def issue(bursts: Bursts, start_s: float, seconds: float) -> list[float]:
    times = []
    for tick in range(int(seconds * 1000)):
        now_s = start_s + tick / 1000
        while bursts.take(now_s):
            times.append(now_s - start_s)
    return times


def test_all_operations_fall_into_bursts_and_the_mean_rate_is_kept() -> None:
    times = issue(Bursts(100, Random(1), start_s=5.0, burst_s=2.0, rest_s=3.0), 5.0, 50)
    assert [at for at in times if at % 5.0 > 2.0] == []
    assert {int(at // 5.0) for at in times} == set(range(10)), "every burst has some"
    assert len(times) == pytest.approx(100 * 50, rel=0.1)


def test_waiting_ends_with_the_rest() -> None:
    bursts = Bursts(1000, Random(1), start_s=0.0, burst_s=2.0, rest_s=3.0)
    assert not bursts.take(2.5)
    assert bursts.wait_s(2.5) == pytest.approx(2.5)
    assert bursts.wait_s(5.5) == 0
    assert bursts.take(5.5)


def test_a_client_that_was_blocked_does_not_flood() -> None:
    bursts = Bursts(100, Random(1), start_s=0.0, burst_s=2.0, rest_s=2.0)
    burst = 0
    while bursts.take(61.0):
        burst += 1
    assert burst < 120


@pytest.mark.parametrize("start_s", [0.0, 0.3339049512062233, 1e5 / 3])
def test_each_wait_of_a_burst_makes_progress(start_s: float) -> None:
    """Also where the clock shows only the moments at which a wait has ended, as that of a simulation does."""
    now_s = start_s
    bursts = Bursts(50, Random(1), start_s=start_s, burst_s=0.7, rest_s=0.4)
    for _ in range(5_000):
        wait_s = bursts.wait_s(now_s)
        assert now_s + wait_s > now_s or bursts.take(now_s), f"{wait_s} s after {now_s} s nothing has changed"
        now_s += wait_s
    assert now_s > start_s + 10
