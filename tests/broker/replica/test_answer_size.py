"""The size of a follower's fetches follows the duration of their answers."""

from broker.replica.fetcher import LEAST_BYTES, MOST_BYTES, AnswerSize


def test_slow_answers_shrink_the_size_and_fast_ones_increase_it() -> None:
    size = AnswerSize(1.0)
    assert size.bytes == MOST_BYTES
    size.answered(MOST_BYTES, 4.0)
    assert size.bytes == MOST_BYTES // 2
    size.answered(size.bytes, 0.7)
    assert size.bytes == MOST_BYTES // 2, "neither long nor quick"
    size.answered(size.bytes, 0.2)
    assert size.bytes == MOST_BYTES
    for _ in range(20):
        size.answered(size.bytes, 4.0)
    assert size.bytes == LEAST_BYTES
    for _ in range(20):
        size.answered(size.bytes, 0.01)
    assert size.bytes == MOST_BYTES


def test_the_size_of_a_delayed_answer_is_not_used() -> None:
    size = AnswerSize(1.0)
    size.answered(100, 4.0)
    assert size.bytes == MOST_BYTES
