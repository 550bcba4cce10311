"""DeleteRecords is answered when no replica that may lead can take the deletion back (KIP-107)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from tests.broker.replica.cluster import TOPIC, Cluster, tell, three, until
from tests.stories import played_by

TIMED_OUT = (ErrorCode.REQUEST_TIMED_OUT, -1)


async def written(cluster: Cluster) -> None:
    """Three replicas with three records; broker 1 leads."""
    await three(cluster)
    assert (await cluster.nodes[1].produce(*"abc")).error is ErrorCode.NONE


@pytest.mark.conforms("K107-1")
@pytest.mark.kills("delete_answered_early")
@pytest.mark.parametrize("mutants", [(), ("delete_answered_early",)])
def test_an_answer_waits_for_each_replica_that_is_live(tmp_path: Path, mutants: Sequence[str]) -> None:
    """One that is not in the ISR, too: it may join it any time."""

    async def story(cluster: Cluster) -> None:
        await written(cluster)
        cluster.cut |= {(1, 3), (3, 1)}
        cluster.elect(1, isr=[1, 2])
        await cluster.hear()
        deletion = asyncio.create_task(cluster.nodes[1].manager.delete_records(TOPIC, 0, 2, 30.0))
        await until(lambda: cluster.nodes[2].partition().log.log_start_offset == 2)
        await asyncio.sleep(0.1)
        assert deletion.done() == bool(mutants)
        cluster.cut.clear()
        assert await deletion == (ErrorCode.NONE, 2)
        starts = [node.partition().log.log_start_offset for node in cluster.nodes.values()]
        assert mutants or starts == [2, 2, 2]

    tell(tmp_path, story, mutants=tuple(mutants))


@pytest.mark.conforms("K107-1")
@played_by(tell, "tmp_path")
async def test_a_deletion_that_a_replica_does_not_learn_times_out_and_stays(cluster: Cluster, /) -> None:
    await written(cluster)
    cluster.cut |= {(1, 3), (3, 1)}
    node = cluster.nodes[1]
    assert await node.manager.delete_records(TOPIC, 0, 2, 0.05) == TIMED_OUT
    assert node.partition().log.log_start_offset == 2
    assert await node.manager.delete_records(TOPIC, 0, 1, 0.05) == TIMED_OUT, "an earlier offset waits, too"
    cluster.cut.clear()
    assert await node.manager.delete_records(TOPIC, 0, 1, 30.0) == (ErrorCode.NONE, 2)


@pytest.mark.conforms("K107-1")
@played_by(tell, "tmp_path")
async def test_the_end_of_a_leadership_ends_the_wait(cluster: Cluster, /) -> None:
    await written(cluster)
    cluster.cut |= {(1, 3), (3, 1)}
    deletion = asyncio.create_task(cluster.nodes[1].manager.delete_records(TOPIC, 0, 2, 30.0))
    await until(lambda: len(cluster.nodes[1].partition().deletions) == 1)
    cluster.elect(2)
    await cluster.hear(1)
    assert await deletion == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.conforms("K107-2")
@played_by(tell, "tmp_path", replica_fetch_wait_max_ms=20000)
async def test_a_deletion_does_not_wait_for_the_end_of_parked_fetches(cluster: Cluster, /) -> None:
    await written(cluster)
    before = asyncio.get_running_loop().time()
    assert await cluster.nodes[1].manager.delete_records(TOPIC, 0, 2, 60.0) == (ErrorCode.NONE, 2)
    assert asyncio.get_running_loop().time() - before < 15
