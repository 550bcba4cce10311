"""Deletions that a producer draws are within what it knows to be acknowledged, and rise."""

from pathlib import Path

import pytest

from tests.workloads.running import settings
from workloads.drawn_deletions import DrawnDeletions


def drawn(tmp_path: Path, every_s: float, seed: int) -> list[tuple[int, int, int]]:
    """The partition, the offset, and the offset after the last acknowledged record, of each request in 100 s."""
    its = settings(tmp_path, "log", "p1", 1, parameters={"deletes_every_s": every_s}, seed=seed)
    deletions, found = DrawnDeletions(its, 0.0), []
    for tenth in range(1_000):
        deletions.acknowledged(tenth % 2, tenth)
        if request := deletions.take(tenth / 10):
            partition, offset = request
            found.append((partition, offset, tenth + 1 - (tenth % 2 != partition)))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_requests_rise_within_the_acknowledged_records(tmp_path: Path, seed: int) -> None:
    found = drawn(tmp_path, 1.0, seed)
    assert 60 < len(found) < 150
    assert all(offset <= end for _, offset, end in found)
    assert any(offset == end for _, offset, end in found)
    for partition in (0, 1):
        offsets = [offset for place, offset, _ in found if place == partition]
        assert offsets == sorted(offsets)
    assert found == drawn(tmp_path, 1.0, seed)


def test_a_producer_deletes_no_records_by_default(tmp_path: Path) -> None:
    assert drawn(tmp_path, 0.0, 1) == []
