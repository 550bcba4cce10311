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

The same code runs in one process (`check`) and over a partition spread in blocks of offsets: `examine_chunk` any subset
of its operations, merge the evidence of each block, `summarise` it, merge the summaries in order, `conclude`, and
`select` from each subset what `explain` needs. Partitions are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from analysis.core.aggregates import Facts, facts_of
from analysis.core.anomaly import Anomaly
from analysis.core.decide import Conclusion, conclude
from analysis.core.evidence import BLOCK, OffsetEvidence, gather, lay_out
from analysis.core.explain import Explanation, Key, explain, select
from analysis.core.fast_path import LARGE, examine_large
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.rows import rows_of
from analysis.core.summary import Summary, nothing, summarise, whole
from history.upper_bounds import UPPER_BOUNDS


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

    @property
    def stats(self) -> dict[str, int]:
        """Totals over the partitions."""
        total: dict[str, int] = {"partitions": len(self.partitions)}
        for each in self.partitions.values():
            for name, count in [("length", each.length), *each.stats.items()]:
                total[name] = total.get(name, 0) + count
        return total

    def merge(self, other: LogReport) -> LogReport:
        """The result for the partitions of both reports, which must be disjoint."""
        both = self.partitions.keys() & other.partitions.keys()
        if both or self.upper_bound != other.upper_bound:
            raise ValueError(f"reports cannot be merged: both cover {sorted(both)}, or their upper bounds differ")
        return LogReport(
            self.upper_bound,
            tuple(sorted((*self.anomalies, *other.anomalies), key=_place)),
            {**self.partitions, **other.partitions},
            tuple(sorted((*self.undecided, *other.undecided))),
        )


def check(table: pa.Table, *, upper_bound: str = "strict", owners: Owners = ALL_WHOLE) -> LogReport:
    """Checks a table with the schema `history.OPERATIONS`, in this process. It must hold whole partitions.

    `owners`: the clients whose records are complete; what the others may explain is undecided. Raises ValueError for an
    unknown `upper_bound`, DamagedError for a table that no client can have recorded, KeyError when a column is missing.
    """
    _require(upper_bound)
    keys, pieces, facts = _examine(table, upper_bound)
    summaries = [[summarise(each) for each in some] for some in pieces]
    conclusions = {
        key: conclude(some[0] if len(some) == 1 else whole(some), each)
        for key, some, each in zip(keys, summaries, facts, strict=True)
    }
    return report_on(conclusions, [table], upper_bound, owners)


def _examine(table: pa.Table, upper_bound: str) -> tuple[list[Key], list[list[OffsetEvidence]], list[Facts]]:
    """The partitions of a table, each with its pieces of evidence in order and its facts."""
    if table.num_rows >= LARGE and (found := examine_large(table, upper_bound)) is not None:
        keys, evidence, facts = found
        return keys, [[each] for each in evidence], facts
    rows = rows_of(table)
    spans = lay_out(rows, None)
    pieces: list[list[OffsetEvidence]] = [[] for _ in rows.keys]
    for part, each in zip(spans.part.tolist(), gather(rows, spans, upper_bound), strict=True):
        pieces[part].append(each)
    return rows.keys, pieces, facts_of(rows, upper_bound)


@dataclass(frozen=True)
class Chunk:
    """The evidence from a subset of a history's operations, by block, and the facts, by partition."""

    evidence: dict[tuple[Key, int], OffsetEvidence]  # by partition and first offset of the block
    facts: dict[Key, Facts]


def examine_chunk(table: pa.Table, *, upper_bound: str = "strict", block: int = BLOCK) -> Chunk:
    """The first step for a giant partition, on any subset of the operations; `block` offsets per block."""
    _require(upper_bound)
    rows = rows_of(table)
    spans = lay_out(rows, block)
    found = gather(rows, spans, upper_bound)
    keys = [rows.keys[part] for part in spans.part.tolist()]
    return Chunk(
        {(key, each.start): each for key, each in zip(keys, found, strict=True)},
        dict(zip(rows.keys, facts_of(rows, upper_bound), strict=True)),
    )


def conclude_all(summaries: Mapping[Key, Iterable[Summary]], facts: Mapping[Key, Facts]) -> dict[Key, Conclusion]:
    """The driver's step: `summaries` of each partition's blocks in any order, and its merged `facts`."""
    return {key: conclude(whole(summaries.get(key, [nothing()])), facts[key]) for key in sorted(facts)}


def report_on(
    conclusions: Mapping[Key, Conclusion], tables: Iterable[pa.Table], upper_bound: str, owners: Owners = ALL_WHOLE
) -> LogReport:
    """The last step: fetches the witnesses from `tables` (read only if there is something to explain)."""
    findings = {key: each.findings for key, each in conclusions.items() if each.findings}
    explained = Explanation([])
    if findings:
        rows = pa.concat_tables([select(table, findings) for table in tables]).unify_dictionaries()
        explained = explain(rows, findings, owners)
    undecided = [*explained.doubts]
    undecided += [
        f"{count} acknowledged appends to {topic}-{partition} were answered without an offset and were never read"
        for (topic, partition), each in sorted(conclusions.items())
        if (count := each.stats["unlocated_acknowledged"]) and each.final_end is None
    ]
    partitions = {
        key: PartitionReport(each.length, each.final_end.length if each.final_end else None, each.stats)
        for key, each in conclusions.items()
    }
    return LogReport(upper_bound, tuple(sorted(explained.anomalies, key=_place)), partitions, tuple(sorted(undecided)))


def check_in_blocks(
    tables: list[pa.Table], *, upper_bound: str = "strict", owners: Owners = ALL_WHOLE, block: int = BLOCK
) -> LogReport:
    """The steps of a cluster, in sequence: the result does not depend on how operations are split over `tables`."""
    evidence: dict[tuple[Key, int], OffsetEvidence] = {}
    facts: dict[Key, Facts] = {}
    for table in tables:
        chunk = examine_chunk(table, upper_bound=upper_bound, block=block)
        for place, each in chunk.evidence.items():
            evidence[place] = evidence[place].merge(each) if place in evidence else each
        for key, more in chunk.facts.items():
            facts[key] = facts[key].merge(more) if key in facts else more
    summaries: dict[Key, list[Summary]] = {}
    for (key, _), each in evidence.items():
        summaries.setdefault(key, []).append(summarise(each))
    return report_on(conclude_all(summaries, facts), tables, upper_bound, owners)


SEVERITY: Final = ("lost-acknowledged-write", "committed-then-truncated")


def _place(anomaly: Anomaly) -> tuple[bool, str, int, str]:
    return anomaly.name not in SEVERITY, anomaly.topic, anomaly.partition, anomaly.name


def _require(upper_bound: str) -> None:
    if upper_bound not in UPPER_BOUNDS:
        raise ValueError(f"unknown upper_bound {upper_bound!r}: one of {', '.join(UPPER_BOUNDS)}")
