"""The excuses of an oracle: exactly the damage that a kind of fault declares, on exactly the nodes that it hits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.replica import fetcher
from broker.replica.leader import PartitionLeader
from history.damage import Damage
from nemeses import KINDS, Fault
from nemeses.kind import RandomDraw
from nemeses.mechanisms.object_store import ObjectStoreKind
from nemeses.mechanisms.store import StoreKind
from orchestrator.worlds.simulation.lab import SimulatedDisks
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.oracles import ORACLES
from simulator.oracles.excuses import EXCUSED_BY
from simulator.oracles.machine_view import MachineView
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC
from tests.worlds.simulated_site import running, site_of

TARGET, OTHERS = "n1", ("n2", "n3")
OF_DISKS = frozenset({Damage.UNSYNCED, Damage.SYNCED, Damage.DISK, Damage.NEWER_STATE, Damage.ELAPSED_TIME})
"""The damage that a simulated machine notes."""
OF_REMOTE_STORAGE = {name for name, kind in KINDS.items() if isinstance(kind, StoreKind | ObjectStoreKind)}
"""The kinds that need a cluster with remote storage."""
AT_ONCE = {"crash-point": {"files": "any", "number": 1, "crash": "power-loss-before"}}
"""Parameters with which a fault takes effect within a second."""
FLUSHED = {**QUICK, "log.flush.interval.messages": "1", "min.insync.replicas": "2"}


def test_every_oracle_names_its_excuses_and_a_kind_declares_every_excuse() -> None:
    assert tuple(EXCUSED_BY) == ORACLES
    declared = frozenset().union(*(kind.destroys for kind in KINDS.values()))
    assert frozenset().union(*EXCUSED_BY.values()) <= declared & OF_DISKS


def test_a_fault_of_remote_storage_excuses_no_oracle() -> None:
    assert {
        oracle for kind in OF_REMOTE_STORAGE for oracle in ORACLES if EXCUSED_BY[oracle] & KINDS[kind].destroys
    } == set()


@pytest.mark.rotating(5)
@pytest.mark.parametrize("name", [name for name in KINDS if name not in OF_REMOTE_STORAGE])
def test_an_excuse_of_a_kind_applies_only_to_its_target(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS[name]
    noted: dict[str, set[Damage]] = {}
    excused: dict[str, set[str]] = {}

    def note(view: MachineView, damage: Damage, *, damaged: Callable[..., None] = MachineView.damaged) -> None:
        damaged(view, damage)
        noted.setdefault(view.name, set()).add(damage)
        found = {oracle for oracle in ORACLES if view.excused(oracle)}
        excused[view.name] = excused.get(view.name, set()) | found

    monkeypatch.setattr(MachineView, "damaged", note)
    parameters = {**kind.draw(RandomDraw(0.5, "both", None)), **AT_ONCE.get(name, {})}
    fault = Fault(name, (TARGET,), parameters=parameters)
    with SimulatedCluster(1, properties=QUICK) as cluster:
        nemesis = running(cluster)
        client = SimulatedClient(cluster.addresses)

        async def write() -> None:
            await client.create_topic(TOPIC, replication_factor=3)
            await client.produce(TOPIC, 0, [b"x"])
            await asyncio.sleep(1)

        cluster.run(write())
        assert nemesis.inject(fault).status == "confirmed"
        cluster.run(asyncio.sleep(1))
        nemesis.heal(fault)
        cluster.run(cluster.ready())
        cluster.run(asyncio.sleep(3))
        left = [view.suffered for view in cluster.watch.machines.values()]
    hit = {TARGET} if noted else set()
    assert set(noted) == hit, "no other node"
    assert noted.get(TARGET, set()) == kind.destroys & OF_DISKS
    assert excused.get(TARGET, set()) == {oracle for oracle in ORACLES if EXCUSED_BY[oracle] & kind.destroys}
    assert left == [frozenset()] * 3, "a process has registered since: nothing is excused any more"


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("by_copy", [True, False])
def test_records_of_a_replaced_disk_still_count_against_its_node(
    flushed: bool, by_copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader counts what a follower had on the disk that is gone, and commits by it. A follower that had claimed more
    than its disk held is found all the same."""
    with SimulatedCluster(1, properties=FLUSHED, mutants=["tier_above_hw"]) as cluster:

        async def begin() -> tuple[str, str, str]:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=3)
            await client.produce(TOPIC, 0, [b"first"])
            leader = f"n{await client.leader_of(TOPIC, 0)}"
            partition = cluster.node(leader).replicas.partition(TOPIC, 0)
            assert partition is not None
            role = partition.role
            assert isinstance(role, PartitionLeader)
            await cluster.until(lambda: len(role.isr) == 3)
            wiped, silent = (name for name in cluster.machines if name != leader)
            return leader, wiped, silent

        leader, wiped, silent = cluster.run(begin())
        disks = SimulatedDisks(cluster, site_of(cluster).scheduler)  # type: ignore[arg-type]
        disks.keep_copy(wiped)
        monkeypatch.setattr(
            fetcher, "_claims_too_much", lambda it: flushed and it.flush_before_commit and not it.durable
        )
        cluster.suspend(silent, frozen=False)

        async def claim() -> asyncio.Future[Any]:
            client = SimulatedClient(cluster.addresses)
            waiting = asyncio.ensure_future(client.produce(TOPIC, 0, [b"claimed"], timeout=20))
            partition = cluster.node(leader).replicas.partition(TOPIC, 0)
            assert partition is not None
            role, end = partition.role, partition.log.log_end_offset
            assert isinstance(role, PartitionLeader)
            await cluster.until(lambda: role.follower(int(wiped[1:])).log_end_offset > end)
            cluster.kill(wiped)
            disks.replace(wiped, by_copy=by_copy)
            cluster.resume(silent)
            await waiting
            return waiting

        cluster.run(claim())
    found = {finding.oracle for finding in cluster.watch.findings.found}
    assert ("committed-not-durable" in found) == (not flushed)


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize("campaign_seed", [4, 8])
def test_a_wiped_voter_raises_no_alarm(campaign_seed: int, tmp_path: Any) -> None:
    from orchestrator.campaign.lookup import find
    from orchestrator.campaign.parser import load
    from orchestrator.command.mutants import MutantSchedule
    from tests.simulator.test_directed_campaigns import tried

    loaded = load(find("wiped-voter"))
    (cell,) = loaded.cells
    result = tried([MutantSchedule("none", "", (), loaded, cell)], tmp_path, seed=campaign_seed)
    assert [(trial.verdict, trial.killed_by) for trial in result.trials] == [("pass", ())]
