"""The log check over a run's Parquet files: a plan of ranges, whose tasks an engine maps.

Theory of operation. The driver plans from what is stated of the row groups. A task reads the row groups that overlap
its range and returns a summary and facts, so rows do not leave the worker. The driver merges the results in the order
of the offsets and decides. If it finds something, workers select the rows that explain it. Every engine has the same
plan, function and results; engines differ in the map alone (`analysis.engines.task_map`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from analysis.core.aggregates import Facts
from analysis.core.decide import Conclusion
from analysis.core.explain import Key, select
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.log_finding import LogFinding
from analysis.core.logcheck import LogReport, conclude_all, report_on
from analysis.core.offset_ranges import NOTHING_DELETED, SPAN, RangeTask, RowGroup, plan_ranges
from analysis.core.range_evidence import RangeResult, batches_of, examine
from analysis.core.rows import DamagedError
from analysis.core.summary import Summary
from analysis.engines.row_groups import read_row_groups, row_groups_of
from analysis.engines.task_map import TaskMap
from history.record.schemas import OPERATIONS
from history.upper_bounds import UPPER_BOUNDS

R = TypeVar("R")

Findings = Mapping[Key, Sequence[LogFinding]]


@dataclass(frozen=True)
class CheckedRanges:
    """The results of all tasks: by partition the summary of each range and the merged facts, and the conclusion."""

    summaries: Mapping[Key, Sequence[Summary]]
    conclusions: Mapping[Key, Conclusion]


@dataclass(frozen=True)
class LogPlan:
    """The row groups of each partition and the tasks that cover them."""

    groups: Mapping[Key, Sequence[RowGroup]]
    tasks: Sequence[RangeTask]

    @classmethod
    def of(
        cls,
        tables: Path,
        *,
        span: int = SPAN,
        deleted: Mapping[Key, int] = NOTHING_DELETED,
    ) -> LogPlan:
        """The plan for a run's `tables/`; `span`: offsets per range. `deleted`: by partition, the offset below which
        records may have been deleted. Raises DamagedError for an index that disagrees with its files."""
        groups = row_groups_of(tables)
        return cls(groups, plan_ranges(groups, span, deleted))

    @property
    def rows(self) -> int:
        """The rows that the tasks read."""
        return sum(task.rows for task in self.tasks)


def report_of(
    checked: CheckedRanges, plan: LogPlan, spread: TaskMap, *, upper_bound: str, owners: Owners = ALL_WHOLE
) -> LogReport:
    """The report on what was concluded. Raises DamagedError as `check_ranges` does."""
    findings = {key: conclusion.findings for key, conclusion in checked.conclusions.items() if conclusion.findings}
    return report_on(checked.conclusions, _suspects(plan, spread, findings), upper_bound, owners)


def check_ranges(plan: LogPlan, spread: TaskMap, upper_bound: str) -> CheckedRanges:
    """The conclusion on each partition. Raises ValueError for an unknown `upper_bound`, and DamagedError for rows that
    no client can have recorded and for a row group that is not as the plan states."""
    if upper_bound not in UPPER_BOUNDS:
        raise ValueError(f"unknown upper_bound {upper_bound!r}: one of {', '.join(UPPER_BOUNDS)}")
    work = functools.partial(_examine, upper_bound=upper_bound)
    results = spread(work, plan.tasks, [task.rows for task in plan.tasks])
    summaries: dict[Key, list[Summary]] = {}
    facts: dict[Key, Facts] = {}
    for task, (summary, range_facts) in _whole(plan.tasks, results):
        summaries.setdefault(task.key, []).append(summary)
        facts[task.key] = facts[task.key].merge(range_facts) if task.key in facts else range_facts
    deleted = {task.key: task.deleted_to for task in plan.tasks}
    return CheckedRanges(summaries, conclude_all(summaries, facts, deleted))


def _examine(task: RangeTask, *, upper_bound: str) -> RangeResult | DamagedError:
    try:
        return examine(task, read_row_groups, upper_bound=upper_bound)
    except DamagedError as error:
        return error


def _whole(tasks: Sequence[RangeTask], results: Sequence[R | DamagedError]) -> Iterator[tuple[RangeTask, R]]:
    """The results with their tasks in the order of partitions and offsets; the first damage in this order is raised."""
    for number in sorted(range(len(tasks)), key=lambda number: (tasks[number].key, tasks[number].start)):
        result = results[number]
        if isinstance(result, DamagedError):
            raise result
        yield tasks[number], result


def _suspects(plan: LogPlan, spread: TaskMap, findings: Findings) -> list[pa.Table]:
    """The rows that the findings identify."""
    batches = [batch for key in sorted(findings) for batch in batches_of(plan.groups[key])]
    rows = [sum(group.rows for group in batch) for batch in batches]
    return spread(functools.partial(_select, findings=findings), batches, rows)


def _select(groups: Sequence[RowGroup], *, findings: Findings) -> pa.Table:
    return select(read_row_groups(groups, OPERATIONS), findings)
