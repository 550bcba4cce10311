"""The plan of the log check: ranges of offsets, each with the row groups that say something about it.

Theory of operation. A partition's offsets are cut into ranges of equal size. What operations say about an offset is in
a few row groups only, because a client's operations on a partition reach nearly ascending offsets. So a task reads the
row groups whose reach overlaps its range, and nothing else, and its memory depends on the size of the range and of one
row group. A partition with most of the operations is many tasks. A row group that overlaps several ranges is read by
each of them. One of them, its owner, reports the facts that have no place in the log (`analysis.core.aggregates`).

The last range of a partition has no end, so every offset is in a range. An offset far beyond the number of operations
makes this range long, not the number of ranges large: it is damage, and must not exhaust the memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from history.record.schemas import INF

Key = tuple[str, int]
NOTHING_DELETED: Final[Mapping[Key, int]] = MappingProxyType({})

SPAN: Final = 1 << 21
"""Offsets per range: 86 MB of evidence."""


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file of operations on one partition.

    `path`, `number`: the file and the row group's place in it. `low`, `high`: the lowest and the highest offset that
    its rows show or name, whether as an offset or as a bound of the log's length; `high` < `low` without any.
    """

    path: str
    number: int
    rows: int
    low: int
    high: int

    @property
    def has_offsets(self) -> bool:
        return self.low <= self.high and self.high >= 0

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether the rows may have offsets from `start` on below `stop`. A `stop` of INF includes every higher offset,
        so that a task reads impossible offsets too."""
        return self.has_offsets and (self.low < stop or stop >= INF) and self.high >= start


@dataclass(frozen=True)
class RangeTask:
    """The offsets start .. stop - 1 of the partition `key`, and the row groups that say something about them.

    `end`: the first offset of the range that no row group reaches. `owned[i]`: this task reports the facts of
    `groups[i]`. `deleted_to`: records of lower offsets may have been deleted.
    """

    key: Key
    start: int
    stop: int
    end: int
    groups: tuple[RowGroup, ...]
    owned: tuple[bool, ...]
    deleted_to: int = 0

    @property
    def rows(self) -> int:
        """The number of rows that the task reads."""
        return sum(group.rows for group in self.groups)


def plan_ranges(
    groups: Mapping[Key, Sequence[RowGroup]], span: int = SPAN, deleted: Mapping[Key, int] = NOTHING_DELETED
) -> list[RangeTask]:
    """The tasks of all partitions, those with the most rows first; `span`: offsets per range. `deleted`: by partition,
    the offset below which records may have been deleted."""
    tasks = [task for key, row_groups in groups.items() for task in _ranges(key, row_groups, span, deleted.get(key, 0))]
    return sorted(tasks, key=lambda task: (-task.rows, task.key, task.start))


def _ranges(key: Key, groups: Sequence[RowGroup], span: int, deleted_to: int) -> Iterator[RangeTask]:
    owned: set[RowGroup] = set()
    last_start = _last_start(groups, span)
    for start in range(0, last_start + 1, span):
        stop = start + span if start < last_start else INF
        mine = tuple(group for group in groups if group.overlaps(start, stop) or (not start and not group.has_offsets))
        end = min(stop, max((start, *(group.high + 1 for group in mine))))
        yield RangeTask(key, start, stop, end, mine, tuple(group not in owned for group in mine), deleted_to)
        owned.update(mine)


def _last_start(groups: Sequence[RowGroup], span: int) -> int:
    """Where the last range starts: the one with the highest offset that the number of rows makes plausible."""
    plausible = 4 * sum(group.rows for group in groups) + (1 << 20)
    highest = max((group.high for group in groups), default=-1)
    return max(0, min(highest, plausible)) // span * span
