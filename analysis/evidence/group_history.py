"""Checks what consumer group members recorded: that they held the partitions and were given the records.

A member must hold a partition while it is given records of it and while it commits, and a commit must not exceed what
the member was given. The record of a member that did otherwise proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from history.groups import Commit, Delivered, GroupRecords, HeldPartition
from installation.counted import counted


def contradictions(groups: GroupRecords, *, all_kept: bool) -> Iterator[str]:
    """The contradictions within the members' records, as sentences. `all_kept`: no setting removes records, so offsets
    have no gaps."""
    yield from _not_held(groups)
    if all_kept:
        yield from _beyond_deliveries(groups.commits, groups.deliveries)


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
