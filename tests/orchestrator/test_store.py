"""The store: directories that explain themselves, are found by name, and belong to one process at a time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.placeholder_verdict import begin, undecided
from installation.commands import command
from orchestrator.campaign.plan import expand
from orchestrator.errors import UsageError
from orchestrator.running.runner import CampaignInvocation, plan_invocation, resume_invocation, withdraw
from orchestrator.store.directories import Store
from orchestrator.store.matrix import read_matrix
from orchestrator.store.plans import read_plan, stamps
from tests.orchestrator.campaigns import campaign

TWO_SEEDS = "[seeds]\ncount = 2\n"


def test_a_run_is_found_by_path_name_and_as_the_latest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = (store.create(planned) for planned in expand(campaign(TWO_SEEDS), "s"))
    for each in (first, second):
        each.write_description({"run": each.id})
    assert store.find_run("latest").path == second.path
    assert store.find_run("s-main-1").path == first.path
    assert store.find_run("x/s-main-1").path == first.path
    assert store.find_run(str(first.path)).path == first.path
    assert store.find("x") == tmp_path / "x"
    assert (first.path / "campaign.toml").read_text().startswith('name = "x"')


def test_a_missing_run_or_campaign_is_reported(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match="nothing-1: is neither a directory nor a run in the store; runs are in"):
        store.find("nothing-1")
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match=r"x is not a run: it has no run\.toml"):
        store.find_run("x")


def test_a_run_under_way_is_not_touched_by_another(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.create(expand(campaign(""), "s")[0])
    with run.held(), pytest.raises(UsageError, match="is under way in another process"), run.held():
        pass
    with run.held():
        pass


def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="give another --store"):
        Store(tmp_path / "file").create(expand(campaign(""), "s")[0])


def test_an_interrupted_invocation_resumes_at_its_next_run(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), campaign(TWO_SEEDS)
    begun = plan_invocation(store, plan, world="paper")
    done, interrupted = (store.create(planned) for planned in begun.todo)
    done.write_description({"run": done.id})
    verdict = undecided(done.path, "it was judged, and nothing can be said")
    replace(verdict, finished=True).write(done.path / "verdict.json")
    interrupted.write_description({"run": interrupted.id})
    begin(interrupted.path)
    (interrupted.path / "history").mkdir()

    resumed = resume_invocation(store, plan, world="paper")
    assert resumed.stamp == begun.stamp
    assert [run.id for run in resumed.todo] == [interrupted.id]
    assert resumed.all_ids == begun.all_ids
    assert not interrupted.path.exists()
    assert (tmp_path / "x" / "interrupted" / f"{interrupted.id}.1" / "history").is_dir()


def test_simultaneous_invocations_have_separate_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([(), ()])  # neither sees the other one's plan
    monkeypatch.setattr(Store, "new_stamp", lambda _: "20260102T03040542")
    monkeypatch.setattr("orchestrator.store.plans.stamps", lambda at: next(looks, stamps(at)))
    begun = [plan_invocation(Store(tmp_path), campaign(TWO_SEEDS), seeds=[seed], world="paper") for seed in (1, 2)]
    assert [each.stamp for each in begun] == ["20260102T03040542", "20260102T0304054200"]
    planned = [read_plan(tmp_path / "x", each.stamp).runs for each in begun]
    assert [[run.seed for run in runs] for runs in planned] == [[1], [2]]


def test_a_plan_of_few_seeds_may_be_of_a_campaign_of_any_number(tmp_path: Path) -> None:
    endless = campaign(f"[seeds]\ncount = {1 << 62}\n")
    begun = plan_invocation(Store(tmp_path), endless, seeds=[1, 2], world="paper")
    plan = read_plan(tmp_path / "x", begun.stamp)
    assert ([run.seed for run in plan.runs], plan.whole) == ([1, 2], False)


def test_a_plan_of_selected_runs_is_not_one_of_the_whole_campaign(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = plan_invocation(store, campaign(TWO_SEEDS), select=["*-2"], world="paper")
    plan = read_plan(tmp_path / "x", made.stamp)
    assert ([run.seed for run in plan.runs], plan.whole) == ([2], False)
    assert resume_invocation(store, campaign(TWO_SEEDS), world="paper").todo == made.todo
    all_of_them = plan_invocation(store, campaign(TWO_SEEDS), select=["*"], world="paper")
    assert read_plan(tmp_path / "x", all_of_them.stamp).whole


def test_a_changed_campaign_is_not_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match="was never run"):
        resume_invocation(store, campaign(TWO_SEEDS), world="paper")
    plan_invocation(store, campaign(TWO_SEEDS), world="paper")
    with pytest.raises(UsageError, match="has changed since it was interrupted"):
        resume_invocation(store, campaign("[seeds]\ncount = 3\n"), world="paper")


def judge_all(store: Store, invocation: CampaignInvocation) -> None:
    for planned in invocation.todo:
        run = store.create(planned)
        run.write_description({"run": run.id})
        replace(undecided(run.path, "nothing can be said"), finished=True).write(run.path / "verdict.json")


def begun_after(store: Store, earlier: CampaignInvocation, seeds: Sequence[int] = ()) -> CampaignInvocation:
    begun = plan_invocation(store, campaign(TWO_SEEDS), seeds=seeds, world="paper")
    assert begun.stamp > earlier.stamp
    return begun


def test_resume_takes_the_newest_unfinished_invocation(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun = plan_invocation(store, campaign(TWO_SEEDS), world="paper")
    later = begun_after(store, begun, seeds=[1])
    judge_all(store, later)
    resumed = resume_invocation(store, campaign(TWO_SEEDS), world="paper")
    assert (resumed.stamp, resumed.todo) == (begun.stamp, begun.todo), "one seed that was run since is not what is left"
    assert f"go on with: {command('run', 'campaigns/x.toml', '--resume', '--store', str(tmp_path))}" in never_made(
        store
    )
    judge_all(store, begun)
    with pytest.raises(UsageError, match=r"every planned run is made; see their results with: \S+ gate "):
        resume_invocation(store, campaign(TWO_SEEDS), world="paper")


def never_made(store: Store) -> str:
    return " ".join(str(entry) for entry in read_matrix(store.campaign_dir("x")).entries)


def test_a_superseded_invocation_is_not_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    judge_all(store, begun_after(store, plan_invocation(store, campaign(TWO_SEEDS), world="paper")))
    with pytest.raises(UsageError, match="every planned run is made"):
        resume_invocation(store, campaign(TWO_SEEDS), world="paper")


def test_a_plan_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    plan_invocation(store, campaign(TWO_SEEDS), world="paper")
    (plan,) = (tmp_path / "x" / "plans").glob("*.toml")
    plan.write_text("runs = 3")
    with pytest.raises(UsageError, match="is damaged"):
        resume_invocation(store, campaign(TWO_SEEDS), world="paper")


def test_a_withdrawn_invocation_keeps_only_analyzed_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = plan_invocation(store, campaign(TWO_SEEDS), seeds=[1], world="paper")
    judge_all(store, before)
    after = begun_after(store, before)
    half = store.create(after.todo[0])
    half.write_description({"run": half.id})
    withdraw(store, after)
    assert not half.path.exists()
    assert stamps(tmp_path / "x") == (before.stamp,)
    assert (tmp_path / "latest").resolve().name == before.todo[0].id, "it points at what there is"
    withdraw(store, before)
    assert stamps(tmp_path / "x") == (before.stamp,), "it is judged"


def test_runs_are_resumed_only_in_their_original_world(tmp_path: Path) -> None:
    store, elsewhere = Store(tmp_path), ["--world", "vagrant"]
    begun = plan_invocation(store, campaign(TWO_SEEDS), where=elsewhere, world="vagrant")
    with pytest.raises(UsageError, match="was last run with --world vagrant; resume it in the same world"):
        resume_invocation(store, campaign(TWO_SEEDS), world="paper")
    with pytest.raises(UsageError, match="was last run in the vagrant world, and this is the paper world"):
        resume_invocation(store, campaign(TWO_SEEDS), where=elsewhere, world="paper")
    assert resume_invocation(store, campaign(TWO_SEEDS), where=elsewhere, world="vagrant").todo == begun.todo


def test_runs_are_resumed_only_with_a_planned_time_scale(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun = plan_invocation(store, campaign(TWO_SEEDS), world="paper", time_scales=(1.0, 4.0))
    with pytest.raises(UsageError, match="was last run with the time scale 1 or 4, and its machines now have 1 or 12"):
        resume_invocation(store, campaign(TWO_SEEDS), world="paper", time_scales=(1.0, 12.0))
    assert resume_invocation(store, campaign(TWO_SEEDS), world="paper", time_scales=(4.0,)).todo == begun.todo
