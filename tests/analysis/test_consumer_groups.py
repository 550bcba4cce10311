"""What the judge of consumer groups lets pass, and what it does not; and how members' records are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.core.groups import judge
from history.groups import Commit, Delivered, Fetched, GroupWriter, read_groups
from history.schemas import INF


def commit(offset: int, inv: int, ret: int = INF, member: str = "a") -> Commit:
    return Commit(member, 0, offset, inv, ret)


def fetched(offset: int, inv: int, ret: int) -> Fetched:
    return Fetched("r", 0, offset, inv, ret)


def given(first: int, last: int, at: int, member: str = "a") -> Delivered:
    return Delivered(member, 0, first, last, at)


ALL = (given(0, 99, 0),)


def names(commits: list[Commit], fetches: list[Fetched], deliveries: tuple[Delivered, ...] = ALL) -> list[str]:
    return [anomaly.name for anomaly in judge("log", commits, fetches, deliveries)]


# --- commits stay


def test_a_fetch_shows_the_last_commit() -> None:
    assert (
        names([commit(5, 10, 20), commit(9, 30, 40)], [fetched(-1, 1, 5), fetched(5, 25, 28), fetched(9, 50, 60)]) == []
    )


def test_an_acknowledged_commit_that_a_later_fetch_denies_is_lost() -> None:
    assert names([commit(5, 10, 20), commit(9, 30, 40)], [fetched(5, 50, 60)]) == ["lost-acknowledged-commit"]
    assert names([commit(5, 10, 20)], [fetched(-1, 30, 40)]) == ["lost-acknowledged-commit"]


def test_what_overlaps_may_have_come_in_either_order() -> None:
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


def test_an_offset_that_nobody_committed_is_a_phantom() -> None:
    assert names([commit(5, 10, 20)], [fetched(6, 30, 40)]) == ["phantom-commit"]
    assert names([commit(5, 50, 60)], [fetched(5, 30, 40)]) == ["phantom-commit"], "nor had anybody yet"


# --- at least once


def test_records_may_be_given_twice_and_by_several_members() -> None:
    assert names([commit(10, 50, 60)], [], (given(0, 5, 1), given(3, 7, 2, "b"), given(8, 9, 3, "b"))) == []


def test_a_record_that_nobody_was_given_before_its_commit_was_skipped() -> None:
    assert names([commit(10, 50, 60)], [], (given(0, 4, 1), given(6, 9, 2))) == ["skipped-record"]
    assert names([commit(10, 50, 60)], [], (given(0, 4, 1), given(5, 9, 70))) == ["skipped-record"]
    (anomaly,) = judge("log", [commit(10, 50, 60)], [], (given(0, 4, 1), given(6, 9, 2)))
    assert anomaly.witness[1]["offset"] == 5


def test_an_unanswered_commit_skips_nothing() -> None:
    assert names([commit(10, 50)], [], (given(0, 4, 1),)) == []


# --- records


def test_what_a_member_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "history" / "operations").mkdir(parents=True)
    with GroupWriter(tmp_path / "history" / "operations", "member-1") as writer:
        writer.assigned([0, 1])
        writer.delivered(0, 3, 7, 100)
        writer.committing(1, {0: 8, 1: 2})
        writer.committed(1, [0])
        writer.fetched({0: 8, 1: -1}, inv=5)
        writer.revoked([0, 1], lost=False)
    groups = read_groups(tmp_path)
    assert groups.defects == ()
    assert (groups.members, groups.assignments) == (("member-1",), 1)
    assert [(each.partition, each.offset, each.acknowledged) for each in groups.commits] == [
        (0, 8, True),
        (1, 2, False),
    ]
    assert [(each.partition, each.offset) for each in groups.fetches] == [(0, 8), (1, -1)]
    assert groups.deliveries == (Delivered("member-1", 0, 3, 7, 100),)


def test_a_record_that_is_not_whole_says_so(tmp_path: Path) -> None:
    (tmp_path / "history" / "operations").mkdir(parents=True)
    with GroupWriter(tmp_path / "history" / "operations", "member-1") as writer:
        writer.delivered(0, 0, 1, 1)
    path = tmp_path / "history" / "groups" / "member-1.jsonl"
    header, delivered, _closed = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + delivered)
    assert read_groups(tmp_path).defects == ("groups/member-1.jsonl: it does not say that its member has ended",)
    path.write_bytes(header + delivered.replace(b'"last": 1', b'"last": 2'))
    assert any("damaged" in defect for defect in read_groups(tmp_path).defects)
    path.rename(path.with_name("member-2.jsonl"))
    assert any("that it is this member's" in defect for defect in read_groups(tmp_path).defects)


def test_a_run_without_groups_has_none(tmp_path: Path) -> None:
    assert read_groups(tmp_path).members == ()
