"""Looks for deleted records in a run's reads: a task for some row groups of each partition with answered deletions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.core.deletion_rules import AnsweredStarts, ReadAgain
from analysis.core.explain import Key
from analysis.core.offset_ranges import RowGroup
from analysis.core.range_evidence import batches_of
from analysis.core.rows import DamagedError, rows_of
from analysis.engines.row_groups import read_row_groups, row_groups_of
from analysis.engines.task_map import TaskMap
from analysis.evidence.deletions import Deletions


@dataclass(frozen=True)
class DeletedReadsTask:
    """Row groups of a partition, and what was answered there."""

    key: Key
    groups: tuple[RowGroup, ...]
    answered: AnsweredStarts

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.groups)

    def look(self) -> ReadAgain | DamagedError | None:
        """The reads of these rows that show deleted records."""
        try:
            return self.answered.shown_again(rows_of(read_row_groups(self.groups)))
        except DamagedError as error:
            return error


def reads_again(tables: Path, deletions: Deletions, spread: TaskMap, *, from_fetches: bool) -> Mapping[Key, ReadAgain]:
    """By partition, the reads that show deleted records. `from_fetches`: as of `AnsweredStarts`. Raises
    DamagedError."""
    tasks = list(_tasks(row_groups_of(tables), deletions, from_fetches))
    found: dict[Key, ReadAgain] = {}
    for task, result in zip(tasks, spread(DeletedReadsTask.look, tasks, [each.rows for each in tasks]), strict=True):
        if isinstance(result, DamagedError):
            raise result
        if result is not None:
            before = found.get(task.key, result._replace(reads=0))
            first = min(before, result, key=lambda each: each.inv)
            found[task.key] = first._replace(reads=before.reads + result.reads)
    return found


def _tasks(
    groups: Mapping[Key, Sequence[RowGroup]], deletions: Deletions, from_fetches: bool
) -> Iterator[DeletedReadsTask]:
    for key, start in sorted(deletions.answered.items()):
        requests = [each for each in deletions.requests if each.partition == key[1]]
        answered = AnsweredStarts.of(requests, from_fetches=from_fetches)
        for batch in batches_of(each for each in groups.get(key, ()) if each.overlaps(0, start)):
            yield DeletedReadsTask(key, tuple(batch), answered)
