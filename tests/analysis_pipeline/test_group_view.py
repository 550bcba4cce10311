"""The page of a run with a consumer group."""

from pathlib import Path

from analysis.page.run_page import group_view, lag_over_time
from analysis.pipeline import analyze
from analysis.report import render_run
from history.journal.timeline import RunClock
from history.record.offset_record import OffsetOperation, OffsetRecord
from tests.analysis.offset_operations import commit, delivered
from tests.analysis_pipeline.stored_run import StoredRun

CLOCK = RunClock(0, 0)
SECOND = 10**9


def event(f: str, at_s: int, client: str = "m") -> OffsetOperation:
    return OffsetOperation(f, client, 0, at_s * SECOND, at_s * SECOND)


def test_the_lag_grows_with_deliveries_and_shrinks_with_acknowledged_commits() -> None:
    lags = lag_over_time([(1, 10), (5, 30)], [commit(10, 2, 3), commit(25, 6, 7)])
    assert lags == [(1, 10), (3, 0), (5, 20), (7, 5)]


def test_a_commit_of_an_older_offset_does_not_raise_the_lag() -> None:
    assert lag_over_time([(1, 10)], [commit(10, 2, 3), commit(4, 4, 5)])[-1] == (5, 0)


def test_a_view_has_members_partitions_and_holdings() -> None:
    held = (event("assign", 1), event("revoke", 3), event("assign", 4, "n"))
    commits = (commit(10, 2 * SECOND, 3 * SECOND), commit(12, 5 * SECOND))
    group = OffsetRecord((*held, *commits, delivered(0, 9, 2 * SECOND)), ("m", "n"))
    view = group_view(group, CLOCK, 8.0)
    assert view is not None
    (partition,) = view.partitions
    assert (partition.commits, partition.unanswered, partition.committed, partition.delivered) == (1, 1, 10, 9)
    assert [(each.member, each.start_s, each.end_s) for each in view.holdings] == [("m", 1.0, 3.0), ("n", 4.0, 8.0)]
    assert len(partition.points.split()) == 2


def test_partitions_beyond_the_bound_are_counted() -> None:
    given = tuple(delivered(0, 9, SECOND, partition=number) for number in range(70))
    view = group_view(OffsetRecord(given, ("m",)), CLOCK, 8.0)
    assert view is not None
    assert (len(view.partitions), view.left_out) == (64, 6)


def test_a_run_without_a_group_has_no_view() -> None:
    assert group_view(OffsetRecord(), CLOCK, 8.0) is None


def test_the_page_of_a_run_with_a_group_shows_it(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", has_group=True).write()
    analyze(run, engine="in-process", plots=False)
    page = render_run(run).read_text()
    section = page[page.index('<section id="group">') :]
    assert "member-0" in section
    assert "<polyline points=" in section
    analyze(StoredRun(tmp_path / "other").write(), engine="in-process", plots=False)
    assert '<section id="group">' not in render_run(tmp_path / "other").read_text()
