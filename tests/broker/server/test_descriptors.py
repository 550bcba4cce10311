"""Too many files are open for a while: the broker does not count this as a failed disk, and continues afterwards."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.checkpoint import AtomicFile
from broker.ports import File
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.disk import SimulatedDisk
from tests.stories import run_by


class Crowd:
    """While it is there, no file that it is `about` can be opened."""

    def __init__(self, about: Callable[[str], bool]) -> None:
        self.about = about
        self.there = False
        self.refusals = 0

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = SimulatedDisk.open

        def open_(of: SimulatedDisk, path: str, *, create: bool = False) -> File:
            if self.there and self.about(path):
                self.refusals += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return opened(of, path, create=create)

        monkeypatch.setattr(SimulatedDisk, "open", open_)


@run_by(asyncio.run)
async def test_a_checkpoint_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AtomicFile(RealDisk(str(tmp_path)), "file")
    await file.write("old")
    refused, loop = asyncio.Event(), asyncio.get_running_loop()

    def refuse(path: str, *_: int) -> int:
        loop.call_soon_threadsafe(refused.set)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as crowded:
        crowded.setattr(os, "open", refuse)
        writing = asyncio.create_task(file.write("new"))
        await refused.wait()
        assert not writing.done()
    await writing
    assert file.read() == "new"


@pytest.mark.parametrize("about", ["quorum", "__cluster_metadata", "t-", ""])
def test_a_broker_survives_missing_descriptors_and_completes_postponed_work(
    about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Votes and marks of the metadata quorum, its log, partitions that are new, and everything at once."""
    crowd = Crowd(lambda path: about in path)
    crowd.patch(monkeypatch)
    with SimulatedCluster(1, properties={"metadata.log.max.record.bytes.between.snapshots": "200"}) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            crowd.there = True
            killed = str(cluster.controller())
            creating = asyncio.create_task(SimulatedClient(cluster.addresses).create_topic("t", 3, 3))
            await asyncio.sleep(1.0)
            cluster.kill(killed)  # others vote
            await cluster.until(lambda: crowd.refusals > 2)
            await asyncio.sleep(1.0)
            crowd.there = False
            cluster.start(killed)
            await cluster.ready()
            await asyncio.wait([creating])
            await cluster.until(lambda: all("t" in cluster.node(name).image.topics for name in cluster.machines))
            await cluster.until(
                lambda: all(
                    len(state.isr) == 3 and state.leader > 0
                    for state in cluster.node("n1").image.topics["t"].partitions.values()
                )
            )
            assert not list(cluster.journal.of("broker_failed"))

        cluster.run(story())
