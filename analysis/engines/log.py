"""The log check over a run's Parquet files: in process, or as a Spark job whose data set is their paths.

Theory of operation. Rows never cross the JVM: a task is a handful of paths, its worker reads them with pyarrow, and
only summaries are transferred. A partition that fits one task is summarised there. A larger one is cut into several
tasks, whose evidence a second stage merges by block of offsets. All three ways run the same core and give the same
report.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.core.aggregates import Facts
from analysis.core.evidence import OffsetEvidence
from analysis.core.explain import Key
from analysis.core.incomplete_clients import ALL_WHOLE, Owners
from analysis.core.logcheck import Chunk, LogReport, check, conclude_all, examine_chunk, report_on
from analysis.core.rows import DamagedError
from analysis.core.summary import Summary, summarise
from history.regular_files import require_regular
from history.schemas import APPEND, OPERATIONS
from history.topic_folders import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_PER_TASK: Final = 64

_SUMMARY, _FACTS, _EVIDENCE, _DAMAGE = "summary", "facts", "evidence", "damage"
_PIECE: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("start", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
_PIECE_DDL: Final = "topic string, partition int, kind string, start long, payload binary"


@dataclass(frozen=True)
class LogTask:
    """Files of one partition for one worker; `whole`: they are all files of the partition."""

    key: Key
    paths: tuple[str, ...]
    whole: bool


def files_of(tables: Path) -> dict[Key, list[Path]]:
    """The operation files below `tables/`, by partition, in the order of their names."""
    found: dict[Key, list[Path]] = {}
    for path in sorted((tables / "operations").glob("topic=*/partition=*/*.parquet")):
        found.setdefault(partition_of(path.parent), []).append(path)
    return found


def read(paths: Sequence[Path | str]) -> pa.Table:
    """The operations of some files, with the schema `history.OPERATIONS`: appends by offset, those without one behind,
    then queries by what they showed. Raises DamagedError for a file that cannot be read."""
    tables = [_rows_of(path) for path in paths]
    rows = pa.concat_tables([OPERATIONS.empty_table(), *tables]).unify_dictionaries().combine_chunks()
    is_append = pc.equal(rows["f"], APPEND)
    is_located = pc.and_(is_append, pc.greater_equal(rows["offset"], 0))
    parts = [
        (is_located, ("offset", "inv")),
        (pc.and_(is_append, pc.less(rows["offset"], 0)), ("inv", "value")),
        (pc.invert(is_append), ("lo", "inv", "process")),
    ]
    ordered = [
        rows.filter(mask).sort_by([(name, "ascending") for name in (*names, "session")]) for mask, names in parts
    ]
    return pa.concat_tables(ordered).combine_chunks()


def _rows_of(path: Path | str) -> pa.Table:
    try:
        return pq.ParquetFile(require_regular(path)).read().cast(OPERATIONS)
    except (OSError, pa.ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise DamagedError(f"{Path(path).name} cannot be read as Parquet: {why}") from error


def check_in_process(
    files: Mapping[Key, Sequence[Path]], *, upper_bound: str, owners: Owners = ALL_WHOLE, certify: bool = False
) -> LogReport:
    """Check all partitions in this process, in sequence. Raises DamagedError as `check` does."""
    report = LogReport(upper_bound, (), {}, (), None)
    certificates = []
    for paths in files.values():
        each = check(read(paths), upper_bound=upper_bound, owners=owners, certify=certify)
        if each.certificate is not None:
            certificates.append(each.certificate)
        report = report.merge(each)
    whole = certify and report.ok and not report.undecided and certificates
    certificate = pa.concat_tables(certificates).unify_dictionaries() if whole else None
    return LogReport(upper_bound, report.anomalies, report.partitions, report.undecided, certificate)


def check_on_spark(
    session: SparkSession,
    files: Mapping[Key, Sequence[Path]],
    *,
    upper_bound: str,
    owners: Owners = ALL_WHOLE,
    files_per_task: int = FILES_PER_TASK,
) -> LogReport:
    """Check all partitions on Spark's workers, which must see the files under the same paths.

    Raises DamagedError as `check` does.
    """
    tasks = plan(files, files_per_task)
    if not tasks:
        return LogReport(upper_bound, (), {})
    pieces = numbered(session, len(tasks)).mapInArrow(_examiner(tasks, upper_bound), _PIECE_DDL)
    if not all(task.whole for task in tasks):
        pieces = pieces.groupBy("topic", "partition", "kind", "start").applyInArrow(_reduce, _PIECE_DDL)
    facts: dict[Key, Facts] = {}
    summaries: dict[Key, list[Summary]] = {}
    for row in sorted(pieces.collect(), key=lambda row: (row.topic, row.partition, row.kind, row.start)):
        key = (row.topic, row.partition)
        if row.kind == _DAMAGE:
            raise DamagedError(bytes(row.payload).decode())
        if row.kind == _FACTS:
            facts[key] = pickle.loads(bytes(row.payload))
        else:
            summaries.setdefault(key, []).append(Summary.from_bytes(bytes(row.payload)))
    conclusions = conclude_all(summaries, facts)
    suspicious = [path for key, each in conclusions.items() if each.findings for path in files[key]]
    return report_on(conclusions, (read([path]) for path in suspicious), upper_bound, owners)


def numbered(session: SparkSession, tasks: int) -> DataFrame:
    """The numbers 0 .. tasks - 1 as a data set, a few Spark tasks to each core: ours are too small for one each."""
    return session.range(0, tasks, 1, min(tasks, 2 * session.sparkContext.defaultParallelism))


def plan(files: Mapping[Key, Sequence[Path]], files_per_task: int) -> list[LogTask]:
    """Cut every partition's files into tasks of at most `files_per_task` files."""
    tasks = []
    for key, paths in files.items():
        names = [str(path.resolve()) for path in paths]
        groups = [tuple(names[start : start + files_per_task]) for start in range(0, len(names), files_per_task)]
        tasks += [LogTask(key, group, whole=len(groups) == 1) for group in groups]
    return tasks


def _examiner(tasks: list[LogTask], upper_bound: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of the first stage: from a batch of task numbers to pieces."""

    def examine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from _pieces(tasks[number], upper_bound)
                except DamagedError as error:
                    yield _piece(tasks[number].key, _DAMAGE, -1, str(error).encode())

    return examine


def _pieces(task: LogTask, upper_bound: str) -> Iterator[pa.RecordBatch]:
    evidence: dict[int, OffsetEvidence] = {}
    facts: Facts | None = None
    for path in task.paths:
        chunk: Chunk = examine_chunk(read([path]), upper_bound=upper_bound)
        for (_, start), each in chunk.evidence.items():
            evidence[start] = evidence[start].merge(each) if start in evidence else each
        for more in chunk.facts.values():
            facts = more if facts is None else facts.merge(more)
    if facts is not None:
        yield _piece(task.key, _FACTS, -1, pickle.dumps(facts, protocol=5))
    for start, each in sorted(evidence.items()):
        if task.whole:
            yield _piece(task.key, _SUMMARY, start, summarise(each).to_bytes())
        else:
            yield _piece(task.key, _EVIDENCE, start, pickle.dumps(each, protocol=5))


def _reduce(table: pa.Table) -> pa.Table:
    """The second stage, on all pieces of one kind, partition and block: merged, and evidence summarised."""
    row = table.slice(0, 1).to_pylist()[0]
    key, kind, start = (row["topic"], row["partition"]), row["kind"], row["start"]
    payloads = table["payload"].to_pylist()
    if kind in (_SUMMARY, _DAMAGE):  # of a partition that one task had whole, or that is damaged
        return table
    merged = pickle.loads(payloads[0])
    for payload in payloads[1:]:
        merged = merged.merge(pickle.loads(payload))
    if kind == _EVIDENCE:
        return pa.Table.from_batches([_piece(key, _SUMMARY, start, summarise(merged).to_bytes())])
    return pa.Table.from_batches([_piece(key, kind, start, pickle.dumps(merged, protocol=5))])


def _piece(key: Key, kind: str, start: int, payload: bytes) -> pa.RecordBatch:
    topic, partition = key
    columns = {"topic": topic, "partition": partition, "kind": kind, "start": start, "payload": payload}
    return pa.RecordBatch.from_pylist([columns], _PIECE)
