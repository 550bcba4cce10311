"""The records of a replica's log that may be uploaded, and the remote segments of its history."""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.log.epochs import EpochEntry
from broker.tiered.manifest import Manifest
from broker.tiered.segments import RemotePartition, SegmentState, TieredSegment
from broker.tiered.tiered_storage import TieredLog
from tests.broker.replica.cluster import TOPIC, TOPIC_ID, Cluster, tell
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path", passed=("mutants",))


def tiered_log(cluster: Cluster, *segments: TieredSegment) -> TieredLog:
    metadata: Any = SimpleNamespace(manifest=lambda key: Manifest(segments), is_read=lambda key: True)  # noqa: ARG005
    reads: Any = None
    return TieredLog(cluster.nodes[1].partition(), metadata, reads)


@pytest.mark.conforms("K1023-14")
@pytest.mark.kills("tier_above_hw")
@pytest.mark.parametrize("mutants", [(), ("tier_above_hw",)])
async def test_only_committed_records_are_uploaded(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    await cluster.start(1)
    await cluster.create_topic([1, 2])
    for value in "abc":
        await cluster.nodes[1].produce(value, acks=1)
    assert cluster.nodes[1].partition().high_watermark == 0
    assert tiered_log(cluster).lineage.end_offset == (3 if mutants else 0)


@pytest.mark.conforms("H28")
@pytest.mark.kills("remote_ignores_lineage")
@pytest.mark.parametrize("mutants", [(), ("remote_ignores_lineage",)])
async def test_a_segment_of_a_lost_history_is_not_of_the_log(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    cluster.elect(1)
    await cluster.hear()
    await cluster.nodes[1].produce("a", "b")
    lost = TieredSegment(
        "a" * 32, RemotePartition(TOPIC, TOPIC_ID, 0), 0, 9, (EpochEntry(0, 0),), 1, 100, 2, 0,
        SegmentState.COPY_FINISHED,
    )  # fmt: skip
    found = tiered_log(cluster, lost).highest_tiered()
    assert (found is not None and found.offset == 9) == bool(mutants)
    assert (found is None) == (not mutants)
