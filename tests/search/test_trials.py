"""Trials of candidates: their result, their cost, and the remembered results."""

from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun
from orchestrator.errors import UsageError
from orchestrator.search.campaign_document import Document, document_of
from orchestrator.search.shrinking import Budget, SpentError, Trials
from tests.worlds.simulated import campaign

ANOMALY = "lost-acknowledged-write"
Shows = Callable[[PlannedRun], bool]


@dataclass
class FakeMaker:
    """Gives runs their results."""

    shows: Shows
    verdict: str = "fail"
    anomaly: str = ANOMALY
    finished: bool = True

    def __post_init__(self) -> None:
        self.seeds: list[int] = []

    def make(self, planned: PlannedRun) -> Any:
        self.seeds.append(planned.seed)
        anomalies = (self.anomaly,) if self.shows(planned) else ()
        verdict = SimpleNamespace(verdict=self.verdict if anomalies else "pass", reasons=("why",))
        return SimpleNamespace(verdict=verdict, anomalies=anomalies, finished=self.finished)


@pytest.fixture
def whole() -> Document:
    bounce = load(campaign("bounce-unseen"))
    steps: list[dict[str, Any]] = [{"do": "produce", "count": 3}, {"do": "kill", "node": "n1"}]
    return document_of(bounce, bounce.cells[0], 4, steps, suffix="-x", description="")


def trials(maker: FakeMaker, directory: Path, *, tries: int = 3, budget: str = "100") -> Trials:
    def heard(*_: object) -> None:
        pass

    return Trials(maker, directory, ANOMALY, Budget.of(budget), seed=4, tries=tries, heard=heard)  # type: ignore[arg-type]


def test_a_candidate_must_show_it_as_often_as_the_whole(whole: Document, tmp_path: Path) -> None:
    maker = FakeMaker(lambda planned: planned.seed in (5, 6))
    tried = trials(maker, tmp_path)
    assert tried(whole)
    assert maker.seeds == [4, 5, 6]
    assert tried.best is not None
    assert tried.best.data["seeds"] == {"first": 5, "count": 1}, "a seed that shows it"
    smaller = whole.with_steps(whole.steps[:1])
    assert tried(smaller)
    assert maker.seeds[3:] == [5, 6], "two are enough, and those that have shown it are asked first"
    maker.shows = lambda planned: planned.seed == 5
    assert not tried(whole.with_steps(whole.steps[1:]))
    assert maker.seeds[5:] == [5, 6, 4]
    assert tried.best.steps == smaller.steps


def test_a_trial_ends_when_its_result_is_certain(whole: Document, tmp_path: Path) -> None:
    maker = FakeMaker(lambda _: True)
    tried = trials(maker, tmp_path)
    assert tried(whole)
    maker.shows = lambda _: False
    assert not tried(whole.with_steps(whole.steps[:1]))
    assert len(maker.seeds) == 3 + 1, "all three had to show it"
    assert not tried(whole.with_steps(whole.steps[:1])), "nothing is run twice"
    assert len(maker.seeds) == 3 + 1


@pytest.mark.parametrize("change", [{"verdict": "unknown"}, {"anomaly": "stale-read"}])
def test_only_a_run_that_fails_by_the_same_anomaly_counts(
    whole: Document, tmp_path: Path, change: dict[str, Any]
) -> None:
    assert not trials(FakeMaker(lambda _: True, **change), tmp_path)(whole)


def test_a_complete_run_is_replaced_only_by_complete_runs(whole: Document, tmp_path: Path) -> None:
    """A script without too many of its steps fails for that, and would show only the events before."""
    maker = FakeMaker(lambda _: True)
    tried = trials(maker, tmp_path)
    assert tried(whole)
    maker.finished = False
    assert not tried(whole.with_steps(whole.steps[:1]))
    assert not tried.shows(whole, 9, free=True)
    assert tried.to_the_end


def test_if_no_run_completes_candidates_need_not_complete(whole: Document, tmp_path: Path) -> None:
    """What is broken may keep a cluster from ever being whole again."""
    maker = FakeMaker(lambda planned: planned.seed in (4, 6), finished=False)
    tried = trials(maker, tmp_path)
    assert tried(whole)
    assert not tried.to_the_end
    assert tried(whole.with_steps(whole.steps[:1]))
    assert maker.seeds == [4, 5, 6, 4, 6], "two of three had shown it"
    maker.finished = True
    assert tried(whole.with_steps(whole.steps[1:])), "nor may none"


def test_seeds_with_complete_runs_are_preferred(whole: Document, tmp_path: Path) -> None:
    maker = FakeMaker(lambda _: True)
    make = maker.make

    def mixed(planned: PlannedRun) -> Any:
        maker.finished = planned.seed == 5
        return make(planned)

    maker.make = mixed  # type: ignore[method-assign]
    tried = trials(maker, tmp_path)
    assert tried(whole)
    assert tried.to_the_end
    assert tried.best is not None
    assert tried.best.data["seeds"] == {"first": 5, "count": 1}


def test_an_invalid_candidate_makes_no_run_and_an_error_is_undecided(whole: Document, tmp_path: Path) -> None:
    maker = FakeMaker(lambda _: True)
    tried = trials(maker, tmp_path, tries=1)
    assert tried(whole)
    assert not tried(whole.with_steps([{"do": "start", "node": "A"}])), "no step names a node A"
    assert len(maker.seeds) == 1

    def broken(_: PlannedRun) -> bool:
        raise KeyError("planted")

    maker.shows = broken
    assert tried.undecided == []
    assert not tried(whole.with_steps(whole.steps[:1]))
    assert tried.undecided == ["seed 4: KeyError: 'planted'"]
    maker.shows, maker.verdict = lambda _: True, "unknown"
    assert not tried(whole.with_steps(whole.steps[1:]))
    assert tried.undecided[1:] == ["seed 4: why"]


@pytest.mark.parametrize("error", [OSError(ENOSPC, "full"), UsageError("no run can be made")], ids=["a", "b"])
def test_an_error_of_the_machine_ends_the_search(error: Exception, whole: Document, tmp_path: Path) -> None:
    """Else a disk that is full would leave nothing more to be taken away."""

    def full(_: PlannedRun) -> bool:
        raise error from OSError(ENOSPC, "full")

    with pytest.raises(type(error)):
        trials(FakeMaker(full), tmp_path)(whole)


def test_a_budget_is_spent_by_runs_and_keeps_the_best(whole: Document, tmp_path: Path) -> None:
    tried = trials(FakeMaker(lambda _: True), tmp_path, tries=2, budget="3")
    assert tried(whole)
    with pytest.raises(SpentError):
        tried(whole.with_steps(whole.steps[:1]))
    assert tried.best is not None
    assert tried.best.steps == whole.steps
    assert tried.shows(whole, 9, free=True), "what only confirms is not counted"
