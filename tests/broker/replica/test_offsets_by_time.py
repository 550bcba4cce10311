"""ListOffsets by a time: the record, its leader epoch, and the versions of special timestamps."""

from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.protocol.compression import NAMES
from broker.protocol.messages.offset_apis import (
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
)
from broker.protocol.records import Record, build_batch, parse_header
from broker.protocol.schema import Topic
from broker.replica.compactor import raw_records, rebuilt
from broker.replica.queries import OffsetFound
from broker.server.handlers.offsets_handler import OffsetsHandler
from broker.server.work_budget import Turns
from tests.broker.replica.cluster import TOPIC, Cluster, Node, tell
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path")
CODECS = pytest.mark.parametrize("codec", [0, *NAMES], ids=["none", *NAMES.values()])


def batch(codec: int, *times: int) -> bytearray:
    plain = build_batch([Record(0, time, None, b"value") for time in times])
    header = parse_header(plain)
    records = list(raw_records(header, plain))
    return bytearray(rebuilt(header._replace(attributes=codec), records, None))


async def led(cluster: Cluster, codec: int) -> Node:
    """A broker that has led a batch in epoch 0, offsets 0 to 2, and one in epoch 1, offsets 3 to 7."""
    await cluster.start(1)
    await cluster.create_topic([1])
    node = cluster.nodes[1]
    for times in ((1, 2, 3), (1_000, 51_000, 1_010, 61_000, 1_020)):
        produced = await node.manager.produce(TOPIC, 0, batch(codec, *times), -1, 5.0)
        assert produced.error is ErrorCode.NONE
        cluster.elect(1)
        await cluster.hear()
    return node


async def answer(node: Node, timestamp: int, version: int) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsRequest(replica_id=-1, topics=[Topic(TOPIC, [ListOffsetsPartition(0, timestamp=timestamp)])])
    turns = Turns()
    response = await turns.finish(OffsetsHandler(node.manager, turns).list_offsets(asked, version))
    return response.topics[0].partitions[0]


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_the_answer_has_offset_time_and_epoch_of_the_record(cluster: Cluster, /, codec: int) -> None:
    node = await led(cluster, codec)
    assert node.manager.list_offset(TOPIC, 0, 2) == OffsetFound(ErrorCode.NONE, 2, 1, 0)
    assert node.manager.list_offset(TOPIC, 0, 4) == OffsetFound(ErrorCode.NONE, 1_000, 3, 1)
    assert node.manager.list_offset(TOPIC, 0, 1_001) == OffsetFound(ErrorCode.NONE, 51_000, 4, 1)
    assert node.manager.list_offset(TOPIC, 0, MAX_TIMESTAMP) == OffsetFound(ErrorCode.NONE, 61_000, 6, 1)
    assert node.manager.list_offset(TOPIC, 0, 61_001) == OffsetFound()


@pytest.mark.conforms("LOG-1")
@CODECS
@pytest.mark.parametrize("clean", [True, False])
async def test_the_answer_is_the_same_after_a_restart(cluster: Cluster, /, codec: int, clean: bool) -> None:
    await led(cluster, codec)
    await (cluster.stop(1) if clean else cluster.kill(1))
    await cluster.start(1, clean=clean)
    cluster.elect(1)
    await cluster.hear()
    manager = cluster.nodes[1].manager
    assert manager.list_offset(TOPIC, 0, 1_001) == OffsetFound(ErrorCode.NONE, 51_000, 4, 1)
    assert manager.list_offset(TOPIC, 0, MAX_TIMESTAMP) == OffsetFound(ErrorCode.NONE, 61_000, 6, 1)


@pytest.mark.conforms("K1023-2")
@pytest.mark.parametrize(("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
async def test_a_special_timestamp_is_refused_below_its_version(
    cluster: Cluster, /, timestamp: int, since: int
) -> None:
    node = await led(cluster, 1)
    for version in range(1, 12):
        known = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert (await answer(node, timestamp, version)).error_code == known
    assert (await answer(node, -7, 11)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_damaged_batch_takes_the_replica_away_instead_of_an_answer(cluster: Cluster, /, tmp_path: Path) -> None:
    await led(cluster, 1)
    await cluster.stop(1)
    (path,) = (tmp_path / "n1" / f"{TOPIC}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    await cluster.start(1, clean=True)
    cluster.elect(1)
    await cluster.hear()
    node = cluster.nodes[1]
    assert node.manager.list_offset(TOPIC, 0, 2) == OffsetFound(ErrorCode.NONE, 2, 1, 0)
    assert node.manager.list_offset(TOPIC, 0, 1_001).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(node.disk_failures) == 1
    assert len(node.traced("partition_failed")) == 1
