"""Stories of KIP-101 and KIP-279: a follower truncates its log when the leader changes."""

import pytest

from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase, Truncate
from tests.broker.replica.story import MemoryEpochs, MemoryLog, Story


def scenario_1(*, truncate_to_hw: bool) -> Story:
    """Two replicas hold m1 and m2; the leader knows that both are committed, the follower knows it of m1 only."""
    story = Story(2, truncate_to_hw=truncate_to_hw)
    story.elect(1)
    story.write("m1")
    story.catch_up(2)
    story.checkpoint(2)
    story.write("m2")
    story.fetch(2)
    story.fetch(2)
    assert story.leader.high_watermark == 2
    story[2].checkpoint = 1  # the news came, but the last checkpoint is older
    return story


@pytest.mark.conforms("K101-4", "K101-7", "K101-14")
def test_scenario_1_a_bounced_follower_keeps_records_of_the_leader() -> None:
    story = scenario_1(truncate_to_hw=False)
    story.restart(2)
    story.hear(2)
    assert [cut.to_offset for cut in story.reconcile(2)] == [2]
    story.restart(1)
    story.elect(2, isr=[2])
    assert story[2].values() == ["m1", "m2"]


def test_scenario_1_with_high_watermark_truncation_loses_the_committed_record() -> None:
    story = scenario_1(truncate_to_hw=True)
    story.restart(2)
    story.hear(2)
    assert story.reconcile(2) == [Truncate(1, "high-watermark")]
    story.restart(1)
    story.elect(2, isr=[2])
    assert story[2].values() == ["m1"]


def scenario_2(*, truncate_to_hw: bool, high_watermark: int) -> Story:
    """Both lose power; 2, which has lost m2, leads and takes m3 at the same offset."""
    story = Story(2, truncate_to_hw=truncate_to_hw)
    story.elect(1)
    story.write("m1", "m2")
    story.catch_up(2)
    story[1].checkpoint, story[2].checkpoint = high_watermark, 1
    story.restart(1, keep=2)
    story.restart(2, keep=1)
    story.elect(2, isr=[2])
    story.write("m3")
    return story


@pytest.mark.conforms("K101-14", "K101-7")
def test_scenario_2_the_former_leader_cuts_where_its_epoch_ends_on_the_new_one() -> None:
    story = scenario_2(truncate_to_hw=False, high_watermark=1)
    assert story.reconcile(1) == [Truncate(1, "epoch")]
    story.catch_up(1)
    assert story[1].values() == story[2].values() == ["m1", "m3"]


def test_scenario_2_with_high_watermark_truncation_diverges() -> None:
    story = scenario_2(truncate_to_hw=True, high_watermark=2)
    story.write("m4")
    story.catch_up(1)
    assert story[1].values() == ["m1", "m2", "m4"]
    assert story[2].values() == ["m1", "m3", "m4"]


@pytest.mark.conforms("K101-15", "K101-7")
def test_records_lost_by_the_isr_are_truncated_elsewhere_and_reported_as_lossy() -> None:
    story = scenario_2(truncate_to_hw=False, high_watermark=2)
    assert story.reconcile(1) == [Truncate(1, "epoch", lossy=True)]
    assert story.follower(1).high_watermark == 1
    story.catch_up(1)
    assert story[1].values() == story[2].values() == ["m1", "m3"]


def unclean_ping_pong(turns: list[int]) -> Story:
    """Each broker leads in turn without the other and writes one record that the other does not get. No record is ever
    committed."""
    story = Story(2, min_insync=2)
    for turn, node in enumerate(turns):
        story.elect(node, isr=[node], hear=[])
        if turn < len(turns) - 1:
            story.write(f"u{turn}")
    return story


@pytest.mark.conforms("H1", "K101-14")
def test_appendix_a_logs_that_took_turns_end_up_equal() -> None:
    story = unclean_ping_pong([1, 2, 1, 2])
    story.write("last")
    story.hear(1)
    cuts = story.reconcile(1)
    assert [(cut.to_offset, cut.final) for cut in cuts] == [(1, False), (0, True)]
    story.catch_up(1)
    assert story[1].log.records == story[2].log.records


@pytest.mark.conforms("H1")
@pytest.mark.parametrize("turns", [[1, 2, 1, 2], [1, 2, 1, 2, 1, 2, 1], [2, 1, 1, 2, 2, 1]])
def test_fast_failovers_converge_behind_a_common_prefix(turns: list[int]) -> None:
    story = Story(2, min_insync=2)
    story.elect(1)
    story.write("common")
    story.catch_up(2)
    for turn, node in enumerate(turns):
        story.elect(node, hear=[])
        story.write(*(f"u{turn}.{n}" for n in range(turn % 3)))
    other = 3 - turns[-1]
    story.hear(other)
    story.write("last")
    story.catch_up(other)
    assert story[1].log.records == story[2].log.records
    assert story[1].log.epochs.entries == story[2].log.epochs.entries
    assert story[1].values()[0] == "common"


def follower_of(
    log_epochs: list[tuple[int, int]], end: int, high_watermark: int = 0
) -> tuple[PartitionFollower, MemoryLog]:
    records = [(max(e for e, start in log_epochs if start <= offset), str(offset)) for offset in range(end)]
    log = MemoryLog(records, MemoryEpochs(list(log_epochs)))
    return PartitionFollower(leader_id=9, leader_epoch=9, partition_epoch=1, high_watermark=high_watermark), log


@pytest.mark.conforms("K101-4")
def test_the_dialogue_opens_with_the_latest_epoch() -> None:
    follower, log = follower_of([(2, 0), (5, 4)], 7)
    assert follower.next_step(log) == AskEpochEnd(5)


@pytest.mark.conforms("H1", "H25")
def test_an_answer_with_the_requested_epoch_truncates_to_the_smaller_end() -> None:
    follower, log = follower_of([(2, 0), (5, 4)], 7)
    assert follower.epoch_end_answered(log, 5, 6) == Truncate(6, "epoch")
    assert follower.epoch_end_answered(log, 5, 100) == Truncate(7, "epoch")


@pytest.mark.conforms("H1")
def test_an_answer_with_an_older_epoch_that_we_have_cuts_within_it() -> None:
    follower, log = follower_of([(2, 0), (5, 4)], 7)
    assert follower.epoch_end_answered(log, 2, 3) == Truncate(3, "epoch")
    assert follower.epoch_end_answered(log, 2, 5) == Truncate(4, "epoch")


@pytest.mark.conforms("H1")
def test_an_answer_with_an_unknown_epoch_truncates_to_the_next_larger_and_queries_again() -> None:
    follower, log = follower_of([(2, 0), (5, 4)], 7)
    step = follower.epoch_end_answered(log, 3, 6)
    assert step == Truncate(4, "epoch", final=False)
    log.truncate(step.to_offset)
    follower.truncated(step, log)
    assert follower.phase is Phase.TRUNCATING
    assert follower.next_step(log) == AskEpochEnd(2)


@pytest.mark.conforms("K101-9")
def test_a_leader_without_epoch_information_uses_the_old_rule() -> None:
    follower, log = follower_of([(2, 0)], 7, high_watermark=5)
    assert follower.epoch_end_answered(log, -1, -1) == Truncate(5, "high-watermark")


@pytest.mark.conforms("K101-9")
def test_a_log_without_epochs_falls_back_to_the_high_watermark() -> None:
    follower, log = follower_of([(0, 0)], 7, high_watermark=5)
    log.epochs.entries.clear()
    assert follower.next_step(log) == Truncate(5, "high-watermark")


@pytest.mark.conforms("H8", "H27")
def test_an_empty_log_sends_no_query_and_drops_its_epochs_without_records() -> None:
    story = Story(2)
    story.elect(1)
    story.elect(2)
    assert story.reconcile(1) == [Truncate(0, "none")]
    assert story[1].log.epochs.entries == []


@pytest.mark.conforms("K101-4", "H3")
def test_every_leader_epoch_opens_the_dialogue_again_also_under_the_same_leader() -> None:
    story = Story(2)
    story.elect(1)
    story.write("a", "b")
    story.catch_up(2)
    story[1].checkpoint = 0
    story.restart(1, keep=1)
    story[2].checkpoint = 0
    story.restart(2)
    story.elect(1)  # the same leader, with a shorter log
    story.write("c")
    assert story.reconcile(2) == [Truncate(1, "epoch")]
    story.catch_up(2)
    assert story[2].values() == ["a", "c"]


@pytest.mark.conforms("H7")
def test_no_high_watermark_is_taken_before_the_logs_match() -> None:
    follower, log = follower_of([(2, 0), (5, 4)], 7)
    with pytest.raises(AssertionError, match="H7"):
        follower.high_watermark_reported(7, log.log_end_offset)
    log.truncate(4)
    follower.truncated(Truncate(4, "epoch"), log)
    follower.high_watermark_reported(7, log.log_end_offset)
    assert follower.high_watermark == 4


@pytest.mark.conforms("H7")
def test_a_divergence_seen_while_fetching_reopens_the_dialogue() -> None:
    follower, log = follower_of([(2, 0)], 3)
    follower.truncated(Truncate(3, "epoch"), log)
    follower.diverged()
    assert follower.phase is Phase.TRUNCATING


def test_the_high_watermark_of_a_follower_never_falls() -> None:
    follower, log = follower_of([(2, 0)], 3, high_watermark=2)
    follower.truncated(Truncate(3, "epoch"), log)
    follower.high_watermark_reported(1, log.log_end_offset)
    assert follower.high_watermark == 2


@pytest.mark.conforms("H9")
def test_a_follower_behind_the_leaders_log_start_restarts_there_with_that_high_watermark() -> None:
    story = Story(2)
    story.elect(1)
    story.write("a", "b", "c")
    story[1].log.records = story[1].log.records[2:]
    story[1].log.log_start_offset = 2
    story.fetch(2)
    assert (story[2].log.log_end_offset, story.follower(2).high_watermark) == (2, 2)
    story.fetch(2)
    assert story[2].values() == ["c"]


@pytest.mark.conforms("H9", "H25")
def test_a_follower_ahead_of_the_leader_queries_again_and_keeps_its_log() -> None:
    follower, log = follower_of([(2, 0)], 7, high_watermark=5)
    follower.truncated(Truncate(7, "epoch"), log)
    assert follower.out_of_range(log, leader_log_start=0) is None
    assert follower.phase is Phase.TRUNCATING


@pytest.mark.conforms("H9")
def test_an_empty_follower_ahead_of_the_leader_starts_at_the_leaders_log_start() -> None:
    """It would fetch an offset until the leader reaches it, and then be in sync without the records before."""
    story = Story(2)
    story[2].log.log_start_offset = story[2].high_watermark = 4  # what it had was deleted; the leader lost power
    story.elect(1, isr=[1])
    story.write("a", "b")
    story.fetch(2)
    assert (story[2].log.log_start_offset, story.follower(2).high_watermark) == (0, 0)
    story.catch_up(2)
    story.write("c", "d", "e")
    story.catch_up(2)
    assert story[2].values() == ["a", "b", "c", "d", "e"]


@pytest.mark.conforms("H9")
def test_an_empty_follower_above_the_leaders_end_reports_a_lossy_truncation() -> None:
    follower, log = follower_of([], 0, high_watermark=7)
    log.log_start_offset = 7
    assert follower.out_of_range(log, 3) == Truncate(3, "leader-start", restart=True, lossy=True)
    assert follower.out_of_range(log, 9) == Truncate(9, "leader-start", restart=True)
    assert follower.out_of_range(log, -1) is None


def deletion_after_election(*, common: int, divergent: int, written: int, start: int) -> Story:
    """The logs have `common` records; then only the old leader, 1, has `divergent` more and only the new one, 2,
    `written`, of which the records below `start` are deleted."""
    story = Story(2)
    story.elect(1)
    story.write(*(f"c{n}" for n in range(common)))
    story.catch_up(2)
    story.write(*(f"d{n}" for n in range(divergent)))
    story.elect(2, isr=[2])
    story.write(*(f"w{n}" for n in range(written)))
    story[2].log.advance_start(start)
    return story


@pytest.mark.conforms("H34")
@pytest.mark.parametrize("written", [3, 5])
@pytest.mark.parametrize("divergent", [3, 4])
def test_a_log_that_ends_where_the_leaders_starts_restarts_there(divergent: int, written: int) -> None:
    story = deletion_after_election(common=2, divergent=divergent, written=written, start=5)
    story.fetch(1)
    assert story[1].truncations[-1] == Truncate(5, "leader-start", restart=True)
    assert story[1].log.records == story[2].log.records
    assert (story[1].log.log_start_offset, story.follower(1).high_watermark) == (5, 2 + written)


@pytest.mark.conforms("H34")
def test_a_log_with_the_leaders_first_epoch_is_kept() -> None:
    """The leader has more of the epoch, so it once had all records of this log."""
    story = Story(2)
    story.elect(1)
    story.write("a", "b")
    story.catch_up(2)
    story.write("c")
    story.elect(1, isr=[1])
    story[1].log.advance_start(2)
    story.fetch(2)
    assert not any(it.restart for it in story[2].truncations)
    assert story[2].log.records == story[1].log.records


@pytest.mark.conforms("H34")
def test_a_log_that_its_leader_has_extended_is_kept_when_all_of_it_is_deleted() -> None:
    story = deletion_after_election(common=2, divergent=1, written=3, start=0)
    story.catch_up(1)
    story[2].log.advance_start(5)
    story.fetch(1)
    assert not any(it.restart for it in story[1].truncations)
    assert (story[1].log.log_start_offset, story[1].log.epochs.entries) == (5, [(1, 5)])


@pytest.mark.conforms("H34")
@pytest.mark.parametrize("start", [0, 1, 2, 3, 5])
@pytest.mark.parametrize(("common", "divergent", "written"), [(2, 1, 3), (2, 3, 3), (2, 3, 5), (0, 3, 5), (2, 3, 1)])
@pytest.mark.parametrize("led_before", [False, True])
def test_an_empty_log_of_other_records_restarts_without_them(
    led_before: bool, common: int, divergent: int, written: int, start: int
) -> None:
    """The logs have `common` records. Then only 1 has `divergent` more, and deletes all of its log; only 2 has
    `written` more, before 1 led (`led_before`) or after it, and deletes those below `start`."""
    story = Story(2)
    story.elect(2)
    story.write(*(f"c{n}" for n in range(common)))
    story.catch_up(1)
    if led_before:
        story.write(*(f"w{n}" for n in range(written)))
    story.elect(1, isr=[1], hear=[])
    story.write(*(f"d{n}" for n in range(divergent)))
    story[1].log.advance_start(common + divergent)
    story.elect(2, isr=[2])
    if not led_before:
        story.write(*(f"w{n}" for n in range(written)))
    leaders = story[2].log
    leaders.advance_start(min(start, leaders.log_end_offset))
    assert story.reconcile(1) == [Truncate(common + divergent, "none", restart=True)]
    for _ in range(3):
        story.fetch(1)
    own = story[1].log
    assert (own.log_end_offset, own.records) == (leaders.log_end_offset, leaders.read(own.log_start_offset))
    assert set(own.epochs.entries[1:]) <= set(leaders.epochs.entries)


@pytest.mark.conforms("H34")
def test_a_log_that_a_truncation_empties_restarts_there() -> None:
    """All records above its start are divergent, and the deleted ones may have been."""
    story = Story(2)
    story.elect(2)
    story.write("a", "b")
    story.elect(1, isr=[1], hear=[])
    story.write("c", "d", "e")
    story[1].log.advance_start(2)
    story.elect(2, isr=[2])
    assert story.reconcile(1) == [Truncate(2, "epoch", lossy=True), Truncate(2, "none", restart=True)]


@pytest.mark.conforms("H34")
@pytest.mark.parametrize("leader", [1, 2])
def test_an_empty_log_in_the_isr_is_kept(leader: int) -> None:
    story = Story(2)
    story.elect(1)
    story.write("a", "b")
    story.catch_up(2)
    story[1].log.advance_start(2)
    story.catch_up(2)
    story.elect(leader)
    story.catch_up(3 - leader)
    assert story[3 - leader].truncations[-1] == Truncate(2, "none")


@pytest.mark.conforms("H1", "H2")
def test_every_epoch_unknown_to_the_leader_is_removed() -> None:
    follower, log = follower_of([(4, 0), (5, 4)], 7)
    log.epochs.end_offset_for = lambda *_: (-1, -1)  # type: ignore[method-assign]
    assert follower.epoch_end_answered(log, 3, 9) == Truncate(0, "epoch")
