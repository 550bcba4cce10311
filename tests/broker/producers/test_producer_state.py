"""The sequence checks of a log, as Apache Kafka decides since KIP-360."""

from random import Random

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.producers.producer_state import (
    MAX_ID,
    MAX_SEQUENCE,
    NO_ID,
    REMEMBERED,
    ProducerState,
    Sequenced,
    Written,
    after,
)

P = 4711


class Log:
    """A log that holds nothing but what its producers wrote."""

    def __init__(self, forgotten_to: int = NO_ID) -> None:
        self.state = ProducerState(forgotten_to)
        self.end = 0
        self.now = 0.0

    def append(self, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = P) -> int:
        """The batch's first offset, whether it is new or was there. Raises `ProtocolError`."""
        batch = Sequenced(producer, epoch, sequence, count - 1)
        written = self.state.check([batch])
        if written is not None:
            return written.first_offset
        base = self.end
        self.state.record(batch, base, 1_000 + base, self.now)
        self.end += count
        return base

    def refuses(self, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
        before = self.end
        with pytest.raises(ProtocolError) as refused:
            self.append(sequence, count, epoch=epoch)
        assert self.end == before
        return refused.value.code


@pytest.mark.conforms("K98-2")
def test_a_producer_with_sequence_numbers_is_recorded() -> None:
    log = Log()
    assert [log.append(0, 3), log.append(3), log.append(4, 2)] == [0, 3, 4]


@pytest.mark.conforms("K98-3")
def test_a_batch_that_is_sent_again_gets_its_offset_again() -> None:
    log = Log()
    offsets = [log.append(first, 2) for first in range(0, 14, 2)]
    assert [log.append(first, 2) for first in range(4, 14, 2)] == offsets[2:]
    assert log.end == 14, "nothing was appended twice"


@pytest.mark.conforms("K98-3")
def test_only_the_last_five_batches_are_recognized_as_duplicates() -> None:
    log = Log()
    for sequence in range(REMEMBERED + 1):
        log.append(sequence)
    assert log.append(1) == 1
    assert log.refuses(0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_with_other_borders_is_another_batch() -> None:
    log = Log()
    log.append(0, 4)
    assert log.refuses(0, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(1, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.conforms("K98-2")
@pytest.mark.parametrize("sequence", [2, 3, MAX_SEQUENCE])
def test_a_gap_is_refused(sequence: int) -> None:
    log = Log()
    log.append(0)
    assert log.refuses(sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(1) == 1


@pytest.mark.conforms("K360-1")
@pytest.mark.parametrize("first", [0, 17, MAX_SEQUENCE])
@pytest.mark.parametrize("forgotten_to", [P, MAX_ID])
def test_a_producer_with_possibly_deleted_batches_may_start_anywhere(first: int, forgotten_to: int) -> None:
    """What it wrote before may have been deleted (KIP-360)."""
    log = Log(forgotten_to)
    assert log.append(first) == 0
    assert log.append(after(first, 1)) == 1


@pytest.mark.conforms("K98-10")
@pytest.mark.parametrize("others", [0, 1], ids=["empty log", "log of another producer"])
@pytest.mark.parametrize("forgotten_to", [NO_ID, P - 1])
def test_a_new_producer_starts_at_0(others: int, forgotten_to: int) -> None:
    """KAFKA-15591: the first of two requests in flight was refused, the second one arrives first."""
    log = Log(forgotten_to)
    for _ in range(others):
        log.append(0, producer=P - 1)
    assert log.refuses(17, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(0, 17) == others
    assert log.append(17, 5) == others + 17


@pytest.mark.conforms("K98-10")
def test_batches_that_arrive_together_start_at_0() -> None:
    state = ProducerState()
    with pytest.raises(ProtocolError):
        state.check([Sequenced(P, 0, 5, 0), Sequenced(P, 0, 6, 0)])
    assert state.check([Sequenced(P, 0, 0, 0), Sequenced(P, 0, 1, 0)]) is None


@pytest.mark.conforms("K98-10", "K360-1")
def test_a_log_accepts_any_first_sequence_only_of_a_deleted_producer() -> None:
    log = Log()
    log.append(0)
    log.state.expire(log.now)
    assert log.append(9) == 1
    with pytest.raises(ProtocolError, match="next sequence is 0"):
        log.append(9, producer=P + 1)


@pytest.mark.conforms("K98-2")
def test_the_sequence_after_the_largest_is_0() -> None:
    log = Log(MAX_ID)
    assert log.append(MAX_SEQUENCE - 1, 4) == 0, "a batch may hold both"
    assert log.append(MAX_SEQUENCE - 1, 4) == 0
    assert log.refuses(0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(2) == 4
    other = Log(MAX_ID)
    other.append(MAX_SEQUENCE)
    assert other.append(0) == 1


@pytest.mark.conforms("K98-2")
def test_a_new_epoch_starts_at_0() -> None:
    log = Log()
    log.append(0)
    log.append(1)
    assert log.refuses(2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(0, epoch=1) == 2
    assert log.append(0, epoch=1) == 2


@pytest.mark.conforms("K98-4")
def test_an_old_epoch_is_fenced_even_for_its_own_batches() -> None:
    log = Log()
    log.append(0)
    log.append(0, epoch=1)
    assert log.refuses(0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuses(1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_have_separate_sequences() -> None:
    log = Log()
    assert [log.append(0), log.append(0, producer=1), log.append(1), log.append(1, producer=1)] == [0, 1, 2, 3]


def test_batches_that_arrive_together_continue_each_other() -> None:
    state = ProducerState()
    assert state.check([Sequenced(P, 0, 0, 1), Sequenced(7, 0, 0, 0), Sequenced(P, 0, 2, 0)]) is None
    with pytest.raises(ProtocolError) as refused:
        state.check([Sequenced(P, 0, 0, 1), Sequenced(P, 0, 3, 0)])
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(state) == 0, "a question changes nothing"


def test_partly_duplicate_batches_are_refused() -> None:
    state = ProducerState()
    state.record(Sequenced(P, 0, 0, 0), 0, 0, 0.0)
    with pytest.raises(ProtocolError) as refused:
        state.check([Sequenced(P, 0, 0, 0), Sequenced(P, 0, 1, 0)])
    assert refused.value.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    with pytest.raises(ProtocolError):
        state.check([Sequenced(P, 0, 1, 0), Sequenced(P, 0, 1, 0)])


@pytest.mark.conforms("K98-5")
def test_a_silent_producer_expires() -> None:
    log = Log()
    log.append(0)
    log.now = 5.0
    log.append(0, producer=1)
    assert log.state.expire(idle_since=1.0) == 1
    assert [producer_id for producer_id, _ in log.state] == [1]
    assert log.append(9) == 2, "it may start anywhere"


def test_the_state_reaches_exactly_the_appended_offsets() -> None:
    log = Log()
    assert not log.state.reaches(0)
    log.append(0, 3)
    assert log.state.reaches(2)
    assert not log.state.reaches(3)


@pytest.mark.parametrize("seed", range(50))
def test_the_log_has_each_record_once_in_order_for_any_retries(seed: int) -> None:
    rng = Random(seed)
    log = Log(MAX_ID)
    sent: list[tuple[int, int, int]] = []
    sequence = rng.choice([0, MAX_SEQUENCE - 20, rng.randint(0, MAX_SEQUENCE)])
    for _ in range(60):
        if sent and rng.random() < 0.5:
            resent, count, offset = rng.choice(sent[-REMEMBERED:])
            assert log.append(resent, count) == offset
        else:
            count = rng.randint(1, 4)
            sent.append((sequence, count, log.append(sequence, count)))
            sequence = after(sequence, count)
    assert log.end == sum(count for _, count, _ in sent)
    assert [offset for _, _, offset in sent] == sorted(offset for _, _, offset in sent)
    producer = log.state.find(P)
    assert producer is not None
    sequence, count, offset = sent[-1]
    assert producer.last == Written(after(sequence, count - 1), offset + count - 1, count - 1, 1_000 + offset)


@pytest.mark.conforms("K98-10", "K360-1")
def test_a_log_has_forgotten_no_id_that_was_given_out_later() -> None:
    state = ProducerState(MAX_ID)
    assert state.largest_id == MAX_ID
    state.forgot_none_from(P + 1)
    assert state.check([Sequenced(P, 0, 17, 0)]) is None
    with pytest.raises(ProtocolError):
        state.check([Sequenced(P + 1, 0, 17, 0)])
    state.forgot_none_from(P + 5)
    assert state.forgotten_to == state.largest_id == P, "a later limit raises nothing"
