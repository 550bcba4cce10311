"""The oracles of leases: no leader acts beside another one that may answer, and without a lease none would answer,
except for a bug."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.controller.active import ControllerOperations, Sessions
from broker.replica.manager import ReplicaManager
from broker.replica.reads import PartitionReader
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC

pytestmark = pytest.mark.conforms("H31")
LONG = {**QUICK, "broker.session.timeout.ms": "6000", "broker.lease.ms": "5000"}


async def lead(cluster: SimulatedCluster) -> str:
    """A topic without a writer; the machine of its leader."""
    client = await started(cluster)
    await client.create_topic(TOPIC)
    return f"n{await client.leader_of(TOPIC, 0)}"


def found(cluster: SimulatedCluster) -> dict[str, str]:
    return {finding.oracle: finding.sentence for finding in cluster.watch.findings.found}


@pytest.mark.kills("refused_is_dead")
def test_a_leader_replaced_under_a_lease_is_found_without_commits() -> None:
    for mutants in ((), ("refused_is_dead",)):
        with SimulatedCluster(2, properties=LONG, mutants=mutants) as cluster:

            async def story() -> None:
                leader, controller = await lead(cluster), cluster.controller()
                assert controller not in (None, leader), "choose another seed"
                cluster.reject(str(controller), leader)
                await asyncio.sleep(3)

            cluster.run(story())
        sentence = found(cluster).get("lease-shared", "")
        assert sentence.endswith("and holds a lease") is bool(mutants)


def always() -> bool:
    return True


def fetches_without(monkeypatch: pytest.MonkeyPatch) -> None:
    make = PartitionReader.__init__

    def made(reader: PartitionReader, find: Any, _: Callable[[], bool], *others: Any) -> None:
        make(reader, find, always, *others)

    monkeypatch.setattr(PartitionReader, "__init__", made)


def lists_without(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ReplicaManager.list_offset

    def asked(manager: ReplicaManager, *arguments: Any, **options: Any) -> Any:
        valid = manager._lease_valid
        monkeypatch.setattr(manager, "_lease_valid", always)
        try:
            return ask(manager, *arguments, **options)
        finally:
            monkeypatch.setattr(manager, "_lease_valid", valid)

    monkeypatch.setattr(ReplicaManager, "list_offset", asked)


async def be_cut_off(cluster: SimulatedCluster) -> None:
    """A leader whose lease ends, without a client. Its clock is slow: the lease ends by that clock."""
    leader = await lead(cluster)
    cluster.let_drift(leader, -0.1)
    cluster.partition([leader], [name for name in cluster.machines if name != leader])
    await asyncio.sleep(3)


def test_the_oracle_tests_requests_at_leaders_without_a_lease() -> None:
    with SimulatedCluster(1, properties=QUICK) as cluster:
        cluster.run(be_cut_off(cluster))
        checks = cluster.watch.findings.checks["request-would-be-answered"]
    with SimulatedCluster(1, properties=QUICK) as cluster:
        cluster.run(lead(cluster))
        assert 0 < cluster.watch.findings.checks["request-would-be-answered"] < checks


@pytest.mark.parametrize(
    ("plant", "answered"), [(fetches_without, "a consumer's Fetch"), (lists_without, "ListOffsets")]
)
def test_a_leader_that_would_answer_without_a_lease_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], answered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with SimulatedCluster(1, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
        cluster.run(be_cut_off(cluster))
    assert found(cluster)["request-would-be-answered"].endswith(f"holds no lease, and would answer {answered}")


def forgets_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Sessions.__init__

    def made(sessions: Sessions, timeout: float, lease: float, *others: Any) -> None:
        make(sessions, timeout, lease, *others)
        sessions._lease = lease

    monkeypatch.setattr(Sessions, "__init__", made)


def proves_by_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    by_commits = property(lambda operations: operations._loop.time(), lambda *_: None)
    monkeypatch.setattr(ControllerOperations, "proven_at", by_commits, raising=False)


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        pytest.param(forgets_drift, "by clocks that may differ by 10 %", id="a slow clock has a longer lease"),
        pytest.param(proves_by_commits, "takes a record for a proof", id="a late commit is a proof"),
        pytest.param(None, "", id="the broker as it is"),
    ],
)
def test_a_controller_that_does_not_know_of_a_lease_is_found(
    plant: Callable[[pytest.MonkeyPatch], None] | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plant is not None:
        plant(monkeypatch)
    with SimulatedCluster(3, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
        cluster.run(lead(cluster))
        assert cluster.watch.findings.of_quorum["lease-shared"] > 10
    text = found(cluster).get("lease-shared", "")
    assert sentence in text
    assert bool(sentence) is bool(text)
