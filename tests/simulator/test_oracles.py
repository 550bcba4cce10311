"""The oracles report no finding on the unmutated broker, and each reports one for some bug.

A storm of faults is enough for most mutants; for the others there is a schedule.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest

from analysis.checkers.oracles import OF_QUORUM
from broker.mutants import BENIGN
from broker.replica.follower import PartitionFollower
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.oracles import ORACLES
from simulator.oracles.log_copy import CopiedBatch
from simulator.oracles.log_rules import Committed
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC, storm, write

Role = TypeVar("Role", PartitionFollower, PartitionLeader)
VOTERS_3_OF_4 = {"quorum.voters": "1@n1:9093,2@n2:9093,3@n3:9093"}


def found(cluster: SimulatedCluster) -> dict[str, str]:
    """What the oracles of a run found: the sentences by oracle."""
    return {finding.oracle: finding.sentence for finding in cluster.watch.findings.found}


@pytest.mark.conforms("K595-54")
@pytest.mark.parametrize("seed", range(1, 7))
def test_no_oracle_reports_the_unmutated_broker(seed: int) -> None:
    cluster = storm(seed)
    assert found(cluster) == {}
    assert cluster.watch.looks > 1000


@pytest.mark.conforms("K107-1", "K107-2")
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_oracle_reports_the_unmutated_broker_while_records_are_deleted(seed: int) -> None:
    cluster = storm(seed, deletes=True)
    assert found(cluster) == {}
    assert cluster.watch.findings.checks["answered-start-fell"]


@pytest.mark.conforms("K107-1")
@pytest.mark.kills("delete_answered_early")
def test_an_answer_before_the_followers_know_the_start_is_taken_back() -> None:
    storms = (storm(seed, "delete_answered_early", deletes=True, until="answered-start-fell") for seed in range(1, 5))
    assert any("answered-start-fell" in found(each) for each in storms)


@pytest.mark.rotating(10, among="storms")
def test_every_oracle_makes_comparisons_in_a_storm() -> None:
    checks, of_quorum = dict.fromkeys(ORACLES, 0), dict.fromkeys(ORACLES, 0)
    for seed in (1, 2):
        findings = storm(seed, seconds=6).watch.findings
        for oracle, count in findings.checks.items():
            checks[oracle] += count
            of_quorum[oracle] += findings.of_quorum[oracle]
    assert [oracle for oracle in ORACLES if not checks[oracle]] == [
        "commit-would-be-taken",
        "sequence-gap",
        "offsets-contradict-log",
        "stands-still",
        "isr-keeps-unreachable",
        "answered-start-fell",
        "assignment-contradicts-log",
        "producer-id-shared",
    ], "but those of groups, of idempotent producers and of deletions, and those of liveness, whose bound is longer"
    assert {oracle for oracle in ORACLES if 0 < checks[oracle] == of_quorum[oracle]} <= OF_QUORUM, (
        "the others see partitions"
    )


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize("mutant", BENIGN)
def test_a_change_that_breaks_no_promise_raises_no_alarm(mutant: str) -> None:
    assert found(storm(3, mutant, seconds=6)) == {}


KILLED_BY_A_STORM = [
    pytest.param("truncate_to_hw", "committed-prefix-changed", {}, marks=pytest.mark.kills("truncate_to_hw")),
    pytest.param("vote_not_persisted", "vote-before-disk", {}, marks=pytest.mark.kills("vote_not_persisted")),
    pytest.param("vote_reply_before_fsync", "vote-before-disk", {}, marks=pytest.mark.kills("vote_reply_before_fsync")),
    pytest.param("self_vote_not_persisted", "vote-before-disk", {}, marks=pytest.mark.kills("self_vote_not_persisted")),
    pytest.param(
        "elect_unclean_shutdown_isr",
        "leader-incomplete",
        {"seeds": range(1, 9)},
        marks=pytest.mark.kills("elect_unclean_shutdown_isr"),
    ),
    pytest.param(
        "minority_wins",
        "led-without-votes",
        {"faults": ["isolate"], "writers": 1, "seeds": range(1, 7)},
        marks=pytest.mark.kills("minority_wins"),
    ),
    pytest.param("epoch_file_unsynced", "epochs-contradict-log", {}, marks=pytest.mark.kills("epoch_file_unsynced")),
    pytest.param("epoch_after_data", "epochs-contradict-log", {}, marks=pytest.mark.kills("epoch_after_data")),
    pytest.param(
        "keep_epochs_past_leo",
        "epochs-contradict-log",
        {"faults": ["power"], "writers": 0},
        marks=pytest.mark.kills("keep_epochs_past_leo"),
    ),
    pytest.param(
        "noop_truncate_keeps_cache",
        "epochs-contradict-log",
        {"faults": ["isolate", "pause"], "writers": 0},
        marks=pytest.mark.kills("noop_truncate_keeps_cache"),
    ),
    pytest.param(
        "trim_drops_live_epoch", "epochs-contradict-log", {}, marks=pytest.mark.kills("trim_drops_live_epoch")
    ),
    pytest.param(
        "hw_on_committed_isr",
        "isr-too-narrow",
        {"faults": ["isolate", "kill"]},
        marks=pytest.mark.kills("hw_on_committed_isr"),
    ),
    pytest.param(
        "shrink_applied_early",
        "isr-too-narrow",
        {"faults": ["isolate", "kill", "cut"]},
        marks=pytest.mark.kills("shrink_applied_early"),
    ),
    pytest.param(
        "hw_below_min_isr",
        "high-watermark-invalid",
        {"faults": ["isolate"], "properties": {"min.insync.replicas": "2"}},
        marks=pytest.mark.kills("hw_below_min_isr"),
    ),
    pytest.param(
        "diverging_updates_leo", "fetch-would-be-counted", {}, marks=pytest.mark.kills("diverging_updates_leo")
    ),
    pytest.param("no_fence_fetch", "fetch-would-be-counted", {}, marks=pytest.mark.kills("no_fence_fetch")),
    pytest.param("hw_forgotten_at_lead", "high-watermark-fell", {}, marks=pytest.mark.kills("hw_forgotten_at_lead")),
    pytest.param("resume_as_leader", "two-leaders-of-one-epoch", {}, marks=pytest.mark.kills("resume_as_leader")),
    pytest.param(
        "fetch_no_epoch_check",
        "log-mismatch",
        {"seeds": range(5, 9)},
        marks=pytest.mark.kills("fetch_no_epoch_check"),
    ),
    pytest.param(
        "leader_counts_unsynced", "committed-not-durable", {}, marks=pytest.mark.kills("leader_counts_unsynced")
    ),
    pytest.param(
        "follower_fetch_before_fsync",
        "committed-not-durable",
        {},
        marks=pytest.mark.kills("follower_fetch_before_fsync"),
    ),
]


@pytest.mark.conforms("K101-3", "K101-7", "K101-8", "K101-11", "K101-12", "K595-7", "K595-13", "K595-19", "K595-21")
@pytest.mark.conforms("K595-35", "H3", "H6", "H8", "H10", "H13", "H16", "H18", "H27", "H33")
@pytest.mark.rotating(10)
@pytest.mark.parametrize(("mutant", "oracle", "how"), KILLED_BY_A_STORM)
def test_a_storm_of_faults_kills(mutant: str, oracle: str, how: Mapping[str, object]) -> None:
    options = {"seconds": 8.0, **how}
    seeds = options.pop("seeds", range(1, 5))
    assert isinstance(seeds, Sequence)
    storms = (storm(seed, mutant, until=oracle, **options) for seed in seeds)  # type: ignore[arg-type]
    assert any(oracle in found(each) for each in storms)


@pytest.mark.conforms("K595-14", "K595-19")
@pytest.mark.kills("vote_not_persisted")
def test_a_voter_without_its_vote_restarts_in_an_older_epoch() -> None:
    for mutants in ((), ("vote_not_persisted",)):
        with SimulatedCluster(1, properties=QUICK, mutants=mutants) as cluster:
            cluster.start()
            assert cluster.loop.run_until(lambda: bool(cluster.journal.of("quorum_vote")), 30)
            voter = f"n{cluster.journal.of('quorum_vote')[0]['node']}"
            cluster.kill(voter)
            cluster.start(voter)
            cluster.loop.run_for(1.0)
        assert ("epoch-fell" in found(cluster)) is bool(mutants)


@pytest.mark.conforms("K595-36")
@pytest.mark.kills("observer_counts")
def test_a_leader_that_only_an_observer_reaches_commits_without_a_majority_if_it_counts_it() -> None:
    for mutants in ((), ("observer_counts",)):
        with SimulatedCluster(1, 4, properties={**QUICK, **VOTERS_3_OF_4}, mutants=mutants) as cluster:

            async def story() -> None:
                cluster.start()
                await cluster.ready()
                leader = cluster.controller()
                assert leader is not None
                for voter in ("n1", "n2", "n3"):
                    if voter != leader:
                        cluster.partition([leader], [voter])
                await asyncio.sleep(1.2)

            cluster.run(story())
        assert ("committed-without-majority" in found(cluster)) is bool(mutants)


@pytest.mark.conforms("H31")
@pytest.mark.kills("refused_is_dead")
def test_a_refused_connection_that_counts_as_death_makes_two_leaders_share_a_lease() -> None:
    properties = {**QUICK, "broker.session.timeout.ms": "6000", "broker.lease.ms": "5000", "min.insync.replicas": "1"}
    for mutants in ((), ("refused_is_dead",)):
        with SimulatedCluster(2, properties=properties, mutants=mutants) as cluster:

            async def story() -> None:
                client = await started(cluster)
                await client.create_topic(TOPIC)
                writing = asyncio.create_task(write(client, 1))
                leader, controller = f"n{await client.leader_of(TOPIC, 0)}", cluster.controller()
                assert controller not in (None, leader), "choose another seed"
                cluster.reject(str(controller), leader)
                await asyncio.sleep(3)
                writing.cancel()

            cluster.run(story())
        assert ("lease-shared" in found(cluster)) is bool(mutants)


@pytest.mark.conforms("H13", "H16")
def test_commits_of_a_deposed_leader_are_compared_with_other_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: dict[int, frozenset[int]] = {}
    _count(monkeypatch, counts)
    with planted(properties=QUICK) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC)
            deposed = await client.leader_of(TOPIC, 0)
            cluster.partition([f"n{deposed}"], [f"n{other}" for other in (1, 2, 3) if other != deposed])
            left = SimulatedClient({deposed: cluster.addresses[deposed]})
            await left.produce(TOPIC, 0, [b"its own"], acks=1)
            await client.leader_of(TOPIC, 0, unlike=deposed)
            await asyncio.sleep(0.2)  # it is yet to hear that it leads
            for number in range(5):
                await client.produce(TOPIC, 0, [b"%d" % number])
            assert found(cluster) == {}
            counts[deposed] = frozenset({deposed})
            (partition,) = cluster.node(f"n{deposed}").replicas.partitions.values()
            assert isinstance(partition.role, PartitionLeader)
            assert partition.role.set_min_insync_replicas(1), "it commits now what it has"
            await asyncio.sleep(0.5)

        cluster.run(story())
    assert "have committed other records there" in found(cluster)["high-watermark-invalid"]


@pytest.mark.conforms("H6")
def test_a_member_of_the_isr_that_never_had_the_log_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    _count(monkeypatch, dict.fromkeys((1, 2), frozenset({1, 2})))
    with planted(properties=QUICK) as cluster:

        async def story() -> None:
            client = await started(cluster)
            cluster.stand_still("n3")
            creating = asyncio.create_task(client.create_topic(TOPIC, 3))
            await asyncio.sleep(0.5)
            image = cluster.node("n1").image
            led = next(index for index in range(3) if image.topics[TOPIC].partitions[index].leader != 3)
            await client.produce(TOPIC, led, [b"x"], acks=1)
            await asyncio.sleep(0.5)
            creating.cancel()

        cluster.run(story())
    assert "of the ISR n3 has never had a log" in found(cluster)["high-watermark-invalid"]


@pytest.mark.conforms("H16")
def test_a_leader_with_too_few_acknowledgements_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(properties={**QUICK, "min.insync.replicas": "2"}) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=2)
            leader = await client.leader_of(TOPIC, 0)
            (other,) = (f"n{member}" for member in _isr_of(cluster) if member != leader)
            cluster.kill(other)
            await cluster.until(lambda: _isr_of(cluster) == (leader,))
            assert found(cluster) == {}
            monkeypatch.setattr(PartitionLeader, "enough_in_sync", property(lambda _: True))
            await client.produce(TOPIC, 0, [b"alone"], acks=1)
            await asyncio.sleep(0.5)

        cluster.run(story())
    assert "smaller than 2" in found(cluster)["high-watermark-invalid"]


@pytest.mark.conforms("H9")
def test_a_high_watermark_that_stays_behind_the_end_of_a_log_that_is_cut_is_found() -> None:
    with planted(properties=QUICK) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC)
            for number in range(3):
                await client.produce(TOPIC, 0, [b"%d" % number])
            follower = _partition(cluster, PartitionFollower)
            await cluster.until(lambda: follower.high_watermark == 3)
            assert found(cluster) == {}
            await follower.log.truncate_to(1)
            await asyncio.sleep(0.5)

        cluster.run(story())
    assert "is 3, and its log ends at 1" in found(cluster)["high-watermark-invalid"]


UNCLEAN = {**QUICK, "unclean.leader.election.enable": "true"}


async def lose(cluster: SimulatedCluster) -> tuple[SimulatedClient, PartitionLeader]:
    """An unclean election that costs a record; the client, and the leader when both replicas are in sync again."""
    client = await started(cluster)
    await client.create_topic(TOPIC, replication_factor=2)
    await client.produce(TOPIC, 0, [b"kept"])
    last = await client.leader_of(TOPIC, 0)
    (other,) = (f"n{member}" for member in _isr_of(cluster) if member != last)
    cluster.kill(other)
    await cluster.until(lambda: _isr_of(cluster) == (last,))
    await client.produce(TOPIC, 0, [b"lost"])
    cluster.kill(f"n{last}")
    cluster.start(other)
    await client.leader_of(TOPIC, 0, unlike=last)
    cluster.start()
    await cluster.ready()
    await cluster.until(lambda: len(_isr_of(cluster)) == 2)
    await client.produce(TOPIC, 0, [b"new"])
    return client, _role(cluster, PartitionLeader)


@pytest.mark.conforms("H5", "K704-1")
def test_after_an_unclean_election_a_mark_that_falls_is_still_found() -> None:
    with planted(properties=UNCLEAN) as cluster:

        async def story() -> None:
            client, leader = await lose(cluster)
            assert found(cluster) == {}
            await client.produce(TOPIC, 0, [b"newer"])
            leader.high_watermark -= 1
            await asyncio.sleep(0.5)

        cluster.run(story())
    assert "high-watermark-fell" in found(cluster)


@pytest.mark.conforms("H9", "K704-1")
def test_after_an_unclean_election_a_follower_above_the_high_watermark_is_found() -> None:
    with planted(properties=UNCLEAN) as cluster:
        client, leader = cluster.run(lose(cluster))
        follower, log = _role(cluster, PartitionFollower), _partition(cluster, PartitionFollower).log
        committed = leader.high_watermark
        sending = cluster.loop.create_task(client.produce(TOPIC, 0, [b"x"]), context=cluster.client.context.copy())
        assert cluster.loop.run_until(lambda: log.log_end_offset > committed, 5.0)
        assert leader.high_watermark == committed
        follower.high_watermark = committed + 1
        cluster.run(asyncio.wait_for(sending, 5.0))
    assert "leaders have committed" in found(cluster)["high-watermark-invalid"]


@pytest.mark.conforms("K704-1")
def test_a_leader_deposed_by_an_unclean_election_may_commit_records_that_are_lost() -> None:
    with SimulatedCluster(1, properties=UNCLEAN) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=2)
            last = await client.leader_of(TOPIC, 0)
            (other,) = (f"n{member}" for member in _isr_of(cluster) if member != last)
            cluster.kill(other)
            await cluster.until(lambda: _isr_of(cluster) == (last,))
            await client.produce(TOPIC, 0, [b"lost"])
            cluster.partition([f"n{last}"], [f"n{number}" for number in (1, 2, 3) if number != last])
            cluster.start(other)
            await client.leader_of(TOPIC, 0, unlike=last)
            left = SimulatedClient({last: cluster.addresses[last]})
            for number in range(3):
                await left.produce(TOPIC, 0, [b"lost too, %d" % number], acks=1)
            await client.produce(TOPIC, 0, [b"new"])
            cluster.heal()
            await cluster.until(lambda: len(_isr_of(cluster)) == 2)
            await client.produce(TOPIC, 0, [b"newer"])

        cluster.run(story())
        assert found(cluster) == {}


class FirstBit(random.Random):
    """Turns over the last bit of a file's first byte, which is of the first batch's base offset: no CRC covers it."""

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


class LastByte(random.Random):
    """Turns over a bit of a file's last byte, which is of the last batch's records."""

    def randrange(self, *bounds: Any, **__: Any) -> int:
        return int(bounds[-1]) - 1


def test_bit_rot_on_a_disk_is_not_a_finding_about_the_broker() -> None:
    """A broker that was stopped in order does not read its own writes again; the oracles still check them."""
    with SimulatedCluster(1, properties=QUICK) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=3)
            for number in range(5):
                await client.produce(TOPIC, 0, [b"%d" % number])
            await cluster.until(lambda: len(_isr_of(cluster)) == 3)
            await cluster.stop("n3")
            disk = cluster.machines["n3"].disk
            (log,) = (path for path, data in disk.files() if data and path.endswith(f"{TOPIC}-0/{0:020d}.log"))
            assert disk.flip(FirstBit(), [log]) is not None
            cluster.start("n3")
            await cluster.ready()
            await cluster.until(lambda: len(_isr_of(cluster)) == 3)
            assert disk.mend() == 1, "it ran on the bit"

        cluster.run(story())
        assert found(cluster) == {}


class At(random.Random):
    """Turns over the lowest bit of one byte of a file."""

    def __init__(self, byte: int) -> None:
        super().__init__()
        self._ahead = [byte, 0]

    def randrange(self, *_: Any, **__: Any) -> int:
        return self._ahead.pop(0)


@pytest.mark.parametrize(
    ("byte", "heard"),
    [
        pytest.param(0, "truncated", id="a base offset: the log seems to be longer, and is cut as the leader's ends"),
        pytest.param(12, "metadata_behind_log", id="a leader epoch: the log seems to be newer than the metadata"),
    ],
)
def test_bit_rot_outside_of_a_crc_is_not_a_finding_about_the_broker(byte: int, heard: str) -> None:
    with SimulatedCluster(1, properties=QUICK) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=3)
            await client.produce(TOPIC, 0, [b"rots"])
            await cluster.until(lambda: len(_isr_of(cluster)) == 3)
            leader = await client.leader_of(TOPIC, 0)
            rotten = next(f"n{number}" for number in (1, 2, 3) if number != leader)
            disk = cluster.machines[rotten].disk
            await cluster.until(lambda: any(f"{TOPIC} 0 1".encode() in (data or b"") for _, data in disk.files()))
            cluster.kill(rotten)
            (log,) = (path for path, data in disk.files() if data and path.endswith(f"{TOPIC}-0/{0:020d}.log"))
            size = disk.open(log).size()
            assert disk.flip(At(byte), [log]) is not None
            events: list[Mapping[str, Any]] = []
            cluster.machines[rotten].trace = events.append
            cluster.start(rotten)
            await cluster.until(lambda: any(it["event"] == heard for it in events))
            cluster.kill(rotten)
            disk.mend()
            cluster.start(rotten)
            await cluster.until(lambda: disk.open(log).size() == size and len(_isr_of(cluster)) == 3)

        cluster.run(story())
        assert found(cluster) == {}


def test_bit_rot_on_a_stopped_node_is_not_a_finding_about_the_broker() -> None:
    """A part of a follower's disk that its leader counted may be lost when the leader commits: the leader has not yet
    received that another process found the rest of the log damaged."""
    with SimulatedCluster(1, properties={**QUICK, "log.flush.interval.messages": "1"}) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=3)
            await client.produce(TOPIC, 0, [b"first"])
            await cluster.until(lambda: len(_isr_of(cluster)) == 3)
            leader = await client.leader_of(TOPIC, 0)
            rotten, silent = (f"n{number}" for number in (1, 2, 3) if number != leader)
            cluster.suspend(silent, frozen=False)
            waiting = asyncio.ensure_future(client.produce(TOPIC, 0, [b"rots"], timeout=20))
            counted = cluster.node(f"n{leader}").replicas.partition(TOPIC, 0)
            assert counted is not None
            role, end = counted.role, counted.log.log_end_offset
            assert isinstance(role, PartitionLeader)
            await cluster.until(lambda: role.follower(int(rotten[1:])).log_end_offset > end)
            cluster.kill(rotten)
            disk = cluster.machines[rotten].disk
            (log,) = (path for path, data in disk.files() if data and path.endswith(f"{TOPIC}-0/{0:020d}.log"))
            assert disk.flip(LastByte(), [log]) is not None
            whole = disk.open(log).size()
            cluster.partition([rotten], [f"n{leader}", silent])
            cluster.start(rotten)
            await cluster.until(lambda: disk.open(log).size() < whole)
            cluster.resume(silent)
            await waiting
            assert rotten[1:] in str(_isr_of(cluster)), "it counts still"
            cluster.heal()

        cluster.run(story())
        assert found(cluster) == {}


def test_commits_of_a_former_leader_are_observed_at_the_next_step() -> None:
    """Roles are observed at their start, too: a role may end in the moment of its start."""
    with SimulatedCluster(1, properties=QUICK) as cluster:
        checks = cluster.watch.findings.checks

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            cluster.loop.at_rest = lambda _: None
            before = checks["epoch-fell"]
            client = SimulatedClient(cluster.addresses)
            await client.create_topic(TOPIC, replication_factor=3)
            await cluster.until(lambda: checks["epoch-fell"] == before + 3)

        cluster.run(story())


def test_a_leader_has_the_records_committed_up_to_its_epoch() -> None:
    """One that hears of its election when others have led, and committed, since lacks nothing that it should have."""
    committed = Committed()
    one, two, three = (CopiedBatch(base, base + 5, epoch, 0) for base, epoch in ((0, 1), (5, 1), (10, 3)))
    committed.add([one], 5, epoch=1)
    committed.add([two], 10, epoch=1)
    committed.add([three], 15, epoch=3)
    assert [committed.end_in(epoch) for epoch in (0, 1, 2, 3, 4)] == [0, 10, 10, 15, 15]
    committed.cut(10, epoch=4)
    committed.add([CopiedBatch(10, 15, 4, 1)], 15, epoch=4)
    assert [committed.end_in(epoch) for epoch in (1, 3, 4)] == [10, 10, 15]


def planted(properties: Mapping[str, str]) -> SimulatedCluster:
    """A cluster with a planted finding that no mutant causes: closing it does not raise for that."""
    return SimulatedCluster(1, properties=properties, mutants=["tier_above_hw"])


def _count(monkeypatch: pytest.MonkeyPatch, counts: Mapping[int, frozenset[int]]) -> None:
    """Have the leaders on these nodes count these replicas, and no others."""
    maximal = vars(PartitionLeader)["maximal_isr"].fget

    def counted(leader: PartitionLeader) -> frozenset[int]:
        found: frozenset[int] = counts.get(leader.node_id) or maximal(leader)
        return found

    monkeypatch.setattr(PartitionLeader, "maximal_isr", property(counted))


def _partition(cluster: SimulatedCluster, role: type) -> Partition:
    """Of the one replica that has this role."""
    all_of_them = (each for name in cluster.machines for each in cluster.node(name).replicas.partitions.values())
    return next(each for each in all_of_them if isinstance(each.role, role))


def _role(cluster: SimulatedCluster, role: type[Role]) -> Role:
    found_role = _partition(cluster, role).role
    assert isinstance(found_role, role)
    return found_role


def _isr_of(cluster: SimulatedCluster) -> tuple[int, ...]:
    """The ISR as the controller has it."""
    controller = cluster.controller()
    topic = None if controller is None else cluster.node(controller).image.topics.get(TOPIC)
    return () if topic is None else topic.partitions[0].isr


@pytest.mark.rotating(10, among="storms")
def test_a_finding_names_place_time_and_contradiction() -> None:
    cluster = storm(1, "resume_as_leader", seconds=8)
    finding = next(each for each in cluster.watch.findings.found if each.oracle == "two-leaders-of-one-epoch")
    assert (finding.topic, finding.partition) == ("__cluster_metadata", 0)
    assert 0 < finding.at < cluster.loop.time()
    assert "is led by process" in finding.sentence
    assert {"node", "epoch"} <= finding.witness[0].keys()
