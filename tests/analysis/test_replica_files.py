"""The reader of replica files, on files written byte by byte."""

import struct
from pathlib import Path

import pytest

from analysis.replicafiles.kafka import partitions, read_partition, read_replica
from analysis.replicafiles.log import CONTROL_RECORD, NO_VALUE, ReplicaLog
from tests.analysis.segment_files import batch, log_bytes, record, value, write_high_watermarks, write_replica


def test_records_of_batches_of_any_shape(tmp_path: Path) -> None:
    first = batch(0, 1, [record(0, value(7)), record(1, value(8, 300), key=b"k", time=5, header=b"x"), record(2, None)])
    second = batch(3, 4, [record(0, b"short"), record(1, value(-1))])
    segments = {0: first + second, 5: batch(5, 4, [record(0, value(9, 100_000))])}
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, segments, epochs=[(1, 0), (4, 3)]))
    assert log.offset.tolist() == [0, 1, 2, 3, 4, 5]
    assert log.epoch.tolist() == [1, 1, 1, 4, 4, 4]
    assert log.value.tolist() == [7, 8, NO_VALUE, NO_VALUE, NO_VALUE, 9]
    assert log.size.tolist() == [8, 300, -1, 5, 8, 100_000]
    assert log.exact.tolist() == [True, False, False, False, True, True]
    assert (log.start, log.end, log.epochs, log.damage) == (0, 6, ((1, 0), (4, 3)), "")
    assert len(set(log.digest.tolist())) == 6


def test_the_digest_covers_key_value_headers_and_time_but_not_the_batching(tmp_path: Path) -> None:
    def digests(name: str, data: bytes) -> list[int]:
        return list(read_replica("n", name, 0, write_replica(tmp_path, name, 0, {0: data})).digest.tolist())

    plain = [record(0, value(1)), record(1, value(2))]
    together = digests("together", batch(0, 1, plain))
    assert together == digests("apart", batch(0, 1, plain[:1]) + batch(1, 1, [record(0, value(2))]))
    assert together == digests("epochs", batch(0, 9, plain))
    changed = [
        record(1, value(3)),
        record(1, value(2), key=b""),
        record(1, value(2), key=b"k"),
        record(1, value(2), header=b"h"),
        record(1, value(2), time=1),
        record(1, value(2, 9)),
        record(1, None),
    ]
    seen = {together[1]} | {digests(f"changed{i}", batch(0, 1, [plain[0], each]))[1] for i, each in enumerate(changed)}
    assert len(seen) == 1 + len(changed)


def test_the_digest_of_a_large_record_is_independent_of_its_neighbours(tmp_path: Path) -> None:
    def digests(name: str, data: bytes) -> list[int]:
        return list(read_replica("n", name, 0, write_replica(tmp_path, name, 0, {0: data})).digest.tolist())

    large = [record(0, value(1, 5000)), record(1, value(2, 5000))]
    together = digests("together", batch(0, 1, large))
    assert together == digests("apart", batch(0, 1, large[:1]) + batch(1, 1, [record(0, value(2, 5000))]))
    last_byte = digests("last", batch(0, 1, [large[0], record(1, value(2, 5000)[:-1] + b"x")]))
    stamped = digests("time", batch(0, 1, [large[0], record(1, value(2, 5000), time=1)]))
    assert len({together[1], last_byte[1], stamped[1]}) == 3
    assert together[0] == last_byte[0] == stamped[0]


WHOLE = log_bytes([1, 1, 2], [10, 11, 12])
LAST = log_bytes([2], [13], start=3)


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"", ""),
        (LAST[:5], "torn"),
        (LAST[:70], "torn"),
        (LAST[:-1], "torn"),
        (bytes(4096), "4096 bytes of zeros"),
        (LAST[:-1] + b"\1", "CRC-32C"),
        (log_bytes([2], [13], start=7), "base offset 7 where 3 is due"),
        (struct.pack(">qi", 3, -5) + bytes(100), "no batch"),
        (b"\xff" * 80, "no batch"),
    ],
)
def test_a_log_ends_where_its_bytes_stop_being_batches(tmp_path: Path, tail: bytes, why: str) -> None:
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, {0: WHOLE + tail}))
    assert log.value.tolist() == [10, 11, 12]
    assert log.end == 3
    assert why in log.damage
    assert bool(log.damage) == bool(why)


def test_the_reader_stops_at_a_damaged_segment(tmp_path: Path) -> None:
    segments = {0: WHOLE + LAST[:-1], 4: log_bytes([2], [14], start=4)}
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, segments))
    assert (log.end, len(log.offset)) == (3, 3)
    assert "bytes of later segments" in log.damage


def test_a_missing_segment_leaves_offsets_absent(tmp_path: Path) -> None:
    segments = {0: WHOLE, 5: log_bytes([2], [14], start=5)}
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, segments))
    assert (log.offset.tolist(), log.end, log.absent, log.damage) == ([0, 1, 2, 5], 6, ((3, 5),), "")


def test_a_segment_that_overlaps_the_one_before_is_damage(tmp_path: Path) -> None:
    segments = {0: WHOLE, 2: log_bytes([2], [14], start=2)}
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, segments))
    assert log.end == 3
    assert "the log before it ends at 3" in log.damage


def test_a_gap_between_batches_that_agree_is_read_over(tmp_path: Path) -> None:
    data = WHOLE + log_bytes([2, 2], [14, 15], start=5)
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, {0: data}))
    assert (log.offset.tolist(), log.end, log.gaps, log.damage) == ([0, 1, 2, 5, 6], 7, ((3, 5),), "")


def test_the_reader_reports_files_other_than_segments(tmp_path: Path) -> None:
    directory = write_replica(tmp_path, "log", 0, {0: WHOLE}, epochs=[(1, 0)])
    (directory / "3.log").write_bytes(LAST)
    log = read_replica("n1", "log", 0, directory)
    assert (log.end, log.unread) == (3, "3.log is not named as a segment")
    (directory / "3.log").unlink()
    (directory / f"{0:020d}.log").unlink()
    assert read_replica("n1", "log", 0, directory).unread == "the log has no segments"
    (directory / f"{0:020d}.log").mkdir()
    assert "cannot be read: it is a directory" in read_replica("n1", "log", 0, directory).unread


def test_a_log_with_a_deleted_head_starts_later(tmp_path: Path) -> None:
    directory = write_replica(tmp_path, "log", 0, {100: log_bytes([3, 3], [5, 6], start=100), 102: b""})
    log = read_replica("n1", "log", 0, directory)
    assert (log.start, log.end, log.offset.tolist()) == (100, 102, [100, 101])


def test_control_batches_carry_no_values(tmp_path: Path) -> None:
    control = batch(0, 1, [record(0, value(5), key=b"\0\0\0\1")], attributes=0x20)
    log = read_replica("n1", "log", 0, write_replica(tmp_path, "log", 0, {0: control}))
    assert (log.offset.tolist(), log.value.tolist()) == ([0], [CONTROL_RECORD])


def read_node(node: str, data: Path) -> list[ReplicaLog]:
    """All replicas in a data directory."""
    return [read_partition(node, key, data) for key in partitions(data)]


def test_a_node_has_its_replicas_with_their_high_watermarks(tmp_path: Path) -> None:
    write_replica(tmp_path, "my-topic", 3, {0: WHOLE}, epochs=[(1, 0)])
    write_replica(tmp_path, "log", 0, {0: b""})
    write_replica(tmp_path, "__cluster_metadata", 0, {0: b""})
    (tmp_path / "meta.properties").write_text("version=1\n")
    write_high_watermarks(tmp_path, {("my-topic", 3): 2})
    logs = read_node("n1", tmp_path)
    assert [(log.topic, log.partition, log.end, log.high_watermark) for log in logs] == [
        ("log", 0, 0, -1),
        ("my-topic", 3, 3, 2),
    ]
    assert read_node("n2", tmp_path / "nothing") == []


NO_CHECKPOINTS = [
    "",
    "0",
    "1\n0\n",
    "0\n2\n1 0\n",
    "0\n1\n1 zero\n",
    "0\n1\n1 0",
    "0\n1\n1 0\n\n",
    "0\n1\n1 -1\n",
    "\0" * 9,
]


@pytest.mark.parametrize("content", [*NO_CHECKPOINTS, "0\n1\n1 0 0\n", "0\n1\n01 0\n"])
def test_the_reader_names_a_damaged_epoch_file(tmp_path: Path, content: str) -> None:
    directory = write_replica(tmp_path, "log", 0, {0: WHOLE})
    (directory / "leader-epoch-checkpoint").write_text(content)
    log = read_replica("n1", "log", 0, directory)
    assert (log.epochs, log.end) == (None, 3)
    (doubt,) = log.doubts
    assert doubt.startswith("has a damaged leader-epoch-checkpoint: not a checkpoint file")


@pytest.mark.parametrize("content", [*filter(None, NO_CHECKPOINTS), "0\n2\nlog 0 3\nlog 0 3\n", "0\n1\nlog 0 x\n"])
def test_the_reader_names_a_damaged_high_watermark_file(tmp_path: Path, content: str) -> None:
    write_replica(tmp_path, "log", 0, {0: WHOLE}, epochs=[(1, 0), (2, 2)])
    (tmp_path / "replication-offset-checkpoint").write_text(content)
    (log,) = read_node("n1", tmp_path)
    assert (log.high_watermark, log.end) == (-1, 3)
    assert log.doubts[0].startswith("has a damaged replication-offset-checkpoint: not a checkpoint file")


def test_the_reader_takes_an_empty_high_watermark_file_for_one_without_entries(tmp_path: Path) -> None:
    """Apache Kafka creates it empty. Whether an entry is missing depends on how long the service has run."""
    write_replica(tmp_path, "log", 0, {0: WHOLE}, epochs=[(1, 0), (2, 2)])
    (tmp_path / "replication-offset-checkpoint").touch()
    (log,) = read_node("n1", tmp_path)
    assert (log.high_watermark, log.doubts) == (-1, ("has no high watermark in replication-offset-checkpoint",))


def test_the_reader_reports_missing_files_of_a_replica(tmp_path: Path) -> None:
    write_replica(tmp_path, "log", 0, {0: WHOLE})
    (log,) = read_node("n1", tmp_path)
    assert log.epochs is None
    missing = ("has no leader-epoch-checkpoint", "has no high watermark in replication-offset-checkpoint")
    assert log.doubts == missing
    write_high_watermarks(tmp_path, {("log", 1): 3})
    assert read_node("n1", tmp_path)[0].doubts == missing


def test_zeros_after_the_last_record_are_recognized(tmp_path: Path) -> None:
    zeros = read_replica("n1", "log", 0, write_replica(tmp_path / "a", "log", 0, {0: WHOLE + bytes(4096)}))
    assert (zeros.zeros, zeros.end) == (True, 3)
    other = read_replica("n1", "log", 0, write_replica(tmp_path / "b", "log", 0, {0: WHOLE + bytes(4096) + b"x"}))
    before = {0: WHOLE + bytes(4096), 3: LAST}
    between = read_replica("n1", "log", 0, write_replica(tmp_path / "c", "log", 0, before))
    assert not other.zeros
    assert not between.zeros
