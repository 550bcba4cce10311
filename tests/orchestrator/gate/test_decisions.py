"""`brownout gate` decides over all planned runs: each met its expectation, failed or is unknown."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.orchestrator.gate.deciding import LIMITS, decided, lose_replica, runs_of
from tests.orchestrator.junit_schema import suite_of
from tests.orchestrator.stored_campaign import StoredCampaign, ask

LOST = """
[[cell]]
name = "main"
[[cell]]
name = "lossy"
expect = { verdict = "fail", anomaly = "lost-acknowledged-write" }
"""


def test_a_plan_with_only_passed_runs_passes_the_gate(campaign: StoredCampaign) -> None:
    answer = decided(campaign.path)
    assert (answer.code, answer.json["reason"]) == (0, "all 2 runs met their expectation")
    assert answer.json["worlds"] == ["paper"]
    assert answer.json["limits"] == LIMITS
    assert answer.json["versions"] == {"python": ["3"]}
    assert answer.json["invocations"] == campaign.plans
    printed = ask("gate", campaign.path).out
    for words in ("world: paper", "limit: nothing here is real", "versions: python 3", campaign.plans[0]):
        assert words in printed


def test_test_cases_carry_cell_seed_and_run(campaign: StoredCampaign) -> None:
    decided(campaign.path)
    names = [case.get("name") for case in suite_of(campaign.path / "junit.xml").iter("testcase")]
    assert names == [f"main seed {n} expects pass ({campaign.plans[0]}-main-{n})" for n in (1, 2)]


def test_a_planned_run_that_is_missing_is_unknown(campaign: StoredCampaign) -> None:
    shutil.rmtree(runs_of(campaign)[1])
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "1 of 2 runs undecided" in answer.json["reason"]
    assert "the run was planned and never made" in answer.json["reason"]
    assert "--resume" in answer.json["reason"]
    assert suite_of(campaign.path / "junit.xml").get("errors") == "1"


def test_without_any_run_the_plan_alone_is_unknown(campaign: StoredCampaign) -> None:
    for run in runs_of(campaign):
        shutil.rmtree(run)
    assert decided(campaign.path).code == 2


def test_a_run_that_was_made_to_expect_its_failure_does_not_pass(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    campaign.make(planned, lost=7, expect={"verdict": "fail", "anomaly": "lost-acknowledged-write"})
    answer = decided(campaign.path)
    assert answer.code == 1, "that the anomaly is there is proven, and the campaign did not expect it"
    assert "its expectation is 'fail (lost-acknowledged-write)', not 'pass'" in " ".join(
        answer.json["runs"][0]["reasons"]
    )


def test_a_proven_failure_stays_one_when_its_files_change(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    run = campaign.make(planned, lost=7)
    assert decided(campaign.path).code == 1
    lose_replica(run)
    assert decided(campaign.path).code == 1


def test_an_expected_failure_counts_and_its_absence_fails(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", LOST)
    main, lossy = campaign.plan()
    campaign.make(main)
    caught = campaign.make(lossy, lost=7)
    assert decided(campaign.path).code == 0
    assert "| ✅ | lossy | 1 | fail |" in ask("gate", campaign.path, "--markdown").out
    lose_replica(caught)
    assert decided(campaign.path).code == 2, "a stale failure does not prove that the mutant is caught"
    assert "| ❓ | lossy | 1 | unknown |" in ask("gate", campaign.path, "--markdown").out
    shutil.rmtree(caught)
    campaign.make(lossy)
    answer = decided(campaign.path)
    assert answer.code == 1
    assert f"{lossy.id} (pass, expected fail (lost-acknowledged-write))" in answer.json["reason"]
    assert "| ❌ | lossy | 1 | pass |" in ask("gate", campaign.path, "--markdown").out


def test_every_document_of_a_failed_run_lists_undecided_checks(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    campaign.make(planned, lost=7, fault_status="inconclusive")
    answer = decided(campaign.path)
    assert answer.code == 1
    doubt = "besides, undecided: fault f1 (kill) is inconclusive: no proof that it took effect"
    assert doubt in answer.json["runs"][0]["reasons"]
    junit = (campaign.path / "junit.xml").read_text()
    assert junit.count("<failure") == 1
    assert doubt in junit
    assert "lost-acknowledged-write: " in junit
    assert doubt in (campaign.path / "report.html").read_text()
    printed = ask("gate", campaign.path).out
    assert printed.index("lost-acknowledged-write: ") < printed.index(doubt)
