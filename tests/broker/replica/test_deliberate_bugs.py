"""The mutants of leaders and followers: each breaks its rule, and without it the rule holds."""

import pytest

from broker.mutants import Mutants
from broker.replica.follower import PartitionFollower, Truncate
from broker.replica.leader import PartitionLeader
from broker.replica.reads import FetchLimits, FetchPosition
from tests.broker.replica.cluster import TOPIC, Cluster, batch, tell, three, values_of
from tests.broker.replica.story import MemoryLog
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path", passed=("mutants",))

OFF_AND_ON = (False, True)


def leader(name: str, on: bool) -> PartitionLeader:
    """The leader of epoch 5 from offset 10 on, with a high watermark of 4: the records in between may have been
    committed."""
    return PartitionLeader(
        node_id=1,
        replicas=(1, 2, 3),
        isr=(1, 2),
        leader_epoch=5,
        partition_epoch=20,
        epoch_start_offset=10,
        log_start_offset=0,
        committable_end=10,
        high_watermark=4,
        min_insync_replicas=1,
        lag_time_max=1.0,
        now=0.0,
        mutants=Mutants([name] if on else ()),
    )


@pytest.mark.conforms("H5")
@pytest.mark.kills("isr_join_at_hw_only")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_adds_a_follower_below_the_start_of_the_epoch(on: bool) -> None:
    it = leader("isr_join_at_hw_only", on)
    it.follower_fetched(3, broker_epoch=7, fetch_offset=5, log_start_offset=0, leader_end=10, now=0.0)
    assert it.may_join(3) is on


@pytest.mark.conforms("H33")
@pytest.mark.kills("leader_hw_kept")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_shows_a_lagging_high_watermark(on: bool) -> None:
    assert leader("leader_hw_kept", on).high_watermark_is_known is on


@pytest.mark.conforms("H9")
@pytest.mark.kills("full_truncate_keeps_hw")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_a_restarted_log_has_its_high_watermark_at_its_start(on: bool) -> None:
    mutants = Mutants(["full_truncate_keeps_hw"] if on else ())
    it = PartitionFollower(leader_id=2, leader_epoch=5, partition_epoch=1, high_watermark=3, mutants=mutants)
    it.truncated(Truncate(20, "leader-start", restart=True), MemoryLog(log_start_offset=20))
    assert it.high_watermark == (3 if on else 20)


@pytest.mark.conforms("H1")
@pytest.mark.kills("ofle_no_epoch")
@pytest.mark.parametrize("mutants", [(), ("ofle_no_epoch",)])
async def test_only_the_mutant_answers_the_end_of_an_epoch_without_the_epoch(
    cluster: Cluster, /, mutants: tuple[str, ...]
) -> None:
    await three(cluster)
    await cluster.nodes[1].produce("a")
    end = cluster.nodes[1].manager.offset_for_leader_epoch(TOPIC, 0, -1, 0).end
    assert end == ((-1, 1) if mutants else (0, 1))


@pytest.mark.conforms("H3")
@pytest.mark.kills("no_fence_fetch")
@pytest.mark.parametrize("mutants", [(), ("no_fence_fetch",)])
async def test_only_the_mutant_counts_a_fetch_of_an_older_epoch(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    await cut_off_in_epoch_1(cluster)
    position = FetchPosition(TOPIC, 0, 2, 1 << 20, current_leader_epoch=0, last_fetched_epoch=0)
    cluster.nodes[1].manager.fetch_now(FetchLimits(replica_id=2, replica_epoch=1), [position])
    assert cluster.nodes[1].leader.follower(2).log_end_offset == (2 if mutants else -1)


@pytest.mark.conforms("H6")
@pytest.mark.kills("diverging_updates_leo")
@pytest.mark.parametrize("mutants", [(), ("diverging_updates_leo",)])
async def test_a_diverging_fetch_counts_only_for_the_mutant(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    await cut_off_in_epoch_1(cluster)
    position = FetchPosition(TOPIC, 0, 3, 1 << 20, current_leader_epoch=1, last_fetched_epoch=0)
    cluster.nodes[1].manager.fetch_now(FetchLimits(replica_id=2, replica_epoch=1), [position])
    assert cluster.nodes[1].leader.follower(2).log_end_offset == (3 if mutants else -1)


@pytest.mark.kills("ack_before_hw")
@pytest.mark.parametrize("mutants", [(), ("ack_before_hw",)])
async def test_a_record_is_acknowledged_before_the_others_have_it_only_by_the_mutant(
    cluster: Cluster, /, mutants: tuple[str, ...]
) -> None:
    await cut_off_in_epoch_1(cluster)
    appended = cluster.nodes[1].manager.append(TOPIC, 0, batch("d"), -1, 60.0)
    assert (appended.done is None) is bool(mutants)


@pytest.mark.kills("consume_past_hw")
@pytest.mark.parametrize("mutants", [(), ("consume_past_hw",)])
async def test_only_the_mutant_serves_uncommitted_records(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    await cut_off_in_epoch_1(cluster)
    assert values_of(cluster.nodes[1].read()) == (["a", "b", "c"] if mutants else [])


async def cut_off_in_epoch_1(cluster: Cluster) -> None:
    """Broker 1 leads in epoch 1, with two records of epoch 0 and one of its own, and no replica has fetched any."""
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    cluster.cut.add((2, 1))
    await cluster.nodes[1].produce("a", "b", acks=1)
    cluster.elect(1)
    await cluster.hear(1)
    await cluster.nodes[1].produce("c", acks=1)
