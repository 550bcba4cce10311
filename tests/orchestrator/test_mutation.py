"""How well campaigns see mutants: shares with their uncertainty, the schedules that are tried, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.campaign.finding import find
from orchestrator.command.line import main
from orchestrator.command.mutants import BEGIN, END, with_table
from orchestrator.errors import UsageError
from orchestrator.running.mutation import Measured, Trial, all_schedules, schedules, wilson
from systems.brownout.broker import Brownout


@pytest.mark.parametrize(
    ("hits", "tries", "interval"),
    # From the published closed form, to three places.
    [(0, 10, (0.0, 0.278)), (10, 10, (0.722, 1.0)), (5, 10, (0.237, 0.763)), (81, 263, (0.255, 0.366))],
)
def test_a_share_has_its_wilson_interval(hits: int, tries: int, interval: tuple[float, float]) -> None:
    assert wilson(hits, tries) == pytest.approx(interval, abs=0.0006)


def test_a_share_of_nothing_is_none() -> None:
    with pytest.raises(ValueError, match="nothing was tried"):
        wilson(0, 0)


def test_a_mutant_is_tried_where_a_cell_has_it_alone() -> None:
    campaigns = [find("kip101-scenario1"), find("bounce-unseen")]
    found = schedules(Brownout.mutants, ["bounce_unseen"], campaigns)
    assert [(each.campaign.name, each.cell.mutants) for each in found] == [("bounce-unseen", ("bounce_unseen",))]


def test_a_mutant_is_tried_besides_what_does_no_harm_by_itself() -> None:
    (found,) = schedules(Brownout.mutants, ["truncate_to_hw"], [find("kip101-scenario1")])
    assert (found.cell.name, found.cell.mutants) == ("mutated", ("truncate_to_hw", "bounce_unseen"))


def test_a_campaign_without_mutants_is_run_with_each_switched_on() -> None:
    (found,) = schedules(Brownout.mutants, ["bounce_unseen"], [find("demo")])
    assert found.cell.mutants == ("bounce_unseen",)
    assert found.cell.expect.anomaly == "lost-acknowledged-write"


def test_what_the_simulation_cannot_make_is_refused() -> None:
    with pytest.raises(UsageError, match="the simulation world runs brownout only, not etcd"):
        schedules(Brownout.mutants, ["bounce_unseen"], [find("etcd-chaos")])


def test_of_all_mutants_those_without_a_campaign_are_named_and_the_others_tried() -> None:
    found, without = all_schedules(Brownout.mutants, [find("bounce-unseen"), find("commit-acked-before-hw")])
    assert [each.mutant for each in found] == ["bounce_unseen"]
    assert without.keys() == Brownout.mutants.keys() - {"bounce_unseen"}
    assert "no campaign has a cell" in without["serve_while_recovering"]
    assert "has no clients in the simulation world" in without["commit_acked_before_hw"]


def test_a_run_that_names_another_anomaly_does_not_count() -> None:
    (schedule,) = schedules(Brownout.mutants, ["bounce_unseen"], [find("bounce-unseen")])
    trials = [Trial(1, "fail", ("lost-acknowledged-write",), 8.0, 1.0), Trial(2, "fail", (), 9.0, 2.0)]
    result = Measured(schedule, trials).to_json()
    assert (result["killed"], result["runs"], result["missed"]) == (1, 2, [2])
    assert result["by"] == {"lost-acknowledged-write": 1}
    assert (result["simulated_s"], result["cpu_s"]) == (8.5, 1.5)
    page = with_table(f"before\n{BEGIN}old\n{END}after\n", [result], "1-2")
    assert "old" not in page
    assert "| bounce_unseen | bounce-unseen | 1 (9% to 91%) | 2 | lost-acknowledged-write 1 | 8.5 s | 1.5 s |" in page
    assert page.startswith("before\n")
    assert page.endswith("after\n")


def test_mutants_are_run_and_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    del tmp_path
    assert main(["mutants", "bounce_unseen", "--seeds", "1-2", "--campaign", "bounce-unseen", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["mutant"], result["killed"], result["runs"]) == ("bounce_unseen", 2, 2)


def test_of_a_benign_mutant_every_anomaly_is_an_alarm_and_none_is_expected() -> None:
    (schedule,) = schedules(Brownout.mutants, ["slow_retry"], [find("demo")])
    assert (schedule.anomalies, schedule.cell.expect.verdict) == ((), "pass")
    result = Measured(schedule, [Trial(1, "pass", (), 8.0, 1.0), Trial(2, "fail", ("duplicate",), 9.0, 1.0)]).to_json()
    assert (result["benign"], result["killed"], result["by"]) == (True, 1, {"duplicate": 1})
    assert "| slow_retry (benign) |" in with_table(f"{BEGIN}{END}", [result], "1-2")


def test_processes_of_their_own_come_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["mutants", "vote_not_persisted", "--seeds", "1-2", "--campaign", "vote-not-persisted", "--json"]
    results = []
    for jobs in ("1", "2"):
        assert main([*command, "--jobs", jobs]) == 0
        (result,) = json.loads(capsys.readouterr().out)
        results.append((result["killed"], result["by"], result["simulated_s"]))
    assert results[0] == results[1]
    assert results[0][0] == 2
    assert main([*command, "--jobs", "0"]) == 64
    assert "'0' is not a number of at least 1" in capsys.readouterr().err
