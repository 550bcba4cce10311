"""Lookups of offsets by timestamp. `analysis/core/lookup_rules.py` states the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from analysis.checker import JOURNAL, OPERATIONS, PLAN, CheckedRun, Checker, Outcome, apart_from_forgotten
from analysis.core.anomaly import AnomalyKind, Promise
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
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
    from analysis.core.lookup_rules import judge
    from history.record.offset_record import LOOKUP, LOOKUPS, SIGHT, read_offsets

    records = read_offsets(run.directory, LOOKUPS)
    lookups, sights = records.of(LOOKUP), records.of(SIGHT)
    if run.description.kind != TIERED and not records.clients:
        return Outcome(NOT_APPLICABLE, "no client looked up an offset by timestamp")
    judged = judge(run.description.topic, lookups, sights, run.deletions.requested)
    anomalies, forgotten = apart_from_forgotten(judged.anomalies, WRONG.name, run.forgetting)
    incomplete = tuple(_incomplete(run, records, sights))
    doubts = (*incomplete, *forgotten)
    if not judged.decided:
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
    planned = {line["client"] for line in lines if line["role"] == CONSUMER and run.description.kind == TIERED}
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


CHECKER: Final = Checker(
    "timestamp lookups",
    "Do lookups by timestamp find the first record that is not earlier?",
    21,
    (WRONG,),
    check,
    (NOT_WHOLE,),
    may_rest=lambda description: description.kind != TIERED,
    reads="|".join((PLAN, JOURNAL, OPERATIONS, "history/lookups(/.*)?")),
)
