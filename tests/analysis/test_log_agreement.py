"""The checker and the exhaustive search agree, and so do its loops and its arrays."""

import random
from pathlib import Path

import pyarrow.compute as pc
import pytest

from analysis.core import range_evidence
from analysis.core.decide import conclude
from analysis.core.summary import whole
from analysis.engines.log import LogPlan
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import GroupsInMemory, agrees_with_search, check, check_log
from tests.analysis.log_histories import random_history, stored, table

PARTS = 4
HISTORIES = 1_750
"""Of each part."""


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_the_theorem_agrees_with_exhaustive_search(upper_bound: str, part: int) -> None:
    rng = random.Random(f"agreement {upper_bound} {part}")
    histories = [random_history(rng) for _ in range(HISTORIES)]
    legal, undecided = agrees_with_search(histories, upper_bound)
    assert 0.25 < legal / HISTORIES < 0.8
    assert len(undecided) < HISTORIES // 10


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_the_theorem_agrees_with_exhaustive_search_about_copies(upper_bound: str, part: int) -> None:
    """Client libraries send some records again. Fewer histories: search tries every place of every copy."""
    rng = random.Random(f"copies {upper_bound} {part}")
    histories = [random_history(rng, resends=0.4) for _ in range(HISTORIES // 5)]
    legal, undecided = agrees_with_search(histories, upper_bound)
    assert 0.25 < legal / len(histories) < 0.8
    assert len(undecided) < len(histories) // 6


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("resends", [0.0, 0.4])
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_evidence_of_several_batches_gives_the_same_report(
    monkeypatch: pytest.MonkeyPatch, upper_bound: str, block: int, resends: float
) -> None:
    """A batch of rows gives evidence by blocks of the range; the evidence of all batches is merged block by block."""
    rng = random.Random(f"blocks {upper_bound} {block}")
    operations = table(*(random_history(rng, resends=resends) for _ in range(100)))
    report = check(operations, upper_bound=upper_bound)
    monkeypatch.setattr(range_evidence, "BLOCK", block)
    monkeypatch.setattr(range_evidence, "BATCH_ROWS", rng.choice([1, 2, 4]))
    spread = GroupsInMemory.of(operations, rng.choice([2, 3, 5]), rng).report(upper_bound=upper_bound)
    assert report.anomalies == spread.anomalies
    assert report == spread


def test_summaries_merge_in_any_grouping() -> None:
    rng = random.Random("grouping")
    for _ in range(300):
        summaries, facts = GroupsInMemory.of(table(random_history(rng)), 3, rng).ranges(1)
        pieces = sorted(summaries["log", 0], key=lambda piece: piece.start)
        expected = conclude(whole(pieces), facts["log", 0]).findings
        while len(pieces) > 1:
            at = rng.randrange(len(pieces) - 1)
            pieces[at : at + 2] = [pieces[at].merge(pieces[at + 1])]
        assert conclude(whole(pieces), facts["log", 0]).findings == expected


def test_partitions_do_not_depend_on_each_other() -> None:
    rng = random.Random("merge")
    operations = table(*(random_history(rng) for _ in range(40)))
    halves = [check(operations.filter(half)) for half in (pc.field("partition") < 20, pc.field("partition") >= 20)]
    report = check(operations)
    assert {**halves[0].partitions, **halves[1].partitions} == report.partitions
    assert sorted(map(str, (*halves[0].anomalies, *halves[1].anomalies))) == sorted(map(str, report.anomalies))
    assert sorted((*halves[0].undecided, *halves[1].undecided)) == list(report.undecided)


def test_an_empty_history_is_linearizable(tmp_path: Path) -> None:
    assert check(table()).ok
    assert check_log(LogPlan.of(stored(tmp_path, table()))).ok


def test_the_checker_refuses_unknown_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown upper_bound 'exact'"):
        check_log(LogPlan.of(stored(tmp_path, table())), upper_bound="exact")
