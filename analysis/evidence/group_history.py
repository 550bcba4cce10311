"""Compares what consumer group members recorded about their group with their records as clients.

A member writes two records: its operations, as every client does, and the events of its group. A delivery must be a
read, a commit must not exceed what the member was given, and both must happen while the member holds the partition. A
record that contradicts the other one proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.groups import Commit, Delivered, GroupRecords, HeldPartition
from history.reader import History
from history.schemas import OK, READ
from installation.counted import counted

Read = tuple[str, int, int, int, int]
"""Member, partition, first and last offset, and completion time."""


def contradictions(
    groups: GroupRecords, history: History, topic: str, members: frozenset[str], *, all_kept: bool
) -> Iterator[str]:
    """The contradictions between the group's record and the clients' operations, as sentences. `members`: the clients
    that read as members; `all_kept`: no setting removes records, so offsets have no gaps."""
    unread = Counter(map(_as_read, groups.deliveries))
    for part in history.parts("topic", "type", "f", "client", "partition", "offsets", "ret"):
        unread.subtract(_reads_of(part, topic, members))
        unread = Counter({read: count for read, count in unread.items() if count})
    yield from _more("the record of {0} has {1} deliveries that it did not read, such as {2}", +unread)
    yield from _more("{0} read {1} times what its record of the group lacks, such as {2}", -unread)
    yield from _not_held(groups)
    if all_kept:
        yield from _beyond_deliveries(groups.commits, groups.deliveries)


def _as_read(delivery: Delivered) -> Read:
    return delivery.member, delivery.partition, delivery.first, delivery.last, delivery.at


def _reads_of(operations: pa.Table, topic: str, members: frozenset[str]) -> Iterator[Read]:
    """The reads of members that returned records."""
    answered = operations.filter(pc.and_(pc.equal(operations["f"], READ), pc.equal(operations["type"], OK)))
    client, named = answered["client"].cast(pa.string()), pa.array(sorted(members), pa.string())
    is_theirs = pc.and_(pc.is_in(client, value_set=named), pc.equal(answered["topic"].cast(pa.string()), topic))
    reads = answered.filter(pc.and_(is_theirs, pc.greater(pc.list_value_length(answered["offsets"]), 0)))
    columns = [reads["client"], reads["partition"], *_ends(reads["offsets"]), reads["ret"]]
    yield from zip(*(column.to_pylist() for column in columns), strict=True)


def _ends(lists: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """The first and the last item of each list; none is empty."""
    items, lengths = pc.list_flatten(lists), pc.list_value_length(lists).to_numpy()
    behind = np.cumsum(lengths)
    return items.take(pa.array(behind - lengths)), items.take(pa.array(behind - 1))


def _more(sentence: str, which: Mapping[Read, int]) -> Iterator[str]:
    """For each member the number of such deliveries, and the first one."""
    for member in sorted({read[0] for read in which}):
        mine = sorted(read for read in which if read[0] == member)
        _, partition, first, last, _ = mine[0]
        shown = f"offsets {first} to {last} of partition {partition}"
        yield sentence.format(member, sum(which[read] for read in mine), shown)


def _not_held(groups: GroupRecords) -> Iterator[str]:
    """Deliveries and commits of partitions that their member did not hold at that time."""
    held: dict[tuple[str, int], list[HeldPartition]] = {}
    for each in groups.held:
        held.setdefault((each.member, each.partition), []).append(each)
    moments = [(each.member, each.partition, each.at, "was given") for each in groups.deliveries]
    moments += [(each.member, each.partition, each.inv, "committed") for each in groups.commits]
    outside = Counter(
        (member, partition, what)
        for member, partition, at, what in moments
        if not any(each.since <= at <= each.until for each in held.get((member, partition), ()))
    )
    for (member, partition, what), count in sorted(outside.items()):
        times = counted(count, "time")
        yield f"{member} {what} partition {partition} {times} while it did not hold it, by its own record"


def _beyond_deliveries(commits: Sequence[Commit], deliveries: Sequence[Delivered]) -> Iterator[str]:
    """Commits of offsets beyond the records that their member had been given."""
    given: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for each in deliveries:
        given.setdefault((each.member, each.partition), []).append((each.at, each.last + 1))
    for commit in commits:
        ends = [end for at, end in given.get((commit.member, commit.partition), ()) if at <= commit.inv]
        if commit.offset > max(ends, default=0):
            where = f"offset {commit.offset} of partition {commit.partition}"
            yield f"{commit.member} committed {where}, but had been given records up to {max(ends, default=0)} only"
            return
