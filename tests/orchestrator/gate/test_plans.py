"""`brownout gate` and plans: which invocations count, and plans that are damaged, gone or lack a run."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.store.directories import Store
from tests.orchestrator.gate.deciding import decided, edit, runs_of, truncate_verdict
from tests.orchestrator.stored_campaign import NAME, StoredCampaign, ask


def test_a_later_invocation_of_the_whole_campaign_takes_the_place_of_an_earlier_one(campaign: StoredCampaign) -> None:
    for run in runs_of(campaign):
        truncate_verdict(run)
    campaign.made()
    answer = decided(campaign.path)
    assert answer.code == 0
    assert (answer.json["invocations"], answer.json["superseded"]) == ([campaign.plans[1]], [campaign.plans[0]])
    assert f"superseded by a later one: {campaign.plans[0]}" in ask("gate", campaign.path).out
    assert ask("gate", campaign.path, "--invocation", campaign.plans[0]).code == 2
    assert ask("gate", campaign.path, "--invocation", "2099").code == 64


def test_an_invocation_with_a_stamp_older_than_the_last_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it finds would be superseded at once by a pass of a time when the clock was wrong."""
    stamps = ["20300101T00000000", "20261123T15000000", "20300101T00000000", "20300101T000000ff"]
    monkeypatch.setattr(Store, "new_stamp", lambda _: stamps.pop(0))
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    with pytest.raises(UsageError, match=r"20300101T00000000 is newer .* \(20261123T15000000\), so a clock is or was"):
        campaign.plan()
    assert len(list((campaign.path / "plans").glob("*.toml"))) == 1
    campaign.plan()
    campaign.plan()
    assert campaign.plans == sorted(set(campaign.plans)), "within a second the next stamp is taken"
    assert len(campaign.plans) == 3


def test_an_invocation_in_another_world_supersedes_no_other(tmp_path: Path) -> None:
    """Both accept any world of the machine, which was another one at that time."""
    campaign = StoredCampaign(tmp_path / "store", "")
    for planned in campaign.plan(world="namespaces"):
        campaign.make(planned, lost=7, world="namespaces")
    for planned in campaign.plan(world="process"):
        campaign.make(planned, world="process")
    answer = decided(campaign.path)
    assert (answer.code, answer.json["superseded"]) == (1, [])
    for planned in campaign.plan(world="namespaces"):
        campaign.make(planned, world="namespaces")
    assert decided(campaign.path).json["superseded"] == [campaign.plans[0]]


def test_an_invocation_in_the_same_world_supersedes_an_earlier_one_for_any_spelling(
    tmp_path: Path,
) -> None:
    """A campaign of the simulation, say, with replayed runs, which name that world explicitly. Other hosts do not count
    as the same world."""
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.plan(world="process", where=["--world", "process"])
    campaign.plan(world="inventory", where=["--inventory", "hosts.yml"])
    campaign.plan(world="inventory", where=["--world", "inventory", "--inventory", "others.yml"])
    campaign.plan(world="process")
    assert decided(campaign.path).json["superseded"] == campaign.plans[:1]
    campaign.plan(world="inventory", where=["--world", "inventory", "--inventory", "hosts.yml"])
    assert decided(campaign.path).json["superseded"] == campaign.plans[:2]


@pytest.mark.parametrize(
    ("text", "asked", "is_superseded"),
    [
        ("", {}, False),
        ("", {"where": ["--world", "auto"]}, False),
        ("", {"where": ["--world", "process"]}, True),
        ('[topology]\nworld = "process"\n', {}, True),
    ],
)
def test_an_older_plan_has_a_known_world_if_the_command_named_it(
    tmp_path: Path, text: str, asked: dict[str, list[str]], *, is_superseded: bool
) -> None:
    campaign = StoredCampaign(tmp_path / "store", text)
    campaign.plan(world="process", **asked)
    edit(campaign.path / "plans" / f"{campaign.plans[0]}.toml", 'world = "process"\n', "")
    for planned in campaign.plan(world="process", **asked):
        campaign.make(planned, world="process")
    assert (decided(campaign.path).json["superseded"] == campaign.plans[:1]) is is_superseded


def test_invocations_after_the_whole_campaign_count(campaign: StoredCampaign) -> None:
    (again,) = campaign.plan(seeds=[2])
    assert decided(campaign.path).code == 2, "it was started and never made"
    campaign.make(again, lost=7)
    answer = decided(campaign.path)
    assert answer.code == 1
    assert answer.json["invocations"] == campaign.plans


def test_a_partial_campaign_is_reported_as_partial(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store")
    campaign.made(seeds=[1])
    assert decided(campaign.path).json["whole"] is False
    assert "all of them partial" in ask("gate", campaign.path).out


def _plan_truncated(plan: Path) -> None:
    plan.write_bytes(plan.read_bytes()[:-20])


def _plan_thinned(plan: Path) -> None:
    plan.write_text(re.sub(r"^(runs = .*), .*$", r"\1]", plan.read_text(), flags=re.MULTILINE))


def _plan_of_fewer_seeds(plan: Path) -> None:
    edit(plan.with_suffix(".campaign"), "count = 2", "count = 1")


def _plan_without_campaign(plan: Path) -> None:
    plan.with_suffix(".campaign").unlink()


def _campaign_without_plan(plan: Path) -> None:
    plan.unlink()


def _plan_of_another(plan: Path) -> None:
    edit(plan.with_suffix(".campaign"), NAME, "other")


def _plan_gone(plan: Path) -> None:
    shutil.rmtree(plan.parent)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_plan_truncated, "is damaged"),
        (_plan_thinned, "are not those that follow from the campaign"),
        (_plan_of_fewer_seeds, "are not those that follow from the campaign"),
        (_plan_without_campaign, "is damaged"),
        (_campaign_without_plan, "is damaged"),
        (_plan_of_another, "is one of the campaign other"),
        (_plan_gone, "has no plan, so it is unknown which runs are missing"),
    ],
)
def test_a_damaged_or_missing_plan_is_unknown(
    campaign: StoredCampaign, damage: Callable[[Path], None], words: str
) -> None:
    damage(campaign.path / "plans" / f"{campaign.plans[0]}.toml")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert words in answer.json["reason"]


def test_a_run_of_no_plan_is_not_overlooked(campaign: StoredCampaign) -> None:
    shutil.copytree(runs_of(campaign)[0], campaign.path / "copy")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "copy (unknown, expected pass: the run is in no plan of the campaign)" in answer.json["reason"]


def test_the_remains_of_an_unplanned_run_are_found(campaign: StoredCampaign) -> None:
    shutil.copytree(runs_of(campaign)[0] / "nodes", campaign.path / "copy" / "nodes")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "copy (unknown, expected pass: the run is in no plan" in answer.json["reason"]


def test_files_of_macos_beside_plans_are_ignored(campaign: StoredCampaign) -> None:
    for path in list((campaign.path / "plans").iterdir()):
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7")
    (campaign.path / "._plans").write_bytes(b"\0\5\x16\7")
    (campaign.store / f"._{NAME}").write_bytes(b"\0\5\x16\7")
    assert decided(campaign.path).code == 0
    assert ask("gate", campaign.store).code == 0


def test_a_new_invocation_removes_documents_of_an_older_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    assert ask("gate", campaign.path).code == 0

    def refuse(*_: object) -> None:
        raise UsageError("nothing is made here")

    monkeypatch.setattr("orchestrator.command.run.Runner.make_all", refuse)
    file = tmp_path / "story.toml"
    file.write_text(f'name = "{NAME}"\n')
    answer = ask("run", file, "--world", "simulation", "--store", campaign.store, "--quiet")
    assert "nothing is made here" in answer.err
    assert json.loads((campaign.path / "summary.json").read_text())["verdict"] == "unknown"
    assert "never made" in (campaign.path / "junit.xml").read_text()
