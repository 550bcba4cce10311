"""Consumer groups in the simulated world: members as on nodes, with the same checker."""

from collections.abc import Generator
from math import inf
from pathlib import Path

import pytest

from analysis.evidence.offset_history import assignments
from broker.protocol.records import BatchHeader
from broker.replica.compactor import Compaction, RawRecord
from history.record.offset_record import COMMIT, DELIVER, GROUPS, read_offsets
from simulator.client import GroupClient
from tests.campaign_text import IMPATIENT, campaign_text, random_faults
from tests.worlds.simulated import SimulatedRun, campaign, simulate
from workloads.virtual import clients

pytestmark = pytest.mark.rotating(7, among="simulated groups")
SHORT = campaign_text(
    "short-groups",
    topology={"nodes": 3, "world": "simulation"},
    broker={
        **IMPATIENT,
        "offsets.topic.num.partitions": 2,
        "offsets.topic.segment.bytes": 4096,
        "log.cleaner.backoff.ms": 1000,
        "group.initial.rebalance.delay.ms": 500,
    },
    workload={
        "kind": "group",
        "partitions": 6,
        "replication_factor": 3,
        "producers": 1,
        "members": 3,
        "rate": 40,
        "duration_s": 25,
        "operations": 500,
    },
    nemesis=random_faults("kill", interval_s=[1.0, 3.0], duration_s=[1.0, 2.0]),
    checks={"min_ok": 300, "required_faults": ["kill"]},
)


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "short-groups.toml"
    path.write_text(SHORT)
    return path


def told_of_groups(run: SimulatedRun) -> str:
    (check,) = (check for check in run.verdict.checks if check.name == "consumer groups")
    return "; ".join((check.verdict, check.detail, *run.verdict.reasons))


@pytest.mark.conforms("CG-1", "CG-2", "CG-3", "CG-4")
def test_groups_lose_and_skip_no_record_through_kills(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "RESTARTS_EVERY_S", {True: inf, False: inf})  # each restart is a new generation
    run = simulate(short, tmp_path)
    assert run.verdict.verdict == "pass", run.verdict.reasons
    group = read_offsets(run.path, GROUPS)
    assert set(group.clients) == {"member-1", "member-2", "member-3", "reader-1"}
    assert sum(commit.acknowledged for commit in group.of(COMMIT)) > 100, "a run with few commits shows little"
    assert {delivered.partition for delivered in group.of(DELIVER)} == set(range(6))
    assert assignments(group) == 3, "a killed coordinator's successor knows the generation"
    assert (run.path / "nodes" / "n1" / "events.jsonl").read_text().count('"log_compacted"'), "commits are compacted"


@pytest.mark.kills("commit_acked_before_hw")
@pytest.mark.conforms("CG-3", "CG-4")
@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("mutated", {"lost-acknowledged-commit", "offsets-contradict-log", "assignment-contradicts-log"}),
        ("fixed", set()),
    ],
)
def test_an_isolated_coordinator_loses_only_commits_acknowledged_early(
    cell: str, expected: set[str], tmp_path: Path
) -> None:
    text = campaign("commit-acked-before-hw").read_text()
    for long, short in (("s = 90", "s = 40"), ("= 1500", "= 500"), ("[3.0, 6.0]", "[1.0, 3.0]")):
        assert long in text
        text = text.replace(long, short)
    shortened = tmp_path / "shortened.toml"
    shortened.write_text(text)
    run = simulate(shortened, tmp_path, cell=cell, seeds=[5])
    assert run.verdict.met, run.verdict.reasons
    assert run.anomalies == expected


@pytest.mark.kills("compaction_drops_epochs")
@pytest.mark.conforms("K101-11")
@pytest.mark.parametrize(("cell", "expected"), [("mutated", {"epochs-contradict-log"}), ("fixed", set())])
def test_a_compacted_log_keeps_the_start_offsets_of_its_epochs(cell: str, expected: set[str], tmp_path: Path) -> None:
    run = simulate(campaign("compacted-epochs"), tmp_path, cell=cell)
    assert run.verdict.met, run.verdict.reasons
    assert run.anomalies == expected


def test_a_compaction_that_loses_the_last_record_of_a_key_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Compaction._stays

    def losing(compaction: Compaction, header: BatchHeader, record: RawRecord, expired: bool) -> bool:
        lost = (header.base_offset + record.offset_delta) % 5 == 0
        return not lost and original(compaction, header, record, expired)

    monkeypatch.setattr(Compaction, "_stays", losing)
    run = simulate(campaign("compacted-epochs"), tmp_path, cell="fixed", seeds=[3])
    assert "committed-prefix-changed" in run.anomalies, run.verdict.reasons


def test_a_compaction_that_writes_a_new_record_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Compaction.compact

    def of_another_epoch(
        self: Compaction, header: BatchHeader, batch: bytes, *, keep_header: bool
    ) -> Generator[None, None, bytes]:
        left = yield from original(self, header, batch, keep_header=keep_header)
        return left and left[:12] + (header.leader_epoch + 1).to_bytes(4, "big") + left[16:]

    monkeypatch.setattr(Compaction, "compact", of_another_epoch)
    run = simulate(campaign("compacted-epochs"), tmp_path, cell="fixed")
    assert "log-mismatch" in run.anomalies, run.verdict.reasons


def test_an_unexpected_end_of_a_member_makes_a_run_unknown(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, beats = GroupClient.heartbeat, list[int]()

    async def failing(client: GroupClient, timeout: float = 2.0) -> None:
        beats.append(1)
        if len(beats) == 10:
            raise KeyError("planted")
        await original(client, timeout)

    monkeypatch.setattr(GroupClient, "heartbeat", failing)
    run = simulate(short, tmp_path)
    assert run.verdict.verdict == "unknown"
    assert "planted" in told_of_groups(run)


def test_a_commit_missing_in_the_record_is_found(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker reads the members' record: a group's offset without a recorded commit is a phantom."""
    original = GroupClient.committed

    async def one_more(client: GroupClient, *arguments: object, **more: object) -> dict[int, int]:
        offsets = await original(client, *arguments, **more)  # type: ignore[arg-type]
        return {partition: offset + 1_000_000 for partition, offset in offsets.items()}

    monkeypatch.setattr(GroupClient, "committed", one_more)
    run = simulate(short, tmp_path)
    assert run.verdict.verdict == "fail"
    assert "phantom-commit" in run.anomalies
