"""Remote storage is compared with the replicas by tasks: a partition each, with the same findings for every map."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.engines.replica import StoreFindings, StoreTask, compare_store
from analysis.engines.task_map import WorkerProcesses, in_sequence
from history.record.schemas import INF
from tests.analysis.remote_files import kafka_started, kafka_update, write_events, write_object
from tests.analysis.segment_files import write_checkpoint
from tests.analysis.test_remote_segments import LINEAGE, VALUES, A, B, C, node, part, tiered


def task(place: Path, **changes: Any) -> StoreTask:
    """The partition log-0 whose replicas and objects are in this directory."""
    nodes = {each.name: each for each in sorted(place.glob("n*"))}
    fields: dict[str, Any] = {
        "key": ("log", 0),
        "nodes": nodes,
        "replicas": ("n1", "n2", "n3"),
        "store": place / "store",
        "intact": frozenset(nodes),
        "keeps_committed": True,
        "forgets_producers": False,
    }
    return StoreTask(**fields | changes)


def whole(place: Path) -> StoreTask:
    tiered(place, (A, 0, 4), (B, 4, 8))
    node(place, "n2", 0)
    return task(place)


def differs(place: Path) -> StoreTask:
    found = whole(place)
    write_object(place / "store", B, 4, part(4, 8, [*VALUES[:6], 999, *VALUES[7:]]), LINEAGE)
    return found


def lacks_an_object(place: Path) -> StoreTask:
    found = whole(place)
    write_object(place / "store", B, 4, part(4, 8)).unlink()
    return found


def removed_too_early(place: Path) -> StoreTask:
    data = tiered(place, (A, 0, 4), (B, 4, 8))
    started = kafka_started(B, 4, 7, [(0, 4), (2, 5)])
    complete = kafka_started(A, 0, 3, [(0, 0)], content=part(0, 4))
    write_events(data, [complete, kafka_update(A, "COPY_FINISHED"), started])
    return task(place)


def uncommitted(place: Path) -> StoreTask:
    """The store has a record behind the end of the log."""
    data = tiered(place, (A, 0, 4), (B, 4, 8))
    late = part(8, 14, [*VALUES, 1, 2], [0] * 5 + [2] * 9)
    events = [kafka_started(A, 0, 3, [(0, 0)], content=part(0, 4)), kafka_update(A, "COPY_FINISHED")]
    events += [kafka_started(B, 4, 7, [(0, 4), (2, 5)], content=part(4, 8)), kafka_update(B, "COPY_FINISHED")]
    events += [kafka_started(C, 8, 13, [(2, 8)], content=late), kafka_update(C, "COPY_FINISHED")]
    write_events(data, events)
    write_object(place / "store", C, 8, late, LINEAGE)
    return task(place)


def harmed(suffix: str, content: bytes | None) -> Callable[[Path], StoreTask]:
    """An object of the second segment is absent, or has this content."""

    def make(place: Path) -> StoreTask:
        found = whole(place)
        (path,) = (each for each in sorted((place / "store").rglob(f"*{suffix}")) if each.name.startswith(f"{4:020d}"))
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        return found

    return make


MADE: dict[str, tuple[Callable[[Path], StoreTask], list[str]]] = {
    "whole": (whole, []),
    "differs": (differs, ["remote-record-differs"]),
    "lacks an object": (lacks_an_object, ["remote-segment-incomplete"]),
    "removed too early": (removed_too_early, ["removed-before-upload"]),
    "uncommitted": (uncommitted, ["uncommitted-record-in-store"]),
    "lacks its index": (harmed(".index", None), ["remote-segment-incomplete"]),
    "lacks its time index": (harmed(".timeindex", None), ["remote-segment-incomplete"]),
    "lacks its epochs": (harmed(".leader_epoch_checkpoint", None), ["remote-segment-incomplete"]),
    "lacks its producers": (harmed(".snapshot", None), ["remote-segment-incomplete"]),
    "has torn epochs": (harmed(".leader_epoch_checkpoint", b"0\n2\n0 0\n2"), ["remote-segment-incomplete"]),
    "has torn producers": (harmed(".snapshot", b"\0\1"), ["remote-segment-incomplete"]),
    "has other epochs": (harmed(".leader_epoch_checkpoint", b"0\n1\n0 0\n"), ["remote-object-differs"]),
    "has an epoch that no log has": (
        harmed(".leader_epoch_checkpoint", b"0\n3\n0 0\n1 3\n2 5\n"),
        ["remote-object-differs"],
    ),
    "has an index of another segment": (harmed(".index", bytes([0, 0, 0, 0, 0, 0, 0, 9])), ["remote-object-differs"]),
    "has an empty time index": (harmed(".timeindex", b""), ["remote-object-differs"]),
}


@pytest.mark.parametrize("name", MADE)
def test_each_contradiction_of_a_partition_is_found(tmp_path: Path, name: str) -> None:
    make, expected = MADE[name]
    found = compare_store([make(tmp_path)], in_sequence)
    assert [each.name for each in found.anomalies] == expected
    assert found.segments == {"removed too early": 1, "uncommitted": 3}.get(name, 2)


def test_a_replica_that_lost_files_and_a_log_that_lost_records_are_not_accused(tmp_path: Path) -> None:
    removed, late = removed_too_early(tmp_path / "removed"), uncommitted(tmp_path / "late")
    assert compare_store([task(tmp_path / "removed", intact=frozenset())], in_sequence).anomalies == ()
    assert compare_store([task(tmp_path / "late", keeps_committed=False)], in_sequence).anomalies == ()
    assert len(compare_store([removed, late], in_sequence).anomalies) == 2


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        pytest.param([(A, 0, 4), (B, 4, 8)], ["remote-object-differs"], id="a log with records below"),
        pytest.param([(B, 4, 8)], [], id="a log without records below"),
    ],
)
def test_epochs_of_a_segment_that_start_above_records_of_a_log_are_found(
    tmp_path: Path, segments: list[Any], expected: list[str]
) -> None:
    """A replica that lost its disk states the start 0, and has no record below 4."""
    tiered(tmp_path, *segments)
    for path in (tmp_path / "store").rglob(f"{4:020d}*.leader_epoch_checkpoint"):
        path.write_bytes(b"0\n2\n0 2\n2 5\n")
    found = compare_store([task(tmp_path, intact=frozenset())], in_sequence)
    assert [each.name for each in found.anomalies] == expected


@pytest.mark.conforms("K1023-11")
@pytest.mark.parametrize(("log_start", "expected"), [(0, ["remote-object-differs"] * 2), (8, [])])
def test_epochs_of_a_replica_cover_the_remote_records_of_its_log(
    tmp_path: Path, log_start: int, expected: list[str]
) -> None:
    """It lost its disk, and started its log again without the epochs of the records in remote storage."""
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    data = node(tmp_path, "n2", 8, [(2, 8)])
    write_checkpoint(data / "log-start-offset-checkpoint", {("log", 0): log_start})
    found = compare_store([task(tmp_path, intact=frozenset({"n1"}))], in_sequence)
    assert [each.name for each in found.anomalies] == expected


@pytest.mark.parametrize(
    ("deleted_to", "expected"), [(0, ["remote-object-differs"]), (1, ["remote-object-differs"]), (2, []), (9, [])]
)
def test_epochs_of_a_segment_may_start_where_clients_asked_to_delete_to(
    tmp_path: Path, deleted_to: int, expected: list[str]
) -> None:
    """A leader moved its start to 2 and uploaded the second segment; its successor did not know that start."""
    tiered(tmp_path, (A, 0, 4), (B, 4, 8))
    for path in (tmp_path / "store").rglob(f"{4:020d}*.leader_epoch_checkpoint"):
        path.write_bytes(b"0\n2\n0 2\n2 5\n")
    found = compare_store([task(tmp_path, deleted_to=deleted_to)], in_sequence)
    assert [each.name for each in found.anomalies] == expected


def started_within(place: Path, start: int, *, stated: int = 0) -> StoreTask:
    """The log started at this offset of the second segment, 4 to 7, when Apache Kafka uploaded it: metadata, object and
    epoch files begin there. `stated`: the start in the replicas' files."""
    epochs = [(epoch, max(at, start)) for epoch, at in LINEAGE if start < 5 or epoch]
    data = tiered(place, (B, 4, 8))
    text = "".join(f"{epoch} {at}\n" for epoch, at in epochs)
    (data / "log-0" / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{text}")
    write_events(data, [kafka_started(B, 4, 7, epochs, content=part(4, 8)), kafka_update(B, "COPY_FINISHED")])
    write_object(place / "store", B, 4, part(4, 8), epochs)
    write_checkpoint(data / "log-start-offset-checkpoint", {("log", 0): stated})
    return task(place, intact=frozenset())


@pytest.mark.parametrize("start", [4, 5, 6, 7])
def test_metadata_of_a_segment_may_start_below_a_requested_deletion(tmp_path: Path, start: int) -> None:
    for number, deleted_to in enumerate(range(12)):
        made = started_within(tmp_path / str(number), start)
        found = compare_store([replace(made, deleted_to=deleted_to)], in_sequence)
        expected = [] if start == 4 or deleted_to >= start else ["remote-object-differs"]
        assert [each.name for each in found.anomalies] == expected, deleted_to


@pytest.mark.parametrize(("stated", "expected"), [(0, ["remote-object-differs"]), (6, [])])
def test_metadata_of_a_segment_may_start_at_the_start_of_the_log(
    tmp_path: Path, stated: int, expected: list[str]
) -> None:
    """A log with retention, and no request of a client is known."""
    made = replace(started_within(tmp_path, 6, stated=stated), deleted_to=INF)
    assert [each.name for each in compare_store([made], in_sequence).anomalies] == expected


def test_metadata_without_an_epoch_of_remaining_records_are_found(tmp_path: Path) -> None:
    made = started_within(tmp_path, 6)
    data = tmp_path / "n1"
    for epochs in ([(0, 6)], [(2, 6), (3, 7)], [(2, 7)], [(2, 8)], []):
        write_events(data, [kafka_started(B, 4, 7, epochs, content=part(4, 8)), kafka_update(B, "COPY_FINISHED")])
        found = compare_store([replace(made, deleted_to=6)], in_sequence)
        assert [each.name for each in found.anomalies] == ["remote-object-differs"], epochs


@pytest.mark.parametrize(("deleted_to", "expected"), [(0, ["remote-object-differs"]), (5, []), (6, [])])
def test_epochs_of_a_replica_may_start_where_clients_asked_to_delete_to(
    tmp_path: Path, deleted_to: int, expected: list[str]
) -> None:
    """Apache Kafka cuts the epoch file at once, and stores the start of the log later."""
    tiered(tmp_path, (B, 4, 8))
    node(tmp_path, "n2", 8, [(2, 5)])
    found = compare_store([task(tmp_path, intact=frozenset(), deleted_to=deleted_to)], in_sequence)
    assert [each.name for each in found.anomalies] == expected


def test_a_partition_without_remote_segments_has_no_findings(tmp_path: Path) -> None:
    node(tmp_path, "n1", 0)
    assert compare_store([task(tmp_path)], in_sequence) == StoreFindings(0, ())


def all_of(place: Path) -> list[StoreTask]:
    return [make(place / name) for name, (make, _) in MADE.items()]


def test_worker_processes_have_the_same_findings(tmp_path: Path) -> None:
    tasks = all_of(tmp_path)
    assert compare_store(tasks, WorkerProcesses(2)) == compare_store(tasks, in_sequence)


def test_the_partition_with_the_most_records_is_the_first_task_and_findings_keep_their_order(tmp_path: Path) -> None:
    given: list[int] = []

    def spread(
        function: Callable[[Any], Any], tasks: Sequence[Any], weights: Sequence[int] | None = None, /
    ) -> list[Any]:
        given.extend(weights or ())
        return [function(each) for each in tasks]

    tasks = all_of(tmp_path)
    found = compare_store(tasks, spread)
    assert given == sorted(given, reverse=True)
    assert given[0] > given[-1]
    assert [each.name for each in found.anomalies] == [name for _, names in MADE.values() for name in names]
