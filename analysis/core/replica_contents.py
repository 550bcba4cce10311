"""Compares a log with what clients sent and read (D5, D6, D8), and its records with their values (D9)."""

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
from history.record.values import DERIVED, VALUE_FIRST
from installation.counted import counted

Doubt = Callable[[str], None]


def order_mismatch(log: ReplicaLog, order: ClientOrder, circumstances: Circumstances) -> Iterator[Anomaly]:
    """D5: below the HW, a log holds at each offset what clients were shown to be there."""
    limit = log.end if circumstances.quiet else min(log.high_watermark, log.end)
    inside = (order.offset >= min(log.start, circumstances.deleted_to)) & (order.offset < limit)
    offset, value = order.offset[inside], order.value[inside]
    if not len(offset):
        return
    at = np.searchsorted(log.offset, offset)
    is_held = np.append(log.offset, -1)[at] == offset
    differs = ~is_held | (np.append(log.value, -1)[at] != value)
    if circumstances.compacts:
        differs &= is_held  # a missing record may have been replaced by a later one
    mismatches = np.flatnonzero(differs & ~log.is_unknown(offset))
    if not len(mismatches):
        return
    first = int(mismatches[0])
    record = log.at(int(offset[first]))
    expected = client_order(log, int(offset[first]), int(value[first]))
    holds = record_name(record) if record else "nothing"
    place = f"at offset {offset[first]}"
    sentence = f"clients were shown {name_of(int(value[first]))} {place}, but {log.node} holds {holds} there"
    yield anomaly_of("replica-order-mismatch", log, sentence, [expected, record or log_end(log)], len(mismatches))


def lost(replicas: Sequence[ReplicaLog], order: ClientOrder, circumstances: Circumstances) -> Iterator[Anomaly]:
    """D6: once the cluster is quiet, each acknowledged value is in a replica's log. A value that may be in the unread
    part of a log is not lost."""
    missing = unheld(replicas, order, circumstances)
    if not len(missing.offset):
        return
    offset, value = int(missing.offset[0]), int(missing.value[0])
    ends = ", ".join(f"{log.node} ends at {log.end}" for log in replicas)
    sentence = f"{name_of(value)} was acknowledged at offset {offset}, but no replica holds it ({ends})"
    witness = [client_order(replicas[0], offset, value), *(log.at(offset) for log in replicas)]
    yield anomaly_of("lost-acknowledged-write", replicas[0], sentence, witness, len(missing.offset))


def unheld(replicas: Sequence[ReplicaLog], order: ClientOrder, circumstances: Circumstances) -> ClientOrder:
    """What was acknowledged, must be in the logs, and is not at any offset of them that is known here."""
    mine = order.acknowledged.copy()
    for log in replicas:
        mine &= ~log.is_unknown(order.offset)
    mine &= order.offset >= min(circumstances.deleted_to, *(log.start for log in replicas))
    if circumstances.compacts:
        mine &= order.offset >= max(log.end for log in replicas)  # else a later record may have replaced it
    return order.take(mine & ~np.isin(order.value, np.concatenate([log.value for log in replicas])))


def not_converged(
    replicas: Sequence[ReplicaLog], appends: Appends | None, circumstances: Circumstances
) -> Iterator[Anomaly]:
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
    lagging = [log for log in replicas if 0 <= log.high_watermark < min(log.end, last)]
    ends_text = ", ".join(f"{log.node} at {log.end} (high watermark {log.high_watermark})" for log in replicas)
    if len(ends) > 1:
        sentence = f"the logs end at different offsets: {ends_text}"
    elif any(log.high_watermark > log.end for log in replicas):
        sentence = f"the logs end before their high watermarks: {ends_text}"
    elif len(starts) > 1 and max(starts) > circumstances.deleted_to:
        begin = ", ".join(f"{log.node} at {log.start}" for log in replicas)
        sentence = f"the logs start at different offsets, though nothing may delete from them: {begin}"
    elif lagging and circumstances.stopped:
        ends_text = ", ".join(f"{log.node} at {log.high_watermark}" for log in lagging)
        sentence = f"the logs end at {ends.pop()}, but the high watermark stayed behind on {ends_text}"
        replicas = lagging
    else:
        return
    yield anomaly_of("not-converged", replicas[0], sentence, [log_end(log) for log in replicas])


def _end_of(log: ReplicaLog, values: I64) -> int:
    """The offset after the last record of a log that has one of these values; 0 without one."""
    return int(log.offset[np.isin(log.value, values)].max(initial=-1)) + 1


def final_end(
    replicas: Sequence[ReplicaLog], appends: Appends, circumstances: Circumstances, doubt: Doubt
) -> Iterator[Anomaly]:
    """D6: the logs end at the final reads' end, apart from appends that may have happened after it."""
    whole_logs = [log for log in replicas if log.is_whole]
    if appends.end < 0 or not whole_logs:
        return
    longest = max(whole_logs, key=lambda log: log.end)
    end_text = f"the final reads show that the log of {longest.topic}-{longest.partition} ends at {appends.end}"
    question = {"op": "final end", "topic": longest.topic, "partition": longest.partition, "offset": appends.end}
    if longest.end < appends.end and len(whole_logs) == len(replicas):
        sentence = f"{end_text}, but no replica's does: {longest.node} ends at {longest.end}"
        witness = [question, *(log_end(log) for log in whole_logs)]
        yield anomaly_of("final-end-mismatch", longest, sentence, witness, appends.end - longest.end)
    beyond = (longest.offset >= appends.end) & (longest.value != CONTROL_RECORD) & ~longest.is_opaque(longest.offset)
    unexplained = np.flatnonzero(beyond & ~np.isin(longest.value, appends.loose))
    if len(unexplained):
        record = longest.at(int(longest.offset[unexplained[0]]))
        assert record is not None
        sentence = f"{end_text}, but {longest.node} holds {record_name(record)} at offset {record['offset']}"
        if circumstances.all_sent:
            yield anomaly_of("final-end-mismatch", longest, sentence, [question, record], len(unexplained))
        else:
            doubt(f"{sentence}, and the record of sent operations is incomplete")


def control_records(log: ReplicaLog, circumstances: Circumstances) -> int:
    """The number of committed control records."""
    return int((_committed(log, circumstances) & (log.value == CONTROL_RECORD) & ~log.is_opaque(log.offset)).sum())


def foreign_records(
    log: ReplicaLog, appends: Appends, circumstances: Circumstances, controls: int, doubt: Doubt
) -> Iterator[Anomaly]:
    """D8: each committed record was sent to this partition, was not refused, and is there once, unless its client
    library may have sent it again: then any number of copies may be there. `controls`: the number of committed control
    records."""
    if controls:
        doubt(f"{log_name(log)} has {counted(controls, 'control record')}, though no client used transactions")
    candidates = _committed(log, circumstances) & ~log.is_opaque(log.offset) & (log.value != CONTROL_RECORD)
    for is_wrong, reason in (
        (candidates & ~np.isin(log.value, appends.sent), "which no client sent to this partition"),
        (candidates & np.isin(log.value, appends.refused), "whose append was refused"),
    ):
        wrong_records = np.flatnonzero(is_wrong)
        if not len(wrong_records):
            continue
        record = log.at(int(log.offset[wrong_records[0]]))
        assert record is not None
        sentence = f"{log.node} holds {record_name(record)} at offset {record['offset']}, {reason}"
        if circumstances.all_sent or reason.startswith("whose"):
            yield anomaly_of("phantom-on-replica", log, sentence, [record], len(wrong_records))
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


def corrupt_records(log: ReplicaLog, circumstances: Circumstances, doubt: Doubt) -> Iterator[Anomaly]:
    """D9: each committed record consists of its value, byte by byte."""
    if circumstances.records == VALUE_FIRST:
        return
    sized = log.size == circumstances.record_bytes if circumstances.record_bytes else np.ones(len(log.size), np.bool_)
    corrupt = np.flatnonzero(_committed(log, circumstances) & carries_value(log) & ~(log.exact & sized))
    if not len(corrupt):
        return
    record = log.at(int(log.offset[corrupt[0]]))
    assert record is not None
    size = int(log.size[corrupt[0]])
    difference = "a key, headers or a value" if sized[corrupt[0]] else f"a value of {size} bytes"
    sentence = (
        f"{log.node} holds {record_name(record)} at offset {record['offset']} with {difference} that no client wrote"
    )
    if circumstances.records == DERIVED:
        yield anomaly_of("corrupt-record", log, sentence, [record | {"bytes": size}], len(corrupt))
    else:
        doubt(f"{sentence}, if clients made it as usual: the run does not say how")


def _committed(log: ReplicaLog, circumstances: Circumstances) -> Bools:
    limit: int | I64 = np.iinfo(np.int64).max if circumstances.quiet else log.high_watermark
    return np.asarray(log.offset < limit)
