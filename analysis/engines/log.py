"""The log check: decides whether a single, linearizable log per partition could have produced a recorded history.

Offsets give the total order of a partition's appends, so nothing is searched. Given the structural conditions - each
offset has one value and each value one offset (C1), every value seen was sent to this partition and not refused (C2),
reads are contiguous and every offset below the length is taken (C3) - let r[g] be the latest invocation of the append
at g and of the queries that showed a length <= g, and d[g] the earliest return of the append at g and of the queries
that showed a length > g. Then the history is linearizable iff r[j] <= d[m] for all j <= m.

*Necessary*: t_j <= t_m for the moments at which the appends take effect, r[j] <= t_j and t_m <= d[m].
*Sufficient*: t_g = max r[j], j <= g, ties by offset, respects every append's interval; each query needs a moment in its
own interval and between two consecutive t's, and these intervals meet pairwise, so they share a point (Helly, in one
dimension).

A system may promise less, so there are three levels for the upper bounds that queries show: `strict`, every bound
counts; `session`, a bound counts against what the same session of the client saw before; `lower-bound-only`, no bound
counts. Bounds from the final queries, invoked after healing, always count.

Theory of operation. The driver plans ranges of offsets from what is stated of the row groups of the run's Parquet
files. A task reads the row groups that overlap its range and returns the range's summary and the facts of the rows that
it owns (`range_evidence`), so rows do not leave the worker. The driver merges the results of a partition in the order
of the offsets, `conclude` decides, and `explain` writes the sentences about the findings, for which workers select the
rows. Partitions are independent. Every engine has the same plan, function and results; engines differ in the map alone
(`analysis.engines.task_map`).
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from analysis.core.aggregates import Facts
from analysis.core.anomaly import Anomaly
from analysis.core.decide import Conclusion, conclude
from analysis.core.explain import Explanation, Key, explain, select
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.log_finding import LogFinding
from analysis.core.offset_ranges import NOTHING_DELETED, SPAN, RangeTask, RowGroup, plan_ranges
from analysis.core.range_evidence import RangeResult, batches_of, examine
from analysis.core.rows import DamagedError
from analysis.core.summary import Summary, nothing, whole
from analysis.engines.row_groups import read_row_groups, row_groups_of
from analysis.engines.task_map import TaskMap
from history.record.schemas import OPERATIONS
from history.upper_bounds import UPPER_BOUNDS
from installation.counted import counted

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
    ) -> "LogPlan":
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
) -> "LogReport":
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


@dataclass(frozen=True)
class PartitionReport:
    """The result for one partition. `final_end`: its length by a complete final read, None without one."""

    length: int
    final_end: int | None
    stats: Mapping[str, int]


@dataclass(frozen=True)
class LogReport:
    """The result for a history, or for some partitions of it.

    `anomalies` is empty iff the history is linearizable under `upper_bound`. `undecided`: what could not be decided and
    why.
    """

    upper_bound: str
    anomalies: tuple[Anomaly, ...]
    partitions: Mapping[Key, PartitionReport]
    undecided: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.anomalies


def conclude_all(
    summaries: Mapping[Key, Iterable[Summary]], facts: Mapping[Key, Facts], deleted: Mapping[Key, int] = NOTHING_DELETED
) -> dict[Key, Conclusion]:
    """The driver's step: `summaries` of each partition's ranges in any order, and its merged `facts`. `deleted`: the
    offset of each partition below which records may have been deleted."""
    return {
        key: conclude(whole(summaries.get(key, [nothing()])), facts[key], deleted.get(key, 0)) for key in sorted(facts)
    }


def report_on(
    conclusions: Mapping[Key, Conclusion], tables: Iterable[pa.Table], upper_bound: str, owners: Owners = ALL_WHOLE
) -> LogReport:
    """The last step: fetches the witnesses from `tables` (read only if there is something to explain)."""
    findings = {key: conclusion.findings for key, conclusion in conclusions.items() if conclusion.findings}
    explained = Explanation([])
    if findings:
        rows = pa.concat_tables([select(table, findings) for table in tables]).unify_dictionaries()
        explained = explain(rows, findings, owners)
    undecided = [*explained.doubts]
    undecided += [
        f"{topic}-{partition}: {counted(count, 'acknowledged append')} answered without an offset and never read"
        for (topic, partition), conclusion in sorted(conclusions.items())
        if (count := conclusion.stats["unlocated_acknowledged"])
        and (conclusion.final_end is None or conclusion.deleted_to)
    ]
    partitions = {
        key: PartitionReport(
            conclusion.length, conclusion.final_end.length if conclusion.final_end else None, conclusion.stats
        )
        for key, conclusion in conclusions.items()
    }
    return LogReport(upper_bound, tuple(sorted(explained.anomalies, key=_place)), partitions, tuple(sorted(undecided)))


SEVERITY: Final = ("lost-acknowledged-write", "committed-then-truncated")


def _place(anomaly: Anomaly) -> tuple[bool, str, int, str]:
    return anomaly.name not in SEVERITY, anomaly.topic, anomaly.partition, anomaly.name
