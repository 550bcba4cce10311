"""What settings ask for must show in the files."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.checkers.requested_settings import Requested, Shown, contradictions
from analysis.replicafiles.batches import BatchTraits, read_traits
from analysis.replicafiles.cluster_metadata import PartitionMetadata, TopicMetadata
from tests.analysis.segment_files import log_bytes

NODE = ("n1", 0)


def shown(traits: BatchTraits, settings: dict[str, str] | None = None, replicas: tuple[int, ...] = (1, 2)) -> Shown:
    topic = TopicMetadata("log", "id", settings or {}, {0: PartitionMetadata(replicas, 0, {0: 1})})
    return Shown({NODE: traits}, topic, {0: 2}, {0: frozenset({1, 2})}, {})


def found(workload: dict[str, Any], topic: dict[str, str], evidence: Shown) -> list[str]:
    return list(contradictions(Requested(workload, topic, []), evidence))


@pytest.mark.parametrize(
    ("workload", "traits", "words"),
    [
        ({"idempotent": True}, BatchTraits(records=Counter({True: 9, False: 2})), ""),
        ({"idempotent": True}, BatchTraits(records=Counter({False: 9})), "without a producer id"),
        ({"idempotent": True}, BatchTraits(older=9), "format without producer ids"),
        ({"idempotent": False}, BatchTraits(records=Counter({True: 1})), "have a producer id"),
        ({"compression": "lz4"}, BatchTraits(codecs=Counter({"lz4": 1, "none": 4})), ""),
        ({"compression": "lz4"}, BatchTraits(codecs=Counter({"none": 4}), compressible=1), "that compression shrinks"),
        ({"compression": "none"}, BatchTraits(codecs=Counter({"zstd": 4})), "has batches of zstd"),
        ({"batch_records": 5}, BatchTraits(largest=5), ""),
        ({"batch_records": 5}, BatchTraits(largest=6), "batch of 6 records"),
    ],
)
def test_a_setting_of_the_workload_shows_in_the_batches(
    workload: dict[str, Any], traits: BatchTraits, words: str
) -> None:
    (text,) = found(workload, {}, shown(traits)) or [""]
    assert words in text
    assert bool(words) == bool(text)


@pytest.mark.parametrize(
    ("topic", "traits", "words"),
    [
        ({"segment.bytes": "100"}, BatchTraits(segment_bytes=100), ""),
        ({"segment.bytes": "100"}, BatchTraits(segment_bytes=101), "segment of 101 bytes"),
        ({"message.timestamp.type": "LogAppendTime"}, BatchTraits(stamped=Counter({True: 2})), ""),
        (
            {"message.timestamp.type": "LogAppendTime"},
            BatchTraits(stamped=Counter({False: 2})),
            "timestamps of clients",
        ),
        ({"message.timestamp.type": "CreateTime"}, BatchTraits(stamped=Counter({True: 2})), "timestamps of brokers"),
        ({"compression.type": "zstd"}, BatchTraits(codecs=Counter({"none": 2})), "has batches of none"),
        ({"compression.type": "producer"}, BatchTraits(codecs=Counter({"none": 2})), ""),
    ],
)
def test_a_setting_of_the_topic_shows_in_the_batches(topic: dict[str, str], traits: BatchTraits, words: str) -> None:
    (text,) = found({}, topic, shown(traits, topic)) or [""]
    assert words in text
    assert bool(words) == bool(text)


def test_settings_partitions_and_replicas_are_in_the_metadata_log() -> None:
    asked = {"min.insync.replicas": "2"}
    assert found({}, asked, shown(BatchTraits(), asked)) == []
    assert "metadata log has none" in found({}, asked, shown(BatchTraits()))[0]
    assert "metadata log has 1" in found({}, asked, shown(BatchTraits(), {"min.insync.replicas": "1"}))[0]
    assert "planned on nodes [1, 2]" in found({}, {}, shown(BatchTraits(), replicas=(1, 3)))[0]


def test_traits_are_read_from_the_headers_of_batches(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log_bytes([0, 0, 1], [1, 2, 3]))
    traits = read_traits([path])
    assert (traits.records, traits.codecs, traits.largest) == (Counter({False: 3}), Counter({"none": 3}), 1)
    assert traits.segment_bytes == path.stat().st_size
