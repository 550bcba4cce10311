"""Waiting in virtual time: what a signal does there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster


class StoppedError(Exception):
    """Raised by the handler of SIGTERM."""


@pytest.fixture(autouse=True)
def _a_handler_that_raises() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StoppedError

    before = signal.signal(signal.SIGTERM, stop)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_heard_by_who_waits_and_not_by_the_process_whose_turn_it_is() -> None:
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
