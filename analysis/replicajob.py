"""The replica check over a run's collected files: one task per partition, in process or on Spark's workers.

Each task reads the files of every node, writes them as tables (`tables/replicas/`, one row per record in each
replica's files, and `tables/epochs/`), and judges them; only the report travels.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.explain import Key
from analysis.core.replicas import ReplicaReport, check_partition, client_orders
from analysis.logjob import numbered, read
from analysis.replicafiles.formats import FORMATS
from analysis.replicafiles.log import ReplicaLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLICAS: Final = pa.schema(
    [
        pa.field("node", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("digest", pa.uint64()),
    ]
)
EPOCHS: Final = pa.schema([("node", pa.string()), ("epoch", pa.int64()), ("start_offset", pa.int64())])


@dataclass(frozen=True)
class Task:
    """One partition: in which format and where its replicas' files lie, and what its clients recorded."""

    key: Key
    format: str
    replicas: tuple[tuple[str, str], ...]  # node, the collected data directory of the node
    operations: tuple[str, ...]
    tables: str
    quiet: bool
    stopped: bool


def tasks_of(
    run_dir: Path, operations: Mapping[Key, Sequence[Path]], *, format: str = "kafka", quiet: bool, stopped: bool
) -> list[Task]:
    """A task for every partition that has files on some node. Raises KeyError for a format without a reader."""
    partitions = FORMATS[format].partitions
    found: dict[Key, list[tuple[str, str]]] = {}
    for data in sorted((run_dir / "nodes").glob("*/data")):
        for key in partitions(data):
            found.setdefault(key, []).append((data.parent.name, str(data.resolve())))
    tables = str((run_dir / "tables").resolve())
    files = {key: tuple(str(path.resolve()) for path in operations.get(key, ())) for key in found}
    return [
        Task(key, format, tuple(replicas), files[key], tables, quiet, stopped)
        for key, replicas in sorted(found.items())
    ]


def judge(task: Task) -> ReplicaReport:
    """Read, tabulate and judge one partition. Raises `ReplicaFileError` when a checkpoint file is damaged."""
    read_log = FORMATS[task.format].read
    logs = [read_log(node, task.key, Path(data)) for node, data in task.replicas]
    _write_tables(Path(task.tables), task.key, logs)
    orders = client_orders(read(task.operations))
    return check_partition(logs, orders.get(task.key), quiet=task.quiet, stopped=task.stopped)


def check_replicas(tasks: Sequence[Task], session: SparkSession | None) -> ReplicaReport:
    """Judge all partitions; with a session on its workers, which must see the files under the same paths."""
    if session is None or not tasks:
        reports = [judge(task) for task in tasks]
    else:
        numbers = numbered(session, len(tasks)).mapInArrow(_judge_all(list(tasks)), "payload binary")
        reports = [pickle.loads(bytes(row.payload)) for row in numbers.collect()]
    merged = ReplicaReport()
    for report in sorted(reports, key=lambda each: sorted(each.ends)):
        merged = merged.merge(report)
    return merged


def _judge_all(tasks: list[Task]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = pickle.dumps(judge(tasks[number]), protocol=5)
                yield pa.RecordBatch.from_arrays([pa.array([report], pa.binary())], ["payload"])

    return work


def _write_tables(tables: Path, key: Key, logs: Sequence[ReplicaLog]) -> None:
    topic, partition = key
    for name, schema, make in (("replicas", REPLICAS, _records), ("epochs", EPOCHS, _epochs)):
        folder = tables / name / f"topic={topic}" / f"partition={partition}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = pa.concat_tables([schema.empty_table(), *(make(log) for log in logs)]).unify_dictionaries()
        pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")


def _records(log: ReplicaLog) -> pa.Table:
    node = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(log.offset), np.int32)), pa.array([log.node]))
    columns = [node, *(pa.array(column) for column in (log.offset, log.epoch, log.value, log.digest))]
    return pa.Table.from_arrays(columns, schema=REPLICAS)


def _epochs(log: ReplicaLog) -> pa.Table:
    return pa.Table.from_pylist([{"node": log.node, "epoch": e, "start_offset": s} for e, s in log.epochs], EPOCHS)
