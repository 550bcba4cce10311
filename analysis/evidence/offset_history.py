"""Checks what clients recorded of offsets: that the record is complete, and that the members of a group held the
partitions and were given the records.

A member must hold a partition while it is given records of it and while it commits, and a commit must not exceed what
the member was given. The record of a member that did otherwise proves nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.checker import first_of
from analysis.evidence.event_times import lives_of
from history.record.offset_record import ASSIGN, COMMIT, DELIVER, LOSE, REVOKE, OffsetOperation, OffsetRecord
from history.record.schemas import INF
from installation.counted import counted


def incompleteness(record: OffsetRecord, noun: str, planned: set[str], started: set[str]) -> Iterator[str]:
    """Why a record of `noun` is not that of all `planned` clients, and of no others than `started` ones."""
    yield from record.defects
    if missing := sorted(planned - set(record.clients)):
        yield f"the record of {noun} is missing: {first_of(missing, ', ')}"
    if strange := sorted(set(record.clients) - started):
        yield f"there is a record of {noun} of clients that were not started: {first_of(strange, ', ')}"


def out_of_life(journal: Sequence[Mapping[str, Any]], record: OffsetRecord) -> Iterator[str]:
    """Lines whose times are outside of their client's lifetime: nothing shows that they are of this run."""
    lives = lives_of(journal)
    outside = Counter(
        line.client
        for line in record.operations
        if line.client in lives and not lives[line.client][0] <= line.inv <= line.last_time <= lives[line.client][1]
    )
    for client, count in sorted(outside.items()):
        yield f"the record of {client} has {counted(count, 'time')} before it started or after it had ended"


@dataclass(frozen=True)
class HeldPartition:
    """A member held a partition from `since` until `until`; INF if it did not record that it gave it back."""

    member: str
    partition: int
    since: int
    until: int = INF


def held_partitions(group: OffsetRecord) -> list[HeldPartition]:
    """The partitions that the members were assigned."""
    open_tenures: dict[tuple[str, int], HeldPartition] = {}
    gave_back: list[HeldPartition] = []
    for event in group.operations:
        place = event.client, event.partition
        if event.f == ASSIGN:
            open_tenures.setdefault(place, HeldPartition(*place, event.inv))
        elif event.f in (REVOKE, LOSE) and place in open_tenures:
            gave_back.append(replace(open_tenures.pop(place), until=event.inv))
    return [*gave_back, *open_tenures.values()]


def assignments(group: OffsetRecord) -> int:
    """How often a member was given partitions."""
    return len({(event.client, event.inv) for event in group.of(ASSIGN)})


def contradictions(group: OffsetRecord, *, all_kept: bool) -> Iterator[str]:
    """The contradictions within the members' records, as sentences. `all_kept`: no setting removes records, so offsets
    have no gaps."""
    commits, deliveries = group.of(COMMIT), group.of(DELIVER)
    yield from _not_held(held_partitions(group), commits, deliveries)
    if all_kept:
        yield from _beyond_deliveries(commits, deliveries)


def _not_held(
    tenures: Sequence[HeldPartition], commits: Sequence[OffsetOperation], deliveries: Sequence[OffsetOperation]
) -> Iterator[str]:
    """Deliveries and commits of partitions that their member did not hold at that time."""
    by_place: dict[tuple[str, int], list[HeldPartition]] = {}
    for tenure in tenures:
        by_place.setdefault((tenure.member, tenure.partition), []).append(tenure)
    moments = [(delivery.client, delivery.partition, delivery.ret, "was given") for delivery in deliveries]
    moments += [(commit.client, commit.partition, commit.inv, "committed") for commit in commits]
    outside = Counter(
        (member, partition, action)
        for member, partition, at, action in moments
        if not any(tenure.since <= at <= tenure.until for tenure in by_place.get((member, partition), ()))
    )
    for (member, partition, action), count in sorted(outside.items()):
        times = counted(count, "time")
        yield f"{member} {action} partition {partition} {times} while it did not hold it, by its own record"


def _beyond_deliveries(commits: Sequence[OffsetOperation], deliveries: Sequence[OffsetOperation]) -> Iterator[str]:
    """Commits of offsets beyond the records that their member had been given."""
    deliveries_of: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for delivery in deliveries:
        deliveries_of.setdefault((delivery.client, delivery.partition), []).append((delivery.ret, delivery.offset + 1))
    for commit in commits:
        ends = [end for at, end in deliveries_of.get((commit.client, commit.partition), ()) if at <= commit.inv]
        if commit.offset > max(ends, default=0):
            place = f"offset {commit.offset} of partition {commit.partition}"
            yield f"{commit.client} committed {place}, but had been given records up to {max(ends, default=0)} only"
            return
