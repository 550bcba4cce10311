"""Changes of the clients' records of lookups by timestamp: each makes the check of the lookups unknown."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from analysis.checker import Outcome
from analysis.checkers.timestamp_lookups import CHECKER
from analysis.evidence.deletions import deletions_of
from analysis.evidence.run_toml import Requirements
from analysis.verdict import NOT_APPLICABLE
from history.checksummed_lines import text_of
from history.record.offset_record import LOOKUPS, read_offsets
from history.record.schemas import OPERATIONS
from tests.analysis.test_lookup_rules import write

STARTED = {"event": "client", "client": "consumer-1", "role": "consumer", "t": 0}
CLIENT, CLOSED = {"client": "consumer-1"}, {"closed": True}
SEEN = {"f": "sight", "partition": 0, "first": 10, "timestamps": [100, 100, 120], "inv": 30, "ret": 30}
LOOKUP = {"f": "lookup", "partition": 0, "timestamp": 101, "offset": 12, "inv": 40, "ret": 50}
Line = Mapping[str, Any]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The record of one client, which is whole."""
    (tmp_path / "history" / "operations").mkdir(parents=True)
    path = write(tmp_path)
    assert not defects(path)
    return path


def defects(record: Path) -> tuple[str, ...]:
    return read_offsets(record.parents[2], LOOKUPS).defects


def judged(
    record: Path, *journal: Line, kind: str = "tiered", read: Sequence[tuple[str, int, list[int]]] = ()
) -> Outcome:
    """`read`: client, partition and offsets of each read."""
    described = SimpleNamespace(workload=SimpleNamespace(kind=kind, topic="log"), checks=Requirements(min_queries=1))
    names = ("client", "partition", "offsets")
    columns = [pa.array([row[at] for row in read], OPERATIONS.field(name).type) for at, name in enumerate(names)]
    logs = SimpleNamespace(parts=lambda *names: [pa.table(columns, list(names))] if read else [])
    history = SimpleNamespace(journal=journal or (STARTED,), logs=logs)
    run = SimpleNamespace(
        directory=record.parents[2],
        description=described,
        history=history,
        forgetting=(),
        removable=deletions_of("log", history.journal).requested,
    )
    return CHECKER.check(run)  # type: ignore[arg-type]


def test_every_changed_and_every_missing_byte_is_a_defect(record: Path) -> None:
    whole = record.read_bytes()
    for at, byte in enumerate(whole):
        record.write_bytes(whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :])
        assert defects(record), f"byte {at} has changed"
        record.write_bytes(whole[:at])
        assert defects(record), f"the file ends before byte {at}"


@pytest.mark.parametrize(
    "change",
    [lambda lines, at: lines.pop(at), lambda lines, at: lines.insert(at, lines[at]), lambda lines, _: lines.reverse()],
    ids=["removed", "repeated", "reversed"],
)
def test_every_removed_repeated_and_moved_line_is_a_defect(
    record: Path, change: Callable[[list[bytes], int], None]
) -> None:
    whole = record.read_bytes().splitlines(keepends=True)
    for at in range(len(whole)):
        lines = list(whole)
        change(lines, at)
        record.write_bytes(b"".join(lines))
        assert defects(record), at


@pytest.mark.parametrize("key", ["partition", "timestamp", "offset", "inv", "ret"])
@pytest.mark.parametrize("value", [True, 1.5, "1", None, -2, 1 << 62, [1]], ids=str)
def test_a_lookup_with_an_impossible_value_is_a_defect(record: Path, key: str, value: object) -> None:
    record.write_bytes(text_of([CLIENT, SEEN, {**LOOKUP, key: value}, CLOSED]))
    assert defects(record)


def test_a_lookup_of_the_end_is_not_one_by_timestamp(record: Path) -> None:
    record.write_bytes(text_of([CLIENT, SEEN, {**LOOKUP, "timestamp": -1}, CLOSED]))
    assert defects(record)


@pytest.mark.parametrize("key", ["partition", "first", "timestamps", "ret"])
@pytest.mark.parametrize("value", [True, 1.5, None, -2, 1 << 62, [-2], [None]], ids=str)
def test_a_sight_with_an_impossible_value_is_a_defect(record: Path, key: str, value: object) -> None:
    record.write_bytes(text_of([CLIENT, {**SEEN, key: value}, LOOKUP, CLOSED]))
    assert defects(record)


@pytest.mark.parametrize(
    "lines",
    [
        [CLIENT, SEEN, {**LOOKUP, "inv": 51}, CLOSED],
        [CLIENT, {**SEEN, "ret": 60}, LOOKUP, CLOSED],
        [CLIENT, CLOSED, SEEN, LOOKUP, CLOSED],
        [CLIENT, CLIENT, SEEN, LOOKUP, CLOSED],
        [{**CLIENT, "client": "consumer-2"}, SEEN, LOOKUP, CLOSED],
        [SEEN, LOOKUP, CLOSED],
        [CLIENT, SEEN, LOOKUP],
        [CLIENT, {**SEEN, "f": "assign"}, LOOKUP, CLOSED],
        [CLIENT, {**SEEN, "f": "saw"}, LOOKUP, CLOSED],
        [CLIENT, {key: value for key, value in SEEN.items() if key != "f"}, LOOKUP, CLOSED],
        [],
    ],
    ids=[
        "answer-first",
        "time-goes-back",
        "ended-twice",
        "started-twice",
        "another",
        "no-start",
        "no-end",
        "of-a-group",
        "word",
        "key",
        "empty",
    ],
)
def test_lines_that_no_client_writes_in_this_order_are_defects(record: Path, lines: list[Line]) -> None:
    record.write_bytes(text_of([CLIENT, SEEN, LOOKUP, CLOSED]))
    assert not defects(record)
    record.write_bytes(text_of(lines))
    assert defects(record)


def test_a_whole_record_passes_and_a_damaged_one_is_unknown(record: Path) -> None:
    record.write_bytes(text_of([CLIENT, SEEN, LOOKUP, CLOSED]))
    assert judged(record).verdict == "pass"
    record.write_bytes(record.read_bytes()[:-1])
    assert judged(record).verdict == "unknown"


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ([("consumer-1", 0, [10, 11]), ("consumer-1", 0, [12])], "pass"),
        ([("consumer-1", 0, [12]), ("consumer-1", 0, []), ("reader-1", 1, [99])], "pass"),
        ([("consumer-1", 0, [10, 11, 12, 13])], "unknown"),
        ([("consumer-1", 0, [12]), ("consumer-1", 1, [0])], "unknown"),
    ],
)
def test_timestamps_of_read_records_must_be_recorded(record: Path, read: list[Any], verdict: str) -> None:
    record.write_bytes(text_of([CLIENT, SEEN, LOOKUP, CLOSED]))
    assert judged(record, read=read).verdict == verdict


def test_a_wrong_answer_in_a_damaged_record_is_unknown(record: Path) -> None:
    wrong = text_of([CLIENT, SEEN, {**LOOKUP, "offset": 11}, CLOSED])
    record.write_bytes(wrong)
    assert judged(record).verdict == "fail"
    record.write_bytes(wrong[:-1])
    assert judged(record).verdict == "unknown"


def test_the_record_of_every_client_must_be_there_and_of_no_other(record: Path) -> None:
    record.write_bytes(text_of([CLIENT, SEEN, LOOKUP, CLOSED]))
    other = {**STARTED, "client": "consumer-2"}
    assert judged(record, STARTED, other).verdict == "unknown"
    assert judged(record, other).verdict == "unknown"
    assert judged(record, {**STARTED, "role": "producer"}, kind="log").verdict == "pass"
    record.unlink()
    assert judged(record).verdict == "unknown"
    assert judged(record, kind="log").verdict == NOT_APPLICABLE


def test_a_directory_in_place_of_a_record_is_a_defect(record: Path) -> None:
    record.unlink()
    record.mkdir()
    assert defects(record)
    assert record.parent.name == LOOKUPS
