"""The topic `__remote_log_metadata`: which of its partitions has a log's events, and how an event is written."""

from crc32c import crc32c

from broker.protocol.records import Record, build_batch
from broker.tiered.segments import RemotePartition, SegmentEvent


def metadata_partition(key: tuple[bytes, int], partitions: int) -> int:
    """The partition of the topic that has the events of a log, by topic id and partition."""
    topic_id, index = key
    return crc32c(topic_id + index.to_bytes(4, "big")) % partitions


def batch_of(event: SegmentEvent, now_ms: int) -> bytes:
    """The batch of one event. Its key names the log, for readers."""
    partition: RemotePartition = event.partition
    key = f"{partition.topic}-{partition.index}".encode()
    return build_batch([Record(0, now_ms, key, event.encode())])
