"""Lookups of offsets by timestamp (ListOffsets): the answer is the first record that is not earlier than asked.

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
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, apart_from_forgotten
from analysis.core.anomaly import Anomaly, AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.core.offset_ranges import Key
    from history.record.offset_record import OffsetOperation, OffsetRecord

FIRST_FOUND: Final = Promise("TIME", "a lookup by timestamp finds the first record that is not earlier")
WRONG: Final = AnomalyKind(
    "wrong-offset-for-timestamp",
    FIRST_FOUND,
    "A lookup by timestamp returned a record that is earlier, or not the first one, or none although there is one.",
)
TIERED: Final = "tiered"
"""The kind of workload whose consumers look up offsets."""
CONSUMER: Final = "consumer"
NOT_WHOLE: Final = Reason("lookup-record-not-whole", "The record of lookups by timestamp is incomplete.")


def check(run: CheckedRun) -> Outcome:
    """Check the lookups of a run; only consumers of the workload `tiered` make them."""
    from history.record.offset_record import LOOKUP, LOOKUPS, SIGHT, read_offsets

    records = read_offsets(run.directory, LOOKUPS)
    lookups, sights = records.of(LOOKUP), records.of(SIGHT)
    if run.description.workload.kind != TIERED and not records.clients:
        return Outcome(NOT_APPLICABLE, "no client looked up an offset by timestamp")
    judged = judge(run.description.workload.topic, lookups, sights, run.removable)
    anomalies, forgotten = apart_from_forgotten(judged.anomalies, WRONG.name, run.forgetting)
    incomplete = tuple(_incomplete(run, records, sights))
    doubts = (*incomplete, *forgotten)
    if not judged.decided and run.description.checks.min_queries:
        doubts += ("no lookup by timestamp can be compared with a record that was read",)
    size = f"{counted(len(lookups), 'lookup')} by timestamp, {judged.decided:,} compared with records"
    if anomalies and not incomplete:
        return Outcome(FAIL, f"{len(anomalies):,} wrong of {size}", anomalies, doubts)
    if doubts:
        return Outcome(UNKNOWN, size, doubts=doubts)
    return Outcome(PASS, f"each found the first record: {size}")


def _incomplete(run: CheckedRun, records: OffsetRecord, sights: Sequence[OffsetOperation]) -> Iterator[str]:
    """Consumers' records that are missing or cannot be believed."""
    from analysis.evidence.offset_history import incompleteness, out_of_life
    from history.journal.writer import CLIENT

    lines = [line for line in run.history.journal if line["event"] == CLIENT]
    planned = {line["client"] for line in lines if line["role"] == CONSUMER and run.description.workload.kind == TIERED}
    yield from incompleteness(records, "lookups", planned, {line["client"] for line in lines})
    yield from out_of_life(run.history.journal, records)
    yield from _unseen(run, records.clients, sights)


def _unseen(run: CheckedRun, clients: Sequence[str], sights: Sequence[OffsetOperation]) -> Iterator[str]:
    """Reads beyond the last record whose timestamp a client recorded. It records the timestamp of each record that is
    later than all that it has read before."""
    ends: dict[tuple[str, int], int] = {}
    for sight in sights:
        place = sight.client, sight.partition
        ends[place] = max(ends.get(place, 0), sight.first + len(sight.timestamps))
    for (client, partition), end in sorted(_read_ends(run, clients).items()):
        if end > ends.get((client, partition), 0):
            yield (
                f"{client} read partition {partition} up to offset {end - 1}, and recorded timestamps up to "
                f"{ends.get((client, partition), 0) - 1}"
            )


def _read_ends(run: CheckedRun, clients: Sequence[str]) -> dict[tuple[str, int], int]:
    """The offset after the last record that each of these clients read, by client and partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends: dict[tuple[str, int], int] = {}
    for part in run.history.logs.parts("client", "partition", "offsets"):
        part = part.filter(pc.is_in(part["client"].cast(pa.string()), pa.array(clients, pa.string())))
        rows = pc.list_parent_indices(part["offsets"])
        read = part.select(["client", "partition"]).take(rows).append_column("last", pc.list_flatten(part["offsets"]))
        for row in read.group_by(["client", "partition"], use_threads=False).aggregate([("last", "max")]).to_pylist():
            place = row["client"], row["partition"]
            ends[place] = max(ends.get(place, 0), row["last_max"] + 1)
    return ends


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
    deleted: Mapping[Key, int] = MappingProxyType({}),
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
        from history.record.offset_record import NO_OFFSET

        return lookup.offset == NO_OFFSET or self.at(lookup.offset) is not None


def _contradictions(topic: str, lookup: OffsetOperation, records: _Records) -> Iterator[Anomaly]:
    from history.record.offset_record import NO_OFFSET

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
    return Anomaly(WRONG.name, topic, lookup.partition, sentence, witness, 1)


CHECKER: Final = Checker(
    "timestamp lookups",
    "Do lookups by timestamp find the first record that is not earlier?",
    21,
    (WRONG,),
    check,
    (NOT_WHOLE,),
    may_rest=lambda description: description.workload.kind != TIERED,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, "history/lookups(/.*)?")),
)
