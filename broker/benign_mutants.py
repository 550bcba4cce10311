"""The benign mutants: they change the broker's configuration in ways on which no promise depends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from broker.config import BrokerConfig
from broker.mutants import Mutants

Change = Callable[[BrokerConfig], BrokerConfig]

CHANGES: Final[Mapping[str, Change]] = {
    "slow_retry": lambda it: replace(
        it,
        quorum_retry_backoff_ms=4 * it.quorum_retry_backoff_ms,
        quorum_retry_backoff_max_ms=4 * it.quorum_retry_backoff_max_ms,
        replica_fetch_backoff_ms=4 * it.replica_fetch_backoff_ms,
    ),
    "more_elections": lambda it: replace(it, quorum_fetch_timeout_ms=max(1, it.quorum_fetch_timeout_ms // 2)),
    "long_elections": lambda it: replace(it, quorum_election_backoff_max_ms=3 * it.quorum_election_backoff_max_ms),
    "small_fetches": lambda it: replace(it, replica_fetch_max_bytes=700),
    "short_polls": lambda it: replace(it, replica_fetch_wait_max_ms=max(1, it.replica_fetch_wait_max_ms // 10)),
    "many_heartbeats": lambda it: replace(
        it, broker_heartbeat_interval_ms=max(1, it.broker_heartbeat_interval_ms // 3)
    ),
    "short_leases": lambda it: replace(it, broker_lease_ms=max(1, it.broker_lease_ms // 2)),
    "nervous_leaders": lambda it: replace(it, replica_lag_time_max_ms=max(1, it.replica_lag_time_max_ms // 2)),
    "small_segments": lambda it: replace(it, log_segment_bytes=4096),
    "sparse_index": lambda it: replace(it, log_index_interval_bytes=1 << 16),
    "rare_checkpoints": lambda it: replace(
        it, high_watermark_checkpoint_interval_ms=10 * it.high_watermark_checkpoint_interval_ms
    ),
    "many_snapshots": lambda it: replace(it, metadata_log_max_record_bytes_between_snapshots=2000),
}


def altered(config: BrokerConfig, mutants: Mutants) -> BrokerConfig:
    """The configuration that a broker with these mutants uses."""
    for name, change in CHANGES.items():
        if mutants.active(name):
            config = change(config)
    return config
