"""The reader of a group's partitions answers within the time that it is given, whatever of it the reading took."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from history.record.offset_record import GROUPS, OffsetWriter
from history.record.shapes import LOG
from history.record.writer import OperationWriter
from tests.workloads.running import settings
from workloads import consumer, member
from workloads.client_record import POLL_S
from workloads.control import Close, Command, ReadAll, ReadDone
from workloads.member import GroupReaderClient

TIMEOUT_S = 30.0
QUERY_S = 0.5


class Time:
    """Seconds that pass during a wait."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Message:
    """The only record of partition 0."""

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def value(self) -> bytes:
        return bytes(8)


class Library:
    """A consumer whose one record takes `reading_s` to come; `committed_at`: when the group has committed it."""

    def __init__(self, time: Time, reading_s: float, committed_at: float | None) -> None:
        self._time, self._reading_s, self._committed_at = time, reading_s, committed_at

    def get_watermark_offsets(self, _: Any, **__: Any) -> tuple[int, int]:
        return 0, 1

    def assign(self, _: Any) -> None:
        pass

    def consume(self, _: int, __: float) -> list[Message]:
        self._time.sleep(self._reading_s)
        return [Message()]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        del timeout
        self._time.sleep(QUERY_S)
        is_there = self._committed_at is not None and self._time.now_s >= self._committed_at
        return [TopicPartition(place.topic, place.partition, 1 if is_there else 0) for place in places]

    def close(self) -> None:
        pass


class Commands:
    """One order to read all, and what is answered."""

    def __init__(self) -> None:
        self._commands: list[Command] = [ReadAll(1, 0, TIMEOUT_S), Close()]
        self.messages: list[Any] = []

    def next(self, _: float) -> Command:
        return self._commands.pop(0)

    def tell(self, message: Any) -> None:
        self.messages.append(message)


def read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading_s: float, committed_at: float | None = None
) -> tuple[ReadDone, float]:
    """What is answered, and after how many seconds."""
    time, commands = Time(), Commands()
    for module in (consumer, member):
        monkeypatch.setattr(module, "Consumer", lambda _: Library(time, reading_s, committed_at))
        monkeypatch.setattr(module, "time", time)
    its = settings(tmp_path, "group", "reader-1", 1)
    began_s = time.now_s
    with (
        OperationWriter(LOG, its.directory, client="reader-1", session=1, process=1) as writer,
        OffsetWriter(its.directory, GROUPS, "reader-1") as group,
    ):
        GroupReaderClient(its, commands, writer, group).run()  # type: ignore[arg-type]
    return commands.messages[-1], time.now_s - began_s


@pytest.mark.parametrize("reading_s", [1.0, 20.0, 29.0])
def test_a_read_reports_in_time_that_the_group_did_not_reach_the_end(
    reading_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, took_s = read(tmp_path, monkeypatch, reading_s)
    assert (done.complete, done.error) == (False, "the group did not reach the end")
    assert took_s <= TIMEOUT_S + QUERY_S + POLL_S


def test_a_read_waits_for_a_group_that_reaches_the_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, took_s = read(tmp_path, monkeypatch, reading_s=20.0, committed_at=128.0)
    assert done == ReadDone(1, complete=True, end=1, read=1)
    assert 28.0 <= took_s <= TIMEOUT_S
