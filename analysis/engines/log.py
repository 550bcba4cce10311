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

The parts are files of the certificate's directory; `certificate.json` has the claim, the history that it is about
and the digest of each part.

The certificate is the linearization of the history: for each offset of a partition its value and its time. `at` is the
theorem's t_g = max r[j], j <= g. Queries need no entry: the verifier confirms from the appends alone that each query
has a valid time. The entries of a range of offsets follow from its evidence, the values placed in it, and the latest
release to its left.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.aggregates import Facts
from analysis.core.anomaly import Anomaly
from analysis.core.decide import Conclusion, LogFinding, Placement, conclude
from analysis.core.evidence import NONE, OffsetEvidence
from analysis.core.explain import Explanation, Key, explain, select
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.offset_ranges import NOTHING_DELETED, SPAN, RangeTask, RowGroup, plan_ranges
from analysis.core.range_evidence import RangeResult, batches_of, evidence_of, examine
from analysis.core.rows import DamagedError
from analysis.core.scans import NEVER
from analysis.core.summary import Summary, nothing, whole
from analysis.engines.row_groups import read_row_groups, row_groups_of
from analysis.engines.task_map import TaskMap
from history.record.operation_digest import digest_of_streams, digest_of_tables
from history.record.schemas import OPERATIONS
from history.record.shapes import LOG
from history.regular_files import remove, sha256_of
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


# ---- Writes the certificate of a log check that passed: a part for each range of offsets, by the engine's workers.

LINEARIZATION: Final = pa.schema([("offset", pa.int64()), ("value", pa.int64()), ("at", pa.int64())])


def linearize(pieces: Iterable[OffsetEvidence], placed: Placement, start: int, stop: int, before: int) -> pa.Table:
    """The entries of the offsets start .. stop - 1 from the evidence of this range; `before`: the latest release to its
    left."""
    value = np.full(stop - start, NONE, np.int64)
    release = np.full(stop - start, NEVER, np.int64)
    for piece in pieces:
        first = piece.start - start
        size = max(0, min(len(piece.value), stop - piece.start))
        value[first : first + size] = piece.value[:size]
        release[first : first + size] = np.maximum(piece.append_release[:size], piece.query_release[:size])
    at = placed.offset - start
    value[at] = placed.value
    release[at] = np.maximum(release[at], placed.release)
    release[:1] = np.maximum(release[:1], before)
    moment = np.maximum.accumulate(release)
    return pa.Table.from_arrays(
        [pa.array(column) for column in (np.arange(start, stop), value, moment)], schema=LINEARIZATION
    )


def placed_within(placed: Placement, start: int, stop: int) -> Placement:
    """What is placed at the offsets start .. stop - 1."""
    a, z = np.searchsorted(placed.offset, (start, stop)).tolist()
    return Placement(placed.offset[a:z], placed.value[a:z], placed.release[a:z], placed.deadline[a:z])


def releases_before(starts: Sequence[int], summaries: Sequence[Summary], placed: Placement) -> list[int]:
    """The latest release to the left of each of the ascending `starts` of ranges with these summaries."""
    releases = []
    pieces = sorted(summaries, key=lambda piece: piece.start)
    latest_release, number = NEVER, 0
    for start in starts:
        while number < len(pieces) and pieces[number].start < start:
            latest_release = max(latest_release, *(peak.t for peak in pieces[number].realtime.release))
            number += 1
        count = int(np.searchsorted(placed.offset, start))
        releases.append(max(latest_release, int(placed.release[:count].max(initial=NEVER))))
    return releases


FORMAT: Final = 3
CERTIFICATE_FILE: Final = "certificate.json"


@dataclass(frozen=True)
class LinearizationTask:
    """The entries of `task`'s offsets below `stop`, to be written to `path`."""

    task: RangeTask
    stop: int
    placed: Placement
    before: int
    path: str


@dataclass(frozen=True)
class LinearizationPart:
    """The file of a range's entries, as the certificate names it."""

    topic: str
    partition: int
    start: int
    length: int
    file: str
    sha256: str


def write_certificate(
    directory: Path, run: Path, plan: LogPlan, checked: CheckedRanges, spread: TaskMap, *, upper_bound: str
) -> Path:
    """Write the certificate of a run's log check without findings; returns the path of its claim."""
    remove(directory)  # an earlier certificate may have other parts
    directory.mkdir(parents=True)
    tasks = list(_tasks(directory.resolve(), plan, checked))
    write = functools.partial(_write_part, upper_bound=upper_bound)
    parts = spread(write, tasks, [task.task.rows for task in tasks])
    content: dict[str, Any] = {
        "format": FORMAT,
        "upper_bound": upper_bound,
        "operations": sum(group.rows for groups in plan.groups.values() for group in groups),
        "streams": digest_of_streams(run),
        "tables": digest_of_tables(LOG, run / "tables"),
        "lengths": {f"{key[0]}-{key[1]}": conclusion.length for key, conclusion in sorted(checked.conclusions.items())},
        "parts": [asdict(part) for part in parts],
    }
    path = directory / CERTIFICATE_FILE
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _tasks(directory: Path, plan: LogPlan, checked: CheckedRanges) -> Iterator[LinearizationTask]:
    number = 0
    for key, conclusion in sorted(checked.conclusions.items()):
        ranges = sorted((task for task in plan.tasks if task.key == key), key=lambda task: task.start)
        befores = releases_before([task.start for task in ranges], checked.summaries[key], conclusion.placed)
        for task, earlier_release in zip(ranges, befores, strict=True):
            stop = min(task.stop, conclusion.length)
            if stop > task.start:
                placed = placed_within(conclusion.placed, task.start, stop)
                yield LinearizationTask(
                    task, stop, placed, earlier_release, str(directory / f"part-{number:05d}.parquet")
                )
                number += 1


def _write_part(part: LinearizationTask, *, upper_bound: str) -> LinearizationPart:
    task = part.task
    pieces, _ = evidence_of(task, read_row_groups, upper_bound=upper_bound)
    rows = linearize(pieces, part.placed, task.start, part.stop, part.before)
    encodings = dict.fromkeys(rows.column_names, "DELTA_BINARY_PACKED")
    pq.write_table(rows, part.path, compression="zstd", use_dictionary=False, column_encoding=encodings)
    path = Path(part.path)
    return LinearizationPart(*task.key, task.start, rows.num_rows, path.name, sha256_of(path))
