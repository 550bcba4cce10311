"""The oracles: none says anything of the broker as it is, and for each there is a bug of which it does.

A storm of faults is enough for most mutants; for the others there is a schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from broker.mutants import BENIGN
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.oracles import ORACLES
from tests.simulator.storm import QUICK, TOPIC, storm, write

VOTERS_3_OF_4 = {"quorum.voters": "1@n1:9093,2@n2:9093,3@n3:9093"}


def found(cluster: SimulatedCluster) -> dict[str, str]:
    """What the oracles of a run found: the sentences by oracle."""
    return {finding.oracle: finding.sentence for finding in cluster.watch.findings.found}


@pytest.mark.conforms("K595-54")
@pytest.mark.parametrize("seed", range(1, 7))
def test_no_oracle_says_anything_of_the_broker_as_it_is(seed: int) -> None:
    cluster = storm(seed)
    assert found(cluster) == {}
    assert cluster.watch.looks > 1000


def test_every_oracle_has_compared_something_in_a_storm() -> None:
    checks = dict.fromkeys(ORACLES, 0)
    for seed in (1, 2):
        for oracle, count in storm(seed, seconds=6).watch.findings.checks.items():
            checks[oracle] += count
    assert min(checks.values()) > 0, checks


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
    pytest.param("minority_wins", "leader-incomplete", {}, marks=pytest.mark.kills("minority_wins")),
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
    pytest.param("hw_forgotten_at_lead", "high-watermark-fell", {}, marks=pytest.mark.kills("hw_forgotten_at_lead")),
    pytest.param("resume_as_leader", "two-leaders-of-one-epoch", {}, marks=pytest.mark.kills("resume_as_leader")),
    pytest.param("fetch_no_epoch_check", "log-mismatch", {}, marks=pytest.mark.kills("fetch_no_epoch_check")),
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
@pytest.mark.conforms("K595-35", "H8", "H10", "H13", "H16", "H18", "H27", "H33")
@pytest.mark.parametrize(("mutant", "oracle", "how"), KILLED_BY_A_STORM)
def test_a_storm_of_faults_kills(mutant: str, oracle: str, how: Mapping[str, object]) -> None:
    options = {"seconds": 8.0, **how}
    seeds = options.pop("seeds", range(1, 5))
    assert isinstance(seeds, Sequence)
    assert any(oracle in found(storm(seed, mutant, **options)) for seed in seeds)  # type: ignore[arg-type]


@pytest.mark.conforms("K595-14", "K595-19")
@pytest.mark.kills("vote_not_persisted")
def test_a_voter_that_forgets_its_vote_begins_again_in_an_older_epoch() -> None:
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
                cluster.start()
                await cluster.ready()
                client = SimulatedClient(cluster.addresses)
                await client.create_topic(TOPIC)
                writing = asyncio.create_task(write(client, 1))
                leader, controller = f"n{await client.leader_of(TOPIC, 0)}", cluster.controller()
                assert controller not in (None, leader), "choose another seed"
                cluster.reject(str(controller), leader)
                await asyncio.sleep(3)
                writing.cancel()

            cluster.run(story())
        assert ("lease-shared" in found(cluster)) is bool(mutants)


def test_a_finding_says_where_when_and_what_contradicts_what() -> None:
    cluster = storm(1, "resume_as_leader", seconds=8)
    finding = next(each for each in cluster.watch.findings.found if each.oracle == "two-leaders-of-one-epoch")
    assert (finding.topic, finding.partition) == ("__cluster_metadata", 0)
    assert 0 < finding.at < cluster.loop.time()
    assert "is led by process" in finding.sentence
    assert {"node", "epoch"} <= finding.witness[0].keys()
