"""A reader of a log that became shorter continues from its start, also when the library does not let it seek."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from history.reader import read_run
from history.record.schemas import FAIL, OK
from history.record.shapes import LOG
from history.record.writer import OperationWriter
from tests.workloads.running import settings
from workloads import consumer
from workloads.consumer import Reader


class Message:
    def __init__(self, offset: int, error: KafkaError | None = None, partition: int = 0) -> None:
        self._offset, self._error, self._partition = offset, error, partition

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def value(self) -> bytes:
        return self._offset.to_bytes(8, "big")


class Library:
    """A consumer that is in no state to seek, as after a truncation."""

    def __init__(self, seeks: bool) -> None:
        self.seeks, self.start = seeks, 0
        self.done: list[tuple[str, list[tuple[int, int]]]] = []
        self.polls: list[list[Message]] = []

    def assign(self, partitions: list[Any]) -> None:
        self.done.append(("assign", [(each.partition, each.offset) for each in partitions]))

    def seek(self, partition: Any) -> None:
        if not self.seeks:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.done.append(("seek", [(partition.partition, partition.offset)]))

    def get_watermark_offsets(self, _partition: Any, **_options: Any) -> tuple[int, int]:
        return self.start, 9

    def pause(self, partitions: list[Any]) -> None:
        self.done.append(("pause", [(each.partition, each.offset) for each in partitions]))

    def resume(self, partitions: list[Any]) -> None:
        self.done.append(("resume", [(each.partition, each.offset) for each in partitions]))

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return self.polls.pop(0)


@pytest.mark.parametrize(("seeks", "then"), [(True, ("seek", [(0, 0)])), (False, ("assign", [(0, 0), (1, 7)]))])
def test_the_reader_reads_again_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeks: bool, then: tuple[str, list[tuple[int, int]]]
) -> None:
    library = Library(seeks)
    monkeypatch.setattr(consumer, "Consumer", lambda _: library)
    its = settings(tmp_path, "log", "c1", 1)
    with OperationWriter(LOG, its.directory, client="c1", session=1, process=1) as writer:
        reader = Reader(its, writer)
        reader.assign({0: 5, 1: 7})
        out_of_range = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
        library.polls = [[Message(5), Message(6, out_of_range)], [Message(0), Message(1)]]
        assert reader.poll(0.1) == (1, 1)
        assert reader.poll(0.1) == (1, 0)
        assert reader.position(0) == 2
    assert library.done[1] == then
    rows = [(row["type"], row["offset"], row["offsets"]) for row in read_run(tmp_path).logs.rows.to_pylist()]
    assert rows == [(OK, 5, [5]), (FAIL, 6, []), (OK, 0, [0, 1])]


def test_the_reader_goes_to_the_start_of_a_log_after_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(seeks=True)
    library.start = 4
    monkeypatch.setattr(consumer, "Consumer", lambda _: library)
    its = settings(tmp_path, "log", "c1", 1)
    with OperationWriter(LOG, its.directory, client="c1", session=1, process=1) as writer:
        reader = Reader(its, writer)
        reader.assign({0: 0})
        library.polls = [[Message(0, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))], [Message(4)]]
        reader.poll(0.1)
        assert reader.position(0) == 4  # so a log of which nothing is left counts as read to its end
        reader.poll(0.1)
    assert library.done[1] == ("seek", [(0, 4)])
    rows = [(row["type"], row["offset"], row["offsets"]) for row in read_run(tmp_path).logs.rows.to_pylist()]
    assert rows == [(FAIL, 0, []), (OK, 4, [4])]


def test_a_reader_that_assigns_again_keeps_the_positions_of_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether their records arrived before or after the error of the first one, in the same poll."""
    library = Library(seeks=False)
    monkeypatch.setattr(consumer, "Consumer", lambda _: library)
    its = settings(tmp_path, "log", "c1", 1)
    with OperationWriter(LOG, its.directory, client="c1", session=1, process=1) as writer:
        reader = Reader(its, writer)
        reader.assign({0: 0, 1: 0, 2: 0})
        error = Message(0, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))
        library.polls = [[Message(0, partition=1), Message(1, partition=1), error, Message(0, partition=2)]]
        reader.poll(0.1)
    assert library.done[1:] == [("assign", [(0, 0), (1, 2), (2, 1)])]


def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, polls: list[list[Message]], **options: bool) -> Any:
    """The reads that result from these polls, from offset 5 of partition 0; before the last one the partition is
    fetched again."""
    library = Library(seeks=True)
    monkeypatch.setattr(consumer, "Consumer", lambda _: library)
    its = settings(tmp_path, "log", "c1", 1)
    with OperationWriter(LOG, its.directory, client="c1", session=1, process=1) as writer:
        reader = Reader(its, writer, **options)
        reader.assign({0: 5})
        library.polls = polls
        for left in reversed(range(len(polls))):
            if not left:
                reader.ask_anew(0)
            reader.poll(0.1)
    asked = [name for name, _ in library.done if name in ("pause", "resume")]
    return read_run(tmp_path).logs.rows.to_pylist(), asked


def test_an_answer_below_the_position_is_recorded_at_the_requested_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = recorded(tmp_path, monkeypatch, [[Message(5)], [Message(3), Message(4)]])
    assert [(row["offset"], row["offsets"]) for row in rows] == [(5, [5]), (6, [3, 4])]


def test_records_after_an_error_that_moves_the_position_skip_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_range = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    rows, _ = recorded(tmp_path, monkeypatch, [[Message(5), Message(6, out_of_range), Message(8)], [Message(0)]])
    assert [(row["type"], row["offset"], row["offsets"]) for row in rows] == [
        (OK, 5, [5]),
        (FAIL, 6, []),
        (OK, 8, [8]),
        (OK, 0, [0]),
    ]


def test_a_poll_at_the_end_starts_at_the_last_resume_of_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = KafkaError(KafkaError._PARTITION_EOF)
    polls = [[Message(5)], [Message(6, ended)], [Message(6, ended)], [Message(6, ended)]]
    rows, asked = recorded(tmp_path, monkeypatch, polls, sees_ends=True)
    assert [(row["type"], row["offset"], row["offsets"], row["hi"]) for row in rows] == [
        (OK, 5, [5], -1),
        (OK, 6, [], 6),
        (OK, 6, [], 6),
    ]
    record, first, second = rows
    assert asked == ["pause", "resume"]
    assert first["inv"] <= record["inv"]  # since the partition was assigned
    assert first["ret"] <= second["inv"] <= second["ret"]
