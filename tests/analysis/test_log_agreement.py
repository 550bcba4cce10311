"""The checker and the exhaustive search agree, and so do its loops and its arrays."""

from __future__ import annotations

import random
from dataclasses import is_dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from analysis.core import range_evidence
from analysis.core.aggregates import COUNTS, Facts
from analysis.core.decide import conclude
from analysis.core.evidence import OffsetEvidence
from analysis.core.offset_ranges import SPAN
from analysis.core.range_evidence import by_arrays, by_loops
from analysis.core.summary import whole
from analysis.engines.log import LogPlan
from history.schemas import INF
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import GroupsInMemory, agrees_with_search, check, check_log
from tests.analysis.log_histories import Op, ok, random_history, read, stored, table

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


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("resends", [0.0, 0.4])
@pytest.mark.parametrize("span", [2, SPAN])
@pytest.mark.parametrize("upper_bound", ["strict", "lower-bound-only"])
def test_the_compiled_loops_give_the_same_evidence_and_facts(upper_bound: str, span: int, resends: float) -> None:
    rng = random.Random(f"compiled {upper_bound} {span}")
    regular = 0
    for _ in range(450):
        stored_rows = GroupsInMemory.of(table(random_history(rng, resends=resends)))
        for task in stored_rows.tasks(span):
            found = by_loops(task, stored_rows.read, upper_bound)
            if found is None:
                continue
            regular += 1
            expected = by_arrays(task, stored_rows.read, upper_bound)
            assert complete(found.facts) == complete(expected.facts)
            (by_offset,), (by_offset_expected,) = found.pieces, expected.pieces
            assert shown(by_offset, task.end) == shown(by_offset_expected, task.end)
    assert regular > 225


def complete(facts: Facts) -> object:
    """The facts as lists, with the counts of a task that owns no rows."""
    return plain(Facts(counts=dict.fromkeys(COUNTS, 0)).merge(facts))


def shown(evidence: OffsetEvidence, end: int) -> object:
    """The evidence of the offsets below `end` as lists. The loops have an entry for each offset, the arrays up to the
    last one that exists; an upper bound beyond that is not evidence."""
    size = int(np.flatnonzero((evidence.flags != 0) | (evidence.query_deadline < INF)).max(initial=-1)) + 1
    assert evidence.start + size <= end
    columns = [value[:size] for value in vars(evidence).values() if isinstance(value, np.ndarray)]
    return [evidence.start, plain(columns), plain(evidence.extras), plain(evidence.sessions)]


def plain(thing: object) -> object:
    """Nested lists and dataclasses of arrays as lists, which compare."""
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, list):
        return [plain(each) for each in thing]
    return [plain(each) for each in vars(thing).values()] if is_dataclass(thing) else thing


def test_the_compiled_loops_leave_unusual_operations_to_the_arrays() -> None:
    whole_read = read(0, [1, 2], 30, 40)
    irregular: list[list[Op]] = [
        [ok(1, 10, 20, 0), read(0, [2], 30, 40)],
        [read(0, [2], 30, 40), ok(1, 10, 20, 0)],
        [ok(1, 10, 20, 0), ok(1, 10, 20, 0)],
        [replace(whole_read, offsets=(0, 2))],
        [replace(whole_read, hi=1)],
    ]
    for history in irregular:
        rows = GroupsInMemory.of(table(history))
        (task,) = rows.tasks()
        assert by_loops(task, rows.read, "strict") is None
    rows = GroupsInMemory.of(table([whole_read]))
    (task,) = rows.tasks()
    assert by_loops(task, rows.read, "session") is not None
