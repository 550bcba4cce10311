"""The checker and the exhaustive search agree, and so do its in-process and its spread-out form."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analysis.core.conclude import conclude
from analysis.core.logcheck import check, check_in_blocks, examine_chunk
from analysis.core.rows import UPPER_BOUNDS
from analysis.core.summary import summarise, whole
from tests.analysis.exhaustive import allowed
from tests.analysis.log_histories import random_history, table

HISTORIES = 10_000


@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_the_theorem_agrees_with_exhaustive_search(upper_bound: str) -> None:
    rng = random.Random(f"agreement {upper_bound}")
    histories = [random_history(rng) for _ in range(HISTORIES)]
    report = check(table(*histories), upper_bound=upper_bound)
    wrong = {anomaly.partition for anomaly in report.anomalies}
    undecided = {int(text.split(" came")[0].rsplit("-", 1)[1]) for text in report.undecided}
    legal = 0
    for partition, history in enumerate(histories):
        expected = allowed(history, upper_bound)
        legal += expected
        if partition in undecided and partition not in wrong:
            continue
        assert (partition not in wrong) == expected, (partition, history, report.anomalies)
    assert 0.25 < legal / HISTORIES < 0.8
    assert len(undecided) < HISTORIES // 10


def cut(operations: pa.Table, rng: random.Random) -> list[pa.Table]:
    """The rows dealt out to a few tables at random; some may be empty."""
    count = rng.choice([1, 2, 3, 7])
    dealt = np.array([rng.randrange(count) for _ in range(operations.num_rows)])
    return [operations.take(np.flatnonzero(dealt == each)) for each in range(count)]


@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_spread_over_blocks_the_judgement_is_the_same(upper_bound: str, block: int) -> None:
    rng = random.Random(f"blocks {upper_bound} {block}")
    operations = table(*(random_history(rng) for _ in range(300)))
    report = check(operations, upper_bound=upper_bound)
    spread = check_in_blocks(cut(operations, rng), upper_bound=upper_bound, block=block)
    assert report.anomalies == spread.anomalies
    assert report == spread


def test_summaries_merge_in_any_grouping() -> None:
    rng = random.Random("grouping")
    for _ in range(300):
        chunk = examine_chunk(table(random_history(rng)), block=1)
        pieces = [summarise(each) for _, each in sorted(chunk.evidence.items())]
        facts = chunk.facts["log", 0]
        expected = conclude(whole(pieces), facts).findings
        while len(pieces) > 1:
            at = rng.randrange(len(pieces) - 1)
            pieces[at : at + 2] = [pieces[at].merge(pieces[at + 1])]
        assert conclude(whole(pieces), facts).findings == expected


def test_reports_of_different_partitions_merge() -> None:
    rng = random.Random("merge")
    operations = table(*(random_history(rng) for _ in range(40)))
    halves = [operations.filter(pc.field("partition") < 20), operations.filter(pc.field("partition") >= 20)]
    assert check(halves[0]).merge(check(halves[1])) == check(operations)
    with pytest.raises(ValueError, match="cannot be merged"):
        check(operations).merge(check(halves[0]))


def test_an_empty_history_is_linearizable() -> None:
    assert check(table()).ok
    assert check_in_blocks([table(), table()]).ok
    assert check_in_blocks([]).ok


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown upper_bound 'exact'"):
        check(table(), upper_bound="exact")
