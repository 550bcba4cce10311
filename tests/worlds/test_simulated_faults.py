"""Random faults in the simulated world: a correct broker keeps every promise, and the analysis sees it when one does
not."""

from pathlib import Path
from typing import Any

import pytest

from broker.log.log import PartitionLog
from broker.replica.leader import PartitionLeader
from nemeses import Nemesis
from nemeses.mechanisms.clocks import read_clocks
from nemeses.ports import HostUnreachableError
from orchestrator.campaign.parser import load
from orchestrator.campaign.swarm import draw
from orchestrator.errors import WorldError
from orchestrator.worlds.simulation.lab import (
    SimulatedCables,
    SimulatedClientProcess,
    SimulatedDisks,
    SimulationWorld,
)
from tests.worlds.simulated import ROOT, simulate
from workloads.control import Probed, ReadDone

PLAN = """
name = "plan"
[topology]
nodes = {nodes}
world = "simulation"
filesystem = "{filesystem}"
[broker]
"min.insync.replicas" = 2
"replica.lag.time.max.ms" = 2000
"broker.session.timeout.ms" = 2500
"broker.lease.ms" = 1800
{settings}
[workload]
partitions = 2
producers = 2
consumers = 1
rate = 60
duration_s = {duration_s}
[nemesis]
kind = "random"
faults = [{faults}]
interval_s = {interval_s}
duration_s = {fault_s}
[checks]
min_ok = 30
min_share = 0.02
"""
EVERY = ("kill", "pause", "stop", "power-loss", "power-loss-all", "partition-one", "partition-halves")
FLUSHED = '"log.flush.interval.messages" = 1'


def plan(
    directory: Path,
    faults: tuple[str, ...] = EVERY,
    settings: str = FLUSHED,
    *,
    nodes: int = 3,
    filesystem: str = "ext4",
    duration_s: float = 20,
    interval_s: tuple[float, float] = (0.2, 1.5),
    fault_s: tuple[float, float] = (0.1, 3.0),
) -> Path:
    """A campaign's file."""
    path = directory / "plan.toml"
    listed = ", ".join(f'"{fault}"' for fault in faults)
    filled = {"nodes": nodes, "filesystem": filesystem, "settings": settings, "faults": listed}
    times = {"duration_s": duration_s, "interval_s": list(interval_s), "fault_s": list(fault_s)}
    path.write_text(PLAN.format(**filled, **times))
    return path


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.conforms("K101-15", "K595-54")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"faults": ("power-loss-all",), "filesystem": "xfs"},
        {"faults": ("kill", "pause", "stop", "partition-one"), "settings": ""},
        {"settings": f'{FLUSHED}\n"log.segment.bytes" = 4096', "interval_s": (0.05, 0.5), "fault_s": (0.05, 1.0)},
        {"nodes": 5},
    ],
    ids=["everything", "power", "page cache", "small segments, fast", "five brokers"],
)
def test_every_promise_is_kept(given: dict[str, object], seed: int, tmp_path: Path) -> None:
    run = simulate(plan(tmp_path, **given), tmp_path, seeds=[seed])  # type: ignore[arg-type]
    assert run.verdict.verdict == "pass", run.verdict.reasons


def unanswered(*_: object) -> None:
    raise HostUnreachableError("n3 does not answer")


UNFINISHED = """
name = "unfinished"
[topology]
nodes = 3
world = "simulation"
[workload]
partitions = 1
producers = 1
consumers = 0
duration_s = 30
[nemesis]
kind = "steps"
[[nemesis.step]]
do = "lose"
node = "n1"
percent = 20
[[nemesis.step]]
do = "set-clock"
node = "n2"
jump_s = 60
[[nemesis.step]]
do = "produce"
acks = 1
expect = "fail"
"""


def unforeseen(*_: object) -> None:
    raise ValueError("an unforeseen mistake")


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize("broken", ["", "network", "a mistake"])
def test_an_unfinished_run_ends_packet_and_clock_faults(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes may be machines of a user, which the run does not make and does not remove. Faults end also when another
    heal fails, even by a mistake in our code."""
    if broken:
        monkeypatch.setattr(SimulatedCables, "heal", unanswered if broken == "network" else unforeseen)
    path = tmp_path / "unfinished.toml"
    path.write_text(UNFINISHED)
    left: list[dict[str, Any]] = []
    down = SimulationWorld.down

    def look(world: SimulationWorld) -> None:
        if not left:
            left.append(Nemesis(world.site).clear_leftovers().detail)
        down(world)

    monkeypatch.setattr(SimulationWorld, "down", look)
    run = simulate(path, tmp_path)
    assert [line["status"] for line in run.of("fault_injected")] == ["confirmed", "confirmed"]
    assert run.of("fault_healed") == []
    notes = [line["text"] for line in run.of("note") if line["text"].startswith("stopping services")]
    said = {"network": ["n3 does not answer"], "a mistake": ["an unforeseen mistake"]}.get(broken, [])
    assert notes == [f"stopping services: {words}" for words in said]
    names = ("n1", "n2", "n3")
    assert left == [{"packets": {name: {"dropped": {}} for name in names}, "clocks": {name: {} for name in names}}]


FROZEN = """
[[nemesis.step]]
do = "freeze"
node = "n1"
[[nemesis.step]]
do = "wait"
seconds = 20
[[nemesis.step]]
do = "produce"
acks = 1
expect = "fail"
[checks]
upper_bound = "session"
"""


@pytest.mark.rotating(12, among="simulated faults")
def test_an_unfinished_run_corrects_frozen_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "frozen.toml"
    path.write_text(UNFINISHED.partition("[[nemesis.step]]")[0] + FROZEN)
    offsets_s: list[float] = []
    down = SimulationWorld.down

    def look(world: SimulationWorld) -> None:
        if not offsets_s:
            offsets_s.append(read_clocks(world.site.hosts["n1"], world.site.scheduler).real_s)
        down(world)

    monkeypatch.setattr(SimulationWorld, "down", look)
    run = simulate(path, tmp_path)
    assert [line["status"] for line in run.of("fault_injected")] == ["confirmed"]
    assert run.of("fault_healed") == []
    assert abs(offsets_s[0]) < 0.1


PACKETS = ("packet-delay", "packet-loss", "packet-duplicate", "packet-reorder", "connection-reset", "reject")
MACHINES = ("stall", "clock-jump", "clock-drift", "pause", "power-loss")
DISKS = ("disk-error", "disk-full", "disk-slow", "disk-hang", "disk-flip")


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize("faults", [PACKETS, MACHINES, DISKS], ids=["packets", "machines", "disks"])
def test_faults_of_machines_and_of_the_simulation_are_proven_and_survived(
    faults: tuple[str, ...], tmp_path: Path
) -> None:
    run = simulate(plan(tmp_path, faults, duration_s=24), tmp_path, seeds=[4])
    assert run.verdict.verdict == "pass", run.verdict.reasons
    assert {fault["kind"] for fault in run.verdict.faults} == set(faults)
    assert all(fault["status"] == "confirmed" for fault in run.verdict.faults)


@pytest.mark.rotating(12, among="simulated faults")
def test_a_node_with_an_empty_disk_rejoins_the_quorum_without_losses(tmp_path: Path) -> None:
    run = simulate(ROOT / "campaigns" / "wiped-voter.toml", tmp_path, seeds=[1])
    assert run.verdict.met, run.verdict.reasons
    assert run.anomalies == set()


@pytest.mark.rotating(12, among="simulated faults")
def test_a_node_restarted_with_an_old_disk_is_proven(tmp_path: Path) -> None:
    run = simulate(plan(tmp_path, ("old-disk",), duration_s=10), tmp_path, seeds=[1])
    assert [fault["status"] for fault in run.verdict.faults] == ["confirmed"] * len(run.verdict.faults)
    assert run.verdict.verdict != "unknown", run.verdict.reasons


ROLLED_BACK = """
[[nemesis.step]]
do = "copy-disk"
node = "n1"
[[nemesis.step]]
do = "wait"
seconds = 2
[[nemesis.step]]
do = "roll-back"
node = "n1"
[checks]
min_ok = 1
"""


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize("crashes", [False, True])
def test_an_unexpected_exit_before_a_disk_rollback_is_a_finding(
    crashes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rolled-back.toml"
    path.write_text(UNFINISHED.partition("[[nemesis.step]]")[0] + ROLLED_BACK)
    keep_copy = SimulatedDisks.keep_copy

    def then_crash(disks: SimulatedDisks, name: str) -> int:
        node = disks._cluster.machines[name].node
        assert node is not None
        node.failed.set_exception(RuntimeError("an uncaught error"))
        return keep_copy(disks, name)

    if crashes:
        monkeypatch.setattr(SimulatedDisks, "keep_copy", then_crash)
    run = simulate(path, tmp_path)
    assert [(line["node"], line["way"]) for line in run.of("service_exit")] == ([("n1", "ended")] if crashes else [])
    assert [fault["status"] for fault in run.verdict.faults] == ["confirmed"]
    assert (run.verdict.verdict == "pass") != crashes, run.verdict.reasons


@pytest.mark.rotating(12, among="simulated faults")
def test_faults_that_overlap_are_proven_too(tmp_path: Path) -> None:
    path = tmp_path / "crowd.toml"
    path.write_text(
        (ROOT / "campaigns" / "swarm.toml")
        .read_text()
        .replace("nodes = [1, 7]", "nodes = [7, 7]")
        .replace("[12, 40]", "[20, 20]")
    )
    for seed in range(1, 40):
        drawn = draw(load(path), seed)
        is_tiered = bool(drawn.workload.topic_settings)  # its faults are proven only while its brokers use the store
        if drawn.nemesis.overlap and len(drawn.nemesis.faults) > 3 and not is_tiered:
            break
    run = simulate(path, tmp_path, seeds=[seed])
    assert run.verdict.verdict == "pass", run.verdict.reasons
    assert {fault["kind"] for fault in run.verdict.faults} == set(drawn.nemesis.faults)


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize("given", ["", "\nconverge_s = 20"])
def test_a_cluster_that_does_not_recover_has_not_converged_and_is_read_nevertheless(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(leader: PartitionLeader, replica: int, own_broker_epoch: int) -> None:
        del leader, replica, own_broker_epoch

    monkeypatch.setattr(PartitionLeader, "propose_expansion", never)
    path = plan(tmp_path, ("kill",), duration_s=8, interval_s=(0.5, 0.5), fault_s=(6.0, 6.0))
    path.write_text(path.read_text().replace("min_ok = 30", f"min_ok = 1{given}"))
    run = simulate(path, tmp_path, seeds=[1])
    assert run.verdict.verdict == "fail", run.verdict.reasons
    assert "not-converged" in run.anomalies
    # Its partitions still answer, and are read: their records are not in doubt.
    assert not [doubt for doubt in run.verdict.doubts if "was not read to its end" in doubt]
    notes = [line["text"] for line in run.of("note") if line["text"].startswith("the cluster is not whole: partition ")]
    assert notes
    assert all("was read to the end that it states" in text for text in notes)


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize(
    ("min_isr", "anomaly"),
    [
        (1, "lost-acknowledged-write"),  # it takes a write, and so the end that it states counts
        (2, "stale-read"),  # it takes none: what its reads lack proves no loss, but they deny what was acknowledged
    ],
)
def test_an_incomplete_cluster_is_reported_with_its_missing_parts(
    min_isr: int, anomaly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No replica returns to an in-sync set, and a leader without power loses unflushed records."""

    def never(leader: PartitionLeader, replica: int, own_broker_epoch: int) -> None:
        del leader, replica, own_broker_epoch

    monkeypatch.setattr(PartitionLeader, "propose_expansion", never)
    path = plan(tmp_path, ("power-loss-all",), duration_s=8, interval_s=(2.0, 2.0), fault_s=(1.0, 1.0))
    text = path.read_text().replace("min_ok = 30", "min_ok = 1\nconverge_s = 30")
    text = text.replace('"log.flush.interval.messages" = 1', "")
    path.write_text(text.replace('"min.insync.replicas" = 2', f'"min.insync.replicas" = {min_isr}'))
    run = simulate(path, tmp_path, seeds=[1])
    assert {"not-converged", anomaly} <= run.anomalies, (run.anomalies, run.verdict.reasons)


@pytest.mark.rotating(12, among="simulated faults")
def test_an_unreadable_partition_reports_its_reason_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(client: SimulatedClientProcess, place: int, timeout_s: float) -> Probed:
        del place, timeout_s
        client._scheduler.sleep(3.0)
        return Probed(0, False, "the partition has no leader")

    def read_all(client: SimulatedClientProcess, place: int, timeout_s: float) -> ReadDone:
        if place == 0:
            return ReadDone(0, False, 9, 4, "no answer")
        return real(client, place, timeout_s)

    real = SimulatedClientProcess.read_all
    monkeypatch.setattr(SimulatedClientProcess, "probe", probe)
    monkeypatch.setattr(SimulatedClientProcess, "read_all", read_all)
    run = simulate(bounded(tmp_path, 20), tmp_path, seeds=[1])
    assert run.anomalies == {"not-converged"}
    notes = " ".join(line["text"] for line in run.of("note"))
    assert "the final read of partition 0 reached 4 of 9" in notes
    assert "no answer" in notes
    assert "partition 1 was read to the end that it states" in notes
    assert "it took no write before: the partition has no leader" in notes


@pytest.mark.rotating(12, among="simulated faults")
@pytest.mark.parametrize(
    ("bound_s", "idle_s", "answers_s", "verdict"),
    [
        (120, 40.0, 3.0, "pass"),  # longer than is waited for without a bound
        (20, 40.0, 3.0, "fail"),  # never within it
        (20, 0.0, 15.0, "fail"),  # every partition answers at once, and all together too late
    ],
)
def test_a_bound_on_recovery_is_one_for_all_of_it(
    bound_s: int, idle_s: float, answers_s: float, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `idle_s` after the cluster is whole no replica accepts writes; each attempt takes `answers_s`."""
    began_s: list[float] = []

    def probe(client: SimulatedClientProcess, place: int, timeout_s: float) -> Probed:
        del place, timeout_s
        began_s.append(client._scheduler.monotonic())
        client._scheduler.sleep(answers_s)
        return Probed(0, began_s[-1] - began_s[0] >= idle_s, "the partition has no leader")

    monkeypatch.setattr(SimulatedClientProcess, "probe", probe)
    run = simulate(bounded(tmp_path, bound_s), tmp_path, seeds=[1])
    assert run.verdict.verdict == verdict, run.verdict.reasons
    assert run.anomalies == ({"not-converged"} if verdict == "fail" else set())


@pytest.mark.rotating(12, among="simulated faults")
def test_a_failed_world_records_no_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(client: SimulatedClientProcess, place: int, timeout_s: float) -> Probed:
        del client, place, timeout_s
        raise WorldError("the simulated world stopped making progress")

    monkeypatch.setattr(SimulatedClientProcess, "probe", broken)
    run = simulate(bounded(tmp_path, 60), tmp_path, seeds=[1])
    assert run.verdict.verdict == "unknown", run.verdict.reasons
    assert run.anomalies == set()


def bounded(directory: Path, bound_s: int) -> Path:
    """A campaign in which little goes wrong, with a bound on recovery."""
    path = plan(directory, ("kill",), duration_s=4, interval_s=(0.3, 0.3), fault_s=(0.3, 0.3))
    path.write_text(path.read_text().replace("min_ok = 30", f"min_ok = 1\nconverge_s = {bound_s}"))
    return path


def test_a_broker_that_acknowledges_before_its_disk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pretend(log: PartitionLog) -> int:
        log._durable = log.log_end_offset
        return log.log_end_offset

    monkeypatch.setattr(PartitionLog, "flush", pretend)
    run = simulate(plan(tmp_path, ("power-loss-all",)), tmp_path, seeds=[1])
    assert run.verdict.verdict == "fail", run.verdict.reasons
    # Brokers that find at their start that what had been on their disks is gone do not start: that is seen as well.
    assert run.anomalies & {"lost-acknowledged-write", "lost-committed-metadata", "unexpected-exit"}


@pytest.mark.rotating(12, among="simulated faults")
def test_a_seed_repeats_its_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pretend(log: PartitionLog) -> int:
        log._durable = log.log_end_offset
        return log.log_end_offset

    monkeypatch.setattr(PartitionLog, "flush", pretend)
    first, again = (simulate(plan(tmp_path, ("power-loss-all",)), tmp_path, seeds=[3]) for _ in range(2))
    assert first.summary["digest"] == again.summary["digest"]
    assert first.verdict.reasons == again.verdict.reasons
