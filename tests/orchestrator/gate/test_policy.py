"""`gate.toml`: further demands. An undecided demand is never granted."""

import os
from datetime import date
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from analysis.run_row import RunRow
from orchestrator.gate import policy_checks
from orchestrator.gate.decision import decide
from orchestrator.gate.policy_checks import check_policy
from orchestrator.gate.policy_file import Policy, find_policy, read_policy
from orchestrator.store.comparison import compare
from orchestrator.store.directories import Store
from orchestrator.store.matrix import Matrix, read_matrix
from orchestrator.store.plans import StoredPlan
from systems.errors import InputError
from tests.orchestrator import stored_campaign
from tests.orchestrator.stored_campaign import StoredCampaign, ask

ROOT = Path(__file__).resolve().parents[3]
TODAY = date(2030, 1, 1)


def run(seed: int, verdict: str = "pass", cell: str = "main", **changes: Any) -> RunRow:
    fields = {
        "expected": "pass",
        "met": verdict == "pass",
        "reasons": () if verdict == "pass" else ("why",),
        "world": "namespaces",
        "confirmed": {"kill": 2},
        "versions": {"brownout": "0123456789ab"},
        "stats": {"latency_p50_ms": 10.0, "latency_p99_ms": 100.0, "longest_outage_s": 3.0},
        "acknowledged": 1000,
        "duration_s": 10.0,
        "system": "etcd",
    }
    return RunRow(f"s-{cell}-{seed}", cell, seed, verdict, **{**fields, **changes})


def policy(tmp_path: Path, text: str) -> Policy:
    (tmp_path / "gate.toml").write_text(text)
    return read_policy(tmp_path / "gate.toml")


def verdicts(tmp_path: Path, text: str, *entries: RunRow) -> tuple[str, list[str]]:
    """The decision, and the sentences about demands that were not granted."""
    plans: tuple[StoredPlan, ...] = ()
    report = check_policy(policy(tmp_path, text), {"c": Matrix(plans, (), entries, ())}, TODAY)["c"]
    open_findings = [finding.sentence for finding in report.findings if finding.verdict != "pass"]
    return decide(entries, (), report.findings, report.excused).verdict, open_findings


@pytest.mark.parametrize(
    ("text", "changes", "verdict", "words"),
    [
        ('[require]\nworlds = ["namespaces"]', {}, "pass", ""),
        ('[require]\nworlds = ["namespaces", "vagrant"]', {}, "unknown", "required world vagrant"),
        ("[require]\nseeds = 2", {}, "pass", ""),
        ("[require]\nseeds = 3", {}, "unknown", "required seeds of each cell 3: too few were decided: main 2"),
        ("[require.faults]\nkill = 4", {}, "pass", ""),
        ("[require.faults]\nkill = 5", {}, "unknown", "required fault kill: confirmed 4 times, required: 5"),
        ("[require.faults]\npause = 1", {}, "unknown", "confirmed 0 times"),
        ("[require]\nclean_build = true", {}, "pass", ""),
        ("[require]\nclean_build = true", {"versions": {"brownout": "ab+changes"}}, "unknown", "made with ab+changes"),
        ("[require]\nclean_build = true", {"versions": {}}, "unknown", "made with unknown"),
        ("[require]\nmutation_score = 1", {}, "unknown", "no cell has mutants"),
        ("[budget]\nlatency_p50_ms = 10", {}, "pass", ""),
        ("[budget]\nlatency_p99_ms = 99.9", {}, "fail", "latency p99: over 99.9 ms in s-main-1 100 ms"),
        ("[budget]\noutage_s = 2.5", {}, "fail", "longest outage: over 2.5 s"),
        ("[budget]\noutage_s = 0.75", {"time_scale": 4.0}, "pass", ""),
        ("[budget]\noutage_s = 0.7", {"time_scale": 4.0}, "fail", "0.7 s in s-main-1 3 s (with 4 times the limit)"),
        ("[budget]\noutage_s = 2.5", {"stats": {}}, "unknown", "longest outage: not measured in s-main-1, s-main-2"),
    ],
)
def test_each_demand(tmp_path: Path, text: str, changes: dict[str, Any], verdict: str, words: str) -> None:
    decided, unmet = verdicts(tmp_path, text, run(1, **changes), run(2, **changes))
    assert decided == verdict
    assert words in " ".join(unmet)


def test_a_policy_that_an_editor_marked_as_utf_8_is_read(tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_text("\ufeff[require]\nseeds = 3\n")
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    answer = ask("gate", campaign.path)
    assert (answer.code, "seeds" in answer.out) == (2, True), answer.err


def test_faults_that_their_run_disbelieves_are_not_counted(tmp_path: Path) -> None:
    """It failed as it was to, so that what is undecided besides leaves it met."""
    lossy = '[[cell]]\nname = "lossy"\nexpect = { verdict = "fail", anomaly = "lost-acknowledged-write" }\n'
    (tmp_path / "gate.toml").write_text("[require.faults]\nkill = 1\n")
    for state, code, confirmed in (("gone", 0, {"kill": 1}), ("S", 2, {})):
        campaign = StoredCampaign(tmp_path / state, lossy)
        (planned,) = campaign.plan()
        campaign.make(planned, lost=7, fault_shows=state)
        answer = ask("gate", campaign.path, "--json")
        (shown,) = answer.json["runs"]
        assert (answer.code, shown["met"], shown["confirmed"]) == (code, True, confirmed)
        assert (f"n2: state is '{state}', not 'gone'" in " ".join(shown["reasons"])) is (state == "S")


def test_a_repeated_simulated_seed_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the simulation it is the same run: its faults do not count again, and a second slow run is not a further
    sample."""
    again = [run(1, world="simulation", cell="main") for _ in range(8)]
    again = [replace(entry, run=f"{number}-{entry.run}") for number, entry in enumerate(again)]
    decided, unmet = verdicts(tmp_path, "[require.faults]\nkill = 4", *again)
    assert (decided, unmet) == ("unknown", ["required fault kill: confirmed 2 times, required: 4"])
    assert verdicts(tmp_path, "[require.faults]\nkill = 4", *again, run(2, world="simulation"))[0] == "pass"
    then = [replace(entry, run=f"then-{entry.run}", stats={"latency_p50_ms": 5.0}) for entry in again]
    monkeypatch.setattr(policy_checks, "read_matrix", lambda *_, **__: Matrix((), (), tuple(then), ()))
    decided, unmet = verdicts(tmp_path, '[baseline]\npath = "."\nmeasures = ["latency"]\n', *again)
    assert decided == "unknown"
    assert "their smallest p is 0.5: run more seeds" in unmet[0]


def test_the_mutation_score_counts_cells_that_were_caught_in_every_run(tmp_path: Path) -> None:
    caught = {"expected": "fail (duplicate)", "met": True, "mutants": ("m",)}
    survived = caught | {"met": False}
    entries = [run(1, "fail", "a", **caught), run(2, "fail", "a", **caught), run(1, "fail", "b", **caught)]
    assert verdicts(tmp_path, "[require]\nmutation_score = 1.0", *entries)[0] == "pass"
    decided, unmet = verdicts(tmp_path, "[require]\nmutation_score = 0.9", *entries, run(2, "pass", "b", **survived))
    assert decided == "fail"
    assert unmet == ["mutation score: 1 of 2 cells with mutants killed as expected; 90% are required"]


def test_an_undecided_mutant_does_not_count_as_survived(tmp_path: Path) -> None:
    """A missing run, say; without a policy, too, the result is unknown."""
    mutant = {"expected": "fail (duplicate)", "mutants": ("m",)}
    caught = run(1, "fail", "a", **mutant, met=True)
    entries = [caught, run(1, "unknown", "b", **mutant), run(2, "fail", "b", **mutant, met=True)]
    decided, unmet = verdicts(tmp_path, "[require]\nmutation_score = 1.0", *entries)
    assert decided == "unknown"
    rest = "cells with mutants killed as expected, 1 undecided; 100% are required"
    assert unmet == [f"mutation score: 1 of 2 {rest}"]
    assert verdicts(tmp_path, "[require]\nmutation_score = 0.5", *entries)[1] == []
    entries.append(run(1, "pass", "c", **mutant, met=False))
    decided, unmet = verdicts(tmp_path, "[require]\nmutation_score = 1.0", *entries)
    assert (decided, unmet) == ("fail", [f"mutation score: 1 of 3 {rest}"])


@pytest.mark.parametrize("expected", ["pass", "unknown"])
def test_a_mutant_without_an_expected_failure_is_not_counted(tmp_path: Path, expected: str) -> None:
    """A survivor does not count as caught, and a benign mutant need not be caught."""
    survivor = run(1, expected, "b", expected=expected, met=True, mutants=("m",))
    decided, unmet = verdicts(tmp_path, "[require]\nmutation_score = 1.0", survivor)
    assert decided == "unknown"
    assert "no cell has mutants that are expected to fail" in unmet[0]
    caught = run(1, "fail", "a", expected="fail (duplicate)", met=True, mutants=("m",))
    assert verdicts(tmp_path, "[require]\nmutation_score = 1.0", survivor, caught)[0] == "pass"


KNOWN = '[[known]]\nanomaly = "stale-read"\nsystem = "etcd"\nreason = "ticket 7"\nexpires = '


def test_known_failures_pass_until_they_expire(tmp_path: Path) -> None:
    entries = run(1), run(2, "fail", anomalies=("stale-read",))
    assert verdicts(tmp_path, "", *entries)[0] == "fail"
    assert verdicts(tmp_path, KNOWN + "2030-01-01", *entries)[0] == "pass"
    decided, unmet = verdicts(tmp_path, KNOWN + "2029-12-31", *entries)
    assert decided == "fail"
    assert unmet == ["stale-read of etcd in cell main was known until 2029-12-31, which has passed: ticket 7"]
    two = run(1), run(2, "fail", anomalies=("stale-read", "lost-acknowledged-write"))
    decided, unmet = verdicts(tmp_path, KNOWN + "2030-01-01", *two)
    assert (decided, unmet) == ("fail", ["new: lost-acknowledged-write of etcd in cell main"])
    elsewhere = run(1, "fail", anomalies=("stale-read",), system="other")
    assert verdicts(tmp_path, KNOWN + "2030-01-01", elsewhere)[0] == "fail"
    stale = run(1, "fail", anomalies=("stale-read",), doubts=("the verdict is stale",))
    assert verdicts(tmp_path, KNOWN + "2030-01-01", stale)[0] == "fail"


def test_a_known_failure_does_not_excuse_missing_evidence(tmp_path: Path) -> None:
    reasons = "stale-read: x", "besides, undecided: fault power-loss was required and never confirmed"
    entries = run(1), run(2, "fail", anomalies=("stale-read",), reasons=reasons)
    report = check_policy(policy(tmp_path, KNOWN + "2030-01-01"), {"c": Matrix((), (), entries, ())}, TODAY)["c"]
    decision = decide(entries, (), report.findings, report.excused)
    assert decision.verdict == "unknown"
    assert decision.reason == (
        "1 of 2 runs failed as the policy allows, but are otherwise undecided: "
        "s-main-2 (fault power-loss was required and never confirmed)"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[require]\nseedz = 3", "gate.toml:2: [require] unknown key 'seedz'; did you mean 'seeds'?"),
        ("[require]\nseeds = 0", "gate.toml:2: [require] seeds: 0 is smaller than 1"),
        ('[require]\nworlds = ["moon"]', "gate.toml:2: [require] worlds: 'moon' is not known"),
        ("[require.faults]\nkil = 1", "gate.toml:2: [require.faults] 'kil' is not known; did you mean 'kill'?"),
        ("[require]\nmutation_score = 90", "gate.toml:2: [require] mutation_score: 90 is larger than 1; it is a share"),
        ("[budget]\noutage_s = -1", "gate.toml:2: [budget] outage_s: -1 is smaller than 0"),
        ('[baseline]\npath = "nowhere"', "gate.toml:2: [baseline] path: "),
        ("[baseline]", "[baseline] path is missing"),
        (KNOWN + '"2030-01-01"', "expires is a date without quotes"),
        ('[[known]]\nanomaly = "stale-red"\nreason = "x"\nexpires = 2030-01-01', "'stale-red' is not known"),
        (
            '[[known]]\nanomaly = "stale-read"\nreason = " "\nexpires = 2030-01-01',
            "gate.toml:3: [known] reason: ' ' is not a reason",
        ),
        ("[", "gate.toml:1: not valid TOML"),
    ],
)
def test_an_error_of_a_policy_names_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "gate.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        find_policy([tmp_path / "store"], None)
    assert words in str(caught.value)


def test_a_policy_is_beside_the_store_or_given_by_option(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    assert ask("gate", campaign.path).code == 0
    (tmp_path / "gate.toml").write_text("[require]\nseeds = 2\n")
    assert [ask("gate", path).code for path in (campaign.path, campaign.store)] == [2, 2]
    assert ask("report", campaign.path).code == 0
    assert "required seeds of each cell 2" in (campaign.path / "report.html").read_text()
    assert "required seeds of each cell 2" in ask("gate", campaign.path, "--markdown").out
    (tmp_path / "other.toml").write_text('campaigns = ["demo"]\n[require]\nseeds = 9\n')
    assert ask("gate", campaign.path, "--policy", tmp_path / "other.toml").code == 0, "it speaks of another campaign"
    missing = ask("gate", campaign.store, "--policy", tmp_path / "other.toml")
    assert missing.code == 2
    assert "demo is in the policy but not in the store" in missing.out
    assert ask("gate", campaign.path, "--policy", tmp_path / "nowhere.toml").code == 64
    (tmp_path / "gate.toml").write_text("seeds = 2\n")
    assert ask("gate", campaign.path).code == 64
    assert ask("run", "demo", "--engine", "in-process", "--store", campaign.store).code == 64, (
        "reported before the run, not after"
    )


def test_a_policy_is_found_beside_a_link_to_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    campaign = StoredCampaign(tmp_path / "disk" / "store", "")
    (run,) = campaign.made()
    link = tmp_path / "project" / "store"
    link.symlink_to(campaign.store)
    beside, target = link.with_name("gate.toml"), campaign.store.with_name("gate.toml")
    beside.write_text("[require]\nseeds = 20\n")
    assert [ask("gate", path).code for path in (link, link / "story", campaign.path)] == [2, 2, 0]
    assert ask("gate", "story", "--store", link).code == 2
    monkeypatch.chdir(link / "story")
    monkeypatch.setenv("PWD", str(link / "story"))
    assert [ask("gate", path).code for path in (".", "..")] == [2, 2]
    for path in (link / "story", campaign.path):
        assert ask("report", path).code == 0
        asked = "required seeds of each cell 20" in (campaign.path / "report.html").read_text()
        assert asked is (path != campaign.path)
    (link / "latest").unlink(missing_ok=True)
    (link / "latest").symlink_to(run.relative_to(campaign.store))
    for name in (link / "latest", link / "story" / run.name):
        assert ask("report", campaign.path).code == 0
        assert ask("analyze", "--engine", "in-process", name).code == 0
        assert "required seeds of each cell 20" in (campaign.path / "summary.json").read_text()
    beside.rename(target)
    assert [ask("gate", path).code for path in (link, link / "story", campaign.path)] == [2, 2, 2]
    beside.symlink_to(target)
    assert ask("gate", link).code == 2, "it is one policy"
    beside.unlink()
    beside.write_text("[require]\nseeds = 1\n")
    for path in (link, link / "story"):
        answer = ask("gate", path)
        assert answer.code == 64
        assert (
            f"{beside} and {target}: the store is a link, and there is a policy beside it and one beside its target"
            in answer.err
        )
    assert ask("gate", link, "--policy", beside).code == 0


@pytest.mark.parametrize("place", [".", "story", "story/plans", "story/*-main-1"])
def test_a_policy_inside_of_the_store_is_refused(tmp_path: Path, place: str) -> None:
    """It has no effect there, and a decision without it must not look like one of the policy."""
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    (directory,) = glob(str(campaign.store / place))
    inside = Path(directory) / "gate.toml"
    inside.write_text("[require]\nseeds = 20\n")
    for path in (campaign.path, campaign.store):
        answer = ask("gate", path)
        assert answer.code == 64
        assert f"{inside.resolve()}: a policy inside the store is not read; move it to" in answer.err
        assert ask("gate", path, "--policy", inside).code == 2
    file = tmp_path / "story.toml"
    file.write_text('name = "story"\n')
    asked = ("run", file, "--world", "simulation", "--store", campaign.store, "--engine", "in-process")
    assert ask(*asked).code == 64, "it is said before anything is made"


@pytest.mark.skipif(os.path.lexists("/gate.toml"), reason="a policy exists in the root directory")
def test_a_campaign_may_be_in_the_root_directory() -> None:
    """As in a container with a mounted store, or for a run copied into a directory there."""
    assert find_policy([Path("/")], None) is None


def test_a_policy_that_is_a_broken_link_is_refused(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "")
    campaign.made()
    (tmp_path / "gate.toml").symlink_to(tmp_path / "gone.toml")
    answer = ask("gate", campaign.path)
    assert answer.code == 64
    assert "gate.toml: cannot be read: No such file" in answer.err


def test_a_baseline_is_compared_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = ["20260102T03040500", "20250102T03040500"]
    monkeypatch.setattr(Store, "new_stamp", lambda _: stamps.pop(0))
    now = StoredCampaign(tmp_path / "store", "[seeds]\ncount = 3\n")
    now.made()
    then = StoredCampaign(tmp_path / "baseline", "[seeds]\ncount = 3\n")
    for planned, lost in zip(then.plan(), (7, None, None), strict=True):
        then.make(planned, lost=lost)
    (tmp_path / "gate.toml").write_text('[baseline]\npath = "baseline"\nalpha = 0.2\n')
    answer = ask("gate", now.path, "--json")
    assert answer.code == 0
    assert "lost-acknowledged-write of paper in cell main" in answer.json["signatures"]["resolved"]
    assert len([finding for finding in answer.json["findings"] if finding["demand"] == "baseline"]) == 2
    (tmp_path / "gate.toml").write_text('[baseline]\npath = "baseline"\nalpha = 0.001\n')
    answer = ask("gate", now.path)
    assert answer.code == 2
    assert "their smallest p is 0.2: run more seeds" in answer.out


def test_a_baseline_with_the_same_runs_is_undecided(tmp_path: Path) -> None:
    campaign = StoredCampaign(tmp_path / "store", "[seeds]\ncount = 5\n")
    runs = campaign.made()
    (tmp_path / "gate.toml").write_text('[baseline]\npath = "store"\n')
    answer = ask("gate", campaign.path, "--json")
    assert answer.code == 2
    (finding,) = answer.json["findings"]
    assert (
        f"5 of its runs are the runs under test, which cannot be their own baseline: {runs[0].name}, "
        in (finding["sentence"])
    )


def test_a_baseline_of_another_campaign_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells may have the same names."""
    then = [replace(run(seed), run=f"earlier-{seed}") for seed in range(1, 6)]
    plan = StoredCampaign(tmp_path / "store")
    plan.plan()
    (stored,) = read_matrix(plan.path).plans
    monkeypatch.setattr(policy_checks, "read_matrix", lambda *_, **__: Matrix((stored,), (), tuple(then), ()))
    decided, unmet = verdicts(tmp_path, '[baseline]\npath = "."\n', *(run(seed) for seed in range(1, 6)))
    assert decided == "unknown"
    assert unmet == [f"against {tmp_path}: it is of the campaign {stored.campaign} and cannot be compared with c"]


@pytest.mark.parametrize(
    ("place", "name"),
    [({"world": "process"}, "the process world"), ({"time_scale": 4.0}, "the namespaces world with the time scale 4")],
)
def test_measures_are_compared_within_a_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any], name: str
) -> None:
    """The speed of a run in one world is not comparable with another world, in the same cell."""
    slow = {"latency_p50_ms": 90.0}
    then = [replace(run(seed), run=f"earlier-{seed}") for seed in range(1, 6)]
    then_both = [*then, *(replace(each, run=f"{each.run}-p", stats=slow, **place) for each in then)]
    text = '[baseline]\npath = "."\nmeasures = ["latency"]\n'
    now = [run(seed, stats=slow, **place) for seed in range(1, 6)]
    monkeypatch.setattr(policy_checks, "read_matrix", lambda *_, **__: Matrix((), (), tuple(then), ()))
    decided, unmet = verdicts(tmp_path, text, *now)
    assert decided == "unknown"
    assert f"the baseline has no runs of main in {name}" in unmet[0]
    monkeypatch.setattr(policy_checks, "read_matrix", lambda *_, **__: Matrix((), (), tuple(then_both), ()))
    assert verdicts(tmp_path, text, *now)[0] == "pass"


@pytest.mark.parametrize(
    ("changes", "measures"),
    [
        ({"stats": {}}, {"median latency"}),
        ({"acknowledged": 0}, {"acknowledged changes"}),
        ({"stats": {}, "duration_s": 0.0}, {"median latency", "acknowledged changes"}),
    ],
)
@pytest.mark.parametrize("side", ["now", "then"])
def test_a_run_without_measurements_stays_in_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, changes: dict[str, Any], measures: set[str]
) -> None:
    cells = [(cell, seed) for cell in "ab" for seed in range(1, 6)]
    whole = [run(seed, cell=cell) for cell, seed in cells]
    lacking = [run(seed, cell=cell, **(changes if cell == "b" else {})) for cell, seed in cells]
    then, now = (lacking, whole) if side == "then" else (whole, lacking)
    then = [replace(entry, run=f"earlier-{entry.run}") for entry in then]
    monkeypatch.setattr(policy_checks, "read_matrix", lambda *_, **__: Matrix((), (), tuple(then), ()))
    _, sentences = verdicts(tmp_path, '[baseline]\npath = "."\n', *now)
    assert {sentence.split(" against ")[0] for sentence in sentences} == measures
    for sentence in sentences:
        assert f"not measured in {'earlier-' if side == 'then' else ''}s-b-1, " in sentence


def test_comparisons_of_all_campaigns_of_a_decision_are_corrected_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three runs against three have p = 0.05 at the least, so a second comparison makes both undecided."""
    text = '[baseline]\npath = "."\nmeasures = ["latency"]\n'
    now = tuple(run(seed, stats={"latency_p50_ms": 20.0 + seed}) for seed in range(3))
    then = tuple(replace(each, run=f"earlier-{each.run}", stats={"latency_p50_ms": 10.0}) for each in now)
    monkeypatch.setattr(policy_checks, "read_matrix", lambda *_, **__: Matrix((), (), then, ()))
    matrix = Matrix((), (), now, ())
    for campaigns, verdict in (("a", "fail"), ("ab", "unknown"), ("abc", "unknown")):
        reports = check_policy(policy(tmp_path, text), dict.fromkeys(campaigns, matrix), TODAY)
        findings = [each for name in campaigns for each in reports[name].findings if each.demand == "baseline"]
        assert [each.verdict for each in findings] == [verdict] * len(campaigns)
        assert f"corrected for {len(campaigns)} comparison" in findings[0].sentence


def test_a_store_is_one_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = [f"2026010{number}T03040500" for number in range(1, 5)]
    monkeypatch.setattr(Store, "new_stamp", lambda _: stamps.pop(0))
    for store in ("baseline", "store"):
        for name in ("one", "two"):
            monkeypatch.setattr(stored_campaign, "NAME", name)
            StoredCampaign(tmp_path / store, "[seeds]\ncount = 3\n").made()
    (tmp_path / "gate.toml").write_text('[baseline]\npath = "baseline"\nmeasures = ["latency"]\nalpha = 0.2\n')
    alone = ask("gate", tmp_path / "store" / "one", "--json").json["findings"]
    both = [each for of in ask("gate", tmp_path / "store", "--json").json["campaigns"] for each in of["findings"]]
    assert [each["sentence"].count("corrected for 1 comparison ") for each in alone] == [1]
    assert [each["sentence"].count("corrected for 2 comparisons ") for each in both] == [1, 1]


def test_a_difference_must_be_more_than_chance() -> None:
    same = compare({"main": ([10.0, 11, 12, 9], [10.5, 9.5, 11.5, 11])}, larger_is_worse=True)
    assert same.p > 0.2
    slower = compare({"main": ([10.0, 11, 12, 9], [14.0, 15, 13, 16])}, larger_is_worse=True)
    assert (round(slower.p, 4), round(slower.least_p, 4)) == (0.0143, 0.0143)
    assert 0.3 < slower.worse < 0.45
    faster = compare({"main": ([10.0, 11, 12, 9], [14.0, 15, 13, 16])}, larger_is_worse=False)
    assert faster.worse < 0
    assert faster.p == 1


def test_measures_are_compared_within_a_cell() -> None:
    """A cell that is slower than another is not a change, for any mix of cells."""
    sides = {"fast": ([1.0, 1.1, 0.9], [1.0, 1.1, 0.9]), "slow": ([100.0, 101, 99], [100.0, 101, 99])}
    assert compare(sides, larger_is_worse=True).p > 0.4
    fast, slow = [1.0, 1.1, 0.9, 1.05], [100.0, 101, 99, 100.5]
    mixed = compare({"fast": (fast * 3, fast), "slow": (slow, slow * 3)}, larger_is_worse=True)
    assert (mixed.p > 0.4, abs(mixed.worse) < 0.01) == (True, True)
    many = {"a": ([1.0 + n / 100 for n in range(20)], [1.5 + n / 100 for n in range(20)])}
    first, second = compare(many, larger_is_worse=True), compare(many, larger_is_worse=True)
    assert first == second
    assert first.p < 0.001
    assert first.p >= first.least_p == 1 / 10_001, "that number of permutations has no smaller one"


def test_the_policy_in_the_documentation_is_one(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "gate.md").read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "baselines" / "demo").mkdir(parents=True)
    shown = policy(tmp_path, text)
    assert (shown.require.seeds, shown.budget.outage_s, len(shown.known), shown.campaigns[0]) == (20, 15, 1, "demo")
