"""Compares the offsets that members of a group committed with the offsets log that the brokers left on their disks.

A fetch shows only the last commit, so a commit that was lost is not seen if another one follows before the next fetch.
The log keeps the records. Of each partition of the offsets topic, the replica with the highest (epoch of its last
batch, end) has all that was committed. Its rules, for each partition of the members' topic:

- Each acknowledged commit is a record. Compaction may have removed it: only if the log lacks an offset below the last
  record of the same key.
- The last record is explained as a fetch is: no commit that was acknowledged is known to have come later.
- A record's offset was committed by a member.

The other replicas must have the last record of each key if they cover it: if it is below their own high watermark.
Below it, no replica has another commit at an offset.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analysis.core.anomaly import Anomaly
from analysis.core.groups import LOST_COMMIT, PHANTOM_COMMIT, witness
from analysis.replicafiles.offset_commits import LoggedCommit, OffsetsLog
from history.record.offset_record import NO_OFFSET, OffsetOperation

DIVERGENCE: Final = "replica-divergence"

Logged = Mapping[int, Sequence[LoggedCommit]]
"""The records of commits by the partition of the members' topic, in the sequence of the log."""


def complete_logs(logs: Sequence[OffsetsLog]) -> list[OffsetsLog]:
    """For each partition of the offsets topic the replica that has all that was committed."""
    best: dict[int, OffsetsLog] = {}
    for log in logs:
        best_log = best.get(log.number)
        if best_log is None or (log.epoch, log.end) > (best_log.epoch, best_log.end):
            best[log.number] = log
    return [best[number] for number in sorted(best)]


def violations(topic: str, commits: Sequence[OffsetOperation], logs: Sequence[OffsetsLog]) -> list[Anomaly]:
    """What the logs contradict, for each partition and kind the first. `logs`: all replicas of the offsets topic, at
    least one, each read to its end. A group has one partition of that topic: the one with the most of its records."""
    log = max(complete_logs(logs), key=lambda offsets_log: sum(record.topic == topic for record in offsets_log.commits))
    logged: dict[int, list[LoggedCommit]] = {}
    for record in log.commits:
        if record.topic == topic:
            logged.setdefault(record.partition, []).append(record)
    anomalies: list[Anomaly] = []
    for partition in sorted({commit.partition for commit in commits} | logged.keys()):
        mine = [commit for commit in commits if commit.partition == partition]
        records = logged.get(partition, ())
        anomalies += [*_lost(topic, partition, mine, log, records), *_phantom(topic, partition, mine, log, records)]
    return [*anomalies, *_different(topic, log, logged, [replica for replica in logs if replica.number == log.number])]


def _lost(
    topic: str, partition: int, commits: Sequence[OffsetOperation], log: OffsetsLog, records: Sequence[LoggedCommit]
) -> Iterator[Anomaly]:
    absent = _missing(commits, log, records)
    missing = absent or _commits_behind(commits, records)
    if not missing:
        return
    shown = f"ends with {_named(records[-1])}" if records else "has none of its commits"
    same = [] if absent else [commit for commit in commits if commit.offset == records[-1].offset]
    latest_commits = sorted(same, key=lambda commit: commit.over)[-1:]
    last_rows = () if absent else (_shown(log, records[-1]),)
    yield Anomaly(
        LOST_COMMIT,
        topic,
        partition,
        f"offset {missing[0].offset} was committed for {topic}-{partition} and acknowledged, but is not in the offsets "
        f"log of {log.node}, which {shown}",
        (*map(witness, (*latest_commits, missing[0])), *last_rows),
        len(missing),
    )


def _missing(
    commits: Sequence[OffsetOperation], log: OffsetsLog, records: Sequence[LoggedCommit]
) -> list[OffsetOperation]:
    """The acknowledged commits without a record, unless compaction may have removed it."""
    if records and any(first < records[-1].at for first, _ in log.removed):
        return []
    logged = {record.offset for record in records}
    missing = [commit for commit in commits if commit.acknowledged and commit.offset not in logged]
    return sorted(missing, key=lambda commit: commit.inv)


def _commits_behind(commits: Sequence[OffsetOperation], records: Sequence[LoggedCommit]) -> list[OffsetOperation]:
    """The acknowledged commits that are known to be later than every commit of the last record's offset."""
    if not records:
        return []
    last_offset = records[-1].offset
    last_end = max((commit.over for commit in commits if commit.offset == last_offset), default=-1)
    if last_offset != NO_OFFSET and last_end < 0:
        return []  # no member committed it, which is another violation
    return [
        commit for commit in commits if commit.acknowledged and commit.inv > last_end and commit.offset != last_offset
    ]


def _phantom(
    topic: str, partition: int, commits: Sequence[OffsetOperation], log: OffsetsLog, records: Sequence[LoggedCommit]
) -> Iterator[Anomaly]:
    known_offsets = {commit.offset for commit in commits} | {NO_OFFSET}
    if strange := [record for record in records if record.offset not in known_offsets]:
        yield Anomaly(
            PHANTOM_COMMIT,
            topic,
            partition,
            f"the offsets log of {log.node} has {_named(strange[0])} for {topic}-{partition}, which was never "
            "committed",
            (_shown(log, strange[0]),),
            len(strange),
        )


def _different(topic: str, log: OffsetsLog, logged: Logged, replicas: Sequence[OffsetsLog]) -> Iterator[Anomaly]:
    """The partitions with a commit that a replica lacks, if it is the last, or contradicts below its high watermark."""
    commits_of = {replica.node: {commit.at: commit for commit in replica.commits} for replica in replicas}
    for partition, records in sorted(logged.items()):
        last_records = [record for record in records[-1:] if record.offset != NO_OFFSET]
        lacking = [
            (record, replica.node)
            for replica in replicas
            for record in records
            if _covers(replica, record)
            and _is_contradicted(record, commits_of[replica.node], may_lack=record not in last_records)
        ]
        if lacking:
            record, node = lacking[0]
            yield Anomaly(
                DIVERGENCE,
                topic,
                partition,
                f"the offsets log of {log.node} has {_named(record)} for {topic}-{partition} at {record.at}, and that "
                f"of {node} has not, though its high watermark is above",
                (_shown(log, record),),
                len({node for _, node in lacking}),
            )


def _covers(replica: OffsetsLog, record: LoggedCommit) -> bool:
    return replica.start <= record.at < min(replica.high_watermark, replica.end)


def _is_contradicted(record: LoggedCommit, commits: Mapping[int, LoggedCommit], *, may_lack: bool) -> bool:
    """`may_lack`: compaction may have removed it from the replica."""
    return commits[record.at] != record if record.at in commits else not may_lack


def _named(record: LoggedCommit) -> str:
    return "the removal of its offset" if record.offset == NO_OFFSET else f"offset {record.offset}"


def _shown(log: OffsetsLog, record: LoggedCommit) -> dict[str, Any]:
    return {"kind": "logged", "node": log.node, **record._asdict()}
