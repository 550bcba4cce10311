"""Settings of a partition's log, and the mutants that are active in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.log.append_validation import Batch, latest_timestamp
from broker.log.segment import Segment
from broker.mutants import Mutants
from broker.properties import MAX_INT64


@dataclass(frozen=True)
class LogConfig:
    """Sizes in bytes; `segment_ms`: the age at which a segment is complete; `file_delete_delay_ms`: how long files of
    removed segments remain; `compacted`: records may be missing between others. The rest are mutants:
    `sequence_unchecked`, `any_first_sequence`, `no_producer_snapshot`, `producer_state_survives_truncation`, and those
    of the epoch cache under their own names."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    compacted: bool = False
    segment_ms: int = MAX_INT64
    file_delete_delay_ms: int = 0
    sequences_unchecked: bool = False
    any_first_sequence: bool = False
    forgets_producers: bool = False
    keeps_cut_producers: bool = False
    epoch_file_unsynced: bool = False
    epoch_after_data: bool = False
    keep_epochs_past_leo: bool = False
    noop_truncate_keeps_cache: bool = False
    trim_drops_live_epoch: bool = False

    def completes(self, segment: Segment, size: int, batches: Sequence[Batch]) -> bool:
        """Whether a segment is complete when these batches, `size` bytes together, follow."""
        return segment.size + size > self.segment_bytes or segment.age_ms(latest_timestamp(batches)) > self.segment_ms

    @classmethod
    def from_broker(cls, config: BrokerConfig, mutants: Mutants | None = None, *, compacted: bool = False) -> LogConfig:
        mutants = mutants or Mutants()
        return cls(
            config.log_segment_bytes,
            config.log_index_interval_bytes,
            compacted,
            sequences_unchecked=mutants.active("sequence_unchecked"),
            any_first_sequence=mutants.active("any_first_sequence"),
            forgets_producers=mutants.active("no_producer_snapshot"),
            keeps_cut_producers=mutants.active("producer_state_survives_truncation"),
            epoch_file_unsynced=mutants.active("epoch_file_unsynced"),
            epoch_after_data=mutants.active("epoch_after_data"),
            keep_epochs_past_leo=mutants.active("keep_epochs_past_leo"),
            noop_truncate_keeps_cache=mutants.active("noop_truncate_keeps_cache"),
            trim_drops_live_epoch=mutants.active("trim_drops_live_epoch"),
        )
