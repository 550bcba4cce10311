"""Random schedules of the pure replicas: every promise is checked after each step, and proof that the checks bite."""

from collections.abc import Callable

import pytest

from broker.replica.leader import PartitionLeader
from tests.broker.replica.model import Model, ViolationError

STEPS = 600


def run(seed: int, *, min_insync: int = 1, truncate_to_hw: bool = False) -> Model:
    model = Model(seed, min_insync=min_insync, truncate_to_hw=truncate_to_hw)
    for _ in range(STEPS):
        model.step()
    return model


@pytest.mark.rotating(3, among="random schedules")
@pytest.mark.conforms("K101-15", "H1", "H5", "H7", "H13", "H15")
@pytest.mark.parametrize("min_insync", [1, 2])
@pytest.mark.parametrize("block", range(3))
def test_no_schedule_loses_or_changes_committed_records(block: int, min_insync: int) -> None:
    committed = 0
    for seed in range(block * 100, block * 100 + 100):
        model = run(seed, min_insync=min_insync)
        model.come_to_rest()
        committed += len(model.committed)
    assert committed > 250  # the schedules do commit


def search(min_insync: int, *, truncate_to_hw: bool = False) -> None:
    for seed in range(2000):
        run(seed, min_insync=min_insync, truncate_to_hw=truncate_to_hw)


def count_as_in_sync(self: PartitionLeader) -> frozenset[int]:
    return frozenset(self.isr)


def join_at_the_high_watermark(self: PartitionLeader, replica: int) -> bool:
    return (
        self.pending is None
        and replica not in self.isr
        and self.follower(replica).log_end_offset >= self.high_watermark
    )


def join_at_once(self: PartitionLeader, replica: int) -> bool:
    return self.pending is None and replica not in self.isr


@pytest.mark.parametrize(
    ("attribute", "mutated", "min_insync"),
    [
        pytest.param("maximal_isr", property(count_as_in_sync), 1, id="H13"),
        pytest.param("may_join", join_at_the_high_watermark, 2, id="H5"),
        pytest.param("may_join", join_at_once, 1, id="H5-none"),
    ],
)
def test_the_schedules_find_a_broken_leader(
    monkeypatch: pytest.MonkeyPatch, attribute: str, mutated: Callable[..., object], min_insync: int
) -> None:
    monkeypatch.setattr(PartitionLeader, attribute, mutated)
    with pytest.raises(ViolationError):
        search(min_insync)


def test_the_schedules_find_truncation_to_the_high_watermark() -> None:
    with pytest.raises(ViolationError):
        search(2, truncate_to_hw=True)
