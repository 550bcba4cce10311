"""Waiting in virtual time, and the effect of a signal."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from orchestrator.errors import WorldError
from orchestrator.worlds.simulation import scheduling
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.oracles.findings import STANDS_STILL


class StoppedError(Exception):
    """Raised by the handler of SIGTERM."""


@pytest.fixture(autouse=True)
def _a_handler_that_raises() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StoppedError

    before = signal.signal(signal.SIGTERM, stop)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_delivered_to_the_waiting_code_and_not_to_a_simulated_process() -> None:
    turns: list[str] = []

    def in_some_process() -> bool:
        signal.raise_signal(signal.SIGTERM)
        turns.append("went on")
        return True

    with SimulatedCluster(1, 1) as cluster:
        scheduler = VirtualScheduler(cluster, 1)
        with pytest.raises(StoppedError):
            scheduler.until(in_some_process, 5.0)
        assert turns == ["went on"]
        scheduler.sleep(0.1)  # the world is whole


def test_a_wait_that_uses_up_the_processor_ends_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "CPU_LIMIT_S", 0.05)

    def spin() -> None:
        while True:
            pass

    with SimulatedCluster(1, 1) as cluster:
        scheduler = VirtualScheduler(cluster, 77)
        cluster.loop.call_later(0.5, spin)
        with pytest.raises(WorldError, match=r"seed 77: the simulated world used 0.05 s of CPU time for one wait"):
            scheduler.sleep(1.0)
        assert cluster.loop.now == 0.5, "it ends with what it saw"
        cluster.loop.unhandled.clear()  # the interrupted callback


def test_a_callback_that_never_returns_ends_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that loops without awaiting anything records events without an end."""
    monkeypatch.setattr(scheduling, "CALLBACK_LIMIT_S", 0.05)
    attempts: list[int] = []

    def spin() -> None:
        attempts.append(0)
        while True:
            attempts[-1] += 1

    def busy() -> None:
        cluster.loop.call_later(0.001, busy)  # many short callbacks are progress

    with SimulatedCluster(1, 1) as cluster:
        scheduler = VirtualScheduler(cluster, 77)
        cluster.loop.call_later(0.5, spin)
        cluster.loop.call_later(0.0, busy)
        with pytest.raises(WorldError, match=r"seed 77: the simulated world used 0.05 s of CPU time for one callback"):
            scheduler.sleep(1.0)
        assert len(attempts) == 1
        cluster.loop.unhandled.clear()  # the interrupted callback


def test_a_broker_that_never_returns_is_a_failure_of_that_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "CALLBACK_LIMIT_S", 0.05)

    def spin() -> None:
        while True:
            pass

    with SimulatedCluster(1, 1, mutants=["slow_retry"]) as cluster:  # the oracles may find something
        cluster.start()
        scheduler = VirtualScheduler(cluster, 77)
        scheduler.sleep(0.1)
        host = cluster.watch.machines["n1"].host
        assert host is not None
        cluster.loop.call_later(0.5, spin, context=host.context)
        with pytest.raises(WorldError, match="one callback"):
            scheduler.sleep(1.0)
        (finding,) = cluster.watch.findings.found
        assert finding.oracle == STANDS_STILL
        assert finding.sentence.startswith("n1 does not return to its event loop: it used 0.05 s of CPU time")
        cluster.loop.unhandled.clear()  # the interrupted callback


def test_a_wait_without_pending_events_ends_with_the_seed() -> None:
    with SimulatedCluster(1, 1) as cluster:

        async def forever() -> None:
            await cluster.loop.create_future()

        with pytest.raises(WorldError, match=r"seed 78: the simulated world stopped making progress"):
            VirtualScheduler(cluster, 78).run(forever())
