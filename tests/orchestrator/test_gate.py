"""`brownout gate`: over all that was planned, and only on verdicts that can be believed."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.store import Store
from orchestrator.errors import UsageError
from tests.orchestrator.junit_schema import suite_of
from tests.orchestrator.stored_campaign import NAME, Answer, StoredCampaign, ask

LIMITS = ["nothing here is real", "the paper world was chosen because it is of paper"]
LOST = """
[[cell]]
name = "main"
[[cell]]
name = "lossy"
expect = { verdict = "fail", anomaly = "lost-acknowledged-write" }
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> StoredCampaign:
    """Two seeds that pass. Not to be changed: tests take copies."""
    campaign = StoredCampaign(tmp_path_factory.mktemp("gate") / "store")
    campaign.made()
    return campaign


@pytest.fixture
def campaign(judged: StoredCampaign, tmp_path: Path) -> StoredCampaign:
    shutil.copytree(judged.store, tmp_path / "store", symlinks=True)
    return StoredCampaign(tmp_path / "store", judged.text, list(judged.plans))


def decided(path: Path) -> Answer:
    """What the gate says of a campaign, whose documents say the same and are valid."""
    answer = ask("gate", path, "--json")
    assert "Traceback" not in answer.err
    summary = json.loads((path / "summary.json").read_text())
    assert (summary["verdict"], summary["reason"]) == (answer.json["verdict"], answer.json["reason"])
    assert answer.json["verdict"] in (path / "report.html").read_text()
    suite = suite_of(path / "junit.xml")
    assert (answer.code == 0) == (suite.get("failures") == suite.get("errors") == "0")
    assert (answer.code == 1) == (suite.get("failures") != "0")
    assert ask("gate", path).code == ask("gate", path, "--markdown").code == answer.code
    return answer


def runs_of(campaign: StoredCampaign) -> list[Path]:
    return sorted(path.parent for path in campaign.path.glob("*/run.toml"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_plan_whose_runs_all_passed_lets_the_change_through(campaign: StoredCampaign) -> None:
    answer = decided(campaign.path)
    assert (answer.code, answer.json["reason"]) == (0, "all 2 runs met their expectation")
    assert answer.json["worlds"] == ["paper"]
    assert answer.json["limits"] == LIMITS
    assert answer.json["versions"] == {"python": ["3"]}
    assert answer.json["invocations"] == campaign.plans
    told = ask("gate", campaign.path).out
    for words in ("world: paper", "limit: nothing here is real", "versions: python 3", campaign.plans[0]):
        assert words in told


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


def _no_verdict(run: Path) -> None:
    (run / "verdict.json").unlink()


def _truncated(run: Path) -> None:
    path = run / "verdict.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(run: Path) -> None:
    (run / "verdict.json").write_bytes(b"")


def _no_utf8(run: Path) -> None:
    (run / "verdict.json").write_bytes(b"\xff\xfe\x00" * 40)


def _deep(run: Path) -> None:
    (run / "verdict.json").write_text("[" * 100_000)


def _directory(run: Path) -> None:
    (run / "verdict.json").unlink()
    (run / "verdict.json").mkdir()


def _field_gone(run: Path) -> None:
    content = json.loads((run / "verdict.json").read_text())
    del content["checks"]
    (run / "verdict.json").write_text(json.dumps(content))


def _edited(run: Path) -> None:
    edit(run / "verdict.json", '"seed": 1', '"seed": 2')


def _old_form(run: Path) -> None:
    content = json.loads((run / "verdict.json").read_text())
    for name in ("finished", "evidence", "analysis", "checksum"):
        del content[name]
    (run / "verdict.json").write_text(json.dumps(content))


def _of_another_run(run: Path) -> None:
    other = next(path for path in sorted(run.parent.glob("*/verdict.json")) if path.parent != run)
    shutil.copy(other, run / "verdict.json")


def _half_judged(run: Path) -> None:
    from analysis.placeholder_verdict import begin

    begin(run)


def _record_changed(run: Path) -> None:
    path = next((run / "history" / "operations").iterdir())
    path.write_bytes(path.read_bytes() + b"\0")


def _replica_gone(run: Path) -> None:
    shutil.rmtree(run / "nodes" / "n2")


def _expects_something_else(run: Path) -> None:
    edit(run / "run.toml", 'verdict = "pass"', 'verdict = "unknown"')


def _asks_for_less(run: Path) -> None:
    edit(run / "run.toml", "min_ok = 40", "min_ok = 0")


def _run_toml_gone(run: Path) -> None:
    (run / "run.toml").unlink()


def _run_toml_damaged(run: Path) -> None:
    (run / "run.toml").write_bytes(b"seed = \xff\xff")


def _run_toml_of_other_types(run: Path) -> None:
    (run / "run.toml").write_text('seed = "x"\nchecks = 3\nexpect = []\n')


def _certificate_gone(run: Path) -> None:
    shutil.rmtree(run / "certificate")


def _without(*fields: str) -> Callable[[Path], None]:
    """The verdict loses fields, and has the checksum of what is left."""

    def change(run: Path) -> None:
        from analysis.verdict import _checksum

        content = json.loads((run / "verdict.json").read_text())
        for name in ("checksum", *fields):
            del content[name]
        (run / "verdict.json").write_text(json.dumps(content | {"checksum": _checksum(content)}))

    return change


def _certificate_gone_and_not_named(run: Path) -> None:
    from analysis.verdict import Verdict

    shutil.rmtree(run / "certificate")
    Verdict(**{**vars(Verdict.read(run / "verdict.json")), "certificate": ""}).write(run / "verdict.json")


def _other_campaign(run: Path) -> None:
    (run / "campaign.toml").write_text('name = "other"\n')


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_no_verdict, "no verdict yet"),
        (_truncated, "is not a verdict"),
        (_empty, "is not a verdict"),
        (_no_utf8, "is not a verdict"),
        (_deep, "is not a verdict"),
        (_directory, "the verdict cannot be read"),
        (_field_gone, "missing required field `checks`"),
        (_edited, "was changed after it was written"),
        (_old_form, "has no checksum; an older version wrote it"),
        (_of_another_run, "the verdict is of another run"),
        (_half_judged, "the analysis has not finished"),
        (_record_changed, "the run's files have changed since"),
        (_replica_gone, "the run's files have changed since"),
        (_expects_something_else, "its expectation is 'unknown', not 'pass'"),
        (_asks_for_less, "the run's files have changed since"),
        (_run_toml_gone, "there is no run.toml"),
        (_run_toml_damaged, "run.toml cannot be understood"),
        (_run_toml_of_other_types, "run.toml"),
        (_certificate_gone, "the certificate of its pass is missing"),
        (_certificate_gone_and_not_named, "the certificate of its pass is missing, and the verdict names none"),
        (_without("certificate"), "does not have the fields of a verdict: certificate"),
        (_without("doubts"), "does not have the fields of a verdict: doubts"),
        (_without("mutants", "versions"), "does not have the fields of a verdict: mutants, versions"),
        (_other_campaign, "is not the campaign that was planned"),
    ],
)
def test_a_verdict_that_cannot_be_believed_is_unknown(
    campaign: StoredCampaign, damage: Callable[[Path], None], words: str
) -> None:
    run = runs_of(campaign)[0]
    damage(run)
    answer = decided(campaign.path)
    assert answer.code == 2
    told = next(entry for entry in answer.json["runs"] if entry["run"] == run.name)
    assert (told["verdict"], told["met"]) == ("unknown", False)
    assert words in " ".join(told["reasons"])
    assert ask("gate", run).code == 2 or not (run / "run.toml").exists()


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
        ({"time_scale": 9.0}, "its time_scale is 9.0"),
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
    """It is whole, sealed, and most of these pass by themselves; but each is not what was planned."""
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan(capabilities=["kill"])
    campaign.make(planned, says=says)
    answer = decided(campaign.path)
    assert answer.code == 2
    assert words in " ".join(answer.json["runs"][0]["reasons"])


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
    """Its description names the seed that was planned, and it passes by itself."""
    campaign = StoredCampaign(tmp_path / "store", "")
    (planned,) = campaign.plan()
    campaign.make(planned, **({"says": {"seed": 1}} | made))
    answer = decided(campaign.path)
    assert answer.code == 2
    assert words in " ".join(answer.json["runs"][0]["reasons"])


def test_what_files_of_the_users_settle_is_kept_with_the_plan(campaign: StoredCampaign) -> None:
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


def test_a_pass_without_the_queries_that_its_plan_needs_is_unknown(campaign: StoredCampaign) -> None:
    run = runs_of(campaign)[0]
    edit(run / "run.toml", "min_queries = 0", "min_queries = 7")
    answer = decided(campaign.path)
    told = next(entry for entry in answer.json["runs"] if entry["run"] == run.name)
    assert "but 0 queries were answered under load, where 7 are needed" in " ".join(told["reasons"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"anomalies": "stolen"}, "the verdict is pass, but it has lost-acknowledged-write"),
        ({"reasons": ["a doubt"]}, "the verdict is pass in spite of: a doubt"),
        ({"checks": []}, "the verdict is pass, but no check passed"),
        ({"faults": []}, "the verdict is pass without the required faults kill"),
        ({"stats": {}}, "the verdict is pass, but it does not say how many changes were acknowledged"),
        ({"stats": {"acknowledged": 0}}, "but 0 changes were acknowledged, where"),
        (
            {"stats": {"acknowledged": 40}},
            "the verdict is pass, but it does not say how many queries were answered under load",
        ),
        ({"stats": "achieved_share"}, "but it does not say which share of the planned changes was acknowledged"),
        ({"stats": "planned_changes"}, "the verdict is pass with planned_changes None, but run.toml says 40"),
        ({"rests": "replicas"}, "the verdict is pass, but its checks replicas are not"),
        ({"rests": "load"}, "the verdict is pass, but its checks load are not"),
        ({"doubts": ("a doubt",)}, "the verdict is pass in spite of: a doubt"),
        ({"checks": "replicas"}, "the verdict is pass without the checks replicas"),
        ({"world": "moon"}, "the verdict has 'moon' as the run's world, run.toml has 'paper'"),
        ({"mutants": ("x",)}, "the verdict has ('x',) as the run's mutants"),
        ({"upper_bound": "session"}, "the verdict has 'session' as the run's upper bound"),
        ({"limits": ()}, "the verdict has () as the run's limits"),
        ({"versions": {}}, "the verdict has {} as the run's versions"),
        ({"met": False}, "says that pass was not met, which is wrong"),
        ({"verdict": "fail", "met": False}, "the verdict is fail, but it names no failure"),
        ({"verdict": "splendid", "met": False}, "the verdict is 'splendid'"),
        ({"analysis": "another"}, "another version of the analysis"),
    ],
)
def test_a_verdict_that_contradicts_itself_is_unknown(
    campaign: StoredCampaign, change: dict[str, object], words: str
) -> None:
    from analysis.core.anomaly import Anomaly
    from analysis.verdict import Verdict

    run = runs_of(campaign)[0]
    if change.get("anomalies") == "stolen":
        change = {"anomalies": (Anomaly("lost-acknowledged-write", "log", 0, "gone", ()),)}
    stored = Verdict.read(run / "verdict.json")
    if isinstance(figure := change.get("stats"), str):
        change = {"stats": {key: value for key, value in stored.stats.items() if key != figure}}
    if rests := change.get("rests"):
        checks = (replace(check, verdict="n/a") if check.name == rests else check for check in stored.checks)
        change = {"checks": tuple(checks)}
    if isinstance(left_out := change.get("checks"), str):
        change = {"checks": tuple(check for check in stored.checks if check.name != left_out)}
    Verdict(**{**vars(stored), **change}).write(run / "verdict.json")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert words in answer.json["reason"] or words in " ".join(answer.json["runs"][0]["reasons"])


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
    _replica_gone(run)
    assert decided(campaign.path).code == 1


def test_a_failure_that_was_expected_counts_and_one_that_did_not_come_fails(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", LOST)
    main, lossy = campaign.plan()
    campaign.make(main)
    caught = campaign.make(lossy, lost=7)
    assert decided(campaign.path).code == 0
    assert "| ✅ | lossy | 1 | fail |" in ask("gate", campaign.path, "--markdown").out
    _replica_gone(caught)
    assert decided(campaign.path).code == 2, "a stale failure is no proof that the mutant is caught"
    assert "| ❓ | lossy | 1 | unknown |" in ask("gate", campaign.path, "--markdown").out
    shutil.rmtree(caught)
    campaign.make(lossy)
    answer = decided(campaign.path)
    assert answer.code == 1
    assert f"{lossy.id} (pass, expected fail (lost-acknowledged-write))" in answer.json["reason"]
    assert "| ❌ | lossy | 1 | pass |" in ask("gate", campaign.path, "--markdown").out


def test_a_later_invocation_of_the_whole_campaign_takes_the_place_of_an_earlier_one(campaign: StoredCampaign) -> None:
    for run in runs_of(campaign):
        _truncated(run)
    campaign.made()
    answer = decided(campaign.path)
    assert answer.code == 0
    assert (answer.json["invocations"], answer.json["superseded"]) == ([campaign.plans[1]], [campaign.plans[0]])
    assert f"superseded by a later one: {campaign.plans[0]}" in ask("gate", campaign.path).out
    assert ask("gate", campaign.path, "--invocation", campaign.plans[0]).code == 2
    assert ask("gate", campaign.path, "--invocation", "2099").code == 64


def test_an_invocation_that_would_seem_to_be_older_than_what_is_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it finds would be superseded at once by a pass of a time when the clock was wrong."""
    stamps = ["20300101T00000000", "20261123T15000000", "20300101T00000000", "20300101T000000ff"]
    monkeypatch.setattr(Store, "new_stamp", lambda _: stamps.pop(0))
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    with pytest.raises(UsageError, match=r"20300101T00000000 is newer .* \(20261123T15000000\), so a clock is or was"):
        campaign.plan()
    assert len(list((campaign.path / "plans").iterdir())) == 2
    campaign.plan()
    campaign.plan()
    assert campaign.plans == sorted(set(campaign.plans)), "within a second the next stamp is taken"
    assert len(campaign.plans) == 3


def test_an_invocation_in_another_world_takes_the_place_of_none(tmp_path: Path) -> None:
    """Both asked for whatever world the machine has, and it had another one then."""
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


def test_an_invocation_in_the_same_world_takes_the_place_of_an_earlier_one_in_whichever_words_it_was_asked_for(
    tmp_path: Path,
) -> None:
    """A campaign of the simulation, say, whose runs were replayed, for which that world is asked for by name. Other
    hosts are no same world."""
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
def test_of_an_older_plan_the_world_is_known_where_it_was_asked_for_by_name(
    tmp_path: Path, text: str, asked: dict[str, list[str]], *, is_superseded: bool
) -> None:
    campaign = StoredCampaign(tmp_path / "store", text)
    campaign.plan(world="process", **asked)
    edit(campaign.path / "plans" / f"{campaign.plans[0]}.toml", 'world = "process"\n', "")
    for planned in campaign.plan(world="process", **asked):
        campaign.make(planned, world="process")
    assert (decided(campaign.path).json["superseded"] == campaign.plans[:1]) is is_superseded


def test_a_run_of_another_world_than_the_plan_is_unknown(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    for planned in campaign.plan(world="namespaces"):
        campaign.make(planned, world="process")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "made in the process world, and planned for the namespaces world" in answer.json["reason"]


def test_what_came_after_the_whole_campaign_counts_too(campaign: StoredCampaign) -> None:
    (again,) = campaign.plan(seeds=[2])
    assert decided(campaign.path).code == 2, "it was begun and never made"
    campaign.make(again, lost=7)
    answer = decided(campaign.path)
    assert answer.code == 1
    assert answer.json["invocations"] == campaign.plans


def test_a_part_of_the_campaign_is_said_to_be_one(tmp_path: Path) -> None:
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
def test_a_plan_that_is_damaged_or_gone_is_unknown(
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
    told = ask("gate", campaign.store)
    assert told.code == 2
    assert "unknown: other unknown, story pass" in told.out
    assert ask("gate", campaign.store, "--invocation", "x").code == 64


def test_a_campaign_whose_runs_and_plans_are_gone_is_not_forgotten(campaign: StoredCampaign) -> None:
    other = campaign.store / "other"
    other.mkdir()
    (other / "summary.json").write_text("{}")
    assert ask("gate", campaign.store).code == 2
    assert decided(other).code == 2


@pytest.mark.parametrize("others", [True, False])
def test_a_link_to_a_campaign_that_is_gone_is_unknown(campaign: StoredCampaign, *, others: bool) -> None:
    (campaign.store / "demo").symlink_to("/nonexistent")
    (campaign.store / "latest").unlink(missing_ok=True)
    (campaign.store / "latest").symlink_to("demo/gone")  # names no campaign
    if not others:
        shutil.rmtree(campaign.path)
    answer = ask("gate", campaign.store, "--json")
    assert answer.code == 2
    assert "demo is a link to /nonexistent, which is missing" in answer.json["reason"]
    assert "latest" not in answer.json["reason"]


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
def test_a_store_whose_campaign_lost_its_plans_is_unknown(
    campaign: StoredCampaign, damage: Callable[[StoredCampaign], None]
) -> None:
    shutil.copytree(campaign.path, campaign.store / "aside" / NAME)
    damage(campaign)
    answer = ask("gate", campaign.store, "--json")
    assert answer.code == 2
    (told,) = answer.json["campaigns"]
    assert "has no plan, so it is unknown which runs are missing" in told["reason"]
    assert len(told["runs"]) == 2


def test_what_is_left_of_an_unplanned_run_is_not_overlooked(campaign: StoredCampaign) -> None:
    shutil.copytree(runs_of(campaign)[0] / "nodes", campaign.path / "copy" / "nodes")
    answer = decided(campaign.path)
    assert answer.code == 2
    assert "copy (unknown, expected pass: the run is in no plan" in answer.json["reason"]


def test_a_campaign_whose_directory_is_a_link_counts(campaign: StoredCampaign) -> None:
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


def test_what_macos_writes_beside_plans_is_ignored(campaign: StoredCampaign) -> None:
    for path in list((campaign.path / "plans").iterdir()):
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7")
    (campaign.path / "._plans").write_bytes(b"\0\5\x16\7")
    (campaign.store / f"._{NAME}").write_bytes(b"\0\5\x16\7")
    assert decided(campaign.path).code == 0
    assert ask("gate", campaign.store).code == 0


def test_an_invocation_that_begins_leaves_no_document_of_an_older_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_latest_is_one_run(campaign: StoredCampaign) -> None:
    (campaign.store / "latest").symlink_to(runs_of(campaign)[0].relative_to(campaign.store))
    answer = ask("gate", campaign.store / "latest", "--json")
    assert answer.code == 0
    assert [run["run"] for run in answer.json["runs"]] == [runs_of(campaign)[0].name]
    assert ask("gate", "latest", "--store", campaign.store).code == 0


def test_what_is_none_of_these_is_wrong_usage(tmp_path: Path) -> None:
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


def test_a_failed_run_says_in_every_document_what_is_undecided_besides(tmp_path: Path) -> None:
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
