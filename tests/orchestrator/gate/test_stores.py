"""`brownout gate` of a store, of links to campaigns, and of places that cannot be written."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.orchestrator.gate.deciding import decided, runs_of
from tests.orchestrator.junit_schema import suite_of
from tests.orchestrator.stored_campaign import NAME, StoredCampaign, ask


def test_a_store_is_decided_campaign_by_campaign(campaign: StoredCampaign) -> None:
    other = campaign.store / "other"
    shutil.copytree(campaign.path, other)
    (campaign.store / "latest").unlink(missing_ok=True)
    shutil.copytree(runs_of(campaign)[0], campaign.store / "latest")  # what copying a store makes of the link
    before = sorted(campaign.store.iterdir())
    answer = ask("gate", campaign.store, "--json")
    assert answer.code == 2
    assert [(each["campaign"], each["verdict"]) for each in answer.json["campaigns"]] == [
        ("other", "unknown"),
        (NAME, "pass"),
    ]
    assert sorted(campaign.store.iterdir()) == before, "nothing is written into the store's root"
    suite_of(other / "junit.xml")
    result = ask("gate", campaign.store)
    assert result.code == 2
    assert "unknown: other unknown, story pass" in result.out
    assert ask("gate", campaign.store, "--invocation", "x").code == 64


def test_a_campaign_without_its_runs_and_plans_is_unknown(campaign: StoredCampaign) -> None:
    other = campaign.store / "other"
    other.mkdir()
    (other / "summary.json").write_text("{}")
    assert ask("gate", campaign.store).code == 2
    assert decided(other).code == 2


@pytest.mark.parametrize("others", [True, False])
def test_a_link_to_a_missing_campaign_is_unknown(campaign: StoredCampaign, *, others: bool) -> None:
    (campaign.store / "demo").symlink_to("/nonexistent")
    (campaign.store / "latest").unlink(missing_ok=True)
    (campaign.store / "latest").symlink_to("demo/gone")  # names no campaign
    if not others:
        shutil.rmtree(campaign.path)
    answer = ask("gate", campaign.store, "--json")
    assert answer.code == 2
    assert "demo is a link to /nonexistent, which is missing" in answer.json["reason"]
    assert "latest" not in answer.json["reason"]


def test_a_campaign_under_a_hidden_name_is_unknown(campaign: StoredCampaign) -> None:
    shutil.copytree(campaign.path, campaign.store / ".demo")
    answer = ask("gate", campaign.store, "--json")
    assert answer.code == 2
    assert ".demo is a campaign under a hidden name" in answer.json["reason"]


def _without_plans(campaign: StoredCampaign) -> None:
    shutil.rmtree(campaign.path / "plans")


def _without_plans_and_descriptions(campaign: StoredCampaign) -> None:
    _without_plans(campaign)
    for run in runs_of(campaign):
        (run / "run.toml").unlink()


def _with_plans_behind_a_dead_link(campaign: StoredCampaign) -> None:
    _without_plans(campaign)
    (campaign.path / "plans").symlink_to("/nonexistent")


@pytest.mark.parametrize(
    "damage",
    [_without_plans, _without_plans_and_descriptions, _with_plans_behind_a_dead_link],
    ids=lambda f: f.__name__,
)
def test_a_store_with_a_campaign_without_plans_is_unknown(
    campaign: StoredCampaign, damage: Callable[[StoredCampaign], None]
) -> None:
    shutil.copytree(campaign.path, campaign.store / "aside" / NAME)
    damage(campaign)
    answer = ask("gate", campaign.store, "--json")
    assert answer.code == 2
    (shown,) = answer.json["campaigns"]
    assert "has no plan, so it is unknown which runs are missing" in shown["reason"]
    assert len(shown["runs"]) == 2


def test_a_campaign_directory_that_is_a_link_counts(campaign: StoredCampaign) -> None:
    moved = campaign.store.parent / "elsewhere" / "copy of the story"
    moved.parent.mkdir()
    campaign.path.rename(moved)
    campaign.path.symlink_to(moved)
    run = runs_of(campaign)[0]
    (campaign.store / "latest").unlink(missing_ok=True)
    (campaign.store / "latest").symlink_to(run.relative_to(campaign.store))
    for path in (campaign.path, campaign.store, run, campaign.store / "latest"):
        assert ask("gate", path).code == 0, path
    assert ask("gate", moved).code == 2, "by that name it is another campaign"


def test_the_latest_is_one_run(campaign: StoredCampaign) -> None:
    (campaign.store / "latest").symlink_to(runs_of(campaign)[0].relative_to(campaign.store))
    answer = ask("gate", campaign.store / "latest", "--json")
    assert answer.code == 0
    assert [run["run"] for run in answer.json["runs"]] == [runs_of(campaign)[0].name]
    assert ask("gate", "latest", "--store", campaign.store).code == 0


def test_a_path_other_than_run_campaign_or_store_is_wrong_usage(tmp_path: Path) -> None:
    answer = ask("gate", tmp_path)
    assert answer.code == 64
    assert "is not a run, a campaign or a store" in answer.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_is_decided_over(campaign: StoredCampaign) -> None:
    os.chmod(campaign.path, 0o555)
    answer = ask("gate", campaign.path)
    os.chmod(campaign.path, 0o755)
    assert answer.code == 0
    assert "were not updated: Permission denied" in answer.err


def test_documents_that_cannot_be_written_do_not_change_the_answer(campaign: StoredCampaign) -> None:
    (campaign.path / "summary.json.tmp").mkdir()
    answer = ask("gate", campaign.path)
    assert answer.code == 0
    assert "were not updated" in answer.err
