"""Variations of a schedule: changed parts, fixed parts, and possible injections."""

from collections import Counter
from random import Random

import pytest

from orchestrator.search.coverage import Stay
from orchestrator.search.exploring import Chance, possible, vary
from orchestrator.search.steps_of_run import InjectedFault, InjectedFaults, asked_for, steps_of

KINDS = ("kill", "pause", "power-loss", "power-loss-all", "partition-one", "partition-halves", "stop")
NODES = ("n1", "n2", "n3")
ALONE = Stay(5.0, 0.1, {"up/leaderi": ["n2"], "up/followero": ["n1", "n3"]})
"""A stay of a tenth of a second."""


def schedule(*faults: InjectedFault) -> InjectedFaults:
    return InjectedFaults(faults or (InjectedFault("kill", ("n1",), 1.0, 2.0, {}),), 10.0)


ORIGINAL = schedule(
    InjectedFault("kill", ("n1",), 1.0, 2.5, {}),
    InjectedFault("partition-one", ("n2",), 3.0, 5.0, {"direction": "both"}),
    InjectedFault("power-loss", ("n3",), 6.0, 8.0, {"tear": None}),
)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("rare", [None, ALONE])
def test_every_variation_can_be_injected_and_proven(seed: int, rare: Stay | None) -> None:
    chance, varied = Chance(Random(seed), NODES, KINDS, ORIGINAL.lasted_s, rare), ORIGINAL
    for _ in range(5):
        varied = vary(varied, schedule(), chance)
    assert all(0 <= it.begin_s < it.end_s <= varied.lasted_s for it in varied.faults)
    for number, one in enumerate(varied.faults):
        for other in varied.faults[number + 1 :]:
            if other.begin_s < one.end_s:
                assert not set(one.targets) & set(other.targets) or "partition" in one.kind + other.kind
                assert "power-loss-all" not in (one.kind, other.kind)
                assert not ("partition" in one.kind and other.kind.startswith("power"))
    assert steps_of(varied, NODES) or not varied.faults


def variations(parent: InjectedFaults, rare: Stay | None, kinds: tuple[str, ...] = KINDS) -> list[InjectedFaults]:
    return [vary(parent, schedule(), Chance(Random(seed), NODES, kinds, parent.lasted_s, rare)) for seed in range(300)]


def struck(variation: InjectedFaults) -> list[InjectedFault]:
    """The faults that start during the stay."""
    return [it for it in variation.faults if ALONE.at_s <= it.begin_s <= ALONE.at_s + ALONE.lasts_s]


def test_a_variation_strikes_during_the_stay_where_few_runs_were() -> None:
    assert sum(bool(struck(it)) for it in variations(schedule(), ALONE)) > 150
    assert sum(bool(struck(it)) for it in variations(schedule(), None)) < 30


def test_the_target_of_a_strike_is_drawn_by_role() -> None:
    """The leader is as likely to be hit as both followers together."""
    made = variations(schedule(), ALONE, ("kill",))
    hit = Counter(target for it in made if (new := struck(it)) for target in new[0].targets)
    assert hit.keys() == set(NODES)
    assert 0.4 < hit["n2"] / hit.total() < 0.6


def test_the_schedule_before_a_strike_stays_unchanged() -> None:
    """So the run reaches the rare state again."""
    before = tuple(it for it in ORIGINAL.faults if it.begin_s < ALONE.at_s)
    struck_there = [it for it in variations(ORIGINAL, ALONE) if struck(it)]
    assert sum(it.faults[: len(before)] == before for it in struck_there) > 0.9 * len(struck_there)


def test_a_fault_in_force_does_not_delay_a_strike() -> None:
    """n2 does not run, so only the others are hit, and at once."""
    parent = schedule(InjectedFault("kill", ("n2",), 4.0, 9.0, {}))
    made = [it for it in variations(parent, ALONE, ("kill",)) if struck(it)]
    assert len(made) > 100
    assert all(new.targets != ("n2",) for it in made for new in struck(it))


def test_without_a_running_node_a_fault_follows_instead_of_a_strike() -> None:
    parent = schedule(InjectedFault("power-loss-all", NODES, 4.0, 6.0, {"tear": None}))
    assert not any(struck(it) for it in variations(parent, ALONE))
    assert any(len(it.faults) > 1 for it in variations(parent, ALONE))


def test_further_faults_follow_a_strike_on_other_nodes() -> None:
    """During the strike or right after it, on another node."""
    made = [it for it in variations(schedule(), ALONE, ("kill", "pause")) if struck(it)]
    followed = 0
    for variation in made:
        (first, *_), faults = struck(variation), variation.faults
        upon = [it for it in faults if it is not first and first.begin_s <= it.begin_s <= first.end_s + 0.5]
        assert all(it.targets != first.targets for it in upon if it.begin_s <= first.end_s)
        followed += bool(upon)
    assert followed > 0.8 * len(made)


def test_strike_times_are_converted_to_the_clock_of_the_script() -> None:
    """Each step takes time itself, and the next ones wait for it; on three nodes, one after the other."""
    asked = schedule(
        InjectedFault("power-loss-all", NODES, 1.0, 2.0, {"tear": None}), InjectedFault("kill", ("n1",), 4.0, 5.0, {})
    )
    happened = schedule(
        *(InjectedFault("power-loss", (name,), 1.1 + at / 100, 2.3 + at / 100, {}) for at, name in enumerate(NODES)),
        InjectedFault("kill", ("n1",), 4.32, 5.4, {}),
    )
    assert asked_for(0.5, asked, happened) == 0.5, "nothing had been done"
    assert asked_for(3.0, asked, happened) == pytest.approx(3.0 - 0.32)
    assert asked_for(4.32, asked, happened) == pytest.approx(4.0)
    assert asked_for(6.0, asked, happened) == pytest.approx(5.6)
    assert asked_for(3.0, asked, asked) == 3.0


def test_a_fault_that_overlaps_another_on_its_node_is_moved_after_it() -> None:
    one, other = InjectedFault("kill", ("n1",), 1.0, 3.0, {}), InjectedFault("pause", ("n1",), 2.0, 2.5, {})
    moved = possible([other, one], 10.0)[1]
    assert moved.kind == "pause"
    assert moved.begin_s == pytest.approx(3.2)
    assert possible([one, other], 3.5) == [one], "what has no time left is gone"
    elsewhere = InjectedFault("pause", ("n2",), 2.0, 2.5, {})
    assert possible([one, elsewhere], 10.0) == [one, elsewhere], "on two nodes faults may meet"
