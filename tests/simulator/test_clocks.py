"""Clocks of simulated machines: timers run by their machine's clock, and the world's clock continues."""

import asyncio
import math
from collections.abc import Callable

import pytest

from simulator.clock import MachineClock
from simulator.host import HostContext
from simulator.loop import DeadlockError, VirtualLoop, new_loop


def run_on(
    loop: VirtualLoop, clock: MachineClock, seconds: float, meanwhile: Callable[[], None]
) -> tuple[float, float]:
    """The time, in the world's and in the machine's own clock, at which a sleep of this length on a machine ends;
    `meanwhile` is called after the start of the sleep."""
    host, ended = HostContext("n1", "n1", clock), list[tuple[float, float]]()

    async def sleep() -> None:
        await asyncio.sleep(seconds)
        ended.append((loop.now, loop.time()))

    loop.create_task(sleep(), context=host.context.copy())
    loop.call_later(1.0, meanwhile)
    loop.run_until(lambda: bool(ended), 100.0)
    return ended[0]


@pytest.mark.parametrize(("drift", "world_s"), [(0.25, 1 + 4 / 1.25), (-0.2, 1 + 4 / 0.8), (0.0, 5.0)])
def test_a_timer_is_due_by_the_clock_of_its_machine(drift: float, world_s: float) -> None:
    loop, clock = new_loop(), MachineClock()

    def begin() -> None:
        clock.run(loop.now, drift=drift)
        loop.clocks_changed()

    at, own = run_on(loop, clock, 5.0, begin)
    assert at == pytest.approx(world_s)
    assert own >= 5.0, "at the wake-up the time is due"
    assert own == pytest.approx(5.0)


def test_a_frozen_machine_loses_the_time() -> None:
    loop, clock = new_loop(), MachineClock()

    def freeze() -> None:
        clock.run(loop.now, frozen=True)
        loop.clocks_changed()
        loop.call_later(10.0, thaw)

    def thaw() -> None:
        clock.run(loop.now, frozen=False)
        loop.clocks_changed()

    at, own = run_on(loop, clock, 5.0, freeze)
    assert [at, own] == pytest.approx([15.0, 5.0])
    assert clock.ahead(loop.now) == pytest.approx(-10.0)


def test_a_world_with_every_clock_frozen_is_a_deadlock() -> None:
    loop, clock = new_loop(), MachineClock()
    host = HostContext("n1", "n1", clock)
    clock.run(loop.now, frozen=True)
    loop.clocks_changed()

    async def sleep() -> None:
        await asyncio.sleep(1.0)

    with pytest.raises(DeadlockError):
        loop.run_until_complete(loop.create_task(sleep(), context=host.context.copy()))


@pytest.mark.parametrize("drift", [0.1, -0.1, 0.005, 1 / 3])
def test_the_moment_of_a_time_is_not_before_it(drift: float) -> None:
    clock = MachineClock()
    clock.run(1.7, drift=drift)
    for number in range(1_000):
        steady = 1.7 + number / 7
        assert clock.steady(clock.moment_of(steady)) >= steady
    clock.run(2.0, frozen=True)
    assert clock.moment_of(3.0) == math.inf
