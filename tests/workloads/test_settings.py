"""How the client library is set up for producers that may send again, and for those that may not."""

from dataclasses import replace

import pytest

from workloads.settings import (
    IDEMPOTENT_TIMEOUT_S,
    MESSAGE_TIMEOUT_S,
    ClientSettings,
    outcome_timeout_s,
    producer_config,
)

SETTINGS = ClientSettings("p", 1, 1, 1, 1, "localhost:1", "t", 1, "/tmp")
IDEMPOTENT = replace(SETTINGS, parameters={"idempotent": True})


def test_by_default_each_record_is_sent_once() -> None:
    config = producer_config(SETTINGS, -1)
    assert (config["enable.idempotence"], config["retries"]) == (False, 0)
    assert config["message.timeout.ms"] == MESSAGE_TIMEOUT_S * 1000


def test_an_idempotent_producer_has_the_librarys_own_retries_and_outlives_an_outage() -> None:
    config = producer_config(IDEMPOTENT, -1)
    assert config["enable.idempotence"] is True
    assert "retries" not in config
    assert config["message.timeout.ms"] == IDEMPOTENT_TIMEOUT_S * 1000
    assert outcome_timeout_s(IDEMPOTENT.parameters) == IDEMPOTENT_TIMEOUT_S
    assert outcome_timeout_s(SETTINGS.parameters) == MESSAGE_TIMEOUT_S


@pytest.mark.parametrize("acks", [0, 1])
def test_appends_without_acks_of_all_are_not_idempotent(acks: int) -> None:
    config = producer_config(IDEMPOTENT, acks)
    assert (config["enable.idempotence"], config["retries"]) == (False, 0)


def test_endpoints_rotate_for_each_client_and_for_each_of_its_connections() -> None:
    three = replace(SETTINGS, bootstrap="a:1,b:2,c:3", process=0)
    assert [three.endpoints_from(attempt) for attempt in range(4)] == [
        ("a:1", "b:2", "c:3"),
        ("b:2", "c:3", "a:1"),
        ("c:3", "a:1", "b:2"),
        ("a:1", "b:2", "c:3"),
    ]
    assert replace(three, process=4).endpoints_from(1) == ("c:3", "a:1", "b:2")
