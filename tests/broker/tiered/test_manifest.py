"""Leader epoch and offset decide the records that the store has of a log (H28); a segment may be used in part."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.log.epochs import EpochEntry
from broker.protocol.records import Record, build_batch, parse_header
from broker.tiered.manifest import Lineage, Manifest, TieredOffset
from broker.tiered.object_digests import ObjectDigest
from broker.tiered.segments import (
    EDGES,
    SUFFIXES,
    MetadataFormatError,
    RemotePartition,
    SegmentEvent,
    SegmentState,
    TieredSegment,
    segment_id_of,
)
from broker.tiered.tiered_metadata import Manifests

PARTITION = RemotePartition("t", bytes(range(16)), 3)
DIGESTS = tuple(ObjectDigest.of(suffix, suffix.encode()) for suffix in SUFFIXES)
STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


def segment(name: str, base: int, end: int, *epochs: tuple[int, int], state: SegmentState = FINISHED) -> TieredSegment:
    entries = tuple(EpochEntry(*each) for each in epochs) or (EpochEntry(0, base),)
    objects = () if state is SegmentState.COPY_STARTED else DIGESTS
    return TieredSegment(
        name * 32, PARTITION, base, end, entries, 1_000 + end, 100, 1, entries[-1].epoch, state, objects
    )


def lineage(end: int, *epochs: tuple[int, int]) -> Lineage:
    return Lineage([EpochEntry(*each) for each in epochs], end)


@pytest.mark.parametrize(("before", "after"), list(product([None, *SegmentState], SegmentState)))
def test_only_the_edges_of_the_states_change_a_segment(before: SegmentState | None, after: SegmentState) -> None:
    one = segment("a", 0, 9)
    manifest = Manifest()
    paths = {None: [], STARTED: [STARTED], FINISHED: [STARTED, FINISHED], DELETING: [STARTED, DELETING]}
    path = paths.get(before, [STARTED, DELETING, DELETED])
    for state in path:
        assert manifest.apply(SegmentEvent.started(one) if state is STARTED else SegmentEvent.to(state, one))
    known = None if before in (None, DELETED) else before
    event = SegmentEvent.started(one) if after is STARTED else SegmentEvent.to(after, one)
    assert manifest.apply(event) == (after in EDGES[known])


def test_a_segment_is_readable_only_between_the_end_of_its_copy_and_the_start_of_its_deletion() -> None:
    one, manifest = segment("a", 0, 9), Manifest()
    seen = []
    for state in (STARTED, FINISHED, DELETING, DELETED):
        manifest.apply(SegmentEvent.started(one) if state is STARTED else SegmentEvent.to(state, one))
        seen.append((manifest.find(0, 5) is not None, manifest.highest_tiered(lineage(20, (0, 0))), len(manifest)))
    assert seen == [(False, None, 1), (True, TieredOffset(9, 0), 1), (False, None, 1), (False, None, 0)]


def test_a_record_is_found_by_epoch_and_offset_never_by_the_offset_alone() -> None:
    """H28: the history of epoch 1 from offset 10 on was lost in an unclean election."""
    manifest = Manifest([segment("a", 0, 9, (0, 0)), segment("b", 10, 19, (1, 10)), segment("c", 8, 14, (2, 8))])
    ours = lineage(15, (0, 0), (2, 8))
    assert [manifest.find_in(ours, offset).id[0] for offset in (0, 7, 8, 14)] == ["a", "a", "c", "c"]  # type: ignore[union-attr]
    assert manifest.find_in(ours, 15) is None
    assert manifest.find(1, 12) is not None
    assert manifest.find(2, 16) is None


def test_tiered_records_of_an_epoch_end_with_the_epoch_in_the_log() -> None:
    """H28 (KAFKA-15241): the segment reaches to 19, but the log's epoch 0 ends at 12."""
    manifest = Manifest([segment("a", 0, 19, (0, 0))])
    assert manifest.highest_tiered(lineage(30, (0, 0), (4, 12))) == TieredOffset(11, 0)
    assert manifest.highest_tiered(lineage(30, (0, 0))) == TieredOffset(19, 0)
    assert manifest.covered_to(lineage(30, (0, 0), (4, 12)), 0) == 12


def test_an_epoch_with_remote_records_only_below_its_local_start_is_ignored() -> None:
    manifest = Manifest([segment("a", 0, 4, (3, 0))])
    assert manifest.highest_tiered(lineage(30, (0, 0), (3, 10))) is None


@settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(0, 3)), max_size=6),
    st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
)
def test_the_tiered_end_is_never_before_the_log_start(segments: list[tuple[int, int, int]], starts: list[int]) -> None:
    """So a leader states no earliest pending upload below the start of its log, whatever was deleted (K1023-10)."""
    held = Manifest(
        segment(f"{number}", base, base + length - 1, (epoch, base))
        for number, (base, length, epoch) in enumerate(segments)
    )
    log = lineage(30, *enumerate(sorted(starts)))
    tiered = held.highest_tiered(log)
    assert tiered is None or tiered.offset >= min(starts)


def test_the_end_of_the_lineage_bounds_the_tiered_end() -> None:
    manifest = Manifest([segment("a", 0, 19, (0, 0))])
    assert manifest.highest_tiered(lineage(8, (0, 0))) == TieredOffset(7, 0)
    assert manifest.covered_to(lineage(8, (0, 0)), 0) == 8


def test_coverage_ends_at_the_first_gap() -> None:
    manifest = Manifest([segment("a", 0, 9), segment("c", 20, 29)])
    log = lineage(40, (0, 0))
    assert manifest.covered_to(log, 0) == 10
    assert manifest.covered_to(log, 10) == 10
    assert manifest.covered_to(log, 25) == 30
    assert [each.id[0] for each in manifest.path(log, 0, 30)] == ["a"]


def test_overlapping_copies_of_two_leaders_cover_their_union() -> None:
    manifest = Manifest([segment("a", 0, 14, (0, 0), (1, 10)), segment("b", 5, 24, (0, 5), (1, 10))])
    log = lineage(40, (0, 0), (1, 10))
    assert manifest.covered_to(log, 0) == 25
    assert [each.id[0] for each in manifest.path(log, 0, 25)] == ["a", "b"]
    assert manifest.find_in(log, 20).id[0] == "b"  # type: ignore[union-attr]


def test_a_longer_segment_that_starts_earlier_is_found_behind_a_shorter_one() -> None:
    manifest = Manifest([segment("a", 0, 29), segment("b", 10, 14)])
    found = manifest.find(0, 20)
    assert found is not None
    assert found.id[0] == "a"


def test_the_earliest_offset_is_of_the_lineage() -> None:
    manifest = Manifest([segment("a", 0, 9, (7, 0)), segment("b", 20, 29, (2, 20))])
    assert manifest.earliest(lineage(40, (2, 12))) == 20
    assert manifest.earliest(lineage(40, (3, 12))) is None
    assert manifest.earliest(lineage(40, (2, 25))) == 25


def test_deletion_of_the_last_segment_lowers_the_tiered_end() -> None:
    last = segment("b", 10, 19)
    manifest = Manifest([segment("a", 0, 9), last])
    assert manifest.apply(SegmentEvent.to(DELETING, last))
    assert manifest.highest_tiered(lineage(40, (0, 0))) == TieredOffset(9, 0)


def test_a_finished_copy_is_kept() -> None:
    """The answer to COPY_FINISHED was lost; replicas have deleted their local records because of it."""
    one, manifest = segment("a", 0, 9), Manifest()
    give_up = SegmentEvent.to(DELETING, one, expected=STARTED)
    assert SegmentEvent.decode(give_up.encode()) == give_up
    manifest.apply(SegmentEvent.started(one))
    manifest.apply(SegmentEvent.to(FINISHED, one))
    assert not manifest.apply(give_up)
    assert manifest.find(0, 5) is not None
    assert manifest.apply(SegmentEvent.to(DELETING, one))


def test_events_survive_their_encoding() -> None:
    one = segment("a", 5, 14, (2, 5), (4, 9))
    assert SegmentEvent.decode(SegmentEvent.started(one).encode()) == SegmentEvent.started(one)
    for state in (FINISHED, DELETING, DELETED):
        later = SegmentEvent.to(state, one)
        assert SegmentEvent.decode(later.encode()) == later
    assert SegmentEvent.to(FINISHED, one).objects == DIGESTS


@pytest.mark.parametrize("missing", SUFFIXES)
def test_the_end_of_a_copy_without_the_digest_of_an_object_is_refused(missing: str) -> None:
    one = segment("a", 5, 14)
    event = SegmentEvent.to(FINISHED, replace(one, objects=tuple(it for it in DIGESTS if it.suffix != missing)))
    with pytest.raises(MetadataFormatError, match="digests of"):
        SegmentEvent.decode(event.encode())


def test_the_digests_survive_events_and_snapshots() -> None:
    manifests, one, two = Manifests(), segment("a", 0, 9), segment("b", 10, 19)
    for event in (SegmentEvent.started(one), SegmentEvent.to(FINISHED, one), SegmentEvent.started(two)):
        assert manifests.of(PARTITION.key).apply(event)
    restored = Manifests.restored(manifests.snapshot(bytes(16)), bytes(16))
    assert restored is not None
    expected = [one, replace(two, state=STARTED, objects=())]
    assert list(restored.of(PARTITION.key)) == list(manifests.of(PARTITION.key)) == expected


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"null", b'{"format":3}', b'{"format":2,"state":"COPY_HALF"}', b"\xff"]
)
def test_an_invalid_segment_event_is_refused(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        SegmentEvent.decode(value)


@pytest.mark.parametrize(
    ("base", "end", "epochs"),
    [(5, 4, [(0, 5)]), (0, 9, [(0, 1)]), (0, 9, [(1, 0), (0, 5)]), (0, 9, [(0, 0), (1, 0)]), (0, 9, [(0, 0), (1, 10)])],
)
def test_impossible_metadata_is_refused(base: int, end: int, epochs: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="segment"):
        segment("a", base, end, *epochs)


def test_the_names_of_objects_have_the_segments_id() -> None:
    one = segment("a", 5, 14)
    names = one.object_names("CLUSTER")
    assert names[0] == f"CLUSTER/t-AAECAwQFBgcICQoLDA0ODw/3/00000000000000000005-{'a' * 32}.log"
    assert {segment_id_of(name) for name in names} == {one.id}
    assert segment_id_of("CLUSTER/readme.txt") is None
    assert segment_id_of(names[0] + ".unfinished") is None


@pytest.mark.conforms("K107-3")
@pytest.mark.parametrize(
    ("base", "epoch", "start", "expected"),
    [
        (200, 0, 0, True),
        (200, 0, 250, True),
        (200, 0, 299, True),
        (200, 0, 300, False),
        (200, 1, 250, False),
        (300, 1, 250, True),
        (300, 0, 250, False),
        (400, 1, 250, False),
    ],
)
def test_a_log_that_starts_inside_a_batch_has_that_batch(base: int, epoch: int, start: int, expected: bool) -> None:
    """Batches of 100 records; epoch 1 starts at 300, and the log ends at 400."""
    records = [Record(number, 0, None, b"x") for number in range(100)]
    header = parse_header(build_batch(records, base, epoch))
    entries = [(0, start), (1, 300)] if start < 300 else [(1, start)]
    assert lineage(400, *entries).has(header) is expected
