"""The parts of a campaign fit each other and its system: checked on a `Campaign`, without a file."""

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import load, minimum_complaints, node_complaints, workload_complaints
from systems import load_system

BROWNOUT = load_system("brownout")


def campaign(tmp_path: Path) -> Campaign:
    path = tmp_path / "c.toml"
    path.write_text('name = "c"\n[workload]\nrate = 10\nduration_s = 10\n', encoding="utf-8")
    return load(path)


def test_a_consistent_campaign_is_valid(tmp_path: Path) -> None:
    made = campaign(tmp_path)
    found = [*node_complaints(made), *workload_complaints(made, BROWNOUT, False), *minimum_complaints(made)]
    assert found == []


def test_a_minimum_above_the_planned_load_is_a_complaint(tmp_path: Path) -> None:
    made = campaign(tmp_path)
    (found,) = minimum_complaints(replace(made, checks=structs.replace(made.checks, min_ok=10**6)))
    assert (found.table, found.key, found.step) == ("checks", "min_ok", None)
    assert "1000000 can never be reached" in found.message


def test_every_complaint_about_the_workload_is_found(tmp_path: Path) -> None:
    made = campaign(tmp_path)
    workload = structs.replace(made.workload, replication_factor=9, assignment=((1, 8),))
    found = list(workload_complaints(replace(made, workload=workload), BROWNOUT, False))
    assert [each.key for each in found] == ["assignment", "replication_factor"]


def test_deletions_are_accepted_for_topics_in_remote_storage_too(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    text = """
        name = "c"
        [workload]
        deletes_every_s = 1
        topic_settings = { "remote.storage.enable" = "true" }
        [nemesis]
        kind = "steps"
        step = [{ do = "delete-records", offset = 3 }]
    """
    path.write_text(text, encoding="utf-8")
    assert list(workload_complaints(load(path), BROWNOUT, False)) == []
