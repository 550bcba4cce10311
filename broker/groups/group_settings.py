"""The settings of a group coordinator."""

from dataclasses import dataclass

from broker.config import BrokerConfig


@dataclass(frozen=True)
class GroupSettings:
    """Durations in seconds of the loop's clock, `offsets_retention_ms` in milliseconds of the wall clock. `max_bytes`:
    the memory limit of all groups of a broker."""

    initial_rebalance_delay_s: float = 3.0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 0x7FFFFFFF
    max_bytes: int = 256 << 20
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    retention_check_interval_s: float = 600.0
    new_member_join_timeout_s: float = 300.0
    """How long a member that has never been in a generation may wait for one."""

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> "GroupSettings":
        return cls(
            initial_rebalance_delay_s=config.group_initial_rebalance_delay_ms / 1000,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            max_bytes=config.group_coordinator_max_bytes,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            retention_check_interval_s=config.offsets_retention_check_interval_ms / 1000,
        )
