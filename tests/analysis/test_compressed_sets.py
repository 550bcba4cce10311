"""Compressed batches of message format 2 are read as the records that they hold, in every codec."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from analysis.replicafiles.kafka import read_replica
from analysis.replicafiles.log import NO_VALUE, ReplicaLog
from history.kafka import compression
from tests.analysis.compressed_sets import ALL, GZIP, JAVA, LZ4, NAMES, SNAPPY, ZSTD, compressed
from tests.analysis.segment_files import batch, log_bytes, record, value, write_replica
from tests.broker.clients.harness import PATIENCE, Cluster, cluster

Read = Callable[[bytes], ReplicaLog]
COLUMNS = ("offset", "epoch", "value", "digest", "size", "exact")
each_codec = pytest.mark.parametrize("codec", ALL, ids=NAMES.get)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a log from the bytes of its first segment."""
    count = iter(range(10_000))

    def read_bytes(data: bytes) -> ReplicaLog:
        directory = write_replica(tmp_path / str(next(count)), "log", 0, {0: data}, epochs=[(1, 0)])
        return read_replica("n1", "log", 0, directory)

    return read_bytes


def records(first: int, count: int, size: int = 60) -> list[bytes]:
    return [record(at, value(first + at, size), time=at) for at in range(count)]


@each_codec
def test_a_compressed_batch_is_the_records_that_it_holds(read: Read, codec: int) -> None:
    odd = [record(0, None), record(1, b"short", key=b"k"), record(2, value(3, 5_000), header=b"h", time=9)]
    producer = (7, 1, 40)

    def log(codec: int) -> ReplicaLog:
        compressed_ones = batch(1, 2, records(20, 50), codec=codec) + batch(51, 2, odd, codec=codec, producer=producer)
        stamped = batch(54, 3, records(80, 3), attributes=8, codec=codec)
        return read(log_bytes([1], [10]) + compressed_ones + stamped)

    packed, plain = log(codec), log(0)
    assert (packed.damage, packed.unread, packed.opaque, packed.doubts) == ("", "", (), plain.doubts)
    assert (packed.end, packed.formats) == (plain.end, (2,))
    for name in COLUMNS:
        assert np.array_equal(getattr(packed, name), getattr(plain, name)), name


@each_codec
def test_a_set_that_lacks_its_end_is_damaged(read: Read, codec: int) -> None:
    """Wherever it was cut, its batch being whole otherwise: what is before it counts, and nothing behind."""
    before, whole = log_bytes([1, 1], [1, 2]), compressed(codec, b"".join(records(3, 4)))
    behind = log_bytes([1], [9], start=6)
    for cut in range(len(whole)):
        log = read(before + batch(2, 1, [whole[:cut]], attributes=codec & 7, count=4, last=3, latest=1_003) + behind)
        assert (log.value.tolist(), log.end, log.unread, log.opaque) == ([1, 2], 2, "", ()), cut
        assert log.damage.startswith(f"00000000000000000000.log: the batch at {len(before)} "), log.damage


@each_codec
def test_bytes_behind_a_set_are_damage(read: Read, codec: int) -> None:
    more = compressed(codec, b"".join(records(3, 4))) + b"\0\0\0"
    log = read(batch(0, 1, [more], attributes=codec & 7, count=4, last=3, latest=1_003))
    assert (log.end, log.unread) == (0, "")
    assert "does not open as" in log.damage


@each_codec
def test_the_reader_finds_errors_of_records_inside_a_set(read: Read, codec: int) -> None:
    for wrong, count, why in (
        (records(1, 3), 4, "has fewer records than it counts"),
        ([*records(1, 3), b"x"], 3, "has bytes behind its last record"),
        ([record(1, value(1))], 1, "has an offset delta out of order"),
    ):
        log = read(
            log_bytes([1], [5])
            + batch(1, 1, wrong, codec=codec, count=count, last=count - 1, latest=1_002)
            + log_bytes([1], [6], start=1 + count)
        )
        assert (log.value.tolist(), log.end) == ([5], 1)
        assert why in log.damage


def test_the_first_of_several_damaged_batches_ends_the_log(read: Read) -> None:
    torn = batch(2, 1, [b"no zstd"], attributes=ZSTD, count=1, last=0)
    malformed = batch(1, 1, [record(1, value(1))])
    later = batch(4, 1, records(7, 2), codec=GZIP)
    for first, second, why in ((torn, malformed, "does not open as zstd"), (malformed, torn, "out of order")):
        one, two = (_moved(each, at) for each, at in ((first, 2), (second, 3)))
        log = read(log_bytes([1], [5]) + batch(1, 1, records(6, 1), codec=LZ4) + one + two + later)
        assert (log.value.tolist(), log.end) == ([5, 6], 2)
        assert why in log.damage


def _moved(batch: bytes, base: int) -> bytes:
    return base.to_bytes(8, "big") + batch[8:]


@each_codec
def test_a_set_that_opens_to_too_much_is_not_opened(read: Read, codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    large = batch(1, 1, records(20, 50), codec=codec)
    data = log_bytes([1], [5]) + large + batch(51, 1, records(7, 2), codec=codec)
    monkeypatch.setattr(compression, "LARGEST_SET", 1_000)
    log = read(data)
    assert (log.opaque, log.end, log.damage) == (((1, 51),), 53, "")
    assert log.value.tolist() == [5, *[NO_VALUE] * 50, 7, 8]
    assert log.digest.tolist() == read(data).digest.tolist()


def test_many_sets_are_opened_some_at_a_time(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis.replicafiles import batches

    codecs = [(0, *ALL)[at % 6] for at in range(60)]
    data = b"".join(batch(3 * at, 1, records(3 * at, 3), codec=codec) for at, codec in enumerate(codecs))
    monkeypatch.setattr(batches, "BATCHES_AT_ONCE", 7)
    monkeypatch.setattr(batches, "BYTES_AT_ONCE", 900)
    log = read(data)
    assert log.value.tolist() == list(range(180))
    assert log.offset.tolist() == list(range(180))


def test_both_framings_of_snappy_give_the_same_records(read: Read) -> None:
    one, other = (read(batch(0, 1, records(1, 9), codec=codec)) for codec in (SNAPPY, SNAPPY | JAVA))
    assert one.digest.tolist() == other.digest.tolist()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("one")) as nodes:
        yield nodes


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_reader_reads_sets_compressed_by_a_client_library(broker: Cluster, name: str) -> None:
    """Written by librdkafka, kept by our broker as it came."""
    topic = f"in-{name}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": name, "linger.ms": 50})
    for number in range(300):
        producer.produce(topic, value(number, 200), key=b"k" * 500, partition=0)  # what does not shrink it sends plain
    assert producer.flush(PATIENCE) == 0
    directory = broker.brokers[1].log_dir / f"{topic}-0"
    log = read_replica("n1", topic, 0, directory)
    assert (log.value.tolist(), log.damage, log.opaque) == (list(range(300)), "", ())
    assert len(np.unique(log.digest)) == 300
    used = (directory / f"{0:020d}.log").read_bytes()[22] & 7
    assert used == {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}[name]
