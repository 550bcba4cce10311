"""A follower with its next offset only in remote storage: its queries, its start offset, and no loss.

Broker 1 leads; its first records are only in a remote storage that the test plays. Broker 2 joins.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.log.epochs import EpochEntry
from broker.log.remote_start import StateBelow
from broker.producers.snapshot_format import decode_snapshot, encode_snapshot
from broker.protocol.messages.metadata_records import ConfigRecord
from broker.replica.partition import Partition, RetainedSegment
from broker.replica.remote_state import RemoteStateError
from broker.tiered.manifest import TieredOffset
from broker.topic_settings import FROM_LAST_TIERED
from tests.broker.replica.cluster import TOPIC, Cluster, Node, tell, until
from tests.stories import played_by

CONFIGS = {"remote.storage.enable": "true", "segment.bytes": "4096"}
SETTINGS: dict[str, Any] = {"remote_log_storage_system_enable": True}

STORIES = played_by(tell, "tmp_path", **SETTINGS)
WITH_MUTANTS = played_by(tell, "tmp_path", passed=("mutants",), **SETTINGS)
PENDING, END = 40, 60
VALUE = "v" * 500
UNKNOWN = -1


class Remote:
    """What the leader knows of its remote storage."""

    def __init__(self, log_of: Node, pending: int) -> None:
        self.ready = True
        self.is_read = True
        self.pending = pending
        self._node = log_of

    def highest_tiered(self) -> TieredOffset | None:
        offset = self.pending - 1
        return TieredOffset(offset, self._node.partition().log.epochs.epoch_at(offset)) if self.pending else None

    def covered_to(self, offset: int) -> int:
        return max(offset, self.pending)

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> None:
        """Nothing is read here."""

    def first_not_before(self, timestamp: int) -> None:
        """Nothing is read here."""

    def retained(self, start: int, end: int) -> Sequence[RetainedSegment]:  # noqa: ARG002
        return ()


class Store:
    """The state that the follower reads: as the leader uploaded it, found by epoch and offset."""

    def __init__(self, leader: Node, pending: int) -> None:
        self.failure: str | None = None
        self.asked = 0
        log = leader.partition().log
        self.entries = log.epochs.entries
        self.producers = encode_snapshot(log.producers)
        self.end = pending

    async def below(self, partition: Partition, offset: int, epoch: int, log_start: int) -> StateBelow:  # noqa: ARG002
        self.asked += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise RemoteStateError(self.failure)
        if offset > self.end or [it.epoch for it in self.entries if it.start_offset < offset][-1:] != [epoch]:
            raise RemoteStateError(f"there is no record of epoch {epoch} at offset {offset - 1}")
        entries = [entry for entry in self.entries if entry.start_offset < offset]
        return StateBelow(log_start, entries, decode_snapshot(self.producers, 0.0))


class Tiered:
    """The leader, with records of three epochs; `local`: where its local log starts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def begin(self, *, feature: bool, tiered: bool = True) -> None:
        cluster = self.cluster
        await cluster.start(1)
        await cluster.create_topic([1, 2], configs=CONFIGS)
        cluster.commit(ConfigRecord(4, "", FROM_LAST_TIERED, str(feature).lower()))
        await self.write(0, 15)
        await self.write(15, 30)
        await self.write(30, END)
        log = self.leader.partition().log
        if tiered:
            await log.delete_segments_before(PENDING - 15, keeps_start=True)
        self.local = log.local_start_offset
        self.remote = Remote(self.leader, PENDING if tiered else 0)
        self.leader.partition().remote = self.remote
        self.store = Store(self.leader, PENDING)

    async def write(self, first: int, end: int) -> None:
        """Records of a new leader epoch."""
        self.cluster.elect(1, isr=[1])
        await self.cluster.hear()
        for number in range(first, end):
            assert (await self.leader.produce(f"{number}{VALUE}")).error is ErrorCode.NONE

    @property
    def leader(self) -> Node:
        return self.cluster.nodes[1]

    @property
    def follower(self) -> Node:
        return self.cluster.nodes[2]

    async def follow(self) -> None:
        """Broker 2 starts, or starts again, and follows in a new epoch."""
        await self.cluster.start(2)
        self.follower.manager.remote_state = self.store
        self.cluster.elect(1, isr=[1])
        await self.cluster.hear()

    def joined(self) -> bool:
        return 2 in self.leader.leader.isr

    async def join(self) -> tuple[int, int, int]:
        """Where the follower's log starts, starts locally, and ends, once it is in sync."""
        await until(self.joined, 20)
        log = self.follower.partition().log
        return log.log_start_offset, log.local_start_offset, log.log_end_offset

    async def never_joins(self) -> bool:
        for _ in range(60):
            if self.joined():
                return False
            await asyncio.sleep(0.01)
        return True


@pytest.mark.conforms("K1023-5", "K1023-6", "K1023-12")
@pytest.mark.parametrize("feature", [False, True])
async def test_an_empty_follower_starts_at_the_local_start_or_with_the_feature_after_the_tiered_end(
    cluster: Cluster, /, feature: bool
) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=feature)
    await tiered.follow()
    start = PENDING if feature else tiered.local
    assert await tiered.join() == (0, start, END)
    [event] = tiered.follower.traced("bootstrapped")
    assert (event["log_start_offset"], event["local_start_offset"]) == (0, start)


@pytest.mark.conforms("K1023-1")
async def test_the_feature_is_switched_while_the_brokers_run(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=False)
    cluster.commit(ConfigRecord(4, "", FROM_LAST_TIERED, "true"))
    await tiered.follow()
    assert await tiered.join() == (0, PENDING, END)


@pytest.mark.conforms("K1023-4")
async def test_a_follower_fetches_an_offset_of_the_leader_also_with_the_feature(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True, tiered=False)
    tiered.remote.pending = PENDING
    await tiered.follow()
    assert await tiered.join() == (0, 0, END)
    assert tiered.store.asked == 0


async def lagging(tiered: Tiered) -> None:
    """Broker 2 has the first records, and was away while the rest was written and tiered."""
    cluster = tiered.cluster
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2], configs=CONFIGS)
    cluster.commit(ConfigRecord(4, "", FROM_LAST_TIERED, "true"))
    cluster.elect(1, isr=[1, 2])
    await cluster.hear()
    for number in range(5):
        await tiered.leader.produce(f"{number}{VALUE}")
    await cluster.stop(2)
    await tiered.write(5, END)
    log = tiered.leader.partition().log
    await log.delete_segments_before(PENDING - 15, keeps_start=True)
    tiered.local = log.local_start_offset
    tiered.remote = tiered.leader.partition().remote = Remote(tiered.leader, PENDING)
    tiered.store = Store(tiered.leader, PENDING)
    await tiered.follow()


@pytest.mark.conforms("K1023-6")
@pytest.mark.kills("jump_if_nonempty")
@pytest.mark.parametrize("mutants", [(), ("jump_if_nonempty",)])
@WITH_MUTANTS
async def test_a_follower_with_records_does_not_jump(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    tiered = Tiered(cluster)
    await lagging(tiered)
    _, local, _ = await tiered.join()
    assert (local == tiered.local) == (not mutants)


@pytest.mark.conforms("K1023-3", "K1023-9")
@pytest.mark.kills("epuo_unknown_as_zero")
@pytest.mark.parametrize("mutants", [(), ("epuo_unknown_as_zero",)])
@WITH_MUTANTS
async def test_the_follower_waits_unchanged_while_the_tiered_end_is_unknown(
    cluster: Cluster, /, mutants: tuple[str, ...]
) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    tiered.remote.ready = False
    await tiered.follow()
    assert await tiered.never_joins()
    node, log = tiered.follower, tiered.follower.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    dropped = [it for it in node.traced("truncated") if it["rule"] == "leader-start"]
    assert bool(dropped) == bool(mutants), "the mutant starts again and again, and would at 0 for ever"
    if not mutants:
        assert len(node.traced("bootstrap_waits")) == 1, "traced once, not at every try"
        tiered.remote.ready = True
        assert await tiered.join() == (0, PENDING, END)


@pytest.mark.conforms("H29")
@played_by(tell, "tmp_path", follower_fetch_last_tiered_offset_timeout_ms=300, **SETTINGS)
async def test_a_leader_without_a_tiered_end_does_not_exclude_the_replica(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    tiered.remote.ready = False
    await tiered.follow()
    assert await tiered.join() == (0, tiered.local, END)


@pytest.mark.conforms("K1023-10")
@pytest.mark.kills("epuo_no_clamp")
@pytest.mark.parametrize("mutants", [(), ("epuo_no_clamp",)])
@WITH_MUTANTS
async def test_a_follower_does_not_skip_to_a_tiered_end_below_the_log_start(
    cluster: Cluster, /, mutants: tuple[str, ...]
) -> None:
    """Remote storage was switched off, which deleted what was tiered, and on again."""
    tiered = Tiered(cluster)
    await tiered.begin(feature=True, tiered=False)
    assert await tiered.leader.manager.delete_records(TOPIC, 0, 20) == (ErrorCode.NONE, 20)
    tiered.remote.pending = 10
    tiered.store.end = 10
    await tiered.follow()
    if mutants:
        assert await tiered.never_joins()
    else:
        assert (await tiered.join())[0] == 20


@pytest.mark.conforms("K1023-3")
@pytest.mark.kills("epuo_off_by_one")
@pytest.mark.parametrize("mutants", [(), ("epuo_off_by_one",)])
@WITH_MUTANTS
async def test_the_first_record_that_is_not_tiered_is_fetched(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    tiered.store.end = END  # a store that would not notice
    await tiered.follow()
    _, local, _ = await tiered.join()
    assert local == PENDING + len(mutants)


@pytest.mark.conforms("K1023-12")
@pytest.mark.kills("lso_set_to_epuo")
@pytest.mark.parametrize("mutants", [(), ("lso_set_to_epuo",)])
@WITH_MUTANTS
async def test_the_log_starts_where_the_leaders_does(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    await tiered.follow()
    start, _, _ = await tiered.join()
    assert start == (PENDING if mutants else 0)


@pytest.mark.conforms("K1023-11", "K1023-13")
@pytest.mark.kills("no_epoch_cache_from_remote")
@pytest.mark.parametrize("mutants", [(), ("no_epoch_cache_from_remote",)])
@WITH_MUTANTS
async def test_the_follower_has_the_epochs_of_skipped_records(cluster: Cluster, /, mutants: tuple[str, ...]) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    await tiered.follow()
    await tiered.join()
    theirs = [it for it in tiered.leader.partition().log.epochs.entries if it.start_offset < END]
    mine = list(tiered.follower.partition().log.epochs.entries)
    assert (mine == theirs) == (not mutants)
    assert len(theirs) == 3


@pytest.mark.conforms("K1023-11")
@pytest.mark.parametrize("start", [1, 14, 15, 16, 30, PENDING - 1])
async def test_the_follower_has_the_epochs_below_those_that_were_uploaded(cluster: Cluster, /, start: int) -> None:
    """The leader that uploaded the epochs had a log from `start` on; this leader's log starts at 0."""
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    log = tiered.leader.partition().log
    above = [entry for entry in log.epochs.entries if entry.start_offset > start]
    tiered.store.entries = (EpochEntry(log.epochs.epoch_at(start), start), *above)
    await tiered.follow()
    assert await tiered.join() == (0, PENDING, END)
    theirs = [entry for entry in log.epochs.entries if entry.start_offset < END]
    assert list(tiered.follower.partition().log.epochs.entries) == theirs


@pytest.mark.conforms("K1023-11")
async def test_a_follower_takes_no_epochs_that_contradict_its_leader(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    second, third = tiered.leader.partition().log.epochs.entries[-2:]
    tiered.store.entries = (EpochEntry(second.epoch, second.start_offset - 1), third)
    await tiered.follow()
    await until(lambda: bool(tiered.follower.traced("bootstrap_waits")), 20)
    [event] = tiered.follower.traced("bootstrap_waits")
    expected = f"the leader has epoch {second.epoch} from offset {second.start_offset}, not from 14"
    assert event["reason"] == expected
    assert tiered.follower.partition().log.log_end_offset == 0


@pytest.mark.conforms("K1023-11")
@pytest.mark.kills("no_remote_producer_snapshot")
@pytest.mark.parametrize("mutants", [(), ("no_remote_producer_snapshot",)])
@WITH_MUTANTS
async def test_the_follower_keeps_the_rule_for_first_sequences_of_producers(
    cluster: Cluster, /, mutants: tuple[str, ...]
) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    await tiered.follow()
    await tiered.join()
    leads, follows = tiered.leader.partition().log.producers, tiered.follower.partition().log.producers
    assert (follows.forgotten_to == leads.forgotten_to) == (not mutants)


@pytest.mark.conforms("K1023-11")
async def test_a_failed_store_leaves_the_follower_unchanged_and_is_queried_again(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    tiered.store.failure = "the store is down"
    await tiered.follow()
    assert await tiered.never_joins()
    log = tiered.follower.partition().log
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (0, 0, ())
    [event] = tiered.follower.traced("bootstrap_waits")
    assert event["reason"] == "the store is down"
    assert tiered.store.asked > 1
    tiered.store.failure = None
    assert await tiered.join() == (0, PENDING, END)


async def test_a_broker_without_remote_storage_answers_with_an_error(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    await tiered.follow()
    tiered.follower.manager.remote_state = None
    await until(lambda: bool(tiered.follower.traced("bootstrap_waits")) or tiered.joined(), 20)


@pytest.mark.conforms("K1023-11")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_follower_that_jumped_continues_after_a_restart(cluster: Cluster, /, killed: bool) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    await tiered.follow()
    await tiered.join()
    await (cluster.kill(2) if killed else cluster.stop(2))
    await tiered.follow()
    assert await tiered.join() == (0, PENDING, END)
    assert not tiered.follower.traced("bootstrapped"), "it has no need to start again"
    log = tiered.follower.partition().log
    assert [entry.epoch for entry in log.epochs.entries] == [1, 2, 3]


async def test_a_jump_under_way_delays_no_other_work_and_ends_with_its_role(cluster: Cluster, /) -> None:
    tiered = Tiered(cluster)
    await tiered.begin(feature=True)
    go = asyncio.Event()
    below = tiered.store.below

    async def waits(*asked: object) -> StateBelow:
        await go.wait()
        return await below(*asked)  # type: ignore[arg-type]

    tiered.store.below = waits  # type: ignore[method-assign, assignment]
    await tiered.follow()
    await asyncio.sleep(0.1)
    cluster.elect(1, isr=[1])
    await cluster.hear()  # a new role while the old start still waits
    go.set()
    assert await tiered.join() == (0, PENDING, END)
