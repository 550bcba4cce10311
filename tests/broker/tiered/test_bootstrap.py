"""The start of a follower with its next offset below the leader's local log: each rule of KIP-1023's table."""

from dataclasses import replace

import pytest

from broker.errors import ErrorCode
from broker.replica.tiered_start import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    AskEarlierEpoch,
    AskOffset,
    Bootstrap,
    KeepFetching,
    LogPlace,
    MatchLogs,
    RetryLater,
    StartAbove,
    StartAt,
    next_step,
)

OUT_OF_RANGE, MOVED = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
BOTH = pytest.mark.parametrize("refusal", [OUT_OF_RANGE, MOVED])
NOWHERE = LogPlace(-1, -1)


def empty(refusal: ErrorCode = MOVED, **known: object) -> Bootstrap:
    """A follower without a record, with the feature on; the leader's log starts at 10, its local log at 100."""
    plain = Bootstrap(refusal, log_end=0, enabled=True, log_start=10, patience_ms=30_000)
    return replace(plain, **known)  # type: ignore[arg-type]


@pytest.mark.conforms("K1023-4")
def test_a_follower_with_an_offset_of_the_leader_appends_and_does_not_jump() -> None:
    assert next_step(empty(ErrorCode.NONE, pending=LogPlace(200, 1))) == KeepFetching()


@pytest.mark.conforms("K1023-5")
def test_out_of_range_starts_at_the_leaders_log_start() -> None:
    assert next_step(Bootstrap(OUT_OF_RANGE, log_end=5, log_start=10)) == StartAt(10)


@pytest.mark.conforms("K1023-5")
def test_moved_to_tiered_storage_starts_at_the_leaders_local_start_with_the_state_below() -> None:
    moved = Bootstrap(MOVED, log_end=50, log_start=10)
    assert next_step(moved) == AskOffset(EARLIEST_LOCAL)
    assert next_step(replace(moved, local_start=LogPlace(100, 0))) == StartAbove(100, 10, 0)


def test_an_offset_past_the_leaders_end_is_a_case_for_the_truncation_dialogue() -> None:
    assert next_step(Bootstrap(OUT_OF_RANGE, log_end=50, log_start=10)) == MatchLogs()
    assert next_step(empty(OUT_OF_RANGE, log_end=50, pending=LogPlace(200, 0))) == MatchLogs()


def test_another_error_leaves_the_follower_unchanged() -> None:
    assert next_step(Bootstrap(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)) == RetryLater("NOT_LEADER_OR_FOLLOWER")


@BOTH
@pytest.mark.conforms("K1023-6")
def test_an_empty_follower_with_the_feature_jumps_on_either_error(refusal: ErrorCode) -> None:
    assert next_step(empty(refusal, pending=LogPlace(200, 0))) == StartAbove(200, 10, 0)


@pytest.mark.conforms("K1023-6")
def test_a_follower_with_records_never_jumps() -> None:
    lagging = empty(log_end=50, pending=LogPlace(200, 0), local_start=LogPlace(100, 0))
    assert next_step(lagging) == StartAbove(100, 10, 0)


@pytest.mark.conforms("K1023-6")
def test_without_the_feature_an_empty_follower_does_not_jump() -> None:
    plain = empty(enabled=False, pending=LogPlace(200, 0), local_start=LogPlace(100, 0))
    assert next_step(plain) == StartAbove(100, 10, 0)
    assert next_step(replace(plain, refusal=OUT_OF_RANGE)) == StartAt(10)


@pytest.mark.conforms("K1023-6")
def test_without_remote_storage_or_on_a_compacted_topic_no_record_is_skipped() -> None:
    local = empty(tiered=False, pending=LogPlace(200, 0), local_start=LogPlace(100, 0))
    assert isinstance(next_step(local), RetryLater)
    assert next_step(replace(local, refusal=OUT_OF_RANGE)) == StartAt(10)


@BOTH
@pytest.mark.conforms("K1023-7")
def test_the_log_start_is_queried_if_the_error_lacks_it_and_then_the_pending_upload(
    refusal: ErrorCode,
) -> None:
    assert next_step(empty(refusal, log_start=None)) == AskOffset(EARLIEST)
    assert next_step(empty(refusal, log_start=-1)) == AskOffset(EARLIEST)
    assert next_step(empty(refusal)) == AskOffset(EARLIEST_PENDING_UPLOAD)


@pytest.mark.conforms("K1023-8")
def test_an_unknown_pending_upload_of_a_log_that_is_all_local_means_the_local_start() -> None:
    unknown = empty(pending=NOWHERE)
    assert next_step(unknown) == AskOffset(EARLIEST_LOCAL)
    assert next_step(replace(unknown, local_start=LogPlace(10, 0))) == StartAt(10)


@pytest.mark.conforms("K1023-9")
def test_an_unknown_pending_upload_of_a_tiered_log_is_queried_again_later() -> None:
    assert isinstance(next_step(empty(pending=NOWHERE, local_start=LogPlace(100, 0))), RetryLater)


@pytest.mark.conforms("H29")
def test_a_pending_upload_that_stays_unknown_does_not_hold_the_replica_up_for_ever() -> None:
    waiting = empty(pending=NOWHERE, local_start=LogPlace(100, 0), waited_ms=29_999)
    assert isinstance(next_step(waiting), RetryLater)
    assert next_step(replace(waiting, waited_ms=30_000)) == StartAbove(100, 10, 0)


@pytest.mark.conforms("K1023-10")
def test_a_pending_upload_below_the_log_start_means_that_every_record_is_local() -> None:
    again = empty(pending=LogPlace(7, 0))
    assert next_step(again) == AskOffset(EARLIEST_LOCAL)
    assert next_step(replace(again, local_start=LogPlace(10, 0))) == StartAt(10)


@pytest.mark.conforms("K1023-10")
def test_a_follower_starts_at_a_pending_upload_at_the_log_start() -> None:
    assert next_step(empty(pending=LogPlace(10, 3))) == StartAt(10)


def test_records_that_are_nowhere_are_not_skipped() -> None:
    assert isinstance(next_step(empty(pending=LogPlace(7, 0), local_start=LogPlace(100, 0))), RetryLater)


@pytest.mark.parametrize(
    ("earlier", "below"),
    [(LogPlace(200, 2), 2), (LogPlace(199, 2), 4), (LogPlace(-1, -1), 4), (LogPlace(200, 3), 3)],
)
def test_the_segment_below_the_start_is_found_by_the_epoch_of_its_last_record(earlier: LogPlace, below: int) -> None:
    """The record below the start may be of an earlier epoch, which is not always the one before."""
    jump = empty(pending=LogPlace(200, 4))
    assert next_step(jump) == AskEarlierEpoch(3)
    assert next_step(replace(jump, earlier=earlier)) == StartAbove(200, 10, below)


def test_a_start_with_an_epoch_unknown_to_the_leader_is_queried_again() -> None:
    assert isinstance(next_step(empty(pending=LogPlace(200, -1))), RetryLater)
