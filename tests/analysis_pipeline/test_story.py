"""The story around an anomaly: its items, their order, and the state of nodes and faults."""

import pytest

from analysis.page.story import (
    Focus,
    Story,
    StoryItem,
    StoryKind,
    event_items,
    journal_items,
    log_items,
    story_of,
    time_of,
)
from history.journal.timeline import RunClock

NODES = ("n1", "n2")


def item(at_s: float, text: str, *, rank: int = 2, kind: StoryKind = StoryKind.OTHER, **more: str) -> StoryItem:
    return StoryItem(at_s, more.pop("lane", "n1"), kind, text, "file", 1, rank, **more)


def texts(story: Story) -> list[str]:
    return [row.item.text for row in story.rows]


def test_items_of_all_sources_are_in_order_of_time() -> None:
    story = story_of([item(2, "b"), item(1, "a"), item(3, "c", lane="n2")], lanes=NODES, moments=[1.5])
    assert texts(story) == ["a", "b", "c"]


def test_the_time_span_is_that_of_the_moments_and_two_seconds_on_both_sides() -> None:
    items = [item(at_s, str(at_s)) for at_s in (0, 2.9, 3, 5, 8, 10, 10.1)]
    assert texts(story_of(items, lanes=NODES, moments=[5, 8])) == ["3", "5", "8", "10"]


def test_without_a_moment_the_turns_decide_and_without_these_the_whole_run_is_shown() -> None:
    items = [item(0, "a"), item(50, "b"), item(100, "c")]
    assert texts(story_of(items, lanes=NODES, moments=[])) == ["a", "b", "c"]
    assert texts(story_of([*items, item(51, "turn", rank=1)], lanes=NODES, moments=[])) == ["b", "turn"]


def test_log_lines_are_shown_only_near_a_moment_or_a_turn() -> None:
    lines = [item(at_s, str(at_s), kind=StoryKind.LOG_LINE, rank=4) for at_s in (1, 10, 20, 30)]
    story = story_of([*lines, item(21, "turn", rank=1)], lanes=NODES, moments=[0, 30])
    assert texts(story) == ["1", "20", "turn", "30"]


def test_the_least_important_items_are_omitted_and_counted_by_kind() -> None:
    marks = [item(n / 10, f"mark {n}", rank=3, kind=StoryKind.WATERMARK) for n in range(20)]
    story = story_of([*marks, item(1.0, "cut", rank=1)], lanes=NODES, moments=[0.0], most=4)
    assert texts(story) == ["mark 0", "mark 1", "mark 2", "cut"]
    assert story.left_out == {StoryKind.WATERMARK: 17}


def test_a_row_has_the_roles_and_faults_of_its_time_even_if_their_items_are_not_shown() -> None:
    items = [
        item(0, "starts", role="up", rank=3),
        item(10, "leads", role="leader", lane="n2", rank=3),
        item(11, "f1 starts", starts="f1", rank=3),
        item(12, "shown", rank=0),
        item(13, "f1 ends", ends="f1"),
        item(13.5, "after"),
    ]
    story = story_of(items, lanes=NODES, moments=[12], most=3)
    shown = {row.item.text: row for row in story.rows}
    assert shown["shown"].roles == ("up", "leader")
    assert shown["shown"].faults == {"f1"}
    assert shown["f1 ends"].faults == {"f1"}, "the row of the heal ends the band"
    assert shown["after"].faults == frozenset()
    assert story.faults == ("f1",)


def test_a_pause_is_stated() -> None:
    story = story_of([item(1, "a"), item(1.1, "b"), item(2, "c")], lanes=NODES, moments=[1])
    assert [row.gap_s for row in story.rows] == [0.0, 0.0, pytest.approx(0.9)]


def test_an_arrow_goes_from_the_sender_over_the_lanes_between_to_the_receiver() -> None:
    lanes = ("clients", "n1", "n2", "n3")
    sent = item(1, "write", lane="clients", sender="clients", receiver="n2")
    answered = item(2, "read", lane="clients", sender="n1", receiver="clients")
    beyond = item(3, "read", lane="clients", sender="n4", receiver="clients")
    arrows = [row.arrow for row in story_of([sent, answered, beyond], lanes=lanes, moments=[2]).rows]
    assert arrows == [
        ("from-here-right", "crosses", "to-here-right", ""),
        ("to-here-left", "from-here-left", "", ""),
        (),
    ]


def items_of(*events: dict[str, object], topic: str = "log") -> list[StoryItem]:
    focus = Focus(topic, 0, lambda number: f"n{number}")
    return list(event_items("n1", enumerate(events, 1), RunClock(0, 0), focus))


def test_events_of_other_partitions_are_omitted() -> None:
    event = {"event": "isr_changed", "wall": 1, "topic": "log", "isr": [1, 2]}
    assert [each.line for each in items_of({**event, "partition": 1}, {**event, "partition": 0})] == [2]
    assert items_of({**event, "partition": 0})[0].text == "in-sync set of log-0 is [n1, n2]"


def test_a_truncation_names_its_rule_and_an_empty_one_is_unimportant() -> None:
    cut = {"event": "truncated", "wall": 1, "topic": "log", "partition": 0, "from_offset": 3, "to_offset": 1}
    by_mark, by_epoch, nothing = items_of(
        {**cut, "rule": "high-watermark", "lossy": True}, {**cut, "rule": "epoch"}, {**cut, "to_offset": 3}
    )
    assert by_mark.text == "truncates log-0 from offset 3 to 1, to its high watermark, below its high watermark"
    assert by_epoch.text == "truncates log-0 from offset 3 to 1, by leader epochs"
    assert by_mark.rank < nothing.rank


def test_the_story_has_a_line_for_each_change_of_a_high_watermark() -> None:
    report = {"event": "replica_progress", "wall": 1, "topic": "log", "partition": 0, "log_end_offset": 5}
    assert [each.line for each in items_of(*({**report, "high_watermark": mark} for mark in (3, 3, 4)))] == [1, 3]


def test_an_unknown_event_is_shown_with_its_fields() -> None:
    (shown,) = items_of({"event": "moon_rises", "wall": 1, "phase": "full"})
    assert shown.text == "moon rises: phase full"


def test_a_remote_segment_is_declared_with_its_offsets_and_state() -> None:
    segment = {"event": "remote_segment", "wall": 1, "topic": "log", "partition": 0, "id": "d414bff2", "size": 3960}
    (shown,) = items_of({**segment, "state": "COPY_STARTED", "base_offset": 0, "end_offset": 19})
    assert shown.text == "declares for log-0: remote segment 0 to 19: copy started"


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ("ok, ok, ok", "ok, ok, ok"),
        ("ok, ok, ok, ok", "ok (4 times)"),
        ("ok, ok, ok, ok, no answer, no answer, no answer, no answer", "ok (4 times), no answer (4 times)"),
        ("1, 11, 11, 11", "1, 11, 11, 11"),
    ],
)
def test_equal_answers_of_a_step_are_counted(answers: str, text: str) -> None:
    journal = [{"event": "note", "n": 1, "t": 0, "step": 3, "text": f"step 3 (produce 4 to 0): {answers}"}]
    (shown,) = journal_items(journal, RunClock(0, 0))
    assert shown.text == f"step 3 (produce 4 to 0): {text}"


def test_an_election_in_a_log_makes_its_node_the_leader_until_another_has_one_or_it_ends() -> None:
    def elected(node: str) -> dict[str, str]:
        return {"event": "log_event", "node": node, "name": "election", "line": "became leader"}

    lines = [elected("n1"), elected("n2"), {"event": "node", "node": "n2", "what": "stopped"}, elected("n1")]
    items = list(journal_items([{**line, "t": at, "n": at} for at, line in enumerate(lines, 1)], RunClock(0, 0)))
    assert [(item.lane, item.role) for item in items] == [
        ("n1", "leader"),
        ("n1", "up"),
        ("n2", "leader"),
        ("n2", "down"),
        ("n1", "leader"),
    ]
    assert items[0].text == "election: became leader"


def test_an_event_without_its_fields_is_shown() -> None:
    (shown,) = items_of({"event": "truncated", "wall": 1, "topic": "log", "partition": 0})
    assert "from offset ? to ?" in shown.text or shown.rank == 4


@pytest.mark.parametrize(
    ("line", "ns"),
    [
        ("[2026-11-27 02:17:18,123] INFO started (kafka.server)", 1_795_745_838_123_000_000),
        ('{"level":"info","ts":"2026-11-27T02:17:18.123456Z","msg":"x"}', 1_795_745_838_123_000_000),
        ("7:M 27 Nov 2026 02:17:18.123 * Ready", 1_795_745_838_123_000_000),
        ("broker 1 is ready", None),
        ("[2026-99-27 02:17:18,123] not a date", None),
    ],
)
def test_the_time_of_a_log_line(line: str, ns: int | None) -> None:
    assert time_of(line) == ns


def test_log_lines_have_their_number_and_severe_ones_count_more() -> None:
    lines = enumerate(["no time", "[2026-11-27 02:17:18,123] INFO a", "[2026-11-27 02:17:19,123] ERROR b"], 1)
    info, error = log_items("n1", lines, RunClock(0, 1_795_745_838 * 10**9))
    assert (info.line, error.line) == (2, 3)
    assert error.rank < info.rank
    assert info.at_s == pytest.approx(0.123)
