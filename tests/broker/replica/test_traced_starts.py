"""The event `replica_starts`: the borders of a replica's log in a tiered topic, traced while they belong together."""

from typing import Any

import pytest

from analysis.core.remote_rules import out_of_bounds
from tests.broker.replica.cluster import Cluster, tell
from tests.broker.replica.test_tiered_start import END, PENDING, SETTINGS, Tiered
from tests.stories import played_by


def traced(tiered: Tiered) -> list[dict[str, Any]]:
    """The events of the leader after it was asked twice to trace."""
    partition = tiered.leader.partition()
    partition.trace_starts()
    partition.trace_starts()
    return tiered.leader.traced("replica_starts")


@pytest.mark.conforms("K1023-14")
@played_by(tell, "tmp_path", **SETTINGS)
async def test_the_borders_of_a_log_are_traced_once_until_they_change(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    [event] = traced(tiered)
    names = ("log_start_offset", "local_start_offset", "last_tiered_offset", "high_watermark", "log_end_offset")
    assert [event[name] for name in names] == [0, tiered.local, PENDING - 1, END, END]
    assert list(out_of_bounds("n1", [event])) == []
    await tiered.write(END, END + 1)
    assert [it["log_end_offset"] for it in traced(tiered)] == [END, END + 1]


@pytest.mark.parametrize("unknown", ["no remote storage", "metadata", "high watermark", "truncation"])
@played_by(tell, "tmp_path", **SETTINGS)
async def test_borders_that_do_not_belong_together_are_not_traced(cluster: Cluster, /, unknown: str) -> None:
    """After a restart the metadata are not read yet, and the high watermark can be below the local start."""
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    partition = tiered.leader.partition()
    if unknown == "no remote storage":
        partition.remote = None
    elif unknown == "metadata":
        tiered.remote.is_read = False
    elif unknown == "high watermark":
        tiered.leader.leader.high_watermark = tiered.local - 1
    if unknown == "truncation":
        async with partition.lock:
            assert traced(tiered) == []
    else:
        assert traced(tiered) == []
