"""The store: directories that explain themselves, are found by name, and belong to one process at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.unfinished import begin, undecided
from orchestrator.campaign.plan import expand
from orchestrator.campaign.store import Store
from orchestrator.errors import UsageError
from orchestrator.running.runner import plan_invocation, resume_invocation
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


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match="nothing-1: is neither a directory nor a run in the store; runs lie in"):
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


def test_an_interrupted_invocation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), campaign(TWO_SEEDS)
    begun = plan_invocation(store, plan)
    done, interrupted = (store.create(planned) for planned in begun.todo)
    done.write_description({"run": done.id})
    verdict = undecided(done.path, "it was judged, and nothing can be said")
    replace(verdict, finished=True).write(done.path / "verdict.json")
    interrupted.write_description({"run": interrupted.id})
    begin(interrupted.path)
    (interrupted.path / "history").mkdir()

    resumed = resume_invocation(store, plan)
    assert resumed.stamp == begun.stamp
    assert [run.id for run in resumed.todo] == [interrupted.id]
    assert resumed.all_ids == begun.all_ids
    assert not interrupted.path.exists()
    assert (tmp_path / "x" / "interrupted" / f"{interrupted.id}.1" / "history").is_dir()


def test_what_was_planned_and_changed_since_is_not_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match="was never run"):
        resume_invocation(store, campaign(TWO_SEEDS))
    plan_invocation(store, campaign(TWO_SEEDS))
    with pytest.raises(UsageError, match="has changed since it was interrupted"):
        resume_invocation(store, campaign("[seeds]\ncount = 3\n"))


def test_runs_are_resumed_in_the_world_that_they_were_begun_in(tmp_path: Path) -> None:
    store, elsewhere = Store(tmp_path), ["--world", "vagrant"]
    begun = plan_invocation(store, campaign(TWO_SEEDS), where=elsewhere)
    with pytest.raises(UsageError, match="was last run with --world vagrant; resume it in the same world"):
        resume_invocation(store, campaign(TWO_SEEDS))
    assert resume_invocation(store, campaign(TWO_SEEDS), where=elsewhere).todo == begun.todo
