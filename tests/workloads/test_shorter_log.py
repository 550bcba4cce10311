"""A reader whose log became shorter goes on from its start, also when the library does not let it seek."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from history import FAIL, OK, OperationWriter, read_run
from tests.workloads.running import settings
from workloads import consumer
from workloads.consumer import Reader


class Message:
    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._offset.to_bytes(8, "big")


class Library:
    """A consumer that is in no state to seek, as after a truncation."""

    def __init__(self, seeks: bool) -> None:
        self.seeks = seeks
        self.done: list[tuple[str, list[tuple[int, int]]]] = []
        self.polls: list[list[Message]] = []

    def assign(self, partitions: list[Any]) -> None:
        self.done.append(("assign", [(each.partition, each.offset) for each in partitions]))

    def seek(self, partition: Any) -> None:
        if not self.seeks:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.done.append(("seek", [(partition.partition, partition.offset)]))

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return self.polls.pop(0)


@pytest.mark.parametrize(("seeks", "then"), [(True, ("seek", [(0, 0)])), (False, ("assign", [(0, 0), (1, 7)]))])
def test_it_reads_again_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeks: bool, then: tuple[str, list[tuple[int, int]]]
) -> None:
    library = Library(seeks)
    monkeypatch.setattr(consumer, "Consumer", lambda _: library)
    its = settings(tmp_path, "log", "c1", 1)
    with OperationWriter(its.directory, client="c1", session=1, process=1) as writer:
        reader = Reader(its, writer)
        reader.assign({0: 5, 1: 7})
        gone = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
        library.polls = [[Message(5), Message(6, gone)], [Message(0), Message(1)]]
        assert reader.poll(0.1) == (1, 1)
        assert reader.poll(0.1) == (1, 0)
        assert reader.position(0) == 2
    assert library.done[1] == then
    rows = [(row["type"], row["offset"], row["offsets"]) for row in read_run(tmp_path).operations.to_pylist()]
    assert rows == [(OK, 5, [5]), (FAIL, 6, []), (OK, 0, [0, 1])]
