"""A run whose producers delete records passes, unless a deletion does not hold or its evidence is missing."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from analysis.checker import CheckedRun, Outcome
from analysis.checkers.deletions import CHECKER
from analysis.checkers.partition_logs import CHECKER as LOGS
from analysis.evidence.run_directory import describe, events_by_node
from analysis.evidence.run_toml import MetadataTable
from history.reader import read_run
from tests.campaign_text import campaign_text, random_faults
from tests.worlds.simulated import SimulatedRun, simulate

CAMPAIGN = campaign_text(
    "deletions",
    topology={"nodes": 3},
    broker={"log.flush.interval.messages": 1},
    workload={"partitions": 1, "rate": 80, "duration_s": 6, "deletes_every_s": 0.5},
    nemesis=random_faults("kill", interval_s=[1, 2], duration_s=[0.3, 0.5]),
    checks={"upper_bound": "strict", "min_share": 0.1},
)
TIERED = (
    CAMPAIGN.replace(
        "[workload]",
        """"remote.log.storage.system.enable" = "true"
"remote.log.manager.task.interval.ms" = 300
"log.retention.check.interval.ms" = 300
[workload]
kind = "tiered"
""",
    )
    .replace(
        "[nemesis]",
        """[workload.topic_settings]
"remote.storage.enable" = "true"
"segment.bytes" = 4096
"retention.ms" = -1
"retention.bytes" = -1
"local.retention.ms" = -1
"local.retention.bytes" = 4096
[nemesis]""",
    )
    .replace("deletes_every_s = 0.5", "deletes_every_s = 1.5")
)
STARTS = "log-start-offset-checkpoint"
Line = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    directory = tmp_path_factory.mktemp("deletions")
    path = directory / "c.toml"
    path.write_text(CAMPAIGN, encoding="utf-8")
    return simulate(path, directory / "store", seeds=(1,))


@pytest.fixture(scope="module")
def made_tiered(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    directory = tmp_path_factory.mktemp("tiered-deletions")
    path = directory / "c.toml"
    path.write_text(TIERED, encoding="utf-8")
    return simulate(path, directory / "store", seeds=(1,))


def copied(made: SimulatedRun, path: Path) -> CheckedRun:
    shutil.copytree(made.path, path)
    return CheckedRun(path, describe(path), read_run(path), events_by_node(path))


@pytest.fixture
def run(made: SimulatedRun, tmp_path: Path) -> CheckedRun:
    return copied(made, tmp_path / "run")


@pytest.fixture
def tiered(made_tiered: SimulatedRun, tmp_path: Path) -> CheckedRun:
    return copied(made_tiered, tmp_path / "run")


def with_journal(run: CheckedRun, change: Callable[[Line], Iterable[Line]]) -> CheckedRun:
    journal = [line for each in run.history.journal for line in change(each)]
    return replace(run, history=replace(run.history, journal=journal))


def start_at(run: CheckedRun, node: str, offset: int) -> None:
    """Write another start of the node's log into its file."""
    path = run.directory / "nodes" / node / "data" / STARTS
    lines = [f"log 0 {offset}" if line.startswith("log 0 ") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")


def names(outcome: Outcome) -> set[str]:
    return {each.name for each in outcome.anomalies}


def test_a_run_with_lasting_deletions_passes(made: SimulatedRun, run: CheckedRun) -> None:
    assert made.verdict.verdict == "pass", made.verdict.anomalies
    assert run.deletions.requested["log", 0] >= run.deletions.answered["log", 0] > 20
    outcome = CHECKER.check(run)
    assert (outcome.verdict, outcome.anomalies, outcome.doubts) == ("pass", (), ())
    assert "deletions answered: no read and no replica has a record below" in outcome.detail


def test_a_replica_that_finally_starts_below_an_answer_fails(run: CheckedRun) -> None:
    start_at(run, "n2", run.deletions.answered["log", 0] - 1)
    outcome = CHECKER.check(run)
    assert (outcome.verdict, names(outcome)) == ("fail", {"deletion-undone"})
    assert "on n2 starts at" in outcome.anomalies[0].sentence


def test_a_replica_that_starts_above_every_request_fails(run: CheckedRun) -> None:
    start_at(run, "n2", run.deletions.requested["log", 0] + 1)
    assert names(CHECKER.check(run)) == {"deletion-beyond-request"}


@pytest.mark.parametrize("damage", ["removed", "torn"])
def test_without_the_file_of_log_starts_the_run_is_unknown(run: CheckedRun, damage: str) -> None:
    path = run.directory / "nodes" / "n2" / "data" / STARTS
    path.unlink() if damage == "removed" else path.write_text("0\n1\nlog")
    outcome = CHECKER.check(run)
    assert (outcome.verdict, outcome.anomalies) == ("unknown", ())
    assert STARTS in outcome.doubts[0]


def test_a_later_read_of_a_deleted_record_fails(run: CheckedRun) -> None:
    early = with_journal(run, lambda line: [line | {"t": 1} if line["event"] == "records_deleted" else line])
    outcome = CHECKER.check(early)
    assert names(outcome) == {"deletion-undone"}
    assert any("a read that was sent later shows offset" in each.sentence for each in outcome.anomalies)


def test_an_answer_without_its_request_and_requests_without_answers_are_unknown(run: CheckedRun) -> None:
    first = next(line for line in run.history.journal if line["event"] == "deletion_sent")
    outcome = CHECKER.check(with_journal(run, lambda line: [] if line == first else [line]))
    assert outcome.verdict == "unknown"
    assert "the journal has no request 1 of" in outcome.doubts[0]
    silent = with_journal(run, lambda line: [] if line["event"] == "records_deleted" else [line])
    assert CHECKER.check(silent).doubts == ("no deletion of records was answered",)


def test_without_the_requests_the_missing_records_are_lost(run: CheckedRun) -> None:
    silent = with_journal(run, lambda line: [] if "delet" in line["event"] else [line])
    assert CHECKER.judged(silent).verdict == "unknown"
    assert any("was not read to its end" in doubt for doubt in LOGS.check(silent).doubts)


def test_a_run_of_brokers_that_lost_disks_or_were_killed_without_traces_is_unknown(run: CheckedRun) -> None:
    start_at(run, "n2", 1)
    untraced = replace(run, description=structs.replace(run.description, metadata=MetadataTable("kraft", traced=False)))
    outcome = CHECKER.check(untraced)
    assert (outcome.verdict, outcome.anomalies) == ("unknown", ())
    assert (
        "a broker was killed, and this system writes the starts of logs to disk only from time to time"
        in (outcome.doubts[0])
    )
    unclean = structs.replace(run.description, settings={"unclean.leader.election.enable": "true"})
    assert CHECKER.check(replace(run, description=unclean)).verdict == "unknown"


def test_the_checker_does_not_apply_to_runs_without_deletions(run: CheckedRun) -> None:
    quiet = with_journal(run, lambda line: [] if "delet" in line["event"] else [line])
    workload = structs.replace(run.description.workload, deletes_every_s=0.0)
    quiet = replace(quiet, description=structs.replace(run.description, workload=workload))
    assert CHECKER.judged(quiet).verdict == "n/a"


# ---- remote storage


def in_remote_storage(run: CheckedRun) -> tuple[str, Path]:
    """A node whose log starts in remote storage, and the file that says so."""
    path = next(iter(sorted((run.directory / "nodes").glob("*/data/log-0/remote-log-start"))))
    return path.parents[2].name, path


def test_a_run_with_lasting_deletions_from_remote_storage_passes(made_tiered: SimulatedRun, tiered: CheckedRun) -> None:
    assert made_tiered.verdict.verdict == "pass", made_tiered.verdict.anomalies
    _, path = in_remote_storage(tiered)
    assert int(path.read_text()) >= tiered.deletions.answered["log", 0] > 20
    outcome = CHECKER.check(tiered)
    assert (outcome.verdict, outcome.anomalies, outcome.doubts) == ("pass", (), ())


def test_a_deletion_from_remote_storage_that_was_undone_fails(tiered: CheckedRun) -> None:
    node, path = in_remote_storage(tiered)
    undone = tiered.deletions.answered["log", 0] - 1
    start_at(tiered, node, undone)
    path.write_text(f"{undone}\n")
    outcome = CHECKER.check(tiered)
    assert (outcome.verdict, names(outcome)) == ("fail", {"deletion-undone"})
    assert f"the log of log-0 on {node} starts at {undone}, and" in outcome.anomalies[0].sentence


def test_a_deletion_from_remote_storage_beyond_every_request_fails(tiered: CheckedRun) -> None:
    node, path = in_remote_storage(tiered)
    path.write_text(f"{tiered.deletions.requested['log', 0] + 1}\n")
    assert names(CHECKER.check(tiered)) == {"deletion-beyond-request"}
    start_at(tiered, node, tiered.deletions.requested["log", 0] + 1)
    assert names(CHECKER.check(tiered)) == {"deletion-beyond-request"}


@pytest.mark.parametrize("damage", ["removed", "torn"])
def test_without_the_file_of_a_start_in_remote_storage_the_run_is_unknown(tiered: CheckedRun, damage: str) -> None:
    node, path = in_remote_storage(tiered)
    path.unlink() if damage == "removed" else path.write_text(path.read_text()[:-1])
    outcome = CHECKER.check(tiered)
    assert (outcome.verdict, outcome.anomalies) == ("unknown", ())
    assert f"{node} has a damaged remote-log-start" in outcome.doubts[0]


def test_a_later_read_of_a_record_deleted_from_remote_storage_fails(tiered: CheckedRun) -> None:
    early = with_journal(tiered, lambda line: [line | {"t": 1} if line["event"] == "records_deleted" else line])
    assert names(CHECKER.check(early)) == {"deletion-undone"}


def test_without_the_requests_the_records_missing_from_remote_storage_are_a_doubt(tiered: CheckedRun) -> None:
    silent = with_journal(tiered, lambda line: [] if "delet" in line["event"] else [line])
    assert any("was not read to its end" in doubt for doubt in LOGS.check(silent).doubts)
