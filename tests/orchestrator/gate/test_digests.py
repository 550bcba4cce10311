"""`brownout gate` counts a run as unknown unless its evidence is that with which it ended, by the digest beside its
plan."""

import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from analysis.pipeline import analyze
from history.seal import seal
from orchestrator.store.run_digests import KEY_VARIABLE, read_digests, record
from tests.orchestrator.gate.deciding import decided, edit, runs_of
from tests.orchestrator.stored_campaign import StoredCampaign, ask


def ended_again(run: Path) -> None:
    """Seal and analyze a changed run, as if it had ended so."""
    seal(run)
    assert analyze(run, engine="in-process", plots=False).verdict == "pass"


def digests_of(campaign: StoredCampaign) -> Path:
    return campaign.path / "plans" / f"{campaign.plans[0]}.digests"


def plan_of(campaign: StoredCampaign) -> Path:
    return digests_of(campaign).with_suffix(".toml")


def reasons(campaign: StoredCampaign) -> str:
    """Of a campaign that is unknown."""
    answer = decided(campaign.path)
    assert answer.code == 2
    return " ".join(reason for run in answer.json["runs"] for reason in run["reasons"])


def add_remark(run: Path) -> None:
    """A change of the evidence that no checker reads."""
    (run / "nodes" / "n1" / "remark").write_text("")


def test_a_run_that_was_changed_sealed_and_analyzed_again_is_unknown(campaign: StoredCampaign) -> None:
    add_remark(runs_of(campaign)[0])
    ended_again(runs_of(campaign)[0])
    assert "the run's evidence is not that with which it ended, by its digest in plans/" in reasons(campaign)


def test_a_run_under_the_name_of_another_one_is_unknown(campaign: StoredCampaign) -> None:
    first, second = runs_of(campaign)
    shutil.rmtree(second)
    shutil.copytree(first, second)
    edit(second / "run.toml", first.name, second.name)
    edit(second / "run.toml", "seed = 1\n", "seed = 2\n")
    seal(second)
    analyze(second, engine="in-process", plots=False)
    reasons(campaign)


def _no_file(path: Path) -> None:
    path.unlink()


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _no_text(path: Path) -> None:
    path.write_bytes(b"\xff" * 40)


def _fields_missing(path: Path) -> None:
    path.write_text(re.sub(r" \w+ -$", "", path.read_text(), flags=re.M))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [_no_file, _torn, _no_text, _fields_missing, _pipe])
def test_a_run_without_a_complete_digest_is_unknown(campaign: StoredCampaign, damage: Callable[[Path], None]) -> None:
    damage(digests_of(campaign))
    assert "has no digest of the run" in reasons(campaign)


@pytest.mark.parametrize("at", [0, 63])
def test_a_changed_digest_is_unknown(campaign: StoredCampaign, at: int) -> None:
    run, evidence, *others = digests_of(campaign).read_text().splitlines()[0].split()
    changed = evidence[:at] + ("0" if evidence[at] != "0" else "1") + evidence[at + 1 :]
    digests_of(campaign).write_text(" ".join([run, changed, *others]) + "\n")
    assert "is not that with which it ended" in reasons(campaign)


def _other_reason(campaign: StoredCampaign) -> None:
    edit(plan_of(campaign), "select = []", "select = [ ]")


def _other_campaign(campaign: StoredCampaign) -> None:
    plan = plan_of(campaign).with_suffix(".campaign")
    plan.write_text(plan.read_text() + "# a remark\n")


@pytest.mark.parametrize("change", [_other_reason, _other_campaign])
def test_a_plan_that_changed_after_its_runs_is_unknown(
    campaign: StoredCampaign, change: Callable[[StoredCampaign], None]
) -> None:
    change(campaign)
    assert "has changed since the run ended, by its digest in plans/" in reasons(campaign)


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredCampaign:
    """A campaign that was made with the key `spring`."""
    monkeypatch.setenv(KEY_VARIABLE, "spring")
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    return campaign


@pytest.mark.parametrize(("key", "code"), [("spring", 0), ("autumn", 2), ("", 0)])
def test_a_gate_with_a_key_requires_digests_that_are_signed_with_it(
    signed: StoredCampaign, monkeypatch: pytest.MonkeyPatch, key: str, code: int
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key)
    assert decided(signed.path).code == code


def test_a_consistent_change_fails_with_a_key(signed: StoredCampaign) -> None:
    """Whoever changes evidence, seal, verdict and digest does not have the key."""
    (run,) = runs_of(signed)
    add_remark(run)
    digest = seal(run)
    analyze(run, engine="in-process", plots=False)
    line = digests_of(signed).read_text().split()
    digests_of(signed).write_text(" ".join([line[0], digest, *line[2:]]) + "\n")
    assert f"is not signed with the key in {KEY_VARIABLE}" in reasons(signed)


def test_an_unsigned_campaign_is_unknown_to_a_gate_with_a_key(
    campaign: StoredCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "spring")
    assert f"is not signed with the key in {KEY_VARIABLE}" in reasons(campaign)


def test_runs_that_end_together_all_have_their_digests(campaign: StoredCampaign) -> None:
    stamp = campaign.plans[0]
    names = [f"{stamp}-main-{number}" for number in range(3, 60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: record(campaign.path, name, "e" * 64), names))
    assert read_digests(campaign.path, stamp).keys() >= set(names)


def test_a_run_without_a_plan_has_no_digest(tmp_path: Path) -> None:
    record(tmp_path, "20260102T03040500-main-1", "e" * 64)
    assert list(tmp_path.iterdir()) == []


def test_the_last_digest_of_a_resumed_run_counts(campaign: StoredCampaign) -> None:
    text = digests_of(campaign).read_text()
    digests_of(campaign).write_text(re.sub(r" \w{64} ", f" {'e' * 64} ", text) + text)
    assert decided(campaign.path).code == 0


def test_gate_again_decides_over_new_analyses(campaign: StoredCampaign) -> None:
    for run in runs_of(campaign):
        (run / "verdict.json").unlink()
    assert ask("gate", campaign.path).code == 2
    answer = ask("gate", campaign.path, "--again", "--engine", "in-process")
    assert answer.code == 0, answer.err
    assert "analyzed 2 of 2" in answer.err


def test_gate_again_does_not_accept_changed_evidence(campaign: StoredCampaign) -> None:
    add_remark(runs_of(campaign)[0])
    seal(runs_of(campaign)[0])
    assert ask("gate", campaign.store, "--again", "--engine", "in-process").code == 2
    assert "is not that with which it ended" in reasons(campaign)


def test_a_run_without_its_campaign_is_unknown(campaign: StoredCampaign) -> None:
    (runs_of(campaign)[0] / "campaign.toml").unlink()
    assert "campaign.toml cannot be read: " in reasons(campaign)


@pytest.mark.parametrize("scales", ['"1.0"', "[0.5]", "[true]", '["4"]', "[101]", "[nan]"])
def test_a_plan_with_damaged_time_scales_is_unknown(campaign: StoredCampaign, scales: str) -> None:
    plan = plan_of(campaign)
    plan.write_text(re.sub(r"^time_scales = .*$", f"time_scales = {scales}", plan.read_text(), count=1, flags=re.M))
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "time_scales: is not a list of numbers from 1 to 100" in answer.json["reason"]


def test_a_run_of_another_world_than_the_plan_is_unknown(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    for planned in campaign.plan(world="namespaces"):
        campaign.make(planned, world="process")
    assert "made in the process world, and planned for the namespaces world" in reasons(campaign)
