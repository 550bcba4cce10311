"""The oracles of assignments, of producer ids and of log starts, on brokers that keep these promises and that break
them."""

import asyncio
import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.groups.group import Group, GroupState
from broker.groups.rebalance import Rebalance
from broker.log.log import PartitionLog
from broker.producers.producer_ids import ProducerIds
from simulator.client import GroupClient, NoResultError, RefusedError, SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.oracles.findings import OracleFindings
from simulator.oracles.machine_view import MachineView
from simulator.oracles.producer_id_rules import ProducerIdRules
from tests.simulator.stories import started

SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 4
ORACLE = "assignment-contradicts-log"


def rebalances(seed: int) -> int:
    """One member joins, then a second one; returns the number of comparisons. Raises `AssertionError` with a finding
    of the oracles."""
    with SimulatedCluster(seed, properties=SETTINGS) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            await SimulatedClient(cluster.addresses).create_topic("log", PARTITIONS)
            members = [GroupClient("g", cluster.addresses) for _ in range(2)]
            living = [asyncio.create_task(lives(member, 1.0 * n)) for n, member in enumerate(members)]
            await cluster.until(lambda: bool(cluster.watch.findings.found) or all(each.done() for each in living))

        cluster.run(story())
    return cluster.watch.findings.checks[ORACLE]


async def lives(member: GroupClient, joins_after_s: float) -> None:
    """Be a member for some seconds: join whenever the coordinator asks for it."""
    await asyncio.sleep(joins_after_s)
    is_in = False
    for _ in range(60):
        with contextlib.suppress(NoResultError):
            if not is_in:
                await member.join(PARTITIONS)
                is_in = True
            try:
                await member.heartbeat()
            except RefusedError:
                is_in = False
        await asyncio.sleep(0.05)


@pytest.mark.conforms("CG-1", "CG-2")
@pytest.mark.parametrize("seed", range(1, 4))
def test_lawful_assignments_raise_no_alarm(seed: int) -> None:
    assert rebalances(seed) > 3


def test_a_static_member_that_restarts_returns_to_its_share_and_fences_its_former_id() -> None:
    with SimulatedCluster(1, properties=SETTINGS) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            first, second = (GroupClient("g", cluster.addresses, instance="one") for _ in range(2))
            while True:  # until there is a coordinator
                with contextlib.suppress(NoResultError):
                    share = await first.join(PARTITIONS)
                    break
                await asyncio.sleep(0.1)
            generation = first.generation
            first.restart()
            assert (await first.join(PARTITIONS), first.generation) == (share, generation)
            assert await second.join(PARTITIONS) == share
            with pytest.raises(RefusedError, match="FENCED_INSTANCE_ID"):
                await first.heartbeat()

        cluster.run(story())


def generations_repeat(patch: pytest.MonkeyPatch) -> None:
    change_generations(patch, lambda _: 1)


def generations_fall(patch: pytest.MonkeyPatch) -> None:
    change_generations(patch, lambda generation: 90 - 10 * generation)


def change_generations(patch: pytest.MonkeyPatch, changed: Callable[[int], int]) -> None:
    begins, counts = Group.begin_generation, list[int]()

    def begin(group: Group, now_ms: int) -> None:
        begins(group, now_ms)
        counts.append(group.generation)
        group.generation, group.storing = changed(len(counts)), 0

    patch.setattr(Group, "begin_generation", begin)


def all_own_everything(patch: pytest.MonkeyPatch) -> None:
    assigns = Group.assign
    patch.setattr(Group, "assign", lambda group, given: assigns(group, dict.fromkeys(given, b"0 1 2 3")))


def stable_before_commit(patch: pytest.MonkeyPatch) -> None:
    stores = Rebalance._store_assignment

    def store(rebalance: Rebalance, now: float, group: Group, assignments: dict[str, bytes]) -> None:
        stores(rebalance, now, group, assignments)
        group.move_to(GroupState.STABLE, 0)

    patch.setattr(Rebalance, "_store_assignment", store)


@pytest.mark.conforms("CG-1", "CG-2")
@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (generations_repeat, "generation 1 of group g has the shares"),
        (generations_fall, "generation 70 of group g comes after generation 80"),
        (all_own_everything, "gives a partition to two members"),
        (stable_before_commit, "coordinates group g and shows its members"),
    ],
)
def test_an_assignment_that_breaks_a_promise_is_reported(
    plant: Callable[[pytest.MonkeyPatch], None], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("simulator.oracles.group_rules.generation_flaws", lambda *_: ())  # supposed clients notice, too
    with pytest.raises(AssertionError, match=f"{ORACLE}: .*{sentence}"):
        rebalances(1)


class Brokers:
    """Processes of brokers with ids of producers."""

    def __init__(self) -> None:
        self.findings = OracleFindings(lambda: 0.0)
        self._rules = ProducerIdRules(self.findings)

    def has(self, name: str, life: int, ids: ProducerIds) -> None:
        node = SimpleNamespace(producer_ids=SimpleNamespace(ids=ids))
        self._rules.look(cast(MachineView, SimpleNamespace(name=name, life=life, node=node)))

    @property
    def sentences(self) -> list[str]:
        return [finding.sentence for finding in self.findings.found]


def block(first: int, taken: int = 0) -> ProducerIds:
    ids = ProducerIds()
    ids.add(first, 10)
    for _ in range(taken):
        ids.take()
    return ids


@pytest.mark.conforms("K98-1")
def test_each_process_may_use_up_blocks_of_its_own() -> None:
    brokers = Brokers()
    for name, life, ids in (
        ("n1", 1, ProducerIds()),
        ("n1", 1, block(0)),
        ("n2", 1, block(10)),
        ("n1", 1, block(0, 3)),
        ("n1", 2, block(20)),
        ("n2", 1, block(30, 1)),
    ):
        brokers.has(name, life, ids)
    assert (brokers.sentences, brokers.findings.checks["producer-id-shared"]) == ([], 5)


@pytest.mark.conforms("K98-1")
@pytest.mark.parametrize(("name", "life"), [("n2", 1), ("n1", 2), ("n1", 1)])
def test_a_block_that_was_assigned_before_is_reported(name: str, life: int) -> None:
    brokers = Brokers()
    brokers.has("n1", 1, block(0, 3))
    brokers.has(name, life, block(0))
    (sentence,) = brokers.sentences
    assert sentence.startswith(f"process {life} of {name} may assign the producer ids 0 to 9, and ")


@pytest.mark.parametrize("falls_to", [None, 1])
def test_a_log_start_that_falls_is_reported(falls_to: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = list[int]()
    true_start = cast(Any, PartitionLog.log_start_offset).fget
    monkeypatch.setattr(PartitionLog, "log_start_offset", property(lambda log: min([true_start(log), *lower])))

    def run() -> None:
        with SimulatedCluster(1, properties=SETTINGS) as cluster:

            async def story() -> None:
                client = await started(cluster)
                await client.create_topic("log", 1, 3)
                for _ in range(9):
                    await client.produce("log", 0, [b"x" * 50])
                await client.delete_records("log", 0, 5)
                await asyncio.sleep(2.0)
                lower.extend([falls_to] if falls_to is not None else [])
                await client.produce("log", 0, [b"x"])

            cluster.run(story())
        assert cluster.watch.findings.checks["log-start-fell"]

    if falls_to is None:
        run()
    else:
        with pytest.raises(AssertionError, match=r"log-start-fell: log-0: the log of n. started at 5, and starts at 1"):
            run()
