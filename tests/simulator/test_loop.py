"""The virtual loop: time, order, deadlocks, dead hosts."""

import asyncio
import gc
import warnings
from collections.abc import Awaitable

import pytest

from simulator.host import CURRENT_HOST, PRUNE_AT
from simulator.loop import DeadlockError, LivelockError, new_loop
from tests.simulator.running import World


def test_time_passes_only_in_waiting() -> None:
    loop = new_loop()

    async def body() -> list[float]:
        times = [loop.time()]
        await asyncio.sleep(0)
        times.append(loop.time())
        await asyncio.sleep(3600.5)
        times.append(loop.time())
        return times

    assert loop.run_until_complete(body()) == [0.0, 0.0, 3600.5]


def test_callbacks_run_in_the_order_of_their_time_and_then_of_their_making() -> None:
    loop = new_loop()
    seen: list[str] = []
    loop.call_later(2, seen.append, "2 s")
    loop.call_at(1, seen.append, "1 s, first")
    loop.call_later(1, seen.append, "1 s, second")
    loop.call_later(-5, seen.append, "overdue")
    loop.call_soon(seen.append, "soon")
    loop.call_later(1.5, seen.append, "never").cancel()
    loop.call_soon(seen.append, "never").cancel()
    loop.call_later(3, loop.stop)
    loop.run_forever()
    assert seen == ["soon", "overdue", "1 s, first", "1 s, second", "2 s"]


def test_asyncio_works_on_it() -> None:
    loop = new_loop()

    async def child(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def body() -> None:
        assert list(await asyncio.gather(child(3), child(1))) == [3, 1]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await child(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(child(10), 1)
        lock, event, queue = asyncio.Lock(), asyncio.Event(), asyncio.Queue[int](1)
        async with lock:
            loop.call_later(1, event.set)
            await event.wait()
        await queue.put(1)
        assert await queue.get() == 1
        done, pending = await asyncio.wait([loop.create_task(child(1)), loop.create_task(child(9))], timeout=5)
        assert (len(done), len(pending)) == (1, 1)
        for task in pending:
            task.cancel()
        async with asyncio.TaskGroup() as group:
            group.create_task(child(1))
        assert asyncio.get_running_loop() is loop
        assert loop.time() == 3 + 5 + 1 + 1 + 5 + 1

    loop.run_until_complete(body())
    assert loop.unhandled == []


def test_a_deadlock_is_an_error_and_not_a_hang() -> None:
    loop = new_loop()

    async def body() -> None:
        await asyncio.sleep(2)
        await loop.create_future()

    with pytest.raises(DeadlockError, match=r"at 2\.000000 s"):
        loop.run_until_complete(body())


@pytest.mark.parametrize("pause", [0, 1e-300])
def test_a_livelock_is_an_error_and_not_a_hang(pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.loop.LIVELOCK", 1000)
    loop = new_loop()

    async def body() -> None:
        await asyncio.sleep(2)
        while True:  # noqa: ASYNC110 - the busy waiting that is to be found
            await asyncio.sleep(pause)

    with pytest.raises(LivelockError, match=r"at 2\.000000 s"):
        loop.run_until_complete(body())


def test_an_uncaught_exception_is_collected() -> None:
    world = World()

    async def body() -> None:
        world.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    world.run("a", body())
    (unhandled,) = world.loop.unhandled
    assert isinstance(unhandled.exception, ZeroDivisionError)
    assert str(unhandled).startswith("a at 0.000000 s: ")


async def fail() -> None:
    raise KeyError("planted")


def test_the_failure_of_a_task_without_an_awaiter_is_collected() -> None:
    world = World()
    forgotten: list[asyncio.Task[None]] = []

    async def body() -> None:
        forgotten.append(asyncio.create_task(fail()))
        for _ in range(10 * PRUNE_AT):  # enough that completed tasks are released
            await asyncio.create_task(asyncio.sleep(0))

    world.run("a", body())
    world.loop.tell_lost(world.hosts["a"])
    world.loop.tell_lost(world.hosts["a"])
    (unhandled,) = world.loop.unhandled
    assert isinstance(unhandled.exception, KeyError)
    assert "no code awaits the failed task fail" in str(unhandled)


def test_the_failure_of_an_awaited_task_is_left_to_its_awaiter() -> None:
    world = World()

    async def body() -> None:
        with pytest.raises(KeyError):
            await asyncio.create_task(fail())
        assert asyncio.create_task(asyncio.sleep(9)).cancel()

    world.run("a", body())
    world.loop.tell_lost(world.hosts["a"])
    assert world.loop.unhandled == []


def test_a_failure_is_left_to_an_awaiter_that_has_not_run_yet() -> None:
    world = World()

    async def body() -> None:
        failing.append(asyncio.create_task(fail()))
        with pytest.raises(KeyError):
            await failing[0]

    failing: list[asyncio.Task[None]] = []
    awaiting = world.start("a", body())
    assert world.loop.run_until(lambda: bool(failing) and failing[0].done(), 1.0)
    assert not awaiting.done()
    world.loop.tell_lost(world.hosts["a"])
    assert world.loop.unhandled == []


def test_many_cancelled_timers_cost_no_memory() -> None:
    loop = new_loop()
    for _ in range(50_000):
        loop.call_later(1000, print).cancel()
    assert len(loop._timers) < 3000
    loop.call_later(1, loop.stop)
    loop.run_forever()
    assert loop.time() == 1


def test_callbacks_and_tasks_of_a_host_belong_to_it() -> None:
    world = World()
    seen: list[str] = []

    def note() -> None:
        host = CURRENT_HOST.get()
        seen.append(host.name if host else "-")

    async def child() -> None:
        note()

    async def body() -> None:
        world.loop.call_soon(note)
        world.loop.call_later(1, note)
        await asyncio.create_task(child())
        future = world.loop.create_future()
        future.add_done_callback(lambda _: note())
        future.set_result(None)
        await asyncio.sleep(2)

    world.run("b", body())
    world.loop.call_soon(note)
    world.run("a", asyncio.sleep(0))
    assert seen == ["b", "b", "b", "b", "-"]


def test_no_task_of_a_killed_host_runs() -> None:
    world = World()
    seen: list[str] = []

    async def worker(shared: asyncio.Future[None]) -> None:
        try:
            world.loop.call_later(5, seen.append, "timer")
            await shared
            seen.append("woken")
        finally:
            seen.append("tidied up")

    async def killer() -> None:
        shared = world.loop.create_future()
        world.start("a", worker(shared))
        await asyncio.sleep(1)
        world.hosts["a"].kill()
        shared.set_result(None)
        await asyncio.sleep(10)
        gc.collect()

    world.run("b", killer())
    assert seen == []
    world.loop.close()
    world.loop.bury(world.hosts["a"])
    gc.collect()
    assert seen == ["tidied up"], "only after the run is over"
    assert world.loop.unhandled == []


def test_a_task_that_a_kill_keeps_from_its_first_step_gives_no_warning() -> None:
    """Its coroutine has others as an argument and in its closure, as a parked fetch has. None of them has started."""
    world = World()
    seen: list[str] = []

    async def innermost() -> None:
        seen.append("started")

    async def middle(inner: Awaitable[None]) -> None:
        await inner

    async def killer() -> None:
        within = middle(innermost())

        async def outermost() -> None:
            await within

        world.start("a", outermost())
        world.hosts["a"].kill()

    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        world.run("b", killer())
        world.loop.close()
        world.loop.bury(world.hosts["a"])
        gc.collect()
    assert [str(each.message) for each in reported] == []
    assert seen == []
