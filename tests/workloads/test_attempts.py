"""How often librdkafka sends a record, against scripted brokers: what the producer records of each case.

The first broker may store a record and not answer. If it then leaves the metadata, or has answered that it does not
lead, the library sends the record to the next leader, though `retries` is 0.
"""

from itertools import groupby
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from history.reader import read_run
from history.record.schemas import APPEND, FAIL, INFO, OK, SENT_AGAIN
from history.record.shapes import LOG
from history.record.writer import OperationWriter
from tests.workloads.running import settings
from tests.workloads.scripted_cluster import SILENT, TOPIC, scripted
from workloads.attempts import AttemptLog
from workloads.producer import Appender

NONE, REFUSED, TOO_LARGE, INVALID, MOVED = (
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
STORED = SILENT  # by a broker that waits for replicas which do not come
TIMED_OUT = "_MSG_TIMED_OUT"

# The answers of the brokers, whether the first leaves the metadata, the brokers that get the record, type and error.
CASES: dict[str, tuple[dict[int, ErrorCode | None], bool, list[int], int, str]] = {
    "acknowledged": ({1: NONE}, False, [1], OK, ""),
    "refused": ({1: REFUSED}, False, [1], FAIL, "NOT_ENOUGH_REPLICAS"),
    "too large": ({1: TOO_LARGE}, False, [1], FAIL, "MSG_SIZE_TOO_LARGE"),
    "stored, the broker stays": ({1: STORED, 2: REFUSED}, False, [1], INFO, TIMED_OUT),
    "stored, then refused": ({1: STORED, 2: REFUSED}, True, [1, 2], INFO, f"NOT_ENOUGH_REPLICAS; {SENT_AGAIN}"),
    "stored, then too large": ({1: STORED, 2: TOO_LARGE}, True, [1, 2], INFO, f"MSG_SIZE_TOO_LARGE; {SENT_AGAIN}"),
    "stored, then invalid": ({1: STORED, 2: INVALID}, True, [1, 2], INFO, f"INVALID_RECORD; {SENT_AGAIN}"),
    "stored twice": ({1: STORED, 2: NONE}, True, [1, 2], OK, SENT_AGAIN),
    "moved, then refused": ({1: MOVED, 2: REFUSED}, False, [1, 2], INFO, f"NOT_ENOUGH_REPLICAS; {SENT_AGAIN}"),
    "moved, then acknowledged": ({1: MOVED, 2: NONE}, False, [1, 2], OK, SENT_AGAIN),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("acks", [-1, 1])
def test_a_refusal_is_fail_only_if_the_record_was_sent_once(name: str, acks: int, tmp_path: Path) -> None:
    answers, leaves, attempts, type_, error = CASES[name]
    outcomes: list[tuple[str, int, str]] = []
    with scripted(answers, leaves=leaves) as cluster:
        its = settings(tmp_path, "log", "p1", 1, bootstrap=cluster.bootstrap, topic=TOPIC, partitions=1)
        writer = OperationWriter(LOG, its.directory, client="p1", session=1, process=1, producer=1)
        with writer:
            appender = Appender(its, writer, acks, timeout_s=3.0)
            appender.append(0, lambda *outcome: outcomes.append(outcome))
            while not outcomes:
                appender.poll(0.05)
                if cluster.received.is_set() and SILENT in answers.values():
                    cluster.move()
        assert [node for node, _ in groupby(cluster.attempts)] == attempts
    (row,) = [each for each in read_run(tmp_path).logs.rows.to_pylist() if each["f"] == APPEND]
    assert (row["type"], row["error"]) == (type_, error)
    assert outcomes == [
        (("ok", "fail", "info")[type_], row["offset"], error.partition(";")[0].removesuffix(SENT_AGAIN))
    ]


def ended(log: AttemptLog, how: str, partition: int = 0) -> None:
    text = f"[thrd:a/1]: a/1: log [{partition}]: MessageSet with 2 message(s) (MsgId 0, BaseSeq -1) {how}"
    log.log(10, "%s [%s] %s", "MSGSET", "p1", text)


ENDS = {
    "delivered": True,
    "encountered error: Broker: Not enough in-sync replicas (actions Retry,MsgNotPersisted)": True,
    "encountered error: Broker: Message size too large (actions Permanent,MsgNotPersisted) [NOT LEADER]": True,
    "encountered error: Local: Timed out (actions Retry,MsgPossiblyPersisted) [NOT LEADER]": True,
    "encountered error: Local: Broker transport failure (actions Refresh,MsgPossiblyPersisted)": True,
    "encountered error: Broker: Not leader for partition (actions Refresh,MsgNotPersisted)": False,
    "encountered error: Local: Broker handle destroyed without termination (actions Refresh,MsgNotPersisted)": False,
    "encountered error: Local: Timed out in queue (actions Retry,MsgNotPersisted)": False,
    "encountered error: an error whose form is new": False,
    "is something new": False,
}


@pytest.mark.parametrize(("how", "is_final"), ENDS.items())
def test_a_record_under_way_was_sent_once_if_its_partitions_batches_ended_for_good(how: str, is_final: bool) -> None:
    log = AttemptLog()
    ended(log, "delivered")
    repeats, elsewhere = log.repeats(0), log.repeats(1)
    ended(log, how)
    assert log.sent_once(0, repeats) == is_final
    assert log.sent_once(1, elsewhere) == (is_final or "actions" in how), "a line of a known form names its partition"
    assert log.sent_once(0, log.repeats(0)), "a record that was given to the library later"


def test_a_log_without_a_line_about_batches_leaves_attempts_unknown() -> None:
    log = AttemptLog()
    assert not log.sent_once(0, log.repeats(0))
    log.log(10, "%s [%s] %s", "PRODUCE", "p1", "a/1: log [0]: Produce MessageSet with 1 message(s)")
    assert not log.sent_once(0, log.repeats(0))
