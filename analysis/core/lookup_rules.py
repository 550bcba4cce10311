"""The rules of lookups by timestamp (ListOffsets): the answer is the first record that is not earlier than asked.

What records the log has, and their timestamps, is known from what clients have read
(`history/record/offset_record.py`).

- T1 the record at the answer's offset is not earlier than the timestamp that was asked for;
- T2 no earlier offset has such a record. Records of lower offsets than the answer were committed before it;
- T3 the answer that no such record exists is wrong if a client had read one before the lookup started.

A record that may have been deleted (DeleteRecords) decides nothing of T2 and T3.

A record with two different timestamps in what clients read is not used: the log's own checker reports that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from analysis.core.anomaly import Anomaly
from analysis.core.offset_ranges import NOTHING_DELETED, Key
from history.record.offset_record import NO_OFFSET, OffsetOperation

WRONG_LOOKUP = "wrong-offset-for-timestamp"


class SeenRecord(NamedTuple):
    """A record that a client has read. `at`: the first time, ns."""

    offset: int
    timestamp: int
    at: int


class LookupFindings(NamedTuple):
    """`decided`: how many lookups have at least one record to compare with."""

    anomalies: tuple[Anomaly, ...]
    decided: int


def judge(
    topic: str,
    lookups: Sequence[OffsetOperation],
    sights: Iterable[OffsetOperation],
    deleted: Mapping[Key, int] = NOTHING_DELETED,
) -> LookupFindings:
    """Compare each answer with the records that clients have read. `deleted`: by partition, the offset below which
    records may have been deleted."""
    records = {
        partition: _Records(seen_records, deleted.get((topic, partition), 0))
        for partition, seen_records in _records_by_partition(sights).items()
    }
    decidable = [lookup for lookup in lookups if lookup.partition in records]
    anomalies = [
        anomaly for lookup in decidable for anomaly in _contradictions(topic, lookup, records[lookup.partition])
    ]
    decided = sum(records[lookup.partition].decides(lookup) for lookup in decidable)
    return LookupFindings(tuple(anomalies), decided)


def _records_by_partition(sights: Iterable[OffsetOperation]) -> dict[int, list[SeenRecord]]:
    """The records that clients have read, by partition, in the order of their offsets."""
    by_partition: dict[int, dict[int, SeenRecord]] = {}
    ambiguous: set[tuple[int, int]] = set()
    for sight in sights:
        records = by_partition.setdefault(sight.partition, {})
        for offset, timestamp in enumerate(sight.timestamps, sight.first):
            earlier_record = records.get(offset, SeenRecord(offset, timestamp, sight.ret))
            if earlier_record.timestamp != timestamp:
                ambiguous.add((sight.partition, offset))
            records[offset] = SeenRecord(offset, earlier_record.timestamp, min(earlier_record.at, sight.ret))
    return {
        partition: [records[offset] for offset in sorted(records) if (partition, offset) not in ambiguous]
        for partition, records in by_partition.items()
    }


class _Records:
    """The known records of one partition. `latest[i]`: the index of the record with the largest timestamp up to i."""

    def __init__(self, records: list[SeenRecord], deleted_to: int) -> None:
        self.records = records
        self._kept = bisect_left(records, (deleted_to,))
        self.latest: list[int] = []
        for at, record in enumerate(records):
            best = self.latest[-1] if self.latest and at > self._kept else at
            self.latest.append(at if record.timestamp > records[best].timestamp else best)

    @property
    def lasting(self) -> Sequence[SeenRecord]:
        """The records that cannot have been deleted."""
        return self.records[self._kept :]

    def below(self, offset: int) -> SeenRecord | None:
        """The lasting record with the largest timestamp below an offset."""
        at = bisect_left(self.records, (offset,)) - 1
        return self.records[self.latest[at]] if at >= self._kept else None

    def at(self, offset: int) -> SeenRecord | None:
        at = bisect_left(self.records, (offset,))
        return self.records[at] if at < len(self.records) and self.records[at].offset == offset else None

    def decides(self, lookup: OffsetOperation) -> bool:
        return lookup.offset == NO_OFFSET or self.at(lookup.offset) is not None


def _contradictions(topic: str, lookup: OffsetOperation, records: _Records) -> Iterator[Anomaly]:
    question = (
        f"{lookup.client} asked for the first record of {topic}-{lookup.partition} at {lookup.timestamp} ms or later"
    )
    if lookup.offset == NO_OFFSET:
        missed = next(
            (record for record in records.lasting if record.at <= lookup.inv and record.timestamp >= lookup.timestamp),
            None,
        )
        if missed is not None:
            yield _anomaly(
                topic,
                lookup,
                f"{question}, and got the answer that no such record exists; {_described(missed)}",
                missed,
            )
        return
    own_record, earlier = records.at(lookup.offset), records.below(lookup.offset)
    if own_record is not None and own_record.timestamp < lookup.timestamp:
        yield _anomaly(
            topic, lookup, f"{question}, and got offset {lookup.offset}; {_described(own_record)}", own_record
        )
    elif earlier is not None and earlier.timestamp >= lookup.timestamp:
        yield _anomaly(topic, lookup, f"{question}, and got offset {lookup.offset}; {_described(earlier)}", earlier)


def _described(record: SeenRecord) -> str:
    return f"the record at offset {record.offset} is of {record.timestamp} ms"


def _anomaly(topic: str, lookup: OffsetOperation, sentence: str, record: SeenRecord) -> Anomaly:
    place = {"topic": topic, "partition": lookup.partition}
    witness = (
        {"op": "lookup", "client": lookup.client, **place, "offset": lookup.offset, "timestamp": lookup.timestamp},
        {"op": "read", **place, "offset": record.offset, "timestamp": record.timestamp},
    )
    return Anomaly(WRONG_LOOKUP, topic, lookup.partition, sentence, witness, 1)
