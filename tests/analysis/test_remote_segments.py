"""Remote segments: their metadata in both encodings, and a replica's log across the boundary of remote storage."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from analysis.core import remote_rules as rules
from analysis.core.replica_comparison import prefix_changes
from analysis.core.replica_evidence import Circumstances
from analysis.core.replicas import check_partition, missing_below
from analysis.replicafiles.kafka import LOG_STARTS, REMOTE_START, log_start, read_partition, read_remote, stated_start
from analysis.replicafiles.log import ReplicaFileError, ReplicaLog
from analysis.replicafiles.remote_metadata import read_metadata
from analysis.replicafiles.remote_segments import StoredLog, objects_in
from history.record.schemas import INF
from tests.analysis.remote_files import (
    json_started,
    json_update,
    kafka_started,
    kafka_update,
    text_id,
    write_events,
    write_object,
)
from tests.analysis.segment_files import log_bytes, write_checkpoint, write_high_watermarks, write_replica

A, B, C = (UUID(int=number) for number in (1, 2, 3))
VALUES = [100 + offset for offset in range(12)]
EPOCHS = [0] * 5 + [2] * 7
LINEAGE = [(0, 0), (2, 5)]
QUIET = Circumstances(quiet=True, stopped=True)


def part(start: int, end: int, values: Sequence[int] = VALUES, epochs: Sequence[int] = EPOCHS) -> bytes:
    """The records from `start` up to `end`."""
    return log_bytes(epochs[start:end], values[start:end], start=start)


def node(tmp_path: Path, name: str, own_start: int, epochs: Sequence[tuple[int, int]] = LINEAGE) -> Path:
    data = tmp_path / name
    write_replica(data, "log", 0, {own_start: part(own_start, 12)}, epochs=epochs)
    write_high_watermarks(data, {("log", 0): 12})
    return data


def tiered(tmp_path: Path, *segments: tuple[UUID, int, int]) -> Path:
    """n1 has the records from 8 on, and these segments (id, first, after the last) are complete in the store."""
    events = []
    for identity, start, end in segments:
        lineage = [(epoch, max(at, start)) for epoch, at in LINEAGE if at < end]
        content = part(start, end)
        events += [kafka_started(identity, start, end - 1, lineage, content=content)]
        events += [kafka_update(identity, "COPY_FINISHED")]
        write_object(tmp_path / "store", identity, start, content, [each for each in LINEAGE if each[1] < end])
    data = node(tmp_path, "n1", 8)
    write_events(data, events)
    return data


def read(tmp_path: Path, *names: str) -> list[ReplicaLog]:
    nodes = {name: tmp_path / name for name in names}
    remote = read_remote({"n1": tmp_path / "n1"}, tmp_path / "store", ("log", 0))
    return [read_partition(name, ("log", 0), data, remote=remote) for name, data in nodes.items()]


@pytest.mark.parametrize(("started", "update"), [(kafka_started, kafka_update), (json_started, json_update)])
def test_the_state_of_a_segment_is_that_of_its_last_event(tmp_path: Path, started, update) -> None:  # type: ignore[no-untyped-def]
    write_events(
        tmp_path,
        [
            started(A, 0, 4, [(0, 0)]),
            update(A, "COPY_FINISHED"),
            started(B, 5, 9, [(2, 5)]),
            update(A, "DELETE_STARTED"),
            started(C, 0, 1, [(0, 0)], topic="other", partition=3),
        ],
    )
    found = read_metadata({"n1": tmp_path})
    assert (found.strange, found.doubts) == ((), ())
    states = [(each.id, each.start, each.end, each.epochs, each.state) for each in found.of("log", 0)]
    assert states == [
        (text_id(A), 0, 4, ((0, 0),), "DELETE_STARTED"),
        (text_id(B), 5, 9, ((2, 5),), "COPY_STARTED"),
    ]
    assert [each.id for each in found.of("other", 3)] == [text_id(C)]


def test_an_event_without_an_edge_is_reported_and_has_no_effect(tmp_path: Path) -> None:
    write_events(
        tmp_path, [kafka_update(A, "COPY_FINISHED"), json_started(B, 0, 1, [(0, 0)]), json_update(B, "DELETE_FINISHED")]
    )
    found = read_metadata({"n1": tmp_path})
    assert [each.state for each in found.segments.values()] == ["COPY_STARTED"]
    assert found.strange == (
        f"segment {text_id(A)} of log-0: unknown to COPY_FINISHED",
        f"segment {text_id(B)} of log-0: COPY_STARTED to DELETE_FINISHED",
    )


def test_metadata_that_is_not_understood_is_a_doubt(tmp_path: Path) -> None:
    write_events(tmp_path, [b"\x01\x09\x00"])
    assert "a record is not an event: ValueError: message 9 of version 0" in read_metadata({"n1": tmp_path}).doubts[0]


def test_the_longest_replica_of_the_metadata_counts(tmp_path: Path) -> None:
    events = [kafka_started(A, 0, 4, [(0, 0)]), kafka_update(A, "COPY_FINISHED")]
    write_events(tmp_path / "n1", events[:1])
    write_events(tmp_path / "n2", events)
    assert [each.state for each in read_metadata({"n1": tmp_path / "n1", "n2": tmp_path / "n2"}).of("log", 0)] == [
        "COPY_FINISHED"
    ]


def test_a_replica_of_the_metadata_that_was_set_aside_does_not_count(tmp_path: Path) -> None:
    write_events(tmp_path, [json_started(A, 0, 4, [(0, 0)])])
    aside = tmp_path / "__remote_log_metadata-0.1-aside"
    aside.mkdir()
    (aside / "00000000000000000000.log").write_bytes(b"damaged")
    found = read_metadata({"n1": tmp_path})
    assert (len(found.of("log", 0)), found.doubts) == (1, ())


def test_a_log_consists_of_its_remote_and_its_own_segments(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    (log,) = read(tmp_path, "n1")
    assert (log.start, log.own_start, log.end) == (0, 8, 12)
    assert log.offset.tolist() == list(range(12))
    assert log.value.tolist() == VALUES
    assert (log.absent, log.doubts) == ((), ())


def test_replicas_with_different_files_hold_the_same_log(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8), (C, 8, 10))
    node(tmp_path, "n2", 0)
    node(tmp_path, "n3", 10)
    report = check_partition(read(tmp_path, "n1", "n2", "n3"), circumstances=QUIET)
    assert report.anomalies == ()
    assert report.undecided == ()
    assert report.records == 36


def test_segments_may_overlap(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 6), (B, 3, 8))
    (log,) = read(tmp_path, "n1")
    assert log.offset.tolist() == list(range(12))


def test_another_record_in_remote_storage_is_a_divergence(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    node(tmp_path, "n2", 0)
    changed = [*VALUES[:6], 999, *VALUES[7:]]
    write_object(tmp_path / "store", B, 4, part(4, 8, changed))
    report = check_partition(read(tmp_path, "n1", "n2"), circumstances=QUIET)
    assert [each.name for each in report.anomalies] == ["replica-divergence"]
    assert "at offset 6" in report.anomalies[0].sentence


def test_a_segment_of_another_lineage_is_not_part_of_the_log(tmp_path: Path) -> None:
    """KAFKA-15241: an unclean leader uploaded offsets 4 to 7 with epoch 1; the log has epochs 0 and 2 there."""
    data = tiered(tmp_path, (A, 0, 4))
    write_object(tmp_path / "store", B, 4, part(4, 8, [7] * 12, [1] * 12))
    write_object(tmp_path / "store", C, 4, part(4, 8))
    events = [kafka_started(A, 0, 3, [(0, 0)]), kafka_update(A, "COPY_FINISHED")]
    for identity, epochs in ((B, [(1, 4)]), (C, [(0, 4), (2, 5)])):
        events += [kafka_started(identity, 4, 7, epochs), kafka_update(identity, "COPY_FINISHED")]
    write_events(data, events)
    (log,) = read(tmp_path, "n1")
    assert log.value.tolist() == VALUES


@pytest.mark.parametrize("state", ["COPY_STARTED", "DELETE_STARTED"])
def test_only_a_complete_segment_counts(tmp_path: Path, state: str) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    events = [
        kafka_started(A, 0, 3, [(0, 0)]),
        kafka_update(A, "COPY_FINISHED"),
        kafka_started(B, 4, 7, [(0, 4), (2, 5)]),
    ]
    write_events(
        data, events if state == "COPY_STARTED" else [*events, kafka_update(B, "COPY_FINISHED"), kafka_update(B, state)]
    )
    (log,) = read(tmp_path, "n1")
    assert log.absent == ((4, 8),)
    report = check_partition([log], circumstances=QUIET)
    assert any("has no file with the offsets 4 to 7" in each for each in report.undecided)


@pytest.mark.parametrize("damage", ["missing", "shorter", "flipped"])
def test_a_damaged_object_leaves_its_offsets_undecided(tmp_path: Path, damage: str) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    path = write_object(tmp_path / "store", B, 4, part(4, 8))
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(content[: len(content) // 2 + 3])
    else:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (log,) = read(tmp_path, "n1")
    first = {"missing": 4, "shorter": 6, "flipped": 7}[damage]
    assert log.absent == ((first, 8),)


def test_a_log_that_was_deleted_up_to_an_offset_starts_there(tmp_path: Path) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    (data / "log-start-offset-checkpoint").write_text("0\n1\nlog 0 5\n")
    (log,) = read(tmp_path, "n1")
    assert (log.start, log.offset.tolist()) == (5, list(range(5, 12)))


STARTED = {"kafka": kafka_started, "brownout": json_started}


@pytest.mark.parametrize(
    ("owner", "first", "stored", "below", "oldest_epoch", "expected"),
    [
        pytest.param("none", 4, 0, None, 4, (4, 0), id="a log without remote segments starts with its first one"),
        pytest.param("none", 4, 6, None, 6, (6, 6), id="or inside it"),
        pytest.param("kafka", 0, 0, None, 0, (0, 0), id="Kafka: without an entry with its first one"),
        pytest.param("kafka", 8, 5, None, 5, (5, 5), id="Kafka: in remote storage"),
        pytest.param("kafka", 8, 9, None, 9, (9, 9), id="Kafka: inside its own files"),
        pytest.param("brownout", 8, 0, None, 8, (8, 0), id="Brownout: started again at its leader's start"),
        pytest.param("brownout", 8, 9, None, 9, (9, 9), id="Brownout: inside its own files"),
        pytest.param("brownout", 8, 0, 3, 3, (3, 3), id="Brownout: in remote storage"),
        pytest.param("brownout", 8, 5, 3, 5, (5, 5), id="Brownout: in remote storage, moved since"),
        pytest.param("brownout", 8, 2, 8, 8, (8, 2), id="Brownout: a file of an interrupted start"),
    ],
)
def test_the_start_of_a_log_follows_from_the_files_of_its_node(
    tmp_path: Path,
    owner: str,
    first: int,
    stored: int,
    below: int | None,
    oldest_epoch: int,
    expected: tuple[int, int],
) -> None:
    data = node(tmp_path, "n1", first, [(2, oldest_epoch)])
    if owner != "none":
        write_events(data, [STARTED[owner](A, 0, 7, [(0, 0)])])
    write_checkpoint(data / LOG_STARTS, {("log", 0): stored} if stored else {})
    if below is not None:
        (data / "log-0" / REMOTE_START).write_text(f"{below}\n")
    remote = read_remote({"n1": data}, tmp_path / "store", ("log", 0))
    assert (log_start(("log", 0), data, first, remote), stated_start(("log", 0), data, first)) == expected


def test_a_log_of_kafka_without_an_entry_may_start_below_its_first_segment(tmp_path: Path) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    write_checkpoint(data / LOG_STARTS, {("other", 0): 5})
    remote = read_remote({"n1": data}, tmp_path / "store", ("log", 0))
    with pytest.raises(ReplicaFileError, match="it has no entry for a log whose first segment starts at 8"):
        log_start(("log", 0), data, 8, remote)
    assert stated_start(("log", 0), data, 8) == 0


def test_a_lost_or_torn_file_of_a_remote_start_is_an_error(tmp_path: Path) -> None:
    data = node(tmp_path, "n1", 8, [(0, 3), (2, 5)])
    write_events(data, [json_started(A, 0, 7, [(0, 0)])])
    remote = read_remote({"n1": data}, tmp_path / "store", ("log", 0))
    with pytest.raises(ReplicaFileError, match=r"remote-log-start: it is missing, and .* starts at 3, below 8"):
        log_start(("log", 0), data, 8, remote)
    for torn in ("3", "", "x\n", "-1\n"):
        (data / "log-0" / REMOTE_START).write_text(torn)
        with pytest.raises(ReplicaFileError, match="remote-log-start: not the start of a log"):
            log_start(("log", 0), data, 8, remote)
        log = read_partition("n1", ("log", 0), data, remote=remote)
        assert any("damaged remote-log-start" in doubt for doubt in log.doubts)


def test_a_log_of_brownout_starts_in_remote_storage_where_its_file_says(tmp_path: Path) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    (data / "log-0" / REMOTE_START).write_text("5\n")
    (log,) = read(tmp_path, "n1")
    assert (log.start, log.offset.tolist()) == (5, list(range(5, 12)))


@pytest.mark.parametrize(("deleted_to", "found"), [(0, True), (3, True), (4, False), (9, False)])
def test_records_that_clients_asked_to_delete_may_be_absent_from_remote_storage(
    tmp_path: Path, deleted_to: int, found: bool
) -> None:
    """A leader deleted the first segment, and its successor did not know the new start."""
    tiered(tmp_path, (B, 4, 8))
    (log,) = read(tmp_path, "n1")
    remote, _ = both(tmp_path)
    assert log.absent == ((0, 4),)
    assert [each.name for each in rules.removed([log], remote, deleted_to)] == ["removed-before-upload"] * found
    report = check_partition([log], circumstances=replace(QUIET, deleted_to=deleted_to))
    assert any("has no file with the offsets" in each for each in report.undecided) == found
    missing = missing_below(log, replace(QUIET, deleted_to=deleted_to), may_be_short=False)
    assert any("has no records at offsets" in each for each in missing) == found
    whole = read_partition("n1", ("log", 0), node(tmp_path / "whole", "n1", 0))
    changes = prefix_changes(whole, log, deleted_to=deleted_to, compacts=False)
    assert (changes.found is not None) == found


@pytest.mark.parametrize("start", [5, 6, 7])
def test_a_log_has_the_rest_of_a_segment_after_its_first_epoch(tmp_path: Path, start: int) -> None:
    """Apache Kafka cuts the epoch file at once at a deletion, and stores the start of the log later."""
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    (data / "log-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n2 {start}\n")
    (log,) = read(tmp_path, "n1")
    assert log.offset.tolist() == list(range(start, 12))
    assert log.absent_remotely(deleted_to=start) == []
    assert log.absent_remotely(deleted_to=start - 1) == [(start - 1, start)]
    assert list(missing_below(log, replace(QUIET, deleted_to=start), may_be_short=False)) == []


def test_a_log_with_retention_has_all_records_above_its_start(tmp_path: Path) -> None:
    data = tiered(tmp_path, (B, 4, 8))
    (log,) = read(tmp_path, "n1")
    remote, _ = both(tmp_path)
    assert [each.name for each in rules.removed([log], remote, INF)] == ["removed-before-upload"]
    write_checkpoint(data / LOG_STARTS, {("log", 0): 4})
    (log,) = read(tmp_path, "n1")
    assert list(rules.removed([log], remote, INF)) == []


_IDENTITY = "6c6f67 85f5690d59bd4311b119b083c8c48a99 00000000 00 ae7d1972915b4fd6ab3dda29d1e8d5fd 00"
RECORDED = [
    bytes.fromhex(
        f"01000004 {_IDENTITY} 0000000000000000 0000000000000100 00000001 000001a21a295459 000001a21a295576"
        "02 00000000 0000000000000000 00 000ff5e6 00 00 01000101"
    ),
    bytes.fromhex(f"01010004 {_IDENTITY} 00000001 000001a21a2956d3 00 01 00"),
]
"""The first two records of the topic as Apache Kafka 4.3.1 wrote them."""


def test_records_of_apache_kafka_4_3_1_are_understood(tmp_path: Path) -> None:
    write_events(tmp_path, RECORDED)
    (segment,) = read_metadata({"n1": tmp_path}).of("log", 0)
    assert (segment.start, segment.end, segment.epochs, segment.size) == (0, 256, ((0, 0),), 1045990)
    assert (segment.id, segment.topic_id) == ("rn0ZcpFbT9arPdop0ejV_Q", "hfVpDVm9QxGxGbCDyMSKmQ")
    assert segment.state == "COPY_FINISHED"


def both(tmp_path: Path) -> tuple[StoredLog, list[ReplicaLog]]:
    remote = read_remote({"n1": tmp_path / "n1"}, tmp_path / "store", ("log", 0))
    assert remote is not None
    names = [each.name for each in sorted(tmp_path.glob("n*"))]
    return remote, [read_partition(name, ("log", 0), tmp_path / name, remote=remote) for name in names]


def all_rules(tmp_path: Path) -> list[str]:
    remote, logs = both(tmp_path)
    metadata = read_metadata({"n1": tmp_path / "n1"})
    found = [*rules.incomplete(remote), *rules.differing(remote, logs), *rules.removed(logs, remote)]
    found += rules.orphaned(metadata, objects_in(tmp_path / "store"))
    return [each.name for each in found]


def test_a_store_with_the_records_removed_by_replicas_passes(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8), (C, 8, 10))
    node(tmp_path, "n2", 0)
    assert all_rules(tmp_path) == []


@pytest.mark.parametrize("damage", ["missing", "shorter", "flipped"])
def test_a_complete_segment_that_the_store_lacks_is_an_anomaly(tmp_path: Path, damage: str) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    path = write_object(tmp_path / "store", B, 4, part(4, 8))
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(part(4, 7) if damage == "shorter" else content[:-1] + bytes([content[-1] ^ 1]))
    assert all_rules(tmp_path) == ["remote-segment-incomplete"]


def test_another_record_than_a_replicas_in_the_same_epoch_is_an_anomaly(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    node(tmp_path, "n2", 0)
    write_object(tmp_path / "store", B, 4, part(4, 8, [*VALUES[:6], 999, *VALUES[7:]]))
    assert all_rules(tmp_path) == ["remote-record-differs"]


def test_an_object_without_metadata_and_one_of_a_deleted_segment_are_orphans(tmp_path: Path) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    write_object(tmp_path / "store", C, 0, part(0, 4))
    assert all_rules(tmp_path) == ["orphaned-object"]
    metadata = [kafka_started(A, 0, 3, [(0, 0)]), kafka_update(A, "COPY_FINISHED")]
    metadata += [
        kafka_started(B, 4, 7, [(0, 4), (2, 5)]),
        kafka_update(B, "COPY_FINISHED"),
        kafka_started(C, 0, 3, [(0, 0)]),
    ]
    write_events(data, metadata)
    assert all_rules(tmp_path) == [], "an upload that has not ended is known"
    write_events(data, [*metadata, kafka_update(C, "DELETE_STARTED"), kafka_update(C, "DELETE_FINISHED")])
    assert all_rules(tmp_path) == ["orphaned-object"]


@pytest.mark.parametrize(
    ("own", "others", "is_late"),
    [
        pytest.param([(9, "remote_completion_unknown")], [], True, id="no comparison"),
        pytest.param([(9, "remote_completion_unknown")], [(12, 4)], True, id="a comparison that started before"),
        pytest.param([(9, "remote_completion_unknown")], [(12, 1)], False, id="compared since"),
        pytest.param([(9, "remote_upload_failed")], [(12, 1)], False, id="compared since it failed"),
        pytest.param([], [(12, 1)], True, id="the uploader ended without a report"),
        pytest.param([(9, "DELETE_STARTED")], [], False, id="the uploader gave it up"),
    ],
)
def test_objects_that_a_replaced_leader_puts_late_wait_for_a_comparison(
    tmp_path: Path, own: list[tuple[int, str]], others: list[tuple[int, int]], is_late: bool
) -> None:
    states = ["DELETE_STARTED", "DELETE_FINISHED"]
    write_events(tmp_path, [json_started(A, 0, 3, [(0, 0)]), *(json_update(A, state) for state in states)])
    place = {"topic": "log", "partition": 0}
    events: dict[str, list[dict[str, object]]] = {
        "n1": [{"event": name, "state": name, "id": A.hex, "wall": at * 10**9, **place} for at, name in own],
        "n2": [{"event": "remote_store_compared", "wall": at * 10**9, "seconds": took, **place} for at, took in others],
    }
    metadata = read_metadata({"n1": tmp_path})
    assert not metadata.doubts
    (segment,) = metadata.segments.values()
    assert list(rules.late_objects(metadata, events, {segment.broker: "n1"})) == [segment.id] * is_late


def test_files_that_were_removed_before_their_upload_ended_are_an_anomaly(tmp_path: Path) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    write_events(
        data,
        [kafka_started(A, 0, 3, [(0, 0)]), kafka_update(A, "COPY_FINISHED"), kafka_started(B, 4, 7, [(0, 4), (2, 5)])],
    )
    remote, logs = both(tmp_path)
    (found,) = rules.removed(logs, remote)
    assert (
        "the files of n1 start at 8, but no complete remote segment of its lineage has the offsets 4 to 7"
        in found.sentence
    )
    assert found.count == 4


def starts(wall: int, start: int, local: int, tiered: int, mark: int = 100, end: int = 100) -> dict[str, object]:
    """An event `replica_starts`."""
    where = {"event": "replica_starts", "wall": wall, "topic": "log", "partition": 0}
    borders = {"log_start_offset": start, "local_start_offset": local, "last_tiered_offset": tiered}
    return where | borders | {"high_watermark": mark, "log_end_offset": end}


@pytest.mark.conforms("K1023-14")
@pytest.mark.parametrize(
    ("borders", "is_wrong"),
    [
        ((0, 0, -1), False),
        ((0, 8, 7), False),
        ((0, 8, 9), False),
        ((5, 5, -1), False),
        ((0, 8, 9, 10, 10), False),
        ((0, 8, 9, 10, 12), False),
        ((0, 8, 6), True),
        ((9, 8, 7), True),
        ((0, 8, 9, 9, 12), True),
        ((0, 8, 9, 13, 12), True),
        ((8, 8, -1, 7, 12), True),
    ],
)
def test_the_borders_of_a_log_are_in_order(borders: tuple[int, ...], is_wrong: bool) -> None:
    found = list(rules.out_of_bounds("n1", [{"event": "other"}, starts(1, *borders)]))
    assert [each.name for each in found] == (["tiered-bounds-violated"] if is_wrong else [])


def test_the_borders_of_a_log_are_in_order_also_in_events_of_earlier_versions() -> None:
    event = {key: it for key, it in starts(1, 0, 8, 6).items() if key not in ("high_watermark", "log_end_offset")}
    assert [each.name for each in rules.out_of_bounds("n1", [event])] == ["tiered-bounds-violated"]
    assert list(rules.out_of_bounds("n1", [event | {"last_tiered_offset": 7}])) == []


def test_a_follower_may_learn_of_a_new_start_late() -> None:
    late = starts(5, 0, 8, -1)
    moved = {"event": "log_start_moved", "topic": late["topic"], "partition": late["partition"], "wall": 4}
    assert list(rules.out_of_bounds("n1", [late], [[{**moved, "log_start_offset": 8}]])) == []
    for other in ({"log_start_offset": 7}, {"log_start_offset": 8, "wall": 6}):
        (found,) = rules.out_of_bounds("n1", [late], [[{**moved, **other}]])
        assert found.name == "tiered-bounds-violated"


def uncommitted(tmp_path: Path) -> list[str]:
    remote, logs = both(tmp_path)
    return [each.sentence for each in rules.uncommitted(remote, logs)]


def test_a_store_with_records_of_the_log_only_passes(tmp_path: Path) -> None:
    tiered(tmp_path, (A, 0, 4), (B, 4, 8), (C, 8, 10))
    assert uncommitted(tmp_path) == []


@pytest.mark.conforms("K1023-14")
@pytest.mark.parametrize("wrong", ["epoch", "end"])
def test_a_record_in_the_store_that_the_log_does_not_have_is_an_anomaly(tmp_path: Path, wrong: str) -> None:
    data = tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    start, end = (4, 8) if wrong == "epoch" else (8, 16)
    write_object(tmp_path / "store", C, start, part(start, end, [7] * 16, [1 if wrong == "epoch" else 2] * 16))
    events = [kafka_started(A, 0, 3, [(0, 0)]), kafka_update(A, "COPY_FINISHED")]
    events += [kafka_started(C, start, end - 1, [(1, start)]), kafka_update(C, "COPY_FINISHED")]
    write_events(data, events)
    (found,) = uncommitted(tmp_path)
    assert f"at offset {4 if wrong == 'epoch' else 12}" in found
    assert "uploaded before it was committed" in found


def restarts(wall: int, start: int, *, had: int = 0, above: bool = True) -> dict[str, object]:
    """A follower starts its log again, above remote records or at the log's start."""
    where = {"wall": wall, "topic": "log", "partition": 0, "from_offset": had}
    if above:
        return where | {"event": "bootstrapped", "local_start_offset": start}
    return where | {"event": "truncated", "rule": "leader-start", "to_offset": start}


LEADER = [starts(1, 20, 40, 60), starts(10, 30, 50, 70)]
"""The log of the leader starts at 20 until a time between 1 and 10, then at 30."""


@pytest.mark.conforms("K1023-6", "K1023-9", "K1023-10")
@pytest.mark.parametrize(
    ("event", "anomaly"),
    [
        (restarts(5, 61), None),
        (restarts(5, 40, had=7), None),
        (restarts(5, 50, had=7), None),
        (restarts(5, 51, had=7), "local-records-dropped"),
        (restarts(5, 20, above=False), None),
        (restarts(5, 19, above=False), "follower-starts-below-log"),
        (restarts(5, 19), "follower-starts-below-log"),
        (restarts(11, 29, above=False), "follower-starts-below-log"),
        (restarts(0, 0, above=False), None),
    ],
)
def test_a_follower_starts_its_log_again_where_a_leader_has_records(
    event: dict[str, object], anomaly: str | None
) -> None:
    found = list(rules.wrong_starts("n2", [starts(2, 0, 0, -1), event], [LEADER, []]))
    assert [each.name for each in found] == ([] if anomaly is None else [anomaly])


def test_any_other_replica_may_be_the_leader_at_which_a_follower_starts() -> None:
    event = restarts(5, 10, above=False)
    assert list(rules.wrong_starts("n2", [event], [LEADER, [starts(2, 10, 10, -1)]])) == []


@pytest.mark.parametrize(("wall", "names"), [(5, []), (10, ["follower-starts-below-log"])])
def test_a_leader_may_have_stated_the_start_while_the_disk_of_its_follower_hung(wall: int, names: list[str]) -> None:
    role = {"event": "partition_role", "wall": wall, "topic": "log", "partition": 0, "role": "follower"}
    late = restarts(11, 20, above=False)
    leader = [*LEADER, starts(10, 30, 50, 70)]
    assert [each.name for each in rules.wrong_starts("n2", [role, late], [leader])] == names


def test_an_event_that_expects_another_state_has_no_effect(tmp_path: Path) -> None:
    late = json.loads(json_update(A, "DELETE_STARTED")) | {"expected": "COPY_STARTED"}
    write_events(
        tmp_path, [json_started(A, 0, 4, [(0, 0)]), json_update(A, "COPY_FINISHED"), json.dumps(late).encode()]
    )
    found = read_metadata({"n1": tmp_path})
    assert [each.state for each in found.segments.values()] == ["COPY_FINISHED"]
    assert found.strange == ()


@pytest.mark.parametrize(
    ("state", "anomaly"),
    [
        ("unknown", "object-removed-unasked"),
        ("COPY_STARTED", "object-removed-unasked"),
        ("COPY_FINISHED", "object-removed-unasked"),
        ("DELETE_STARTED", None),
        ("DELETE_FINISHED", None),
    ],
)
def test_an_object_is_removed_only_if_the_metadata_have_its_deletion(
    tmp_path: Path, state: str, anomaly: str | None
) -> None:
    states = ["COPY_FINISHED", "DELETE_STARTED", "DELETE_FINISHED"]
    known = [] if state == "unknown" else states[: states.index(state) + 1 if state in states else 0]
    started = [] if state == "unknown" else [json_started(A, 0, 3, [(0, 0)])]
    write_events(tmp_path, [*started, *(json_update(A, it) for it in known), json_started(B, 4, 8, [(0, 4)])])
    name = f"c/log-x/0/{0:020d}-{A.hex}.epochs"
    event = {"event": "remote_orphan_removed", "topic": "log", "partition": 0, "name": name}
    metadata = read_metadata({"n1": tmp_path})
    assert not metadata.doubts
    found = [each.name for each in rules.unasked(metadata, "n1", [event, {"event": "remote_read_failed"}])]
    assert found == ([] if anomaly is None else [anomaly])


@pytest.mark.parametrize(
    ("event", "ended", "is_unreported"),
    [
        pytest.param({"event": "remote_segment", "state": "COPY_FINISHED"}, 0, False, id="reported"),
        pytest.param({"event": "remote_completion_unknown"}, 0, False, id="the leader stopped before it was read back"),
        pytest.param({"event": "remote_segment", "state": "COPY_STARTED"}, 1, False, id="a fault ended the process"),
        pytest.param({"event": "remote_segment", "state": "COPY_STARTED"}, 0, True, id="only its start was reported"),
        pytest.param({"event": "remote_upload_failed"}, 0, True, id="a failure was reported"),
    ],
)
def test_the_completion_of_a_segment_was_reported_or_could_not_be(
    tmp_path: Path, event: dict[str, str], ended: int, is_unreported: bool
) -> None:
    write_events(tmp_path, [json_started(A, 0, 3, [(0, 0)]), json_update(A, "COPY_FINISHED")])
    metadata = read_metadata({"n1": tmp_path})
    names = {segment.broker: "n1" for segment in metadata.segments.values()}
    sentences = list(rules.unreported(metadata, {"n1": [{**event, "id": A.hex}]}, names, {"n1": ended}))
    assert bool(sentences) is is_unreported


EVENTS = [json_started(A, 0, 4, [(0, 0)]), json_update(A, "COPY_FINISHED"), json_started(B, 5, 9, [(2, 5)])]


@pytest.mark.parametrize(
    ("dumped", "mark", "later", "expected"),
    [
        pytest.param(EVENTS[:2], 2, EVENTS, "", id="a prefix"),
        pytest.param(EVENTS, 2, EVENTS[:2], "", id="a tail that was not committed"),
        pytest.param(EVENTS, 0, [], "", id="a high watermark of 0"),
        pytest.param(EVENTS, 3, EVENTS[:2], "at offset 2 on n2", id="the end is shorter"),
        pytest.param(EVENTS, 3, [*EVENTS[:2], EVENTS[1]], "at offset 2 on n2", id="the end is another"),
        pytest.param(EVENTS, 3, [], "at offset 0 on n2", id="the end is empty"),
        pytest.param(EVENTS[:1], 2, EVENTS, "ends at 1, and its high watermark is 2", id="a dump that is too short"),
        pytest.param(None, 2, EVENTS, "it has no segment", id="a dump without the replica"),
    ],
)
def test_committed_events_of_an_earlier_dump_are_in_the_last_one(
    tmp_path: Path, dumped: list[bytes] | None, mark: int, later: list[bytes], expected: str
) -> None:
    now, before = tmp_path / "now", tmp_path / "earlier"
    write_events(now, later)
    if dumped is not None:
        write_events(before, dumped)
    before.mkdir(exist_ok=True)
    write_high_watermarks(before, {("__remote_log_metadata", 0): mark, ("log", 0): 7})
    found = read_metadata({"n1": now}, {"n2": before})
    assert expected in str((*found.differing, *found.doubts))
    assert bool(found.differing or found.doubts) == bool(expected)


@pytest.mark.parametrize("torn", [1, 20, 70])
def test_an_earlier_dump_may_end_in_a_batch_that_was_being_written(tmp_path: Path, torn: int) -> None:
    now, before = tmp_path / "now", tmp_path / "earlier"
    for place in (now, before):
        write_events(place, EVENTS)
    (segment,) = before.glob("__remote*/*.log")
    segment.write_bytes(segment.read_bytes()[:-torn])
    for mark, is_short in ((2, False), (3, True)):
        write_high_watermarks(before, {("__remote_log_metadata", 0): mark})
        assert bool(read_metadata({"n1": now}, {"n2": before}).doubts) == is_short
