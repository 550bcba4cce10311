"""The errors that prove that an append did not happen."""

import pytest
from confluent_kafka import KafkaError

from workloads.outcomes import of_append


@pytest.mark.parametrize("sent_once", [True, False])
def test_no_error_is_ok(sent_once: bool) -> None:
    assert of_append(None, sent_once=sent_once) == "ok"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_ENOUGH_REPLICAS,  # a leader before may have had enough
        KafkaError.MSG_SIZE_TOO_LARGE,  # the record may have been in a smaller batch before
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_a_refusal_before_the_append_is_fail_if_the_record_was_sent_once(code: int) -> None:
    assert of_append(code, sent_once=True) == "fail"
    assert of_append(code, sent_once=False) == "info"


@pytest.mark.parametrize("sent_once", [True, False])
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
def test_every_other_error_is_an_unknown_outcome(code: int, sent_once: bool) -> None:
    assert of_append(code, sent_once=sent_once) == "info"
