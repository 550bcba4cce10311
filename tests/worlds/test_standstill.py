"""A cluster that stands still after everything was healed fails its run; one whose standstill may have another cause
does not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.replica.leader import PartitionLeader
from broker.replica.reads import Checked, FetchLimits, FetchPosition, PartitionRead, PartitionReader
from nemeses.ports import Host
from orchestrator.worlds.simulation.lab import SimulatedClientProcess, SimulationWorld
from tests.worlds.simulated import simulate
from tests.worlds.test_simulated_faults import plan
from tests.worlds.test_simulated_groups import SHORT
from workloads.control import ReadDone

pytestmark = pytest.mark.rotating(3, among="standstills")


def refuse_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders answer each fetch of a consumer with OFFSET_MOVED_TO_TIERED_STORAGE; replicas fetch as ever."""

    def refused(reads: PartitionReader, limits: FetchLimits, position: FetchPosition) -> Checked:
        if limits.is_replica:
            return checked(reads, limits, position)
        error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        return PartitionRead(position.topic, position.partition, error)

    checked = PartitionReader._checked
    monkeypatch.setattr(PartitionReader, "_checked", refused)


def keep_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """No replica returns to an in-sync set."""

    def never(leader: PartitionLeader, replica: int, own_broker_epoch: int) -> None:
        del leader, replica, own_broker_epoch

    monkeypatch.setattr(PartitionLeader, "propose_expansion", never)


def campaign(tmp_path: Path, kind: str) -> Path:
    path = plan(tmp_path, ("kill",), duration_s=8, interval_s=(0.5, 0.5), fault_s=(6.0, 6.0))
    path.write_text(SHORT if kind == "group" else path.read_text().replace("min_ok = 30", "min_ok = 1"))
    return path


@pytest.mark.parametrize("kind", ["log", "group"])
def test_a_broker_that_answers_every_consumer_with_an_error_fails_its_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_consumers(monkeypatch)
    run = simulate(campaign(tmp_path, kind), tmp_path, seeds=[1])
    assert run.verdict.verdict == "fail", run.verdict.reasons
    assert run.anomalies == {"final-read-stalled"}, run.verdict.reasons


@pytest.mark.parametrize("break_broker", [refuse_consumers, keep_isr])
def test_a_node_that_the_tester_does_not_reach_leaves_the_run_unknown(
    break_broker: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_broker(monkeypatch)

    def answered(world: SimulationWorld, host: Host, patience_s: float) -> float | None:
        return None if host.name == "n2" else real(world, host, patience_s)

    real = SimulationWorld._first_word_s
    monkeypatch.setattr(SimulationWorld, "_first_word_s", answered)
    run = simulate(campaign(tmp_path, "log"), tmp_path, seeds=[1])
    assert (run.verdict.verdict, run.anomalies) == ("unknown", set()), run.verdict.reasons
    assert any("n2 did not answer this machine" in doubt for doubt in run.verdict.doubts)


def test_a_read_that_only_one_reader_cannot_finish_leaves_the_run_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_all(client: SimulatedClientProcess, place: int, timeout_s: float) -> ReadDone:
        if client.name == "reader-1":
            return ReadDone(0, False, 9, 4, "no answer", timeout_s)
        return real(client, place, timeout_s)

    real = SimulatedClientProcess.read_all
    monkeypatch.setattr(SimulatedClientProcess, "read_all", read_all)
    run = simulate(campaign(tmp_path, "log"), tmp_path, seeds=[1])
    assert (run.verdict.verdict, run.anomalies) == ("unknown", set()), run.verdict.reasons
    assert any("reader 2 reached the end" in doubt for doubt in run.verdict.doubts)
