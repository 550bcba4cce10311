"""The checker of consumer groups: histories that pass, histories that fail, and the reader of members' records."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.core.groups import judge
from analysis.evidence.offset_history import assignments
from history.record.offset_record import COMMIT, DELIVER, FETCH, GROUPS, OffsetOperation, OffsetWriter, read_offsets
from history.record.schemas import INF
from tests.analysis.offset_operations import commit, delivered, fetched
from tests.analysis.register_histories import explicable, read, write

Operations = Sequence[OffsetOperation]
ALL = (delivered(0, 99, 0),)


def names(
    commits: list[OffsetOperation], fetches: list[OffsetOperation], deliveries: tuple[OffsetOperation, ...] = ALL
) -> list[str]:
    return [anomaly.name for anomaly in judge("log", commits, fetches, deliveries)]


# --- commits stay


def test_a_fetch_shows_the_last_commit() -> None:
    assert (
        names([commit(5, 10, 20), commit(9, 30, 40)], [fetched(-1, 1, 5), fetched(5, 25, 28), fetched(9, 50, 60)]) == []
    )


def test_an_acknowledged_commit_that_a_later_fetch_denies_is_lost() -> None:
    assert names([commit(5, 10, 20), commit(9, 30, 40)], [fetched(5, 50, 60)]) == ["lost-acknowledged-commit"]
    assert names([commit(5, 10, 20)], [fetched(-1, 30, 40)]) == ["lost-acknowledged-commit"]


def test_overlapping_operations_may_have_either_order() -> None:
    assert names([commit(5, 10, 35), commit(9, 30, 40)], [fetched(5, 50, 60)]) == []
    assert names([commit(5, 10, 20), commit(9, 30, 55)], [fetched(5, 50, 60)]) == []


def test_a_member_of_a_later_generation_may_commit_less() -> None:
    assert names([commit(9, 10, 20), commit(5, 30, 40, "b")], [fetched(5, 50, 60)]) == []


def test_a_commit_without_an_answer_may_take_effect_late_or_never() -> None:
    assert names([commit(5, 10), commit(9, 20, 30)], [fetched(5, 50, 60)]) == []
    assert names([commit(5, 10, 20), commit(9, 30)], [fetched(5, 50, 60)]) == []


@pytest.mark.parametrize(("took_s", "expected"), [(3.9, ["lost-acknowledged-commit"]), (4.0, []), (60.0, [])])
def test_a_commit_that_may_have_been_sent_twice_may_take_effect_again(took_s: float, expected: list[str]) -> None:
    answered = int(took_s * 1e9)
    later = commit(9, answered + 10, answered + 20)
    assert names([commit(5, 0, answered), later], [fetched(5, answered + 30, answered + 40)]) == expected


def test_a_commit_that_was_answered_late_stays_all_the_same() -> None:
    slow = commit(9, 30, 30 + 60 * 10**9)
    assert names([commit(5, 10, 20), slow], [fetched(5, slow.ret + 1, slow.ret + 2)]) == ["lost-acknowledged-commit"]
    assert names([slow], [fetched(-1, slow.ret + 1, slow.ret + 2)]) == ["lost-acknowledged-commit"]


def test_an_offset_that_was_shown_stays_whether_its_commit_was_answered_or_not() -> None:
    assert names([commit(5, 10, 20), commit(9, 30)], [fetched(9, 40, 50), fetched(5, 60, 70)]) == [
        "lost-acknowledged-commit"
    ]
    assert names([commit(9, 30)], [fetched(9, 40, 50), fetched(-1, 60, 70)]) == ["lost-acknowledged-commit"]
    both_at_once = [commit(5, 10, 20), commit(9, 15)]
    assert names(both_at_once, [fetched(9, 40, 50), fetched(5, 60, 70)]) == ["lost-acknowledged-commit"], (
        "whichever was first, when 9 was shown the other was over"
    )
    (anomaly,) = judge("log", [commit(5, 10, 20), commit(9, 30)], [fetched(9, 40, 50), fetched(5, 60, 70)], ALL)
    assert [(its["kind"], its["offset"]) for its in anomaly.witness] == [
        ("commit", 5),
        ("fetched", 9),
        ("fetched", 5),
    ]
    assert anomaly.sentence.startswith("offset 9 was committed for log-0 and shown, and a later fetch shows offset 5")


@pytest.mark.parametrize(
    ("commits", "fetches"),
    [
        pytest.param([commit(5, 10, 20)], [fetched(5, 30, 40), fetched(5, 50, 60)], id="the same again"),
        pytest.param(
            [commit(5, 10, 20), commit(9, 30), commit(5, 32, 90, "b")],
            [fetched(9, 40, 50), fetched(5, 60, 70)],
            id="another member commits the same offset again, at that time",
        ),
        pytest.param(
            [commit(5, 10), commit(9, 30, 35)],
            [fetched(9, 40, 50), fetched(5, 60, 70), fetched(5, 80, 90)],
            id="an unanswered commit takes effect late",
        ),
        pytest.param(
            [commit(5, 10), commit(9, 12)],
            [fetched(5, 20, 30), fetched(9, 40, 50), fetched(5, 60, 70)],
            id="unanswered commits may be sent again, in any order",
        ),
        pytest.param(
            [commit(5, 10, 45), commit(9, 30)],
            [fetched(9, 40, 50), fetched(5, 60, 70)],
            id="the other took effect while the one was asked for",
        ),
        pytest.param(
            [commit(5, 10, 20), commit(9, 15)],
            [fetched(9, 12, 50), fetched(5, 60, 70)],
            id="it may have been shown before the other took effect",
        ),
        pytest.param(
            [commit(5, 10, 20), commit(9, 30)],
            [fetched(9, 40, 60), fetched(5, 55, 70)],
            id="both were asked at the same time",
        ),
        pytest.param(
            [commit(9, 10, 20), commit(5, 52, 55, "b"), commit(9, 75, 78)],
            [fetched(9, 40, 50), fetched(5, 60, 70), fetched(9, 80, 90)],
            id="to and fro",
        ),
        pytest.param(
            [commit(5, 0, 4 * 10**9), commit(9, 5 * 10**9)],
            [fetched(9, 6 * 10**9, 7 * 10**9), fetched(5, 8 * 10**9, 9 * 10**9)],
            id="the other may have been sent twice",
        ),
    ],
)
def test_a_possibly_later_commit_may_replace_a_shown_offset(
    commits: list[OffsetOperation], fetches: list[OffsetOperation]
) -> None:
    assert names(commits, fetches) == []


def test_the_checker_finds_no_lost_commit_in_a_register_history() -> None:
    """Soundness: a register to which each commit happens within its time, or, unanswered, any number of times later."""
    rng = random.Random(7)
    for _ in range(2_000):
        effects: list[tuple[float, int]] = []
        commits = []
        for _ in range(rng.randint(1, 5)):
            offset, inv, took = rng.randint(1, 3), rng.randint(0, 60), rng.randint(0, 25)
            answered = rng.random() < 0.6
            commits.append(commit(offset, inv, inv + took if answered else INF))
            times = 1 if answered else rng.randint(0, 2)
            effects += [(rng.uniform(inv, inv + (took if answered else 80)), offset) for _ in range(times)]
        effects.sort()
        fetches = []
        for _ in range(rng.randint(2, 6)):
            inv, took = rng.randint(0, 140), rng.randint(0, 25)
            seen = rng.uniform(inv, inv + took)
            shown = [offset for at, offset in effects if at < seen]
            fetches.append(fetched(shown[-1] if shown else -1, inv, inv + took))
        assert names(commits, fetches) == [], (commits, fetches, effects)


def test_an_offset_without_a_commit_is_a_phantom() -> None:
    assert names([commit(5, 10, 20)], [fetched(6, 30, 40)]) == ["phantom-commit"]
    assert names([commit(5, 50, 60)], [fetched(5, 30, 40)]) == ["phantom-commit"], "the commit is later than the fetch"


# --- at least once


def test_records_may_be_given_twice_and_by_several_members() -> None:
    assert names([commit(10, 50, 60)], [], (delivered(0, 5, 1), delivered(3, 7, 2, "b"), delivered(8, 9, 3, "b"))) == []


def test_a_record_not_delivered_before_its_commit_is_skipped() -> None:
    assert names([commit(10, 50, 60)], [], (delivered(0, 4, 1), delivered(6, 9, 2))) == ["skipped-record"]
    assert names([commit(10, 50, 60)], [], (delivered(0, 4, 1), delivered(5, 9, 70))) == ["skipped-record"]
    (anomaly,) = judge("log", [commit(10, 50, 60)], [], (delivered(0, 4, 1), delivered(6, 9, 2)))
    assert anomaly.witness[1]["offset"] == 5


def test_an_unanswered_commit_does_not_count_as_a_skip() -> None:
    assert names([commit(10, 50)], [], (delivered(0, 4, 1),)) == []


# --- records


@pytest.fixture
def operations(tmp_path: Path) -> Path:
    directory = tmp_path / "history" / "operations"
    directory.mkdir(parents=True)
    return directory


def test_the_reader_reads_the_file_of_a_member(operations: Path, tmp_path: Path) -> None:
    with OffsetWriter(operations, GROUPS, "member-1") as writer:
        writer.event("assign", [0, 1])
        acknowledged = writer.commit({0: 8, 1: 2}, attempt_s=4.0)
        acknowledged([0])
        writer.fetched({0: 8, 1: -1}, inv=5)
        writer.event("revoke", [0, 1])
        writer.add("deliver", 0, ret=writer.clock(), first=3, offset=7)
    group = read_offsets(tmp_path, GROUPS)
    assert group.defects == ()
    assert (group.clients, assignments(group)) == (("member-1",), 1)
    assert [(each.partition, each.offset, each.acknowledged) for each in group.of(COMMIT)] == [
        (0, 8, True),
        (1, 2, False),
    ]
    assert [(each.partition, each.offset) for each in group.of(FETCH)] == [(0, 8), (1, -1)]
    assert [(each.client, each.first, each.offset) for each in group.of(DELIVER)] == [("member-1", 3, 7)]


@pytest.mark.parametrize(("answered_s", "attempt_s", "is_over"), [(3, 4.0, True), (6, 4.0, False), (6, 16.0, True)])
def test_a_commit_may_be_sent_twice_after_the_time_of_an_attempt(
    operations: Path, tmp_path: Path, answered_s: int, attempt_s: float, is_over: bool
) -> None:
    now = 0
    with OffsetWriter(operations, GROUPS, "member-1", lambda: now) as writer:
        acknowledged = writer.commit({0: 8}, attempt_s)
        now = answered_s * 10**9
        acknowledged([0])
    (commit,) = read_offsets(tmp_path, GROUPS).of(COMMIT)
    assert commit.acknowledged
    assert (commit.over == commit.ret) is is_over


def test_an_incomplete_record_is_reported(operations: Path, tmp_path: Path) -> None:
    with OffsetWriter(operations, GROUPS, "member-1") as writer:
        writer.add("deliver", 0, ret=1, first=0, offset=1)
    path = tmp_path / "history" / "groups" / "member-1.jsonl"
    header, delivered, _closed = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + delivered)
    assert read_offsets(tmp_path, GROUPS).defects == (
        "groups/member-1.jsonl: it does not say that its client has ended",
    )
    path.write_bytes(header + delivered.replace(b'"offset": 1', b'"offset": 2'))
    assert any("damaged" in defect for defect in read_offsets(tmp_path, GROUPS).defects)
    path.rename(path.with_name("member-2.jsonl"))
    assert any("that it is this client's" in defect for defect in read_offsets(tmp_path, GROUPS).defects)


def test_a_run_without_groups_reads_as_zero_groups(tmp_path: Path) -> None:
    assert read_offsets(tmp_path, GROUPS).clients == ()


# --- witnesses


def contradictory(rows: list[dict[str, Any]]) -> bool:
    """Whether no order of commits explains the fetches, if members whose commits are not shown may have committed each
    offset that nobody is shown to commit."""
    writes = [row for row in rows if row["kind"] == "commit"]
    shown = {row["offset"] for row in rows if row["kind"] == "fetched"} - {-1}
    hidden = [write(each, 0) for each in sorted(shown - {row["offset"] for row in writes})]
    reads = [
        read(None if row["offset"] < 0 else row["offset"], row["inv"], row["ret"])
        for row in rows
        if row["kind"] == "fetched"
    ]
    return not explicable([*(write(row["offset"], row["inv"], row["ret"]) for row in writes), *hidden, *reads])


def test_each_operation_of_a_witness_belongs_to_the_contradiction() -> None:
    rng = random.Random("group witnesses")
    kinds: Counter[tuple[str, int]] = Counter()
    for _ in range(4_000):
        commits = []
        for _ in range(rng.randint(1, 5)):
            inv, took = rng.randint(0, 60), rng.randint(0, 25)
            answered = 4 * (inv + took) + 2 if rng.random() < 0.6 else INF
            commits.append(commit(rng.randint(1, 3), 4 * inv, answered))
        fetches = []
        for _ in range(rng.randint(1, 5)):
            inv = rng.randint(0, 100)
            fetches.append(fetched(rng.choice([-1, 1, 2, 3]), 4 * inv + 1, 4 * (inv + rng.randint(0, 25)) + 3))
        for anomaly in judge("log", commits, fetches, (delivered(0, 9, 0),)):
            rows = list(anomaly.witness)
            if anomaly.name == "phantom-commit" and len(rows) == 1:
                continue  # that nobody committed an offset rests on the whole history
            assert contradictory(rows), (commits, fetches, anomaly)
            superfluous = [row for row in rows if contradictory([each for each in rows if each is not row])]
            assert superfluous == [], (commits, fetches, anomaly)
            kinds[anomaly.name, len(rows)] += 1
    assert {name for name, _ in kinds} == {"lost-acknowledged-commit", "phantom-commit"}
    assert {size for _, size in kinds} == {2, 3, 4}
