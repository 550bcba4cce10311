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
    tenures: dict[tuple[str, int], list[HeldPartition]] = {}
    for tenure in groups.held:
        tenures.setdefault((tenure.member, tenure.partition), []).append(tenure)
    moments = [(delivery.member, delivery.partition, delivery.at, "was given") for delivery in groups.deliveries]
    moments += [(commit.member, commit.partition, commit.inv, "committed") for commit in groups.commits]
    outside = Counter(
        (member, partition, action)
        for member, partition, at, action in moments
        if not any(tenure.since <= at <= tenure.until for tenure in tenures.get((member, partition), ()))
    )
    for (member, partition, action), count in sorted(outside.items()):
        times = counted(count, "time")
        yield f"{member} {action} partition {partition} {times} while it did not hold it, by its own record"


def _beyond_deliveries(commits: Sequence[Commit], deliveries: Sequence[Delivered]) -> Iterator[str]:
    """Commits of offsets beyond the records that their member had been given."""
    deliveries_of: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for delivery in deliveries:
        deliveries_of.setdefault((delivery.member, delivery.partition), []).append((delivery.at, delivery.last + 1))
    for commit in commits:
        ends = [end for at, end in deliveries_of.get((commit.member, commit.partition), ()) if at <= commit.inv]
        if commit.offset > max(ends, default=0):
            place = f"offset {commit.offset} of partition {commit.partition}"
            yield f"{commit.member} committed {place}, but had been given records up to {max(ends, default=0)} only"
            return
