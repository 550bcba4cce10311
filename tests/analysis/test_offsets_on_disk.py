"""The offsets log on the brokers' disks: its reader, and its evidence about committed offsets."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.core.anomaly import Anomaly
from analysis.core.offsets_on_disk import violations
from analysis.replicafiles.offset_commits import LoggedCommit, read_offsets_logs
from history.record.offset_record import ATTEMPT_S, NO_OFFSET, OffsetOperation
from tests.analysis.offset_operations import commit
from tests.analysis.offset_records import TOPIC, commit_batch, group_batch, key, value, write_offsets
from tests.analysis.segment_files import batch, record

FIRST, SECOND, THIRD = (commit(offset, offset * 10, offset * 10 + 5) for offset in (3, 6, 9))
COMMITS = (FIRST, SECOND, THIRD)


def logged(*offsets: int | None, epoch: int = 0) -> list[bytes]:
    return [commit_batch(at, 0, offset, epoch=epoch) for at, offset in enumerate(offsets)]


def found(
    directory: Path, commits: Sequence[OffsetOperation], *replicas: Sequence[bytes], high_watermark: int = 1 << 40
) -> list[Anomaly]:
    places = {f"n{number}": directory / f"n{number}" for number in range(1, len(replicas) + 1)}
    for place, batches in zip(places.values(), replicas, strict=True):
        write_offsets(place, batches, high_watermark=high_watermark)
    logs = read_offsets_logs(places)
    assert not any(log.problem for log in logs)
    return violations("log", commits, logs)


def names(directory: Path, commits: Sequence[OffsetOperation], *replicas: Sequence[bytes]) -> list[str]:
    return [each.name for each in found(directory, commits, *replicas)]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ((3, 6, 9), []),
        ((3, 6, 6, 9), []),
        ((3, 9), ["lost-acknowledged-commit"]),  # the commit after it hides the loss from every fetch
        ((3, 6), ["lost-acknowledged-commit"]),
        ((), ["lost-acknowledged-commit"]),
        ((3, 9, 6), ["lost-acknowledged-commit"]),
        ((3, 6, 9, None), ["lost-acknowledged-commit"]),
        ((3, 5, 6, 9), ["phantom-commit"]),
    ],
)
def test_each_acknowledged_commit_is_in_the_log_and_the_last_one_is_last(
    tmp_path: Path, offsets: tuple[int | None, ...], expected: list[str]
) -> None:
    assert names(tmp_path, COMMITS, logged(*offsets)) == expected


def test_a_lost_commit_is_named_with_its_log(tmp_path: Path) -> None:
    (anomaly,) = found(tmp_path, COMMITS, logged(3, 9))
    assert anomaly.sentence == (
        "offset 6 was committed for log-0 and acknowledged, but is not in the offsets log of n1, which ends with "
        "offset 9"
    )
    assert [each["kind"] for each in anomaly.witness] == ["commit"]


def test_a_commit_that_an_older_one_replaced_is_shown_with_both(tmp_path: Path) -> None:
    (anomaly,) = found(tmp_path, COMMITS, logged(3, 6, 9, 6))
    assert [(each["kind"], each["offset"]) for each in anomaly.witness] == [("commit", 6), ("commit", 9), ("logged", 6)]


def test_a_commit_without_an_answer_may_be_missing_or_be_the_last(tmp_path: Path) -> None:
    unanswered = commit(6, 60)
    assert names(tmp_path / "missing", (FIRST, unanswered, THIRD), logged(3, 9)) == []
    assert names(tmp_path / "last", (FIRST, unanswered, THIRD), logged(3, 9, 6)) == []


def test_a_commit_that_may_have_been_sent_twice_may_be_the_last(tmp_path: Path) -> None:
    late = commit(6, 60, 60 + int(ATTEMPT_S * 1e9))
    after = commit(9, late.ret + 1, late.ret + 2)
    assert names(tmp_path, (late, after), logged(6, 9, 6)) == []


def test_compaction_may_have_removed_a_commit_that_a_later_one_replaces(tmp_path: Path) -> None:
    compacted = [commit_batch(0, 0, 3), commit_batch(2, 0, 9)]
    assert names(tmp_path / "replaced", COMMITS, compacted) == []
    assert names(tmp_path / "last", COMMITS, [commit_batch(0, 0, 3), commit_batch(1, 0, 6), group_batch(4)]) == [
        "lost-acknowledged-commit"
    ]


def test_the_log_of_the_latest_epoch_decides(tmp_path: Path) -> None:
    deposed = logged(3, 6, 9)
    leading = [*logged(3, 6), commit_batch(2, 0, 6, epoch=1)]
    assert names(tmp_path, COMMITS, deposed, leading) == ["lost-acknowledged-commit", "replica-divergence"]


def test_a_replica_contradicts_an_earlier_commit(tmp_path: Path) -> None:
    assert names(tmp_path, COMMITS, logged(3, 6, 6, 9), logged(3, 3, 6, 9)) == ["replica-divergence"]


def test_compaction_may_have_removed_an_earlier_commit_from_one_replica(tmp_path: Path) -> None:
    whole = logged(3, 6, 6, 9)
    assert names(tmp_path, COMMITS, whole, [whole[0], *whole[2:]]) == []


def test_a_replica_may_lack_records_above_its_high_watermark(tmp_path: Path) -> None:
    assert found(tmp_path, COMMITS, logged(3, 6), logged(3, 6, 9), high_watermark=2) == []


def test_only_the_members_topic_is_compared(tmp_path: Path) -> None:
    other = batch(3, 0, [record(0, value(77), key=key(0, topic="other"))])
    assert names(tmp_path, COMMITS, [*logged(3, 6, 9), other]) == []


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    removal = commit_batch(2, 1, None)
    write_offsets(tmp_path, [group_batch(0), commit_batch(1, 1, 300, epoch=4), removal], number=7, high_watermark=2)
    (log,) = read_offsets_logs({"n1": tmp_path})
    assert (log.node, log.number, log.start, log.end, log.high_watermark) == ("n1", 7, 0, 3, 2)
    assert log.commits == (
        LoggedCommit(1, "log-group", "log", 1, 300),
        LoggedCommit(2, "log-group", "log", 1, NO_OFFSET),
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"".join(logged(3, 6))[:-1], "a torn batch"),
        (batch(0, 0, [record(0, b"\0\3short", key=key(0))]), "the record at 0 is not a committed offset"),
        (batch(0, 0, [record(0, value(1, version=9), key=key(0))]), "version 9"),
        (batch(0, 0, [record(0, value(1), key=key(0)[:-1])]), "the record at 0 is not a committed offset"),
        (batch(0, 0, [record(0, value(1), key=key(0))], codec=1), "a batch is compressed"),
    ],
)
def test_a_file_with_other_content_than_commits_is_a_problem(tmp_path: Path, content: bytes, problem: str) -> None:
    write_offsets(tmp_path, [content])
    (log,) = read_offsets_logs({"n1": tmp_path})
    assert problem in log.problem


def test_a_directory_without_segments_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / f"{TOPIC}-0").mkdir()
    (log,) = read_offsets_logs({"n1": tmp_path})
    assert log.problem.startswith("it has no segments")
