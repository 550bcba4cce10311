"""Members leave and join the ISR: leaders propose, the controller decides, and no record is committed in between."""

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import BrokerRegistrationChangeRecord, ConfigRecord
from broker.protocol.messages.partition_apis import AlterPartitionResponse
from tests.broker.replica.cluster import TOPIC, Cluster, tell, three, until, values_of
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path")


async def test_a_lagging_follower_leaves_the_isr_and_joins_again(cluster: Cluster, /) -> None:
    await three(cluster)
    leader = cluster.nodes[1]
    await leader.produce("a")
    cluster.cut.add((3, 1))
    result = await leader.produce("b")
    assert result.error is ErrorCode.NONE  # once the ISR has shrunk
    assert set(leader.leader.isr) == {1, 2}
    cluster.cut.clear()
    await until(lambda: set(leader.leader.isr) == {1, 2, 3})
    assert cluster.nodes[3].content() == ["a", "b"]
    assert [set(event["isr"]) for event in leader.traced("isr_changed")] == [{1, 2}, {1, 2, 3}]


@pytest.mark.conforms("H13")
async def test_a_commit_needs_every_member_known_to_the_controller(cluster: Cluster, /) -> None:
    await three(cluster)
    leader = cluster.nodes[1]
    await leader.produce("a")
    cluster.controller_works = False
    cluster.cut.add((3, 1))
    waiting = asyncio.ensure_future(leader.produce("b"))
    await until(lambda: leader.leader.pending is not None and len(cluster.alterations) > 2)
    assert leader.leader.high_watermark == 1
    assert not waiting.done()
    cluster.controller_works = True
    assert (await waiting).error is ErrorCode.NONE


@pytest.mark.conforms("H13")
async def test_metadata_settles_a_proposal_with_a_lost_answer(cluster: Cluster, /) -> None:
    await three(cluster)
    leader = cluster.nodes[1]
    granted = cluster.alter_partition

    cluster.who_asked_hears = False

    async def lose_the_answer(message: Any, version: int) -> Any:
        cluster.alter_partition = granted  # type: ignore[method-assign]
        await granted(message, version)
        raise TimeoutError

    cluster.alter_partition = lose_the_answer  # type: ignore[method-assign]
    cluster.cut.add((3, 1))
    waiting = asyncio.ensure_future(leader.produce("a"))
    await until(lambda: len(cluster.alterations) >= 2)
    assert set(leader.leader.isr) == {1, 2, 3}
    assert leader.leader.pending is not None
    await cluster.hear()
    assert (await waiting).error is ErrorCode.NONE
    assert set(leader.leader.isr) == {1, 2}


@pytest.mark.conforms("H13", "H16")
async def test_a_smaller_isr_counts_from_when_the_metadata_log_has_it(cluster: Cluster, /) -> None:
    """A minimum that was raised before comes before it in that log; the answer to the proposal overtakes both."""
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    await leader.produce("a")
    cluster.hears_of_alterations = False
    cluster.commit(ConfigRecord(2, TOPIC, "min.insync.replicas", "2"))
    cluster.cut.add((2, 1))
    waiting = asyncio.ensure_future(leader.produce("b"))
    await until(lambda: cluster.committed.topics[TOPIC].partitions[0].isr == (1,))
    await asyncio.sleep(3 * leader.config.quorum_retry_backoff_ms / 1000)
    assert leader.leader.isr == (1, 2)
    assert leader.leader.high_watermark == 1
    assert len(cluster.alterations) == 1, "what is granted is not asked again"
    await cluster.hear()
    assert (await waiting).error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert leader.leader.high_watermark == 1
    cluster.hears_of_alterations = True
    cluster.cut.clear()
    await until(lambda: leader.leader.high_watermark == 2)


@pytest.mark.conforms("H16")
async def test_a_leader_starts_with_an_isr_and_a_minimum_of_the_same_offset(cluster: Cluster, /) -> None:
    """By then it may lead no more, and a minimum that was lowered then counts for its successors only."""
    await cluster.start(1, 2)
    leader = cluster.nodes[1]
    create = leader.manager._directories.create

    async def lower_meanwhile(topic: str, index: int, topic_id: bytes) -> Any:
        cluster.commit(ConfigRecord(2, TOPIC, "min.insync.replicas", "1"))
        leader.image.apply(cluster.records[-1], len(cluster.records) - 1)
        return await create(topic, index, topic_id)

    leader.manager._directories.create = lower_meanwhile  # type: ignore[method-assign]
    await cluster.create_topic([1, 2], configs={"min.insync.replicas": "2"})
    assert leader.leader.min_insync_replicas == 2
    await leader.manager.apply(leader.image, {(TOPIC, 0)})
    assert leader.leader.min_insync_replicas == 1


@pytest.mark.conforms("H13")
async def test_an_answer_of_a_newer_leader_epoch_grants_the_proposal(cluster: Cluster, /) -> None:
    """With the third member a reassignment was complete, and the epoch ended: the leader must wait for the members that
    may be elected next, although the answer does not state its epoch."""
    await three(cluster)
    leader = cluster.nodes[1]
    cluster.cut.add((3, 1))
    await leader.produce("a")
    assert set(leader.leader.isr) == {1, 2}
    granted = cluster.alter_partition
    produced: asyncio.Future[asyncio.Task[Any]] = asyncio.get_running_loop().create_future()

    async def grant_and_elect_anew(message: Any, version: int) -> Any:
        cluster.who_asked_hears = False
        response = cast(AlterPartitionResponse, await granted(message, version))
        cluster.elect(1, isr=[1, 2, 3])
        (result,) = response.topics[0].partitions
        result.leader_epoch += 1
        result.partition_epoch += 1
        cluster.cut.add((3, 1))
        waiting = asyncio.ensure_future(leader.produce("b"))
        await until(lambda: leader.leader.follower(2).log_end_offset == 2)  # but for the third member, all have it
        cluster.alter_partition = granted  # type: ignore[method-assign]
        produced.set_result(waiting)
        return response

    cluster.alter_partition = grant_and_elect_anew  # type: ignore[method-assign]
    cluster.cut.clear()
    waiting = await produced  # what is answered is taken in the same turn
    assert leader.leader.high_watermark == 1
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.conforms("H14", "H15")
async def test_a_replica_that_bounced_since_its_fetch_is_not_proposed(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    await leader.produce("a")
    cluster.elect(1, isr=[1])
    await cluster.stop(2)
    await cluster.start(2)
    await cluster.hear(1)  # the leader hears of the new incarnation before it fetches
    leader.partition().replica_fetched(2, broker_epoch=1, fetch_offset=1, log_start_offset=0)
    leader.manager._replica_fetched(leader.partition(), 2)
    assert leader.leader.pending is None
    await cluster.hear(2)
    await until(lambda: set(leader.leader.isr) == {1, 2})
    (request,) = cluster.alterations
    wanted = request.topics[0].partitions[0].new_isr_with_epochs
    assert [it.broker_epoch for it in wanted] == [0, cluster.committed.brokers[2].epoch]


def fence(cluster: Cluster, node: int, fenced: bool) -> None:
    epoch = cluster.committed.brokers[node].epoch
    cluster.commit(BrokerRegistrationChangeRecord(broker_id=node, broker_epoch=epoch, fenced=1 if fenced else -1))


@pytest.mark.conforms("H14")
@played_by(tell, "tmp_path", replica_fetch_wait_max_ms=60000, replica_lag_time_max_ms=60000)
async def test_an_unfenced_follower_with_a_parked_fetch_joins_immediately(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    fence(cluster, 2, True)
    cluster.elect(1, isr=[1])
    await cluster.hear()
    await leader.produce("a")
    await until(lambda: cluster.nodes[2].partition().log.log_end_offset == 1)
    await until(lambda: len(leader.partition().replica_fetches) == 1)
    assert leader.leader.isr == (1,)
    assert leader.leader.pending is None
    fence(cluster, 2, False)
    await cluster.hear()
    await until(lambda: set(leader.leader.isr) == {1, 2})


@pytest.mark.conforms("H13", "H14")
async def test_a_refused_proposal_holds_the_high_watermark_no_longer_and_is_not_repeated_at_once(
    cluster: Cluster, /
) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    cluster.elect(1, isr=[1])
    fence(cluster, 2, True)  # known to the controller alone
    for node in cluster.nodes.values():
        for offset in range(node.image.offset + 1, len(cluster.records) - 1):
            changed = node.image.apply(cluster.records[offset], offset).partitions
            await node.manager.apply(node.image, changed)
    await until(lambda: len(cluster.alterations) == 1)
    await until(lambda: leader.leader.pending is None)
    for value in range(5):
        assert (await leader.produce(str(value))).error is ErrorCode.NONE
    assert len(cluster.alterations) == 1


async def test_a_deleted_partition_with_a_refused_proposal_leaves_no_state(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    cluster.elect(1, isr=[1])
    fence(cluster, 2, True)  # known to the controller alone
    for offset in range(leader.image.offset + 1, len(cluster.records) - 1):
        await leader.manager.apply(leader.image, leader.image.apply(cluster.records[offset], offset).partitions)
    await cluster.hear(2)
    await until(lambda: len(cluster.alterations) == 1 and leader.leader.pending is None)
    partition = weakref.ref(leader.partition())
    cluster.delete_topic()
    await cluster.hear()
    await cluster.stop(2)  # what was on its way from the follower
    gc.collect()
    assert partition() is None


@pytest.mark.conforms("H13", "H14")
@played_by(tell, "tmp_path", replica_lag_time_max_ms=60000)
async def test_a_proposal_that_arrives_behind_the_refusal_of_its_copy_is_refused_as_well(cluster: Cluster, /) -> None:
    """Its connection was cut, and its bytes come late: the leader has committed without the follower since."""
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    decide = cluster.alter_partition
    late: list[Any] = []

    async def delay(message: Any, version: int) -> Any:
        late.append((message, version))
        cluster.alter_partition = decide  # type: ignore[method-assign]
        fence(cluster, 2, True)
        raise TimeoutError

    cluster.alter_partition = delay  # type: ignore[method-assign]
    cluster.elect(1, isr=[1])
    await cluster.hear()
    await until(lambda: len(cluster.alterations) == 1 and leader.leader.pending is None)
    cluster.cut |= {(2, 1)}
    assert (await leader.produce("a")).error is ErrorCode.NONE
    cluster.hears_of_alterations = False
    fence(cluster, 2, False)
    ((message, version),) = late
    response = cast(AlterPartitionResponse, await decide(message, version))
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.committed.topics[TOPIC].partitions[0].isr == (1,)
    await cluster.hear(1)
    assert leader.leader.partition_epoch == cluster.committed.topics[TOPIC].partitions[0].partition_epoch
    cluster.hears_of_alterations = True
    cluster.cut.clear()
    await until(lambda: set(leader.leader.isr) == {1, 2})


async def test_too_small_an_isr_takes_no_produce_with_acks_all(cluster: Cluster, /) -> None:
    await three(cluster, configs={"min.insync.replicas": "2"})
    cluster.elect(1, isr=[1])
    cluster.cut |= {(2, 1), (3, 1)}
    await cluster.hear()
    leader = cluster.nodes[1]
    refused = await leader.produce("a")
    assert (refused.error, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert leader.partition().log.log_end_offset == 0
    assert (await leader.produce("b", acks=1)).error is ErrorCode.NONE


@pytest.mark.conforms("H16")
async def test_an_isr_that_shrinks_below_the_minimum_answers_waiting_requests(cluster: Cluster, /) -> None:
    await three(cluster, configs={"min.insync.replicas": "2"})
    leader = cluster.nodes[1]
    await leader.produce("a")
    cluster.cut |= {(2, 1), (3, 1)}
    result = await leader.produce("b")
    assert (result.error, result.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1)
    assert leader.leader.high_watermark == 1
    assert values_of(leader.read()) == ["a"]
