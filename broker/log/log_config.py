"""Settings of a partition's log, and the mutants that are active in it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.log.append_validation import Batch, latest_timestamp
from broker.log.segment import Segment
from broker.mutants import Mutants
from broker.ports import Buffer
from broker.properties import MAX_INT64


@dataclass(frozen=True)
class LogConfig:
    """Sizes in bytes; `segment_ms`: the age at which a segment is complete; `file_delete_delay_ms`: how long files of
    removed segments remain; `compacted`: records may be missing between others. The rest are mutants:
    `sequence_unchecked`, `any_first_sequence`, `any_first_after_restart`, `no_producer_snapshot`,
    `producer_state_survives_truncation`, `unflushed_roll`, and those of the epoch cache under their own names."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    compacted: bool = False
    segment_ms: int = MAX_INT64
    file_delete_delay_ms: int = 0
    sequences_unchecked: bool = False
    any_first_sequence: bool = False
    forgets_producers: bool = False
    doubts_producers: bool = False
    keeps_cut_producers: bool = False
    epoch_file_unsynced: bool = False
    epoch_after_data: bool = False
    keep_epochs_past_leo: bool = False
    noop_truncate_keeps_cache: bool = False
    trim_drops_live_epoch: bool = False
    unflushed_roll: bool = False

    def divided(
        self, segment: Segment, buf: Buffer, batches: Sequence[Batch]
    ) -> Iterable[tuple[bool, Buffer, Sequence[Batch]]]:
        """Batches, whose bytes are `buf`, by the segments that they belong to; the first can be the growing `segment`.

        Each part: whether a new segment starts with it, its bytes, its batches. A follower gets many batches with one
        fetch. Its segments are complete where a leader's would be, whatever the size of a fetch is.
        """
        has_room = 0 < segment.size <= self.segment_bytes - len(buf)
        if has_room and segment.age_ms(latest_timestamp(batches)) <= self.segment_ms:
            return [(False, buf, batches)]
        return self._divided_one_by_one(segment, buf, batches)

    def _divided_one_by_one(
        self, segment: Segment, buf: Buffer, batches: Sequence[Batch]
    ) -> Iterator[tuple[bool, Buffer, Sequence[Batch]]]:
        is_new_segment, first_index, start, position = False, 0, 0, 0
        size, opening = segment.size, None if segment.size else batches[0]
        with memoryview(buf) as view:
            for index, batch in enumerate(batches):
                if size and self._is_complete(segment, opening, size, batch):
                    if index:
                        yield is_new_segment, view[start:position], batches[first_index:index]
                    is_new_segment, first_index, start = True, index, position
                    size, opening = 0, batch
                size += batch.size
                position += batch.size
            yield is_new_segment, view[start:position], batches[first_index:]

    def _is_complete(self, segment: Segment, opening: Batch | None, size: int, batch: Batch) -> bool:
        """Whether a segment of this size is complete when `batch` follows. `opening`: its first batch if it is not
        written yet."""
        if size + batch.size > self.segment_bytes:
            return True
        if opening is None:
            return segment.age_ms(batch.max_timestamp) > self.segment_ms
        return opening.max_timestamp >= 0 and batch.max_timestamp - opening.max_timestamp > self.segment_ms

    @classmethod
    def from_broker(
        cls, config: BrokerConfig, mutants: Mutants | None = None, *, compacted: bool = False
    ) -> "LogConfig":
        mutants = mutants or Mutants()
        return cls(
            config.log_segment_bytes,
            config.log_index_interval_bytes,
            compacted,
            sequences_unchecked=mutants.active("sequence_unchecked"),
            any_first_sequence=mutants.active("any_first_sequence"),
            forgets_producers=mutants.active("no_producer_snapshot"),
            doubts_producers=mutants.active("any_first_after_restart"),
            keeps_cut_producers=mutants.active("producer_state_survives_truncation"),
            epoch_file_unsynced=mutants.active("epoch_file_unsynced"),
            epoch_after_data=mutants.active("epoch_after_data"),
            keep_epochs_past_leo=mutants.active("keep_epochs_past_leo"),
            noop_truncate_keeps_cache=mutants.active("noop_truncate_keeps_cache"),
            trim_drops_live_epoch=mutants.active("trim_drops_live_epoch"),
            unflushed_roll=mutants.active("unflushed_roll"),
        )
