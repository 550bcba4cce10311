"""The quorum's part of the configuration: every key has its effect, and only its own."""

import pytest

from broker.config import BrokerConfig
from broker.quorum.settings import QuorumSettings


@pytest.mark.conforms("K595-2", "K595-3")
def test_every_key_of_the_quorum_is_taken_over() -> None:
    properties = {
        "node.id": "2",
        "listeners": "n:9092,CONTROLLER://n:9093",
        "controller.listener.names": "CONTROLLER",
        "quorum.voters": "2@b:9093,1@a:9093",
        "log.dir": "log",
        "quorum.fetch.timeout.ms": "1100",
        "quorum.election.timeout.ms": "1200",
        "quorum.election.backoff.max.ms": "1300",
        "quorum.request.timeout.ms": "1400",
        "quorum.retry.backoff.ms": "1500",
        "quorum.retry.backoff.max.ms": "1600",
    }
    settings = QuorumSettings.from_config(BrokerConfig.from_properties(properties), "cluster", b"d" * 16)
    assert settings == QuorumSettings(
        node_id=2,
        cluster_id="cluster",
        voters=(1, 2),
        directory_id=b"d" * 16,
        fetch_timeout_s=1.1,
        election_timeout_s=1.2,
        election_backoff_max_s=1.3,
        request_timeout_s=1.4,
        retry_backoff_s=1.5,
        retry_backoff_max_s=1.6,
    )
