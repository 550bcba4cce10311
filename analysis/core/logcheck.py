"""The log checker: decides whether a single, linearizable log per partition could have produced a recorded history.

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

`range_evidence` examines a range of offsets and returns its summary, and the facts of the rows that it owns. The last
steps are here: the summaries of a partition are merged in the order of the offsets, `conclude` decides, and `explain`
writes the sentences about the findings. Partitions are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from analysis.core.aggregates import Facts
from analysis.core.anomaly import Anomaly
from analysis.core.decide import Conclusion, conclude
from analysis.core.explain import Explanation, Key, explain, select
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.offset_ranges import NOTHING_DELETED
from analysis.core.summary import Summary, nothing, whole
from installation.counted import counted


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
