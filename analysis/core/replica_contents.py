"""Compares a log with what clients sent and read (D5, D6, D8), and its records with their values (D9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from sys import maxsize

import numpy as np

from analysis.core.anomaly import Anomaly
from analysis.core.explain import name_of
from analysis.core.replica_evidence import (
    Appends,
    Circumstances,
    ClientOrder,
    anomaly_of,
    carries_value,
    client_order,
    log_end,
    log_name,
    record_name,
)
from analysis.core.rows import I64, Bools
from analysis.replicafiles.log import CONTROL_RECORD, ReplicaLog
from history.values import DERIVED, VALUE_FIRST
from installation.counted import counted

Doubt = Callable[[str], None]


def order_mismatch(log: ReplicaLog, order: ClientOrder, around: Circumstances) -> Iterator[Anomaly]:
    """D5: below the HW, a log holds at each offset what clients were shown to be there."""
    limit = log.end if around.quiet else min(log.high_watermark, log.end)
    inside = (order.offset >= min(log.start, around.deleted_to)) & (order.offset < limit)
    offset, value = order.offset[inside], order.value[inside]
    if not len(offset):
        return
    at = np.searchsorted(log.offset, offset)
    held = np.append(log.offset, -1)[at] == offset
    differs = ~held | (np.append(log.value, -1)[at] != value)
    if around.compacts:
        differs &= held  # a missing record may have been replaced by a later one
    wrong = np.flatnonzero(differs & ~log.is_unknown(offset))
    if not len(wrong):
        return
    first = int(wrong[0])
    record = log.at(int(offset[first]))
    expected = client_order(log, int(offset[first]), int(value[first]))
    holds = record_name(record) if record else "nothing"
    where = f"at offset {offset[first]}"
    sentence = f"clients were shown {name_of(int(value[first]))} {where}, but {log.node} holds {holds} there"
    yield anomaly_of("replica-order-mismatch", log, sentence, [expected, record or log_end(log)], len(wrong))


def lost(replicas: Sequence[ReplicaLog], order: ClientOrder, around: Circumstances) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, each acknowledged value is in a replica's log. A value that may be in the unread
    part of a log is not lost."""
    missing = unheld(replicas, order, around)
    if not len(missing.offset):
        return
    offset, value = int(missing.offset[0]), int(missing.value[0])
    ends = ", ".join(f"{log.node} ends at {log.end}" for log in replicas)
    sentence = f"{name_of(value)} was acknowledged at offset {offset}, but no replica holds it ({ends})"
    witness = [client_order(replicas[0], offset, value), *(log.at(offset) for log in replicas)]
    yield anomaly_of("lost-acknowledged-write", replicas[0], sentence, witness, len(missing.offset))


def unheld(replicas: Sequence[ReplicaLog], order: ClientOrder, around: Circumstances) -> ClientOrder:
    """What was acknowledged, must be in the logs, and is not at any offset of them that is known here."""
    mine = order.acknowledged.copy()
    for log in replicas:
        mine &= ~log.is_unknown(order.offset)
    mine &= order.offset >= min(around.deleted_to, *(log.start for log in replicas))
    if around.compacts:
        mine &= order.offset >= max(log.end for log in replicas)  # else a later record may have replaced it
    return order.take(mine & ~np.isin(order.value, np.concatenate([log.value for log in replicas])))


def not_converged(replicas: Sequence[ReplicaLog], appends: Appends | None, around: Circumstances) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, all logs start and end at the same offsets, and the HW is there.

    With final reads, up to their end: a late request, which its client has already given up, may arrive after them. Its
    record or its HW may not have reached the other replicas when the nodes stop. A record that its leader has
    acknowledged is not late: the other replicas must have it too."""
    last = maxsize if appends is None or appends.end < 0 else appends.end
    replicas = [log for log in replicas if log.is_whole]
    if not replicas:
        return
    due = last if appends is None else max(last, *(_end_of(log, appends.answered) for log in replicas))
    starts, ends = {log.start for log in replicas}, {min(log.end, due) for log in replicas}
    behind = [log for log in replicas if 0 <= log.high_watermark < min(log.end, last)]
    ends_text = ", ".join(f"{log.node} at {log.end} (high watermark {log.high_watermark})" for log in replicas)
    if len(ends) > 1:
        sentence = f"the logs end at different offsets: {ends_text}"
    elif any(log.high_watermark > log.end for log in replicas):
        sentence = f"the logs end before their high watermarks: {ends_text}"
    elif len(starts) > 1 and max(starts) > around.deleted_to:
        begin = ", ".join(f"{log.node} at {log.start}" for log in replicas)
        sentence = f"the logs start at different offsets, though nothing may delete from them: {begin}"
    elif behind and around.stopped:
        ends_text = ", ".join(f"{log.node} at {log.high_watermark}" for log in behind)
        sentence = f"the logs end at {ends.pop()}, but the high watermark stayed behind on {ends_text}"
        replicas = behind
    else:
        return
    yield anomaly_of("not-converged", replicas[0], sentence, [log_end(log) for log in replicas])


def _end_of(log: ReplicaLog, values: I64) -> int:
    """The offset after the last record of a log that has one of these values; 0 without one."""
    return int(log.offset[np.isin(log.value, values)].max(initial=-1)) + 1


def final_end(
    replicas: Sequence[ReplicaLog], appends: Appends, around: Circumstances, doubt: Doubt
) -> Iterator[Anomaly]:
    """D6: the logs end at the final reads' end, apart from appends that may have happened after it."""
    whole = [log for log in replicas if log.is_whole]
    if appends.end < 0 or not whole:
        return
    longest = max(whole, key=lambda log: log.end)
    end_text = f"the final reads show that the log of {longest.topic}-{longest.partition} ends at {appends.end}"
    question = {"op": "final end", "topic": longest.topic, "partition": longest.partition, "offset": appends.end}
    if longest.end < appends.end and len(whole) == len(replicas):
        sentence = f"{end_text}, but no replica's does: {longest.node} ends at {longest.end}"
        witness = [question, *(log_end(log) for log in whole)]
        yield anomaly_of("final-end-mismatch", longest, sentence, witness, appends.end - longest.end)
    beyond = (longest.offset >= appends.end) & (longest.value != CONTROL_RECORD) & ~longest.is_opaque(longest.offset)
    unexplained = np.flatnonzero(beyond & ~np.isin(longest.value, appends.loose))
    if len(unexplained):
        record = longest.at(int(longest.offset[unexplained[0]]))
        assert record is not None
        sentence = f"{end_text}, but {longest.node} holds {record_name(record)} at offset {record['offset']}"
        if around.all_sent:
            yield anomaly_of("final-end-mismatch", longest, sentence, [question, record], len(unexplained))
        else:
            doubt(f"{sentence}, and the record of sent operations is incomplete")


def control_records(log: ReplicaLog, around: Circumstances) -> int:
    """The number of committed control records."""
    return int((_committed(log, around) & (log.value == CONTROL_RECORD) & ~log.is_opaque(log.offset)).sum())


def foreign_records(
    log: ReplicaLog, appends: Appends, around: Circumstances, controls: int, doubt: Doubt
) -> Iterator[Anomaly]:
    """D8: each committed record was sent to this partition, was not refused, and is there once, unless its client
    library may have sent it again: then any number of copies may be there. `controls`: the number of committed control
    records."""
    if controls:
        doubt(f"{log_name(log)} has {counted(controls, 'control record')}, though no client used transactions")
    candidates = _committed(log, around) & ~log.is_opaque(log.offset) & (log.value != CONTROL_RECORD)
    for wrong, why in (
        (candidates & ~np.isin(log.value, appends.sent), "which no client sent to this partition"),
        (candidates & np.isin(log.value, appends.refused), "whose append was refused"),
    ):
        found = np.flatnonzero(wrong)
        if not len(found):
            continue
        record = log.at(int(log.offset[found[0]]))
        assert record is not None
        sentence = f"{log.node} holds {record_name(record)} at offset {record['offset']}, {why}"
        if around.all_sent or why.startswith("whose"):
            yield anomaly_of("phantom-on-replica", log, sentence, [record], len(found))
        else:
            doubt(f"{sentence}, according to an incomplete record of sent operations")
    yield from _duplicates(log, appends)


def _duplicates(log: ReplicaLog, appends: Appends) -> Iterator[Anomaly]:
    mine = carries_value(log) & ~np.isin(log.value, appends.again)
    offset, value = log.offset[mine], log.value[mine]
    order = np.argsort(value, kind="stable")
    twice = np.flatnonzero(np.diff(value[order]) == 0)
    if not len(twice):
        return
    one, other = (log.at(int(offset[order[twice[0] + i]])) for i in (0, 1))
    assert one is not None
    assert other is not None
    sentence = f"{log.node} holds {record_name(one)} at offset {one['offset']} and at offset {other['offset']}"
    yield anomaly_of("duplicate-on-replica", log, sentence, [one, other], len(twice))


def corrupt_records(log: ReplicaLog, around: Circumstances, doubt: Doubt) -> Iterator[Anomaly]:
    """D9: each committed record consists of its value, byte by byte."""
    if around.records == VALUE_FIRST:
        return
    sized = log.size == around.record_bytes if around.record_bytes else np.ones(len(log.size), np.bool_)
    wrong = np.flatnonzero(_committed(log, around) & carries_value(log) & ~(log.exact & sized))
    if not len(wrong):
        return
    record = log.at(int(log.offset[wrong[0]]))
    assert record is not None
    size = int(log.size[wrong[0]])
    what = "a key, headers or a value" if sized[wrong[0]] else f"a value of {size} bytes"
    sentence = f"{log.node} holds {record_name(record)} at offset {record['offset']} with {what} that no client wrote"
    if around.records == DERIVED:
        yield anomaly_of("corrupt-record", log, sentence, [record | {"bytes": size}], len(wrong))
    else:
        doubt(f"{sentence}, if clients made it as usual: the run does not say how")


def _committed(log: ReplicaLog, around: Circumstances) -> Bools:
    limit: int | I64 = np.iinfo(np.int64).max if around.quiet else log.high_watermark
    return np.asarray(log.offset < limit)
