"""An empty follower of a partition that is mostly in remote storage, on simulated brokers (KIP-1023)."""

import asyncio
import functools
from collections.abc import Callable

import pytest

from broker.errors import ErrorCode
from broker.replica.queries import LATEST_TIERED, OffsetFound
from broker.replica.tiered_start import EARLIEST_PENDING_UPLOAD
from broker.trace import Value
from simulator.cluster import SimulatedCluster
from tests.simulator.test_leases import assign
from tests.simulator.test_tiered import TIERED, TOPIC, all_numbers, alter, leader, replicas, tiered_topic, write
from tests.simulator.tiered_bootstrap import RECORDS, Joining, run
from tests.stories import Test, played_by


def with_seed(seed: int, *passed: str) -> Callable[[Test], Callable[..., None]]:
    return played_by(functools.partial(run, seed), passed=passed)


STORIES = with_seed(1)


@pytest.mark.conforms("K1023-3", "K1023-6", "K1023-11", "K1023-12", "K1023-13")
@pytest.mark.parametrize("feature", [False, True])
@with_seed(1, "feature")
async def test_an_empty_follower_starts_at_the_local_start_or_after_the_last_tiered_offset(
    joining: Joining, /, feature: bool
) -> None:
    await joining.begin()
    await joining.fill()
    led = joining.led
    assert led.remote is not None
    tiered = led.remote.highest_tiered()
    assert tiered is not None
    local, pending = led.log.local_start_offset, tiered.offset + 1
    assert local < pending
    joined = await joining.join()
    assert joined.log.local_start_offset == (pending if feature else local)
    assert joined.log.log_start_offset == led.log.log_start_offset == 0
    assert joined.log.log_end_offset == led.log.log_end_offset
    with_records = [entry for entry in led.log.epochs.entries if entry.start_offset < led.log.log_end_offset]
    assert list(joined.log.epochs.entries) == with_records
    assert len(with_records) > 1


@pytest.mark.parametrize("last", [True, False])
def test_a_replica_that_jumped_leads_last_if_that_is_on(last: bool) -> None:
    async def story(joining: Joining) -> None:
        await joining.begin()
        await joining.fill()
        former = joining.leader
        assert (await joining.join()).has_few_local_records
        await joining.lead()
        assert (joining.leader == joining.spare) == (not last)
        assert joining.leader != former

    run(1, story, tiered_replicas_lead_last_enable=str(last).lower())


@pytest.mark.conforms("K1023-15")
async def test_a_follower_that_jumped_serves_all_records_once_it_leads(joining: Joining, /) -> None:
    await joining.begin()
    await joining.fill()
    assert (await joining.join()).log.local_start_offset > RECORDS // 2
    await joining.lead()
    assert joining.leader == joining.spare
    assert joining.led.log.log_start_offset == 0
    records = await joining.client.read_all(TOPIC, 0, 60.0)
    assert [record.offset for record in records] == list(range(RECORDS))


@pytest.mark.conforms("K1023-3")
async def test_a_leader_reelected_in_the_next_epoch_keeps_the_last_tiered_offset(joining: Joining, /) -> None:
    """A new leader answers -1 until it has read the events. The same leader has no reason to: it wrote them."""
    await joining.begin()
    await joining.fill()
    await joining.join()
    epoch, leader = joining.led.leader_epoch, joining.leader
    manager = joining.cluster.node(leader).replicas
    answers: set[OffsetFound] = set()

    async def ask() -> None:
        while True:
            answers.add(manager.list_offset(TOPIC, 0, LATEST_TIERED, joining.led.leader_epoch, by_replica=True))
            await asyncio.sleep(0.001)

    tiered = manager.list_offset(TOPIC, 0, LATEST_TIERED, epoch, by_replica=True)
    asking = asyncio.create_task(ask())
    remaining = [name for name in replicas(joining.cluster) if name != joining.spare]
    await assign(joining.cluster, {0: [joining.cluster.machines[name].node_id for name in remaining]})
    await joining.cluster.until(lambda: joining.led.leader_epoch > epoch)
    await asyncio.sleep(5)
    asking.cancel()
    assert (joining.led.leader_epoch, joining.leader) == (epoch + 1, leader)
    assert tiered.offset > 0
    assert {each for each in answers if each.error is ErrorCode.NONE} == {tiered}


@pytest.mark.conforms("K1023-14")
@pytest.mark.parametrize("feature", [False, True])
@with_seed(2, "feature")
async def test_the_borders_of_every_log_are_in_order_at_all_times(joining: Joining, /) -> None:
    await joining.begin()
    watching = asyncio.create_task(watch(joining))
    await joining.fill()
    await joining.join()
    await joining.lead()
    await asyncio.sleep(5)
    assert not watching.done(), watching
    watching.cancel()


async def watch(joining: Joining) -> None:
    """Log start <= local start <= log end, log start <= last tiered + 1 <= high watermark, and no gap between."""
    while True:
        for name, partition in replicas(joining.cluster).items():
            log, remote = partition.log, partition.remote
            tiered = None if remote is None else remote.highest_tiered()
            behind = log.log_start_offset if tiered is None else tiered.offset + 1
            assert log.log_start_offset <= log.local_start_offset <= log.log_end_offset, name
            assert behind <= log.log_end_offset, name
            assert partition.role is None or tiered is None or log.local_start_offset <= behind, name
        await asyncio.sleep(0.02)


@pytest.mark.conforms("K1023-11", "K98-3")
@pytest.mark.kills("no_remote_producer_snapshot")
@pytest.mark.parametrize("mutants", [(), ("no_remote_producer_snapshot",)])
def test_a_replica_that_never_copied_a_batch_recognizes_it_when_its_producer_repeats_it(
    mutants: tuple[str, ...],
) -> None:
    """As after a lost answer: the producer sends nothing between the first time and the second."""

    async def story(joining: Joining) -> None:
        await joining.begin()
        client = joining.client
        producer_id = (await client.init_producer_id()).producer_id
        first = await client.produce(TOPIC, 0, [b"once"], producer_id=producer_id, sequence=0)
        await joining.fill()
        assert (await joining.join()).log.local_start_offset > first
        await joining.lead()
        assert joining.leader == joining.spare
        await client.refresh(TOPIC)
        again = await client.produce(TOPIC, 0, [b"once"], producer_id=producer_id, sequence=0)
        assert (again == first) == (not mutants)
        values = [record.value for record in await client.read_all(TOPIC, 0, 60.0)]
        assert values.count(b"once") == 1 + len(mutants)

    run(1, story, mutants=mutants, tiered_replicas_lead_last_enable="false")


@pytest.mark.conforms("K1023-10")
@pytest.mark.parametrize("feature", [False, True])
@with_seed(1, "feature")
async def test_a_log_that_starts_after_the_last_tiered_offset_is_copied_from_its_start(joining: Joining, /) -> None:
    """DeleteRecords has removed all tiered records. The leader states no offset below the start of its log."""
    await joining.begin()
    await joining.fill()
    led = joining.led
    manager = joining.cluster.node(joining.leader).replicas
    assert led.remote is not None
    tiered = led.remote.highest_tiered()
    assert tiered is not None
    start = tiered.offset + 2
    assert start < led.high_watermark, "a record above the start"
    assert await manager.delete_records(TOPIC, 0, start) == (ErrorCode.NONE, start)
    assert led.remote.highest_tiered() is None
    pending = manager.list_offset(TOPIC, 0, EARLIEST_PENDING_UPLOAD, by_replica=True).offset
    assert pending in (-1, start)
    joined = await joining.join()
    assert (joined.log.log_start_offset, joined.log.log_end_offset) == (start, led.log.log_end_offset)


async def test_the_leader_keeps_its_epoch_when_a_replica_joins(joining: Joining, /) -> None:
    """As in Apache Kafka, so that both have the same leader epochs below the start of the new log."""
    await joining.begin()
    await joining.fill()
    epoch = joining.led.leader_epoch
    await joining.join()
    assert joining.led.leader_epoch == epoch
    await write(joining.client, 1, RECORDS)
    await joining.cluster.until(lambda: joining.joined is not None and joining.joined.high_watermark > RECORDS)


async def test_an_empty_follower_starts_where_retention_of_remote_records_moved_the_log(joining: Joining, /) -> None:
    """The start of the log has moved, and the local starts have not: the oracles know that no record is lost."""
    await joining.begin()
    await joining.fill()
    local = joining.led.log.local_start_offset
    assert joining.led.log.log_start_offset == 0
    await alter(joining.cluster, retention_bytes="20000")
    await joining.cluster.until(lambda: joining.led.log.log_start_offset > 0, 30)
    assert joining.led.log.local_start_offset == local
    assert (await joining.join()).log.log_start_offset == joining.led.log.log_start_offset


@pytest.mark.conforms("K1023-3", "K107-3")
@pytest.mark.parametrize("feature", [False, True])
@pytest.mark.parametrize("place", ["remote", "tiered and local", "not tiered"])
@with_seed(1, "feature")
async def test_an_empty_follower_joins_a_log_that_starts_inside_a_batch(joining: Joining, /, place: str) -> None:
    """It has every record from the start on, whose batch it copies whole, and serves them once it leads."""
    await joining.begin()
    for number in range(60):
        await joining.client.produce(TOPIC, 0, [b"%d-%d" % (number, each) + b"v" * 50 for each in range(10)])
    await joining.cluster.until(joining.has_remote_records, 90)
    log, remote = joining.led.log, joining.led.remote
    assert remote is not None
    tiered = remote.highest_tiered()
    assert tiered is not None
    assert 20 < log.local_start_offset < tiered.offset - 10
    above = {"remote": 10, "tiered and local": log.local_start_offset, "not tiered": tiered.offset + 1}[place]
    start = above // 10 * 10 + 15
    assert start < log.log_end_offset
    node = joining.cluster.node(joining.leader)
    assert await node.replicas.delete_records(TOPIC, 0, start) == (ErrorCode.NONE, start)
    joined = await joining.join()
    assert joined.log.log_start_offset == start
    assert joined.log.log_end_offset == 600
    await joining.lead()
    assert joining.leader == joining.spare
    await joining.client.refresh(TOPIC)
    records = await joining.client.read_all(TOPIC, 0, 60.0, first=start)
    assert [record.offset for record in records] == list(range(start, 600))
    assert [(record.value or b"").split(b"v")[0] for record in records[:5]] == [
        b"%d-%d" % divmod(offset, 10) for offset in range(start, start + 5)
    ]


@pytest.mark.conforms("K1023-11", "K107-3")
@pytest.mark.parametrize("feature", [False, True])
@pytest.mark.parametrize("start", [RECORDS // 4, RECORDS // 2, RECORDS // 2 + 3])
@with_seed(1, "feature")
async def test_an_empty_follower_joins_a_log_that_starts_below_the_uploaded_epochs(
    joining: Joining, /, start: int
) -> None:
    """DeleteRecords was not answered: the leader alone has moved its start. It uploads a segment with the epochs from
    there on, and the log of its successor starts at a segment below."""
    cluster, store = joining.cluster, joining.cluster.objects
    await joining.begin()
    await joining.fill()
    store.faults.failing["put"] = "refused"
    await write(joining.client, RECORDS // 2, RECORDS)
    await cluster.until(lambda: joining.led.high_watermark == RECORDS * 3 // 2)
    former = joining.leader
    [follower] = [name for name in replicas(cluster) if name != former]
    cluster.partition([former], [follower])
    answer = await cluster.node(former).replicas.delete_records(TOPIC, 0, start, timeout_s=0.1)
    assert answer[0] is ErrorCode.REQUEST_TIMED_OUT
    store.faults.failing.clear()
    await cluster.until(joining.has_remote_records, 5)
    cluster.kill(former)
    cluster.heal()
    await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()), 60)
    joined, led = await joining.join(), joining.led.log
    await cluster.until(lambda: joined.log.log_start_offset == led.log_start_offset)
    assert led.log_start_offset < start
    with_records = [entry for entry in led.epochs.entries if entry.start_offset < led.log_end_offset]
    assert list(joined.log.epochs.entries) == with_records
    cluster.start(former)
    await cluster.ready()
    await joining.lead()
    await joining.client.refresh(TOPIC)
    records = await joining.client.read_all(TOPIC, 0, 60.0, first=joining.led.log.log_start_offset)
    assert [record.offset for record in records] == list(range(joining.led.log.log_start_offset, 3 * RECORDS // 2))


def test_an_upload_ends_when_its_replica_is_removed() -> None:
    """The upload reads the producers' snapshot after its first object, and the files of the replica are gone."""
    with SimulatedCluster(17, properties=TIERED) as cluster:

        async def story() -> None:
            client = await tiered_topic(cluster)
            cluster.objects.faults.slow_s = 1.5
            await write(client, 40)
            leaving, events = leader(cluster), list[dict[str, Value]]()
            cluster.machines[leaving].trace = events.append
            await cluster.until(lambda: any(event["event"] == "remote_segment" for event in events), 60)
            others = [it.node_id for name, it in cluster.machines.items() if name != leaving]
            await assign(cluster, {0: others})
            await cluster.until(lambda: leaving not in replicas(cluster), 60)
            await asyncio.sleep(10)
            assert cluster.machines[leaving].running
            assert cluster.node(leaving).replicas.work.failures == {}
            cluster.objects.faults.slow_s = 0.0
            assert await all_numbers(client) == list(range(40))

        cluster.run(story())
