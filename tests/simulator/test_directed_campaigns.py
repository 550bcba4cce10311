"""Campaigns of the simulation that break one rule each: with its mutant an oracle reports it, without it none does."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from analysis.verdict import Expectation
from broker.mutants import BENIGN, MUTANTS
from orchestrator.campaign.lookup import find
from orchestrator.campaign.model import Cell
from orchestrator.campaign.parser import load
from orchestrator.command.mutants import MutantResult, MutantSchedule, measure, schedules
from orchestrator.running.interrupts import Interrupts

CASES = [
    pytest.param(
        "any_first_sequence", "first-sequence", "sequence-gap-on-replica", marks=pytest.mark.kills("any_first_sequence")
    ),
    pytest.param(
        "any_first_after_restart",
        "first-sequence-after-restart",
        "sequence-gap",
        marks=pytest.mark.kills("any_first_after_restart"),
    ),
    pytest.param("fenced_in_isr", "fenced-follower", "isr-not-granted", marks=pytest.mark.kills("fenced_in_isr")),
    pytest.param(
        "stale_broker_epoch_ok",
        "stale-proposal",
        "isr-not-granted",
        marks=pytest.mark.kills("stale_broker_epoch_ok"),
    ),
    pytest.param(
        "unclean_keeps_isr",
        "unclean-in-recovery",
        "election-not-allowed",
        marks=pytest.mark.kills("unclean_keeps_isr"),
    ),
    pytest.param(
        "serve_while_recovering",
        "unclean-in-recovery",
        "served-in-recovery",
        marks=pytest.mark.kills("serve_while_recovering"),
    ),
    pytest.param(
        "isr_join_at_hw_only",
        "lagging-high-watermark",
        "member-incomplete",
        marks=pytest.mark.kills("isr_join_at_hw_only"),
    ),
    pytest.param(
        "no_fence_fetch", "stale-leader-epoch", "counted-not-shared", marks=pytest.mark.kills("no_fence_fetch")
    ),
    pytest.param("ofle_no_epoch", "fast-failovers", "followed-unmatched", marks=pytest.mark.kills("ofle_no_epoch")),
    pytest.param("vote_ignores_log", "lagging-voter", "vote-against-log", marks=pytest.mark.kills("vote_ignores_log")),
    pytest.param(
        "delete_answered_early",
        "deleted-records",
        "answered-start-fell",
        marks=pytest.mark.kills("delete_answered_early"),
    ),
    pytest.param(
        "delete_answered_early",
        "tiered-deletions",
        "answered-start-fell",
        marks=pytest.mark.kills("delete_answered_early"),
    ),
    pytest.param(
        "commit_old_epoch", "chaos-simulated", "committed-old-epoch", marks=pytest.mark.kills("commit_old_epoch")
    ),
    pytest.param(
        "voter_key_ignored", "wiped-majority", "leader-incomplete", marks=pytest.mark.kills("voter_key_ignored")
    ),
    pytest.param(
        "moves_under_lease", "moved-under-lease", "lease-shared", marks=pytest.mark.kills("moves_under_lease")
    ),
    pytest.param(
        "truncate_below_hw",
        "rolled-back-majority",
        "committed-prefix-changed",
        marks=pytest.mark.kills("truncate_below_hw"),
    ),
    pytest.param(
        "full_truncate_keeps_hw",
        "forgotten-start",
        "high-watermark-invalid",
        marks=pytest.mark.kills("full_truncate_keeps_hw"),
    ),
    pytest.param(
        "last_known_leader_leads",
        "kip966-last-leader",
        "leader-incomplete",
        marks=pytest.mark.kills("last_known_leader_leads"),
    ),
    pytest.param("vote_length_only", "long-old-log", "vote-against-log", marks=pytest.mark.kills("vote_length_only")),
    pytest.param("late_vote_counted", "late-vote", "led-without-votes", marks=pytest.mark.kills("late_vote_counted")),
    pytest.param(
        "isr_grows_while_recovering",
        "joins-in-recovery",
        "isr-would-be-granted",
        marks=pytest.mark.kills("isr_grows_while_recovering"),
    ),
    pytest.param(
        "diverging_updates_leo",
        "deposed-leader",
        "fetch-would-be-counted",
        marks=pytest.mark.kills("diverging_updates_leo"),
    ),
    pytest.param(
        "growth_answered_early",
        "administration",
        "administration-undone",
        marks=pytest.mark.kills("growth_answered_early"),
    ),
    pytest.param(
        "alter_drops_others",
        "administration",
        "administration-undone",
        marks=pytest.mark.kills("alter_drops_others"),
    ),
    pytest.param(
        "removed_leader_stays",
        "administration",
        "administration-undone",
        marks=pytest.mark.kills("removed_leader_stays"),
    ),
]
UNHARMED = (
    "fenced-follower",
    "stale-proposal",
    "stale-partition-epoch",
    "stale-leader-epoch",
    "fast-failovers",
    "lagging-high-watermark",
    "lagging-voter",
    "deposed-controller",
    "idle-leaders",
    "unheard-leave",
    "kip966-last-leader",
    "moved-under-lease",
    "wiped-majority",
    "wiped-voter",
    "long-old-log",
    "late-vote",
    "joins-in-recovery",
    "deposed-leader",
    "first-sequence-after-restart",
    "deleted-records",
    "tiered-deletions",
    "administration",
)
SEED: Final = defaultdict(
    lambda: 1,
    {"first-sequence-after-restart": 14, "deleted-records": 2, "administration": 10},
)


def tried(wanted: Sequence[MutantSchedule], scratch: Path, seed: int | None = None) -> MutantResult:
    """The result of the only schedule, with one seed."""
    seed = SEED[wanted[0].campaign.name] if seed is None else seed
    results: list[MutantResult] = []
    measure(wanted, [seed], results.append, directory=scratch, interrupts=Interrupts(lambda: None, lambda: None))
    (result,) = results
    return result


@pytest.mark.conforms("H1", "H3", "H5", "H6", "H9", "H14", "H15", "K101-15", "H22", "K595-18", "K595-21", "K595-36")
@pytest.mark.conforms("K595-40", "K704-1", "K704-4", "K704-5", "ADM-1", "ADM-2", "ADM-3")
@pytest.mark.rotating(18, among="directed campaigns")
@pytest.mark.parametrize(("mutant", "campaign", "oracle"), CASES)
def test_a_broken_rule_is_named_by_its_oracle(mutant: str, campaign: str, oracle: str, tmp_path: Path) -> None:
    loaded = load(find(campaign))
    cell = Cell("mutated", (mutant,), expect=Expectation("fail", oracle))
    named = tuple(part.strip() for part in MUTANTS[mutant].anomaly.split(","))
    result = tried([MutantSchedule(mutant, MUTANTS[mutant].rule, named, loaded, cell)], tmp_path)
    assert oracle in result.trials[0].killed_by


@pytest.mark.rotating(18, among="directed campaigns")
@pytest.mark.parametrize("campaign", UNHARMED)
def test_without_its_mutant_a_campaign_passes(campaign: str, tmp_path: Path) -> None:
    loaded = load(find(campaign))
    (fixed,) = [cell for cell in loaded.cells if not cell.mutants]
    result = tried([MutantSchedule("none", "", (), replace(loaded, cells=(fixed,)), fixed)], tmp_path)
    assert [(trial.verdict, trial.killed_by) for trial in result.trials] == [("pass", ())]


@pytest.mark.rotating(6, among="long simulations")
def test_a_deposed_leader_that_proposes_a_member_raises_no_alarm(tmp_path: Path) -> None:
    """With this seed one is isolated for a while, and proposes a replica that has its successor's committed records."""
    loaded = load(find("demo"))
    (only,) = loaded.cells
    result = tried([MutantSchedule("none", "", (), loaded, only)], tmp_path, seed=5)
    assert [(trial.verdict, trial.killed_by) for trial in result.trials] == [("pass", ())]


@pytest.mark.rotating(6, among="long simulations")
def test_two_records_of_voters_at_one_moment_raise_no_alarm(tmp_path: Path) -> None:
    """With this seed a leader of four voters commits the removal of a wiped one, by two of the other three, and appends
    its return at the same moment."""
    path = tmp_path / "wiped-voter.toml"
    path.write_text(find("wiped-voter").read_text().replace("nodes = 3", "nodes = 4").replace("= 20", "= 10"))
    loaded = load(path)
    (only,) = loaded.cells
    result = tried([MutantSchedule("none", "", (), loaded, only)], tmp_path, seed=4)
    assert [(trial.verdict, trial.killed_by) for trial in result.trials] == [("pass", ())]


@pytest.mark.rotating(6, among="long simulations")
def test_a_log_that_starts_before_its_snapshot_raises_no_alarm(tmp_path: Path) -> None:
    """With this seed a member starts with a segment older than its snapshot: epochs below that are unknown."""
    (schedule,) = schedules(BENIGN, ["many_snapshots"], [find("chaos-simulated")])
    result = tried([schedule], tmp_path, seed=3)
    assert [(trial.verdict, trial.killed_by) for trial in result.trials] == [("pass", ())]


def test_each_campaign_has_its_mutants_alone() -> None:
    for _, campaign, _ in (case.values for case in CASES):
        loaded = load(find(str(campaign)))
        for cell in loaded.cells:
            if cell.mutants:
                (found,) = schedules(MUTANTS, cell.mutants, [find(str(campaign))])
                assert found.cell == cell
