"""The topic `__remote_log_metadata`: how it is created, and which of its partitions has a log's events."""

from crc32c import crc32c

from broker.config import BrokerConfig
from broker.protocol.messages.topic_apis import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.protocol.records import Record, build_batch
from broker.tiered.remote_storage_rules import METADATA_TOPIC, METADATA_TOPIC_SETTINGS
from broker.tiered.segments import RemotePartition, SegmentEvent

CREATION_TIMEOUT_S = 5.0


def creation(config: BrokerConfig) -> CreateTopicsRequest:
    """The request for the topic. The controller refuses it while there are fewer brokers than replicas."""
    topic = CreatableTopic(
        name=METADATA_TOPIC,
        num_partitions=config.remote_log_metadata_topic_num_partitions,
        replication_factor=config.remote_log_metadata_topic_replication_factor,
        configs=[CreatableTopicConfig(name, value) for name, value in METADATA_TOPIC_SETTINGS.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=int(CREATION_TIMEOUT_S * 1000))


def metadata_partition(key: tuple[bytes, int], partitions: int) -> int:
    """The partition of the topic that has the events of a log, by topic id and partition."""
    topic_id, index = key
    return crc32c(topic_id + index.to_bytes(4, "big")) % partitions


def batch_of(event: SegmentEvent, now_ms: int) -> bytes:
    """The batch of one event. Its key names the log, for readers."""
    partition: RemotePartition = event.partition
    key = f"{partition.topic}-{partition.index}".encode()
    return build_batch([Record(0, now_ms, key, event.encode())])
