"""The rules of the leader epoch cache, one at a time."""

from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.checkpoint import CorruptCheckpointError
from broker.log.epochs import EpochEntry, LeaderEpochCache
from tests.broker.log.making import in_loop

FILE = "leader-epoch-checkpoint"


def cache(tmp_path: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(RealDisk(str(tmp_path)), FILE, [EpochEntry(*entry) for entry in entries])


@pytest.mark.conforms("K101-1")
def test_epochs_only_rise(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 0), (5, 10))
    with pytest.raises(ValueError, match="epoch 4 from offset 12 follows epoch 5"):
        epochs.assign(4, 12)
    with pytest.raises(ValueError, match="neither may be negative"):
        epochs.assign(-1, 12)
    assert not epochs.assign(5, 12), "an epoch that is known keeps its start"
    assert epochs.entries == ((2, 0), (5, 10))


@pytest.mark.conforms("K101-2")
@in_loop
async def test_the_file_has_a_version_a_count_and_a_line_per_epoch(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (0, 0))
    await epochs.assign_durably(3, 17)
    assert (tmp_path / FILE).read_text() == "0\n2\n0 0\n3 17\n"
    assert LeaderEpochCache.load(RealDisk(str(tmp_path)), FILE).entries == epochs.entries


@pytest.mark.conforms("K101-5", "H1")
@pytest.mark.parametrize(
    ("asked", "answer"),
    [(3, (3, 10)), (5, (5, 20)), (8, (8, 30)), (4, (3, 10)), (7, (5, 20))],
    ids=["first", "middle", "current: the log's end", "a gap: the epoch below", "another gap"],
)
def test_the_answer_is_the_largest_epoch_not_above_and_where_it_ends(
    tmp_path: Path, asked: int, answer: tuple[int, int]
) -> None:
    assert cache(tmp_path, (3, 0), (5, 10), (8, 20)).end_offset_for(asked, 30) == answer


@pytest.mark.conforms("H2")
def test_below_the_first_epoch_the_answer_is_the_first_start(tmp_path: Path) -> None:
    assert cache(tmp_path, (5, 10)).end_offset_for(2, 30) == (2, 10)


@pytest.mark.conforms("K101-6")
def test_an_unknown_epoch_has_no_end_offset(tmp_path: Path) -> None:
    assert cache(tmp_path).end_offset_for(0, 0) == (-1, -1)
    assert cache(tmp_path, (5, 10)).end_offset_for(6, 30) == (-1, -1)
    assert cache(tmp_path, (5, 10)).end_offset_for(-1, 30) == (-1, -1)
    assert cache(tmp_path).end_offset_for(-2, 0) == (-1, -1)
    assert cache(tmp_path, (5, 10)).end_offset_for(-2, 30) == (-2, 10), "as of Kafka's cache"


@pytest.mark.conforms("H27", "K101-12")
def test_an_epoch_that_starts_at_the_new_end_is_removed(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (1, 0), (2, 10), (3, 20))
    assert epochs.truncate_from_end(20)
    assert epochs.entries == ((1, 0), (2, 10))
    assert not epochs.truncate_from_end(11), "the epoch that the last record is of stays"


@pytest.mark.conforms("K101-11", "H27")
def test_deletion_keeps_the_epoch_that_it_cuts_through(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (1, 0), (2, 10), (3, 20))
    assert epochs.truncate_from_start(15)
    assert epochs.entries == ((2, 15), (3, 20))
    assert epochs.truncate_from_start(20)
    assert list(epochs.entries) == [(3, 20)]
    assert epochs.truncate_from_start(99), "the live epoch stays even if all of its records went"
    assert list(epochs.entries) == [(3, 99)]
    assert not epochs.truncate_from_start(99)
    assert not epochs.truncate_from_start(5)


def test_an_epoch_without_records_gives_way_to_the_next(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (1, 0), (2, 10))
    assert epochs.assign(4, 10)
    assert epochs.entries == ((1, 0), (4, 10))


@pytest.mark.parametrize(
    ("start", "end", "epoch"), [(0, 10, 1), (10, 20, 2), (20, 40, 4)], ids=["first", "middle", "latest"]
)
def test_every_offset_has_an_epoch(tmp_path: Path, start: int, end: int, epoch: int) -> None:
    epochs = cache(tmp_path, (1, 0), (2, 10), (4, 20))
    assert {epochs.epoch_at(offset) for offset in range(start, end)} == {epoch}
    assert epochs.epoch_at(-1) == -1


@pytest.mark.conforms("H10")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: expected version 0, found nothing"),
        ("1\n0\n", ":1: expected version 0, found '1'"),
        ("0\n", ":2: expected the count 0, found nothing"),
        ("0\n3\n0 0\n", ":2: expected the count 1, found '3'"),
        ("0\n1\n0 0 0\n", ":3: expected 2 columns"),
        ("0\n1\n0 x\n", ":3: '0 x'"),
        ("0\n2\n1 0\n1 5\n", ":4: '1 5': offsets must rise"),
        ("0\n2\n1 5\n2 5\n", ":4: '2 5': offsets must rise"),
        ("0\n1\n\0\0\0", ":3: expected 2 columns"),
    ],
)
def test_a_corrupt_file_is_named_with_its_line_and_the_remedy(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CorruptCheckpointError) as caught:
        LeaderEpochCache.load(RealDisk(str(tmp_path)), FILE)
    assert str(caught.value).startswith(FILE + complaint)
    assert str(caught.value).endswith("remove the file: it is rebuilt from the log")
