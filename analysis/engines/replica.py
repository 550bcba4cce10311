"""The replica check over a run's collected files: one task per partition, in process or on Spark's workers.

Each task reads the files of every node, writes them as tables (`tables/replicas/`, one row per record in each
replica's files, and `tables/epochs/`), and checks them. Only the report is transferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.explain import Key
from analysis.core.replica_epochs import contradictory_epochs
from analysis.core.replica_evidence import (
    Circumstances,
    ReplicaReport,
    acknowledged_before,
    appends_of,
    client_orders,
    log_name,
    sent_after,
)
from analysis.core.replicas import check_partition, missing_below
from analysis.engines.row_groups import read
from analysis.engines.task_map import TaskMap, in_sequence
from analysis.evidence.earlier_dumps import Demanded
from analysis.replicafiles.formats import FORMATS
from analysis.replicafiles.log import ReplicaLog
from analysis.replicafiles.remote_segments import StoredLog
from history.topic_folders import folder_of

DATA: Final = "data"
EARLIER: Final = "earlier"
STORE: Final = "shared"
"""The subdirectories of a node's files: as collected at the end, and as dumped earlier; and of a run's remote
objects."""

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

NO_DUMPS: Final = Demanded()


@dataclass(frozen=True)
class ReplicaTask:
    """One partition: the format and location of its replicas' files, and the records of its clients.

    `replicas`, `earlier`: by node, its data directory as collected at the end, and as dumped earlier. `missing`: the
    nodes that should have a replica and do not; `strays`: those that have one and should not. `undumped`: the nodes
    whose earlier dump lacks a replica. `dumps`: the requirements on earlier dumps. `nodes`: all nodes with their data
    directories; `store`: the directory of the objects of remote segments, which may be missing; empty if the objects
    are no part of the run.
    """

    key: Key
    format: str
    replicas: tuple[tuple[str, str], ...]
    earlier: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    strays: tuple[str, ...]
    undumped: tuple[str, ...]
    dumps: Demanded
    operations: tuple[str, ...]
    tables: str
    around: Circumstances
    preallocates: bool
    nodes: tuple[tuple[str, str], ...]
    store: str


def tasks_of(
    run_dir: Path,
    operations: Mapping[Key, Sequence[Path]],
    assigned: Mapping[Key, Sequence[str]],
    around: Circumstances,
    dumps: Demanded = NO_DUMPS,
    *,
    format: str,
    preallocates: bool = False,
    has_objects: bool = True,
) -> list[ReplicaTask]:
    """A task for every partition that is assigned to nodes or has files on some. Raises KeyError for a format without a
    reader."""
    found, earlier = (_replicas(run_dir, name, format) for name in (DATA, EARLIER))
    tables = str((run_dir / "tables").resolve())
    places = sorted((run_dir / "nodes").glob(f"*/{DATA}"))
    nodes_data = tuple((place.parent.name, str(place.resolve())) for place in places)
    tasks = []
    for key in sorted({*found, *assigned}):
        nodes, here, before = assigned.get(key, ()), found.get(key, {}), earlier.get(key, {})
        task = ReplicaTask(
            key,
            format,
            replicas=tuple((node, data) for node, data in here.items() if node in nodes),
            earlier=tuple((node, data) for node, data in before.items() if node in nodes),
            missing=tuple(node for node in nodes if node not in here),
            strays=tuple(node for node in here if node not in nodes),
            undumped=tuple(node for node in dumps.nodes if node in nodes and node not in {*before, *dumps.lost}),
            dumps=dumps,
            operations=tuple(str(path.resolve()) for path in operations.get(key, ())),
            tables=tables,
            around=around,
            preallocates=preallocates,
            nodes=nodes_data,
            store=str((run_dir / STORE).resolve()) if has_objects else "",
        )
        tasks.append(task)
    return tasks


def _replicas(run_dir: Path, name: str, format: str) -> dict[Key, dict[str, str]]:
    """By partition, the nodes that hold a replica, and their data directories."""
    found: dict[Key, dict[str, str]] = {}
    for data in sorted((run_dir / "nodes").glob(f"*/{name}")):
        for key in FORMATS[format].partitions(data):
            found.setdefault(key, {})[data.parent.name] = str(data.resolve())
    return found


def judge(task: ReplicaTask) -> ReplicaReport:
    """Read, tabulate and check one partition. An error makes it undecided; nothing is raised."""
    name = f"{task.key[0]}-{task.key[1]}"
    undecided = [f"{node} holds no replica of {name}, which was assigned to it" for node in task.missing]
    undecided += [f"{node} holds a replica of {name}, which was not assigned to it" for node in task.strays]
    undecided += [
        f"the earlier dump of {node} has no replica of {name}, which was assigned to it" for node in task.undumped
    ]
    report = ReplicaReport(undecided=tuple(undecided))
    if not task.replicas:
        return report
    try:
        return report.merge(_compare(task))
    except Exception as error:  # must not hide the results of the other partitions
        crashed = f"the replicas of {name} could not be judged: {type(error).__name__}: {error}"
        return report.merge(ReplicaReport(undecided=(crashed,)))


def _compare(task: ReplicaTask) -> ReplicaReport:
    nodes = {node: Path(data) for node, data in task.nodes}
    remote = FORMATS[task.format].read_remote(nodes, Path(task.store), task.key) if task.store else None
    logs, earlier = (_read(task, replicas, remote) for replicas in (task.replicas, task.earlier))
    _write_tables(Path(task.tables), task.key, logs)
    operations = read(task.operations)
    order, appends = client_orders(operations).get(task.key), appends_of(operations).get(task.key)
    report = check_partition(logs, order, appends, task.around, earlier)
    return report.merge(ReplicaReport(undecided=tuple(_undumped(task, earlier, operations))))


def _undumped(task: ReplicaTask, earlier: Sequence[ReplicaLog], operations: pa.Table) -> Iterator[str]:
    """Why earlier dumps of this partition are incomplete."""
    around = replace(task.around, quiet=False)
    for log in earlier:
        if log.node not in task.dumps.lost:
            yield from missing_below(
                log, around, may_be_short=log.node in task.dumps.shortened, marked=task.dumps.marked
            )
            yield from contradictory_epochs(log)
    yield from _made_later(task, earlier, operations)
    may_be_gone = task.dumps.lost | task.dumps.shortened
    whole = set(task.dumps.nodes) - may_be_gone
    if task.replicas and {node for node, _ in task.replicas} <= whole and not around.deletes:
        known = acknowledged_before(operations, task.dumps.at)
        longest = max((log.end for log in earlier), default=0)
        if known >= longest:
            name = f"{task.key[0]}-{task.key[1]}"
            yield f"no earlier dump of {name} has offset {known}, which had been acknowledged by then"


def _made_later(task: ReplicaTask, earlier: Sequence[ReplicaLog], operations: pa.Table) -> Iterator[str]:
    """Dumps with records that were sent after all dumps had been made: a copy of later files in place of a dump would
    agree with these."""
    later = sent_after(operations, task.dumps.ended)
    for log in earlier if task.dumps.nodes else ():
        if len(found := log.offset[np.isin(log.value, later)]):
            yield (
                f"the earlier dump of {log_name(log)} has offset {found[0]}, whose record was sent after that dump had "
                "been made"
            )


def _read(task: ReplicaTask, replicas: Sequence[tuple[str, str]], remote: StoredLog | None) -> list[ReplicaLog]:
    read, compacted = FORMATS[task.format].read, task.around.compacts
    logs = [read(node, task.key, Path(data), compacted=compacted, remote=remote) for node, data in replicas]
    return [replace(log, damage="") if log.zeros and task.preallocates else log for log in logs]


def check_replicas(tasks: Sequence[ReplicaTask], spread: TaskMap = in_sequence) -> ReplicaReport:
    """Check all partitions."""
    reports = spread(judge, tasks)
    merged = ReplicaReport()
    for report in reports:
        merged = merged.merge(report)
    return merged


def _write_tables(tables: Path, key: Key, logs: Sequence[ReplicaLog]) -> None:
    topic, partition = key
    for name, schema, make in (("replicas", REPLICAS, _records), ("epochs", EPOCHS, _epochs)):
        folder = folder_of(tables / name, topic, partition)
        folder.mkdir(parents=True, exist_ok=True)
        rows = pa.concat_tables([schema.empty_table(), *(make(log) for log in logs)]).unify_dictionaries()
        pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")


def _records(log: ReplicaLog) -> pa.Table:
    node = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(log.offset), np.int32)), pa.array([log.node]))
    columns = [node, *(pa.array(column) for column in (log.offset, log.epoch, log.value, log.digest))]
    return pa.Table.from_arrays(columns, schema=REPLICAS)


def _epochs(log: ReplicaLog) -> pa.Table:
    entries = log.epochs or ()
    return pa.Table.from_pylist([{"node": log.node, "epoch": e, "start_offset": s} for e, s in entries], EPOCHS)
