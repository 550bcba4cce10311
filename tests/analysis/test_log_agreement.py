"""The checker and the exhaustive search agree, and so do its in-process and its spread-out form."""

from __future__ import annotations

import random
from dataclasses import is_dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analysis.core.aggregates import facts_of
from analysis.core.decide import conclude
from analysis.core.evidence import gather, lay_out
from analysis.core.fast_path import examine_large
from analysis.core.logcheck import check, check_in_blocks, examine_chunk
from analysis.core.rows import rows_of
from analysis.core.summary import summarise, whole
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.exhaustive import allowed
from tests.analysis.log_histories import Op, ok, random_history, read, table

HISTORIES = 7_000


@pytest.mark.rotating(6, among="random histories")
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_the_theorem_agrees_with_exhaustive_search(upper_bound: str) -> None:
    rng = random.Random(f"agreement {upper_bound}")
    histories = [random_history(rng) for _ in range(HISTORIES)]
    report = check(table(*histories), upper_bound=upper_bound)
    wrong = {anomaly.partition for anomaly in report.anomalies}
    undecided = {int(text.split(" were answered")[0].rsplit("-", 1)[1]) for text in report.undecided}
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


@pytest.mark.rotating(6, among="random histories")
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


@pytest.mark.rotating(6, among="random histories")
@pytest.mark.parametrize("upper_bound", ["strict", "lower-bound-only"])
def test_the_compiled_loops_give_the_same_evidence_and_facts(upper_bound: str) -> None:
    rng = random.Random(f"compiled {upper_bound}")
    regular = 0
    for number in range(300):
        operations = table(*(random_history(rng) for _ in range(1 + number % 2)))
        found = examine_large(operations, upper_bound)
        if found is None:
            continue
        regular += 1
        rows = rows_of(operations)
        evidence = gather(rows, lay_out(rows, None), upper_bound)
        assert found[0] == rows.keys
        assert [plain(each) for each in found[1]] == [plain(each) for each in evidence]
        assert [plain(each) for each in found[2]] == [plain(each) for each in facts_of(rows, upper_bound)]
    assert regular > 150


def plain(thing: object) -> object:
    """Nested dataclasses of arrays as lists, which compare."""
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    return [plain(each) for each in vars(thing).values()] if is_dataclass(thing) else thing


def test_the_compiled_loops_leave_what_is_out_of_the_ordinary_to_the_others() -> None:
    whole_read = read(0, [1, 2], 30, 40)
    irregular: list[list[Op]] = [
        [ok(1, 10, 20, 0), read(0, [2], 30, 40)],
        [read(0, [2], 30, 40), ok(1, 10, 20, 0)],
        [ok(1, 10, 20, 0), ok(1, 10, 20, 0)],
        [replace(whole_read, offsets=(0, 2))],
        [replace(whole_read, hi=1)],
        [ok(1, 10, 20, 1 << 40)],
    ]
    assert [examine_large(table(history), "strict") for history in irregular] == [None] * len(irregular)
    assert examine_large(table([whole_read]), "session") is None
