"""`brownout gate` counts a run of another description, seed or world than was planned as unknown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.gate.deciding import LIMITS, decided
from tests.orchestrator.stored_campaign import StoredCampaign


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"checks.min_ok": 1}, "its checks.min_ok is 1, not 40"),
        ({"checks.min_share": 0.1}, "its checks.min_share is 0.1, not 0.5"),
        ({"checks.min_share": None}, "it has no checks.min_share, which is 0.5"),
        ({"checks.upper_bound": "lower-bound-only"}, "its checks.upper_bound is 'lower-bound-only', not 'strict'"),
        ({"checks.required_faults": []}, "its checks.required_faults is [], not ['kill']"),
        ({"expect.verdict": "unknown"}, "its expectation is 'unknown', not 'pass'"),
        ({"mutants": ["x"]}, "its mutants is ['x'], not []"),
        ({"replicas.format": "none"}, "its replicas.format is 'none', not 'kafka'"),
        ({"replicas.records": "value-first"}, "its replicas.records is 'value-first', not 'derived'"),
        ({"metadata.traced": True}, "its metadata.traced is True, not False"),
        ({"plan.changes": 0}, "its plan.changes is 0, not 40"),
        ({"plan.changes": "40"}, "its plan.changes is '40', not 40"),
        ({"plan.queries": False}, "its plan.queries is False, not 0"),
        ({"plan.clients": ["producer-1", "reader-1"]}, "its plan.clients is ['producer-1', 'reader-1'], not"),
        ({"workload.rate": 2}, "its workload.rate is 2, not 1.0"),
        ({"workload.record_bytes": None}, "it has no workload.record_bytes"),
        ({"nemesis.faults": []}, "its nemesis.faults is [], not ['kill']"),
        ({"nemesis.left_out": ["kill"], "nemesis.faults": []}, "its nemesis.left_out is ['kill'], not []"),
        ({"nemesis.kind": "none"}, "its nemesis.kind is 'none', not 'random'"),
        ({"settings.broker.retention": "1"}, "it has settings.broker"),
        ({"topology.filesystem": "xfs"}, "its topology.filesystem is 'xfs', not 'ext4'"),
        ({"system.title": "other"}, "its system.title is 'other', not 'What a test writes down'"),
        ({"system.roles.n3": "observer"}, "its system.roles.n3 is 'observer', not 'broker'"),
        ({"time_scale": 9.0}, "its time_scale is 9.0, and 1.0 was planned"),
        ({"time_scale": None}, "its time_scale is None"),
        ({"limits": []}, "its limits is [], not ["),
        ({"limits": [LIMITS[0]]}, "its limits is ['nothing here is real'], not ["),
        ({"world_reason": "of a whim"}, "its limits is ["),
        ({"world_reason": None}, "world_reason is missing"),
        ({"started": "yesterday"}, "its started is 'yesterday'"),
        ({"started": None}, "started is missing"),
        ({"versions": {}}, "its versions is {}"),
        ({"versions.python": 3}, "its versions is {'python': 3}"),
        ({"replay": "./brownout run x --cell main --seed 7"}, "which does not end with --cell main --seed 1"),
        ({"invocation": "20200101T00000000"}, "its invocation is '20200101T00000000'"),
        ({"remark": "none"}, "it has remark = 'none', which is not in the plan"),
        ({"checks.optional": True}, "it has checks.optional = True, which is not in the plan"),
    ],
    ids=str,
)
def test_a_run_of_another_description_than_was_planned_is_unknown(
    tmp_path: Path, says: dict[str, object], words: str
) -> None:
    """It is complete and sealed, and most of these pass on their own; but each differs from the plan."""
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan(capabilities=["kill"])
    campaign.make(planned, says=says)
    answer = decided(campaign.path)
    assert answer.code == 2
    assert words in " ".join(answer.json["runs"][0]["reasons"])


def test_a_run_without_its_campaign_is_unknown(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    campaign.make(planned, campaign=None)
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "campaign.toml cannot be read: " in " ".join(answer.json["runs"][0]["reasons"])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"seed": 2}, "the journal is that of another run: its seed is 2, not 1"),
        ({"fault_parameters": {}}, "the fault f1 (kill) is not the one that the seed has drawn at that place"),
        ({"fault_parameters": {"duration_s": 2.5, "aim": "any"}}, "the fault f1 (kill) is not the one that the seed"),
        ({"seed": 2, "says": {"seed": 1}}, "the client producer-1 used seed"),
    ],
    ids=str,
)
def test_a_run_of_another_seed_is_unknown(tmp_path: Path, made: dict[str, Any], words: str) -> None:
    """Its description names the planned seed, and it passes on its own."""
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    campaign.make(planned, **({"says": {"seed": 1}} | made))
    answer = decided(campaign.path)
    assert answer.code == 2
    assert words in " ".join(answer.json["runs"][0]["reasons"])


def test_the_plan_keeps_descriptions_from_files_of_the_user(campaign: StoredCampaign) -> None:
    """A store may be looked at where the campaign's system is not."""
    (plan,) = (campaign.path / "plans").glob("*.toml")
    assert tomllib.loads(plan.read_text())["settled"]["main"]["system"]["title"] == "What a test writes down"
    away = f"{campaign.store.parent}/nowhere/story.toml"
    plan.write_text(re.sub('^campaign = ".*"', f'campaign = "{away}"', plan.read_text(), count=1))
    assert decided(campaign.path).code == 0
    plan.write_text(plan.read_text().split("[settled")[0])
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "the plan's campaign cannot be read, so nothing can be compared with it: " in answer.json["reason"]


@pytest.mark.parametrize(
    ("planned_scales", "code", "words"),
    [
        ((1.0, 4.0), 0, ""),
        ((1.0, 12.0), 2, "its time_scale is 4.0, and 1.0 or 12.0 was planned"),
        ((1.0,), 2, "its time_scale is 4.0, and 1.0 was planned"),
    ],
    ids=str,
)
def test_a_run_has_one_of_the_planned_time_scales(
    tmp_path: Path, planned_scales: tuple[float, ...], code: int, words: str
) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan(time_scales=planned_scales)
    campaign.make(planned, says={"time_scale": 4.0})
    answer = decided(campaign.path)
    assert answer.code == code
    assert words in " ".join(answer.json["runs"][0]["reasons"])


@pytest.mark.parametrize("scales", ['"1.0"', "[0.5]", "[true]", '["4"]', "[101]", "[nan]"])
def test_a_plan_with_damaged_time_scales_is_unknown(campaign: StoredCampaign, scales: str) -> None:
    (plan,) = (campaign.path / "plans").glob("*.toml")
    plan.write_text(re.sub(r"^time_scales = .*$", f"time_scales = {scales}", plan.read_text(), count=1, flags=re.M))
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "time_scales: is not a list of numbers from 1 to 100" in answer.json["reason"]


def test_a_run_of_another_world_than_the_plan_is_unknown(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    for planned in campaign.plan(world="namespaces"):
        campaign.make(planned, world="process")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "made in the process world, and planned for the namespaces world" in answer.json["reason"]
