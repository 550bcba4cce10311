"""Checks a consumer group: its committed offsets as registers, and the records that its members were given.

A committed offset is a register: commits write it, fetches read it. A fetch is explained by a commit of its value (or
by no commit, for "no offset"), unless another value is known to have been held in between: after that commit had
returned and before the fetch was invoked. A value is known to have been held if its commit was acknowledged or if
another fetch returned it. An unanswered commit may take effect at any later time; it explains more and, until a fetch
returns it, contradicts nothing. Rebalances need no rule of their own: a member that commits less than another did
before is the last to commit, and fetches return that.

At-least-once: all records below an offset were handed to a member before the commit of that offset returned. In
partitions without transactions and compaction, each offset from the first on is a record.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from analysis.core.anomaly import Anomaly
from history.record.offset_record import COMMIT, NO_OFFSET, OffsetOperation
from history.record.schemas import INF

LOST_COMMIT: Final = "lost-acknowledged-commit"
PHANTOM_COMMIT: Final = "phantom-commit"
SKIPPED: Final = "skipped-record"

Operations = Sequence[OffsetOperation]


def judge(topic: str, commits: Operations, fetches: Operations, deliveries: Operations) -> list[Anomaly]:
    """The violations of the promises to a group, for each partition and kind the first."""
    anomalies: list[Anomaly] = []
    committed, fetched, delivered = _by_partition(commits), _by_partition(fetches), _by_partition(deliveries)
    for partition in sorted(committed.keys() | fetched.keys()):
        anomalies += _unexplained(topic, partition, committed[partition], fetched[partition])
        anomalies += _skipped(topic, partition, committed[partition], delivered[partition])
    return anomalies


def _by_partition(operations: Iterable[OffsetOperation]) -> dict[int, list[OffsetOperation]]:
    by_partition: dict[int, list[OffsetOperation]] = defaultdict(list)
    for operation in operations:
        by_partition[operation.partition].append(operation)
    return by_partition


# --- committed offsets as registers


class _Held(NamedTuple):
    """The register held an offset at some moment from `since` to `until`, by an acknowledged commit or by a fetch.
    `first`: the first commit of the offset; before it was sent, no fetch could show the offset."""

    offset: int
    since: int
    until: int
    evidence: OffsetOperation
    first: OffsetOperation


def _held_intervals(commits: Operations, fetches: Operations) -> list[_Held]:
    """When offsets are known to have been held: an acknowledged commit took effect within its interval; a fetched
    offset was held during the fetch, which was not before any commit of it had started."""
    intervals = [
        _Held(commit.offset, commit.inv, commit.ret, commit, commit) for commit in commits if commit.acknowledged
    ]
    for fetch in fetches:
        earlier = [commit for commit in commits if commit.offset == fetch.offset and commit.inv < fetch.ret]
        if earlier:
            first_commit = min(earlier, key=lambda commit: commit.inv)
            intervals.append(_Held(fetch.offset, max(fetch.inv, first_commit.inv), fetch.ret, fetch, first_commit))
    return intervals


def _unexplained(topic: str, partition: int, commits: Operations, fetches: Operations) -> Iterator[Anomaly]:
    lost: list[tuple[OffsetOperation, _Held, Operations]] = []
    phantom: list[OffsetOperation] = []
    all_held = _held_intervals(commits, fetches)
    for fetch in fetches:
        written = [commit for commit in commits if commit.offset == fetch.offset and commit.inv < fetch.ret]
        if not written and fetch.offset != NO_OFFSET:
            phantom.append(fetch)
            continue
        last_end = max((commit.over for commit in written), default=-1)
        between = [
            interval
            for interval in all_held
            if interval.until < fetch.inv and interval.since > last_end and interval.offset != fetch.offset
        ]
        if between:
            interval = max(between, key=lambda interval: interval.until)
            latest = sorted(written, key=lambda commit: commit.over)[-1:]
            lost.append((fetch, interval, latest if interval.evidence.inv > last_end else [*latest, interval.first]))
    if lost:
        fetch, interval, earlier_commits = lost[0]
        verb = "acknowledged" if interval.evidence.f == COMMIT else "shown"
        yield Anomaly(
            LOST_COMMIT,
            topic,
            partition,
            f"offset {interval.offset} was committed for {topic}-{partition} and {verb}, and a later fetch shows "
            f"{_named(fetch.offset)}, which was not committed since",
            (*map(witness, earlier_commits), witness(interval.evidence), witness(fetch)),
            len(lost),
        )
    if phantom:
        later = [commit for commit in commits if commit.offset == phantom[0].offset]
        yield Anomaly(
            PHANTOM_COMMIT,
            topic,
            partition,
            f"a fetch shows offset {phantom[0].offset} for {topic}-{partition}, which was "
            + ("committed only after the answer" if later else "never committed"),
            (witness(phantom[0]), *map(witness, sorted(later, key=lambda commit: commit.inv)[:1])),
            len(phantom),
        )


def _named(offset: int) -> str:
    return "none" if offset == NO_OFFSET else f"offset {offset}"


# --- at least once


def _skipped(topic: str, partition: int, commits: Operations, deliveries: Operations) -> Iterator[Anomaly]:
    acknowledged = [commit for commit in commits if commit.acknowledged and commit.offset > 0]
    if not acknowledged:
        return
    handed_out = _HandedOut(deliveries, [commit.offset for commit in acknowledged])
    skipping = [commit for commit in acknowledged if handed_out.below(commit.offset) > commit.ret]
    if skipping:
        first = min(skipping, key=lambda commit: commit.ret)
        record = handed_out.first_missing(first.ret)
        yield Anomaly(
            SKIPPED,
            topic,
            partition,
            f"offset {first.offset} of {topic}-{partition} was committed, but record {record} below it had been given "
            "to no member",
            (witness(first), {"kind": "record", "partition": partition, "offset": record}),
            len(skipping),
        )


class _HandedOut:
    """When records were handed out, by runs of equal offsets: memory does not grow with the log's length."""

    def __init__(self, deliveries: Operations, ends: Sequence[int]) -> None:
        borders = {0, *ends}
        borders.update(*((delivery.first, delivery.offset + 1) for delivery in deliveries))
        self._borders = np.array(sorted(borders), np.int64)
        earliest = np.full(len(self._borders), INF, np.int64)
        for delivery in deliveries:
            first, end = np.searchsorted(self._borders, (delivery.first, delivery.offset + 1))
            np.minimum(earliest[first:end], delivery.ret, out=earliest[first:end])
        self._all_before = np.maximum.accumulate(earliest)
        """For each run the time when it and all before it had been handed out; INF: never."""

    def below(self, end: int) -> int:
        """When all records below `end` (one of `ends`) had been handed out; INF: never."""
        return int(self._all_before[np.searchsorted(self._borders, end) - 1])

    def first_missing(self, at: int) -> int:
        """The first record that had not been handed out at `at`."""
        return int(self._borders[np.argmax(self._all_before > at)])


def witness(operation: OffsetOperation) -> dict[str, Any]:
    """A commit or a fetch as a part of a witness."""
    place = {"member": operation.client, "partition": operation.partition, "offset": operation.offset}
    times = {"inv": operation.inv, "ret": operation.ret}
    if operation.f == COMMIT:
        return {"kind": "commit", **place, **times, "attempt_s": operation.attempt_s}
    return {"kind": "fetched", **place, **times}
