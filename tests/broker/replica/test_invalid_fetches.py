"""Negative epochs and sizes in Fetch are answered as by Apache Kafka 4.1."""

import pytest

from broker.errors import ErrorCode
from broker.replica.reads import FetchLimits, FetchPosition
from tests.broker.replica.cluster import TOPIC, Cluster, tell
from tests.stories import played_by

CONSUMER = -1


@pytest.mark.parametrize(
    ("offset", "epoch", "fetched_epoch", "sizes", "error"),
    [
        (0, -2, -1, (100, 100), ErrorCode.NONE),
        (0, -1, -2, (100, 100), ErrorCode.NONE),
        (0, -(2**31), -(2**31), (100, 100), ErrorCode.NONE),
        (0, 99, -1, (100, 100), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, -1, -1, (-1, 100), ErrorCode.UNKNOWN_SERVER_ERROR),
        (0, -1, -1, (100, -1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (0, -1, -1, (0, 0), ErrorCode.NONE),
        (2, -1, -1, (-1, -1), ErrorCode.NONE),
    ],
)
@played_by(tell, "tmp_path")
async def test_a_consumers_fetch(
    cluster: Cluster, /, offset: int, epoch: int, fetched_epoch: int, sizes: tuple[int, int], error: ErrorCode
) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await cluster.nodes[1].produce("a", "b")
    limits = FetchLimits(CONSUMER, max_wait=0.0, max_bytes=sizes[0])
    position = FetchPosition(TOPIC, 0, offset, sizes[1], epoch, fetched_epoch)
    (read,) = await cluster.nodes[1].manager.wait_for_fetch(limits, [position])
    assert read.error == error
    assert (read.size > 0) == (error is ErrorCode.NONE and offset < 2)
