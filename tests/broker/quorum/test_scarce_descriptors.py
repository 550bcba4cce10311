"""No file can be opened for a while: a quorum that lives on snapshots waits, and continues."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from broker import descriptors
from tests.broker.log.test_scarce_descriptors import ScarceDisk
from tests.broker.quorum.live import DIRECTORY, LiveCluster, Seat
from tests.broker.quorum.test_damaged_snapshots import LARGE, SMALL, one_lags_behind
from tests.broker.quorum.test_runner import events_of
from tests.stories import run_by

TIMES = 4


class OftenScarceDisk(ScarceDisk):
    """Where it `refuses`, each file is refused several times, but never twice in a row."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.times = Counter[str]()

    def _refuse(self, path: str) -> None:
        if path in self.refused:
            self.refused.remove(path)
        elif self.refuses and self.times[path] < TIMES:
            self.times[path] += 1
            super()._refuse(path)


class ScarceCluster(LiveCluster):
    @staticmethod
    def _seat(path: Path, node: int, disk: int) -> Seat:
        return Seat(node, OftenScarceDisk(path / f"{node}"), bytes([node, disk] * 8))

    def disk(self, node: int) -> OftenScarceDisk:
        disk = self.seats[node].disk
        assert isinstance(disk, OftenScarceDisk)
        return disk

    def snapshot_files(self, node: int) -> list[str]:
        disk = self.disk(node)
        disk.refuses = False
        disk.refused.clear()
        return [name for name in disk.list(DIRECTORY) if ".checkpoint" in name]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "PAUSE_S", 0.0)


@run_by(asyncio.run)
async def test_a_follower_that_installs_a_snapshot_waits_for_descriptors(tmp_path: Path) -> None:
    cluster = ScarceCluster(tmp_path, 3, 0, **SMALL)
    leader, away = await one_lags_behind(cluster)
    disk, seat = cluster.disk(away), cluster.seats[away]
    await cluster.start(away)
    disk.refuses = True
    await cluster.until(lambda: events_of(seat, "quorum_snapshot") or seat.failures)
    assert not seat.failures
    refused = {path.rpartition(".")[2] for path in disk.times if ".checkpoint" in path}
    assert refused == {"part", "checkpoint"}
    assert DIRECTORY in disk.times
    last = await cluster.quorum(leader).append([b"last"])
    await cluster.until(lambda: cluster.quorum(away).high_watermark > last or seat.failures)
    assert seat.values[-1] == b"last"
    await cluster.stop()
    assert len(cluster.snapshot_files(away)) == 1


@run_by(asyncio.run)
async def test_a_leader_that_takes_a_snapshot_waits_for_descriptors(tmp_path: Path) -> None:
    cluster = ScarceCluster(tmp_path, 1, 0, **SMALL)
    await cluster.start()
    await cluster.leader()
    disk, seat = cluster.disk(1), cluster.seats[1]
    await cluster.quorum(1).append([LARGE])
    await cluster.until(lambda: len(events_of(seat, "quorum_snapshot")) == 1)
    disk.refuses = True
    await cluster.quorum(1).append([LARGE])
    await cluster.until(lambda: len(events_of(seat, "quorum_snapshot")) == 2 or seat.failures)
    assert not seat.failures
    assert DIRECTORY in disk.times
    await cluster.quorum(1).append([b"last"])
    await cluster.stop()
    assert len(cluster.snapshot_files(1)) == 1
