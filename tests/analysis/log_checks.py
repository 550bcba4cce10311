"""Checks histories by the plan of ranges, stored in a run's `tables/` or in memory.

Checks in memory read no files, so thousands of small partitions are checked fast. The plan, the evidence of each
range, the conclusion and the report are the engine's.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from analysis.core import range_evidence
from analysis.core.aggregates import Facts
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.offset_ranges import NOTHING_DELETED, SPAN, Key, RangeTask, RowGroup, plan_ranges
from analysis.core.rows import partitions_of, rows_of
from analysis.core.summary import Summary
from analysis.engines.log import LogPlan, LogReport, check_ranges, conclude_all, report_of, report_on
from analysis.engines.task_map import TaskMap, in_sequence
from tests.analysis.exhaustive import allowed
from tests.analysis.log_histories import Op, table


@dataclass
class GroupsInMemory:
    """Row groups of a history; a row group's number is its place in `tables`."""

    tables: list[pa.Table] = field(default_factory=list)
    groups: dict[Key, list[RowGroup]] = field(default_factory=dict)

    @classmethod
    def of(cls, operations: pa.Table, most: int | None = None, rng: random.Random | None = None) -> "GroupsInMemory":
        """The rows of each partition as one row group, or in row groups of `most` rows. With `rng`: in random order, in
        row groups of random size up to `most`."""
        found = cls()
        keys, part = partitions_of(operations)
        order = np.argsort(part, kind="stable")
        ordered = operations.take(pa.array(order)).unify_dictionaries().combine_chunks()
        edges = np.searchsorted(part[order], np.arange(len(keys) + 1)).tolist()
        for key, start, stop in zip(keys, edges[:-1], edges[1:], strict=True):
            rows = ordered.slice(start, stop - start)
            if rng is not None:
                rows = rows.take(rng.sample(range(rows.num_rows), rows.num_rows)).combine_chunks()
            found._cut(key, rows, most or rows.num_rows, rng)
        return found

    def _cut(self, key: Key, rows: pa.Table, most: int, rng: random.Random | None) -> None:
        start = 0
        while start < rows.num_rows:
            group = rows.slice(start, rng.randint(1, most) if rng else most)
            low, high = range_evidence.reach(rows_of(group))
            self.groups.setdefault(key, []).append(RowGroup("memory", len(self.tables), group.num_rows, low, high))
            self.tables.append(group)
            start += group.num_rows

    def read(self, groups: Sequence[RowGroup]) -> pa.Table:
        tables = [self.tables[each.number] for each in groups]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries().combine_chunks()

    def tasks(self, span: int = SPAN, deleted: Mapping[Key, int] = NOTHING_DELETED) -> list[RangeTask]:
        return plan_ranges(self.groups, span, deleted)

    def ranges(
        self,
        span: int = SPAN,
        *,
        upper_bound: str = "strict",
        deleted: Mapping[Key, int] = NOTHING_DELETED,
    ) -> tuple[dict[Key, list[Summary]], dict[Key, Facts]]:
        """By partition the summaries of its ranges and the facts."""
        summaries: dict[Key, list[Summary]] = {}
        facts: dict[Key, Facts] = {}
        for task in self.tasks(span, deleted):
            found = range_evidence.examine(task, self.read, upper_bound=upper_bound)
            summaries.setdefault(task.key, []).append(found.summary)
            facts[task.key] = facts[task.key].merge(found.facts) if task.key in facts else found.facts
        return summaries, facts

    def report(
        self,
        span: int = SPAN,
        *,
        upper_bound: str = "strict",
        owners: Owners = ALL_WHOLE,
        deleted: Mapping[Key, int] = NOTHING_DELETED,
    ) -> LogReport:
        found = self.ranges(span, upper_bound=upper_bound, deleted=deleted)
        conclusions = conclude_all(*found, deleted)
        return report_on(conclusions, [pa.concat_tables(self.tables)] if self.tables else [], upper_bound, owners)


def check(operations: pa.Table, *, upper_bound: str = "strict", owners: Owners = ALL_WHOLE) -> LogReport:
    """The report on a history in memory: each partition is one row group and one range."""
    return GroupsInMemory.of(operations).report(upper_bound=upper_bound, owners=owners)


def check_log(
    plan: LogPlan, spread: TaskMap = in_sequence, *, upper_bound: str = "strict", owners: Owners = ALL_WHOLE
) -> LogReport:
    """The report on a run's `tables/`, by the engine."""
    return report_of(check_ranges(plan, spread, upper_bound), plan, spread, upper_bound=upper_bound, owners=owners)


def undecided_partitions(report: LogReport) -> set[int]:
    """The numbers of the partitions for which a report has an undecided reason."""
    return {int(text.partition(":")[0].rsplit("-", 1)[1]) for text in report.undecided}


def agrees_with_search(histories: list[list[Op]], upper_bound: str) -> tuple[int, set[int]]:
    """Assert that the check has an anomaly exactly in the histories that exhaustive search does not allow, or leaves
    the history undecided. Returns the number of allowed histories and the undecided ones."""
    report = check(table(*histories), upper_bound=upper_bound)
    wrong = {anomaly.partition for anomaly in report.anomalies}
    undecided = undecided_partitions(report)
    legal = 0
    for partition, history in enumerate(histories):
        expected = allowed(history, upper_bound)
        legal += expected
        if partition not in undecided - wrong:
            assert (partition not in wrong) == expected, (partition, history, report.anomalies)
    return legal, undecided
