"""The errors that prove that an append did not happen."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from workloads.outcomes import of_append


def test_no_error_is_ok() -> None:
    assert of_append(None) == "ok"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_a_refusal_before_the_append_is_fail(code: int) -> None:
    assert of_append(code) == "fail"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.UNKNOWN,
        12345,
    ],
)
def test_every_other_error_is_an_unknown_outcome(code: int) -> None:
    assert of_append(code) == "info"


def test_a_refused_last_attempt_leaves_earlier_attempts_undecided() -> None:
    """An idempotent producer sends again what may have been appended."""
    assert of_append(KafkaError.NOT_ENOUGH_REPLICAS, retried=True) == "info"
    assert of_append(None, retried=True) == "ok"
