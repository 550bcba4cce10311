"""Unexpected errors of work on one partition: other partitions and the broker continue."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replica.partition_work import FIRST_PAUSE_S, LONGEST_PAUSE_S, PartitionWork
from simulator.loop import new_loop
from tests.broker.replica.cluster import Cluster, tell, until
from tests.stories import played_by


class Traced:
    """A partition that keeps its events."""

    def __init__(self, index: int) -> None:
        self.key = ("log", index)
        self.log = SimpleNamespace(is_deleted=False)
        self.events: list[tuple[str, Any]] = []

    def trace(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


def traced(index: int) -> Any:
    """Such a partition, in place of the broker's."""
    return Traced(index)


def in_virtual_time(story: Callable[[list[dict[str, Any]]], Any]) -> None:
    loop = new_loop()
    reported: list[dict[str, Any]] = []
    setattr(loop, "call_exception_handler", reported.append)  # noqa: B010 - typed as a method
    loop.run_until_complete(story(reported))
    loop.close()


STORIES = played_by(in_virtual_time)


async def test_a_failed_partition_is_tried_again_after_growing_pauses_and_others_at_once(
    reported: list[dict[str, Any]], /
) -> None:
    work, bad, good = PartitionWork(), traced(0), traced(1)
    tries: list[float] = []
    loop = asyncio.get_running_loop()

    async def fail() -> int:
        tries.append(loop.time())
        raise ValueError("the segment has no epoch")

    async def succeed() -> int:
        return 7

    for _ in range(4000):
        assert await work.attempt("upload", bad, fail) is None
        assert await work.attempt("upload", good, succeed) == 7
        await asyncio.sleep(0.25)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert max(pauses) == LONGEST_PAUSE_S
    assert work.failures == {"upload": len(tries)}
    fields = {"work": "upload", "reason": "ValueError: the segment has no epoch"}
    assert bad.events == [("partition_work_failed", fields)], "once as long as the reason is the same"
    assert [it["message"] for it in reported] == [
        "upload of log-0 failed and is tried again: ValueError: the segment has no epoch"
    ]
    assert not good.events


async def test_a_success_ends_the_pauses_and_a_later_error_is_reported_again(reported: list[dict[str, Any]], /) -> None:
    work, partition, fails = PartitionWork(), traced(0), True

    async def run() -> bool:
        if fails:
            raise KeyError("x")
        return True

    assert await work.attempt("retention", partition, run) is None
    assert work.pauses("retention", partition)
    assert not work.pauses("upload", partition), "another kind of work goes on"
    await asyncio.sleep(FIRST_PAUSE_S)
    fails = False
    assert await work.attempt("retention", partition, run)
    fails = True
    assert await work.attempt("retention", partition, run) is None
    assert len(reported) == work.failures["retention"] == 2
    work.forget(partition)
    assert not work.pauses("retention", partition)


async def test_a_disk_error_is_passed_on(reported: list[dict[str, Any]], /) -> None:
    async def fail() -> int:
        raise OSError(5, "EIO")

    work = PartitionWork()
    with pytest.raises(OSError, match="EIO"):
        await work.attempt("upload", traced(0), fail)
    assert not work.failures
    assert not reported


@played_by(tell, "tmp_path", log_retention_check_interval_ms=20)
async def test_a_defect_in_the_retention_of_one_partition_ends_no_broker(
    cluster: Cluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    await cluster.start(1)
    node = cluster.nodes[1]
    await cluster.create_topic([1])
    await node.produce("a")

    def fail(_now_ms: int) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(node.partition(), "expired", fail)
    await until(lambda: bool(node.manager.work.failures))
    assert (await node.produce("b")).base_offset == 1
    assert len(reported) == 1


async def test_errors_of_work_on_a_deleted_replica_are_ignored(reported: list[dict[str, Any]], /) -> None:
    work, partition = PartitionWork(), traced(0)

    async def fail() -> int:
        partition.log.is_deleted = True
        raise FileNotFoundError("log-0/00000000000000000010.snapshot")

    assert await work.attempt("upload", partition, fail) is None
    assert (partition.events, reported, work.failures) == ([], [], {})
