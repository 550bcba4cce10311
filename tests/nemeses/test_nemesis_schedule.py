"""Schedules: drawn from the seed alone, complete, bounded, and aimed by the cluster as it is."""

from collections import Counter
from itertools import pairwise

import pytest

from nemeses import KINDS, ClusterView, Fault
from nemeses.mechanisms.partition import cut_pairs
from nemeses.schedule import FaultPlan, Schedule, ScheduleError, plan_schedule
from nemeses.targeting import Aim

NAMES = tuple(KINDS)

VIEW = ClusterView(
    nodes=("n1", "n2", "n3", "n4", "n5"),
    leaders={("t", 0): "n2", ("t", 1): "n2"},
    isr={("t", 0): ("n2", "n3"), ("t", 1): ("n4",)},
    controller="n5",
)


def draw(seed: int = 1, kinds: tuple[str, ...] = NAMES, total_s: float = 120, overlap: bool = False) -> Schedule:
    return plan_schedule(
        seed,
        kinds,
        total_s=total_s,
        interval_s=(1, 4),
        duration_s=(2, 6),
        overlap=overlap,
    )


def plan(kind: str, aim: Aim = "any", draw: float = 0.3) -> FaultPlan:
    return FaultPlan(kind, 1.0, 2.0, aim, draw)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_a_kind_that_is_listed_twice_counts_once() -> None:
    assert draw(7, (*NAMES, *NAMES)) == draw(7, NAMES)


@pytest.mark.parametrize("seed", range(50))
def test_faults_are_bounded_and_every_kind_occurs(seed: int) -> None:
    schedule = draw(seed)
    assert {each.kind for each in schedule} == set(KINDS)
    assert len({each.kind for each in schedule.plans[: len(KINDS)]}) == len(KINDS), "all before any comes again"
    assert all(earlier.heals_at < later.at for earlier, later in pairwise(schedule)), "no two overlap"
    assert schedule.plans[-1].heals_at <= 120
    assert all(2 <= each.duration_s <= 6 for each in schedule)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("overlap", [False, True])
def test_a_tight_schedule_still_has_every_kind(seed: int, overlap: bool) -> None:
    least = len(KINDS) + 2 if overlap else len(KINDS) * 3
    schedule = draw(seed, total_s=least + 0.5, overlap=overlap)
    assert {each.kind for each in schedule} == set(KINDS)
    assert max(each.heals_at for each in schedule) <= least + 0.5


def test_faults_overlap_only_when_they_may() -> None:
    together = [draw(seed, overlap=True) for seed in range(20)]
    assert any(earlier.heals_at > later.at for each in together for earlier, later in pairwise(each))


def test_no_faults_make_an_empty_schedule() -> None:
    assert len(draw(kinds=())) == 0


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"kinds": ("kil",)}, "use some of: clock-drift, clock-freeze"),
        ({"total_s": 3 * len(KINDS) - 0.1}, "lengthen it"),
        ({"interval_s": (4, 1)}, "smaller number first"),
        ({"duration_s": (-1, 1)}, "none negative"),
        ({"interval_s": (0, 0), "duration_s": (0, 0)}, "give one of them a length"),
        ({"interval_s": (0, 0), "overlap": True}, "give it a length"),
    ],
)
def test_an_impossible_schedule_is_refused_with_the_remedy(arguments: dict[str, object], remedy: str) -> None:
    asked = {"kinds": NAMES, "total_s": 120.0, "interval_s": (1, 4), "duration_s": (2, 6)} | arguments
    with pytest.raises(ScheduleError, match=remedy):
        plan_schedule(1, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("aim", "expected"),
    [
        ("leader", {"n2"}),
        ("controller", {"n5"}),
        ("follower", {"n1", "n3", "n4", "n5"}),
        ("last-isr", {"n4"}),
        ("any", set(VIEW.nodes)),
    ],
)
def test_aims_are_turned_into_nodes_by_the_view(aim: Aim, expected: set[str]) -> None:
    aimed = {plan("kill", aim, draw / 100).resolve(VIEW).targets for draw in range(100)}
    assert {name for targets in aimed for name in targets} == expected
    assert all(len(targets) == 1 for targets in aimed)


def test_without_a_view_a_role_resolves_to_any_node() -> None:
    blind = ClusterView(nodes=("n1", "n2", "n3"))
    aims: tuple[Aim, ...] = ("leader", "controller", "follower", "last-isr")
    for aim in aims:
        assert plan("pause", aim).resolve(blind).targets[0] in blind.nodes


def test_without_partitions_the_controller_is_the_leader() -> None:
    view = ClusterView(nodes=("n1", "n2", "n3"), controller="n2")
    expected: dict[Aim, set[str]] = {"leader": {"n2"}, "follower": {"n1", "n3"}}
    for aim, names in expected.items():
        assert {plan("kill", aim, draw / 100).resolve(view).targets[0] for draw in range(100)} == names


def test_the_same_view_resolves_to_the_same_fault() -> None:
    assert plan("kill").resolve(VIEW) == plan("kill").resolve(VIEW)
    with pytest.raises(ScheduleError, match="no nodes"):
        plan("kill").resolve(ClusterView(nodes=()))


def test_kinds_have_the_targets_of_their_names() -> None:
    assert plan("power-loss-all").resolve(VIEW).targets == VIEW.nodes
    assert len(plan("partition-halves").resolve(VIEW).targets) == 2
    leaders = {
        each.resolve(VIEW).targets for seed in range(30) for each in draw(seed) if each.kind == "partition-leader"
    }
    assert leaders == {("n2",)}


def test_leaders_are_hit_more_often_than_by_chance() -> None:
    hits = Counter(each.resolve(VIEW).targets for seed in range(60) for each in draw(seed) if each.kind == "kill")
    assert hits[("n2",)] > sum(hits.values()) / len(VIEW.nodes)


def test_parameters_fit_the_kind() -> None:
    plans = [each for seed in range(30) for each in draw(seed)]
    assert {each.parameters["direction"] for each in plans if each.kind == "partition-one"} == {"both", "in", "out"}
    tears = [each.parameters["tear"] for each in plans if each.kind == "power-loss"]
    assert None in tears
    assert any(isinstance(tear, int) for tear in tears)
    gentle = ("kill", "pause", "stall", "clock-freeze")
    assert all(not each.parameters for each in plans if each.kind in gentle)
    jumps = [each.parameters["jump_s"] for each in plans if each.kind == "clock-jump"]
    assert {jump > 0 for jump in jumps} == {True, False}
    assert all(2 <= abs(jump) <= 3600 for jump in jumps)
    delays = [each.parameters for each in plans if each.kind == "packet-delay"]
    assert all(20 <= each["delay_ms"] <= 500 and 0 <= each["jitter_ms"] <= each["delay_ms"] / 2 for each in delays)
    assert all(1 <= each.parameters["percent"] <= 50 for each in plans if each.kind == "packet-loss")


def test_seeds_of_old_runs_still_mean_the_same_faults() -> None:
    old = ("kill", "pause", "power-loss", "power-loss-all", "partition-one", "partition-halves", "partition-leader")
    plans = draw(7, old).plans
    assert [each.kind for each in plans[:8]] == [
        "power-loss",
        "pause",
        "power-loss-all",
        "kill",
        "partition-one",
        "partition-leader",
        "partition-halves",
        "partition-one",
    ]
    assert [round(each.at, 6) for each in plans[:3]] == [2.748364, 10.031275, 14.62958]
    drawn = [each.parameters for each in plans if each.kind in ("power-loss", "partition-one")]
    assert drawn[:3] == [{"tear": None}, {"direction": "out"}, {"direction": "in"}]


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("both", {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")}),
        ("out", {("a", "b"), ("a", "c")}),
        ("in", {("b", "a"), ("c", "a")}),
    ],
)
def test_directions_give_the_blocked_traffic_of_the_targets(direction: str, expected: set[tuple[str, str]]) -> None:
    fault = Fault("partition-one", ("a",), parameters={"direction": direction})
    assert cut_pairs(fault, "abc") == expected


def test_pairs_may_be_given_one_by_one() -> None:
    fault = Fault("partition-one", (), parameters={"pairs": [["a", "c"]]})
    assert cut_pairs(fault, "abc") == {("a", "c")}
