"""The replica check over a run's collected files: a plan of parts, whose tasks an engine maps.

Theory of operation. The work has stages. Each stage is a map over tasks (`analysis.engines.task_map`).

1. Segments: a task decodes consecutive whole segment files of one replica, of an earlier dump or of the store
   (PART_BYTES at most, or one file). It writes the records to a table and returns what the rules need of their
   structure: where they start and end, missing offsets, damage, and the first and last batch of each producer.
2. Logs: the parts of a log follow each other, and so do what they returned. Remote segments are put before the files of
   a replica whose lineage they have.
3. Ranges: a task reads the records of all replicas and dumps in a range of offsets, and what clients were shown there,
   and compares them (`analysis.core.replica_ranges`).
4. Questions: if ranges could not decide about some values or keys, all ranges and operations are asked for these.

So neither this process nor a task holds a whole log. A stage on Spark costs 0.2 s, so the stages of a partition with
few records (a range at most) are one task. All engines have the same plan, functions and results.

A task decodes the replicas and the segments of a partition and applies the rules of `analysis.core.remote_rules`. It
returns anomalies and the number of segments, so no record leaves the worker.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.core import remote_rules as rules
from analysis.core.anomaly import Anomaly
from analysis.core.evidence import ACK, NONE
from analysis.core.explain import Key
from analysis.core.offset_ranges import NOTHING_DELETED, RangeTask, RowGroup
from analysis.core.range_evidence import batches_of, evidence_of
from analysis.core.remote_rules import wrong_objects
from analysis.core.replica_evidence import Appends, Circumstances, ClientOrder, ReplicaReport
from analysis.core.replica_ranges import (
    AcknowledgedAppends,
    Held,
    Questions,
    RangeFindings,
    RangeView,
    Wanted,
    examine,
    held,
    questions_of,
    reduced,
)
from analysis.core.replicas import breaks, conclude, contradictory_epochs, missing_below, offsets_of
from analysis.core.rows import I64, sent_again
from analysis.engines.replica_parts import (
    BYTES_PER_ROW,
    EPOCHS,
    PART_BYTES,
    REPLICAS,
    SCRATCH,
    LaidOut,
    LogPart,
    LogTask,
    ObjectTask,
    SegmentsTask,
    StoredPart,
    cuts,
    decode,
    object_tasks,
    read_range,
    segment_tasks,
    write_epochs,
)
from analysis.engines.row_groups import read_row_groups
from analysis.engines.task_map import TaskMap, in_sequence
from analysis.evidence.earlier_dumps import Demanded
from analysis.replicafiles.kafka import partitions, read_partition, read_remote, segments_of
from analysis.replicafiles.log import ReplicaLog, no_records
from analysis.replicafiles.remote_objects import read_objects
from analysis.replicafiles.remote_segments import StoredLog
from history.record.schemas import ACKS_ALL, APPEND, END, FAIL, INF, OK, OPERATIONS, PHASE_FINAL
from history.regular_files import remove
from history.topic_folders import folder_of

# ---- What clients' operations say of a partition's replicas, by row groups.

_NOTHING: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class GroupsTask:
    """Row groups of one partition. `before`: only operations that had returned by then count as known, -1 none."""

    groups: tuple[RowGroup, ...]
    before: int

    @property
    def weight(self) -> int:
        return sum(group.rows for group in self.groups)


class Stated(NamedTuple):
    """What some operations state of the whole log: the invocation and the answer of the last end query of the final
    reads, (-1, -1) without one, and the highest offset that all replicas had acknowledged before a time, -1 without
    one."""

    end: tuple[int, int] = (-1, -1)
    acknowledged: int = -1

    def merge(self, other: "Stated") -> "Stated":
        later = max(self.end, other.end, key=lambda final_end: (final_end[0], -final_end[1]))
        return Stated(later, max(self.acknowledged, other.acknowledged))


NOT_STATED: Final = Stated()


def stated(task: GroupsTask) -> Stated:
    """What the operations of some row groups state of the whole log."""
    statement = Stated()
    for group in task.groups:
        if pc.any(pc.equal(_columns(group, "phase")["phase"], PHASE_FINAL)).as_py():
            statement = statement.merge(Stated(_final_end(_columns(group, "phase", "f", "type", "inv", "lo"))))
        if task.before >= 0:
            rows = _columns(group, "f", "type", "acks", "ret", "offset")
            f, type_, acks, ret, offset = (column.to_numpy() for column in rows.columns)
            mine = (f == APPEND) & (type_ == OK) & (acks == ACKS_ALL) & (ret < task.before)
            statement = statement.merge(Stated(acknowledged=int(offset[mine].max(initial=-1))))
    return statement


def _final_end(rows: pa.Table) -> tuple[int, int]:
    final = rows.filter(pc.equal(rows["phase"], PHASE_FINAL))
    f, type_, inv, lo = (final[name].to_numpy() for name in ("f", "type", "inv", "lo"))
    ends = np.flatnonzero((f == END) & (type_ == OK) & (lo >= 0))
    if not len(ends):
        return -1, -1
    return max(zip(inv[ends].tolist(), lo[ends].tolist(), strict=True), key=lambda query: (query[0], -query[1]))


def _columns(group: RowGroup, *names: str) -> pa.Table:
    return read_row_groups([group], pa.schema([OPERATIONS.field(name) for name in names]))


def shown(key: Key, start: int, stop: int, groups: Sequence[RowGroup]) -> tuple[ClientOrder, AcknowledgedAppends]:
    """What clients were shown at a range of offsets, and the appends that name offsets there. `groups`: the row groups
    that reach into the range. Raises DamagedError."""
    end = max((start, *(min(group.high + 1, stop) for group in groups)))
    task = RangeTask(key, start, stop, end, tuple(groups), (False,) * len(groups))
    pieces = evidence_of(task, read_row_groups, upper_bound="lower-bound-only").pieces
    order = ClientOrder(_NOTHING, _NOTHING, np.empty(0, np.bool_))
    for piece in pieces:
        offsets = np.flatnonzero(piece.value != NONE)
        order = order.joined(
            ClientOrder(offsets + piece.start, piece.value[offsets], (piece.flags[offsets] & ACK) != 0)
        )
    return order, _named(groups, start, stop)


def _named(groups: Iterable[RowGroup], start: int, stop: int) -> AcknowledgedAppends:
    pairs = [np.empty((2, 0), np.int64)]
    for group in groups:
        f, type_, value, offset = (
            column.to_numpy() for column in _columns(group, "f", "type", "value", "offset").columns
        )
        mine = (f == APPEND) & (type_ == OK) & (offset >= start) & (offset < stop)
        pairs.append(np.stack((value[mine], offset[mine])))
    return AcknowledgedAppends.of(*np.concatenate(pairs, axis=1))


class SentValues(NamedTuple):
    """What clients sent of some values; `again`: those that client libraries may have sent more than once."""

    sent: I64 = _NOTHING
    refused: I64 = _NOTHING
    loose: I64 = _NOTHING
    again: I64 = _NOTHING

    def merge(self, other: "SentValues") -> "SentValues":
        return SentValues(*map(np.concatenate, zip(self, other, strict=True)))

    def appends(self, certain: Sequence[I64], end: int) -> Appends:
        """The same in the form of the rules. `certain`: values that were certainly sent."""
        return Appends(np.concatenate((self.sent, *certain)), self.refused, self.loose, end, again=self.again)


NOT_SENT: Final = SentValues()


@dataclass(frozen=True)
class AskedTask:
    """Row groups of one partition, and the values in question."""

    groups: tuple[RowGroup, ...]
    values: I64

    @property
    def weight(self) -> int:
        return sum(group.rows for group in self.groups)


def sent(task: AskedTask) -> SentValues:
    """What some operations say of the values in question."""
    sent_values = SentValues()
    for group in task.groups:
        rows = _columns(group, "f", "type", "acks", "offset", "value", "error")
        rows = rows.filter(pa.array((rows["f"].to_numpy() == APPEND) & np.isin(rows["value"].to_numpy(), task.values)))
        type_, acks, offset, value = (column.to_numpy() for column in rows.columns[1:-1])
        is_repeat = sent_again(rows)
        loose = is_repeat | ((type_ != FAIL) & ~((type_ == OK) & (acks == ACKS_ALL) & (offset >= 0)))
        sent_values = sent_values.merge(SentValues(value, value[type_ == FAIL], value[loose], value[is_repeat]))
    return sent_values


# ---- The stages and their tasks.

DATA: Final = "data"
EARLIER: Final = "earlier"
STORE: Final = "shared"
"""The subdirectories of a node's files: as collected at the end, and as dumped earlier; and of a run's remote
objects."""

SPAN: Final = 1 << 18
"""Offsets per range: 13 MB of records for each replica."""

NO_DUMPS: Final = Demanded()


@dataclass(frozen=True)
class ReplicaTask:
    """One partition: the location of its replicas' files, and the records of its clients.

    `replicas`, `earlier`: by node, its data directory as collected at the end, and as dumped earlier. `missing`: the
    nodes that should have a replica and do not; `strays`: those that have one and should not. `undumped`: the nodes
    whose earlier dump lacks a replica. `dumps`: the requirements on earlier dumps. `nodes`: all nodes with their data
    directories; `operations`: the row groups of its clients' operations; `store`: the directory of the objects of
    remote segments, which may be missing; empty if the run does not contain the objects.
    """

    key: Key
    replicas: tuple[tuple[str, str], ...]
    earlier: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    strays: tuple[str, ...]
    undumped: tuple[str, ...]
    dumps: Demanded
    operations: tuple[RowGroup, ...]
    tables: str
    circumstances: Circumstances
    preallocates: bool
    nodes: tuple[tuple[str, str], ...]
    store: str

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"


def tasks_of(
    run_dir: Path,
    operations: Mapping[Key, Sequence[RowGroup]],
    assigned: Mapping[Key, Sequence[str]],
    circumstances: Circumstances,
    dumps: Demanded = NO_DUMPS,
    *,
    preallocates: bool = False,
    has_objects: bool = True,
    deleted: Mapping[Key, int] = NOTHING_DELETED,
) -> list[ReplicaTask]:
    """A task for every partition that is assigned to nodes or has files on some. `deleted`: by partition, the offset
    below which clients asked for the deletion of records."""
    data_directories, earlier = (_replicas(run_dir, name) for name in (DATA, EARLIER))
    tables = str((run_dir / "tables").resolve())
    places = sorted((run_dir / "nodes").glob(f"*/{DATA}"))
    nodes_data = tuple((place.parent.name, str(place.resolve())) for place in places)
    tasks = []
    for key in sorted({*data_directories, *assigned}):
        nodes, here, dumped = assigned.get(key, ()), data_directories.get(key, {}), earlier.get(key, {})
        task = ReplicaTask(
            key,
            replicas=tuple((node, data) for node, data in here.items() if node in nodes),
            earlier=tuple(
                (node, data)
                for node, data in dumped.items()
                if node in nodes and (key[1] not in dumps.moved or segments_of(key, Path(data)))
            ),
            missing=tuple(node for node in nodes if node not in here),
            strays=tuple(node for node in here if node not in nodes),
            undumped=tuple(
                node
                for node in dumps.nodes
                if node in nodes and node not in {*dumped, *dumps.lost} and key[1] not in dumps.moved
            ),
            dumps=dumps,
            operations=tuple(operations.get(key, ())),
            tables=tables,
            circumstances=replace(circumstances, deleted_to=max(circumstances.deleted_to, deleted.get(key, 0))),
            preallocates=preallocates,
            nodes=nodes_data,
            store=str((run_dir / STORE).resolve()) if has_objects else "",
        )
        tasks.append(task)
    return tasks


def _replicas(run_dir: Path, name: str) -> dict[Key, dict[str, str]]:
    """By partition, the nodes that hold a replica, and their data directories."""
    replicas: dict[Key, dict[str, str]] = {}
    for data in sorted((run_dir / "nodes").glob(f"*/{name}")):
        for key in partitions(data):
            replicas.setdefault(key, {})[data.parent.name] = str(data.resolve())
    return replicas


@dataclass(frozen=True)
class Crash:
    """The error with which a task ended."""

    why: str


def attempt(task: Any, *, work: Callable[[Any], Any]) -> Any:
    """The result of a task, or its error: it must not hide the results of the other partitions."""
    try:
        return work(task)
    except Exception as error:
        return Crash(f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class RangeOfLogs:
    """The offsets start .. stop - 1 of a partition's logs: the pieces that hold their records, the row groups with what
    clients were shown there, and the arguments of `RangeView`."""

    key: Key
    start: int
    stop: int
    logs: tuple[LaidOut, ...]
    earlier: tuple[LaidOut, ...]
    operations: tuple[RowGroup, ...] | None
    wanted: tuple[Wanted, ...]
    circumstances: Circumstances

    @property
    def weight(self) -> int:
        return sum(piece.rows for log in (*self.logs, *self.earlier) for piece in log.pieces) + 1

    def examine(self) -> RangeFindings:
        view = RangeView(
            self._read(self.logs),
            self._read(self.earlier),
            wanted=self.wanted,
            has_appends=self.operations is not None,
        )
        if self.operations is not None:
            order, named = shown(self.key, self.start, self.stop, self.operations)
            view = replace(view, order=order, named=named)
        return examine(view, self.circumstances)

    def _read(self, logs: Sequence[LaidOut]) -> list[ReplicaLog]:
        return [laid_out.log.holding(read_range(laid_out.pieces, self.start, self.stop)) for laid_out in logs]

    def hold(self, questions: Questions) -> Held:
        """The records of the range that have the values and keys in question."""
        return held([self._asked(laid_out, questions) for laid_out in (*self.logs, *self.earlier)], questions)

    def _asked(self, laid_out: LaidOut, questions: Questions) -> ReplicaLog:
        """A log with its records in the range, if some are asked for; else with none, which is faster."""
        log, pieces = laid_out.log, laid_out.pieces
        names = ("value", "key") if len(questions.keys) else ("value",)
        columns = read_range(pieces, self.start, self.stop, names)
        is_asked = np.isin(columns.value, questions.values).any() or np.isin(columns.key, questions.keys).any()
        return log.holding(read_range(pieces, self.start, self.stop) if is_asked else no_records())


@dataclass(frozen=True)
class QuestionedRange:
    """A range of logs, and what is in question."""

    range: RangeOfLogs
    questions: Questions

    @property
    def weight(self) -> int:
        return self.range.weight

    def answer(self) -> Held:
        return self.range.hold(self.questions)


@dataclass
class Judgement:
    """The check of one partition, from stage to stage. Each stage has a method that plans its tasks, and one that takes
    their results. `crash`: the error that ended it."""

    task: ReplicaTask
    span: int
    part_bytes: int
    crash: str = ""
    remote: StoredLog | None = None
    parts: Sequence[LogPart | StoredPart] = ()
    logs: list[LaidOut] = field(default_factory=list)
    earlier: list[LaidOut] = field(default_factory=list)
    stated: Stated = NOT_STATED
    ranges: list[RangeOfLogs] = field(default_factory=list)
    found: RangeFindings | None = None
    questions: Questions = field(default_factory=Questions)
    held: Held | None = None
    sent: SentValues = NOT_SENT

    @property
    def name(self) -> str:
        return self.task.name

    def plan_segments(self) -> Iterator[SegmentsTask | ObjectTask]:
        task = self.task
        nodes = {node: Path(data) for node, data in task.nodes}
        self.remote = read_remote(nodes, Path(task.store), task.key) if task.store else None
        current, earlier, stored = (folder_of(Path(task.tables) / name, *task.key) for name in (REPLICAS, *SCRATCH))
        for place, (node, data) in enumerate((*task.replicas, *task.earlier)):
            folder = current if place < len(task.replicas) else earlier
            compacted = task.circumstances.compacts
            yield from segment_tasks(
                place, node, task.key, Path(data), folder, compacted=compacted, most=self.part_bytes
            )
        yield from object_tasks(self.remote, stored)

    def take_segments(self, parts: Sequence[LogPart | StoredPart]) -> None:
        self.parts = parts

    def plan_logs(self) -> Iterator[LogTask]:
        task = self.task
        stored = {part.path: part for part in self.parts if isinstance(part, StoredPart)}
        mine = [part for part in self.parts if isinstance(part, LogPart)]
        for place, (node, data) in enumerate((*task.replicas, *task.earlier)):
            parts = tuple(part for part in mine if part.place == place)
            yield LogTask(node, task.key, data, parts, self.remote, stored)

    def take_logs(self, logs: Sequence[LaidOut]) -> None:
        laid_out = [replace(log, log=self._without_zeros(log.log)) for log in logs]
        present = len(self.task.replicas)
        self.parts, self.logs, self.earlier = (), laid_out[:present], laid_out[present:]
        write_epochs(Path(self.task.tables), self.task.key, self.replicas)

    def _without_zeros(self, log: ReplicaLog) -> ReplicaLog:
        return replace(log, damage="") if log.zeros and self.task.preallocates else log

    @property
    def replicas(self) -> list[ReplicaLog]:
        return [laid_out.log for laid_out in self.logs]

    def plan_operations(self) -> Iterator[GroupsTask]:
        for groups in batches_of(self.task.operations):
            yield GroupsTask(tuple(groups), self.task.dumps.at)

    def take_operations(self, statements: Sequence[Stated]) -> None:
        self.stated = functools.reduce(Stated.merge, statements, NOT_STATED)

    def plan_ranges(self) -> Iterator[RangeOfLogs]:
        task, laid_out = self.task, (*self.logs, *self.earlier)
        starts = sorted({0, *(cut for log in laid_out for cut in cuts(log.pieces, self.span))})
        wanted_records = tuple(self._wanted(log) for log in self.replicas)
        for start, stop in zip(starts, (*starts[1:], INF), strict=True):
            logs, earlier = (tuple(log.between(start, stop) for log in dump) for dump in (self.logs, self.earlier))
            groups = tuple(group for group in task.operations if group.overlaps(start, stop))
            self.ranges.append(
                RangeOfLogs(
                    *(task.key, start, stop, logs, earlier, groups if task.operations else None),
                    *(wanted_records, task.circumstances),
                )
            )
        yield from self.ranges

    def _wanted(self, log: ReplicaLog) -> Wanted:
        """The records of a log that findings about all of it show."""
        whole_logs = [log for log in self.replicas if log.is_whole]
        needs_tail = self.task.circumstances.quiet and self.stated.end[1] >= 0 and whole_logs
        is_longest = needs_tail and max(whole_logs, key=lambda log: log.end) is log
        return Wanted(tuple(offsets_of(breaks(log, self.task.circumstances))), self.stated.end[1] if is_longest else -1)

    def take_ranges(self, findings: Sequence[RangeFindings]) -> None:
        self.found = functools.reduce(RangeFindings.followed_by, findings)
        self.questions = questions_of(self.found)

    def plan_answers(self) -> Iterator[QuestionedRange]:
        if not self.questions.is_empty:
            yield from (QuestionedRange(range_of_logs, self.questions) for range_of_logs in self.ranges)

    def take_answers(self, answers: Sequence[Held]) -> None:
        self.held = functools.reduce(Held.followed_by, answers) if answers else None

    def plan_sent(self) -> Iterator[AskedTask]:
        for groups in batches_of(self.task.operations) if len(self.questions.values) else ():
            yield AskedTask(tuple(groups), self.questions.values)

    def take_sent(self, sent_values: Sequence[SentValues]) -> None:
        self.sent = functools.reduce(SentValues.merge, sent_values, NOT_SENT)

    def conclude(self) -> ReplicaReport:
        """The report after all stages."""
        assert self.found is not None
        findings, task = self.found, self.task
        earlier = [laid_out.log for laid_out in self.earlier]
        reduced_logs = reduced(self.replicas, earlier, findings, self.questions.keys, self.held)
        certain = [log_findings.sent for log_findings in findings.logs]
        appends = self.sent.appends(certain, self.stated.end[1]) if task.operations else None
        report = conclude(self.replicas, reduced_logs, findings, appends, task.circumstances)
        return report.merge(ReplicaReport(undecided=tuple(self._undumped(reduced_logs.earlier))))

    def _undumped(self, earlier: Sequence[ReplicaLog]) -> Iterator[str]:
        """Why earlier dumps of this partition are incomplete."""
        dumps, circumstances = self.task.dumps, replace(self.task.circumstances, quiet=False)
        for log in earlier:
            if log.node not in dumps.lost:
                marked = dumps.marked(log.node, log.partition)
                yield from missing_below(log, circumstances, may_be_short=log.node in dumps.shortened, marked=marked)
                yield from contradictory_epochs(log, circumstances.deleted_to)
        may_be_gone = dumps.lost | dumps.shortened
        dumped_nodes = set(dumps.nodes) - may_be_gone
        if (
            self.task.replicas
            and self.task.key[1] not in dumps.moved
            and {node for node, _ in self.task.replicas} <= dumped_nodes
            and circumstances.deleted_to < INF
        ):
            acknowledged = self.stated.acknowledged
            longest = max((log.end for log in earlier), default=0)
            if acknowledged >= longest:
                yield f"no earlier dump of {self.name} has offset {acknowledged}, which had been acknowledged by then"

    def report(self) -> ReplicaReport:
        """The report; an error made the partition undecided."""
        task = self.task
        undecided = [f"{node} holds no replica of {self.name}, which was assigned to it" for node in task.missing]
        undecided += [f"{node} holds a replica of {self.name}, which was not assigned to it" for node in task.strays]
        undecided += [
            f"the earlier dump of {node} has no replica of {self.name}, which was assigned to it"
            for node in task.undumped
        ]
        report = ReplicaReport(undecided=tuple(undecided))
        if not task.replicas:
            return report
        concluded = Crash(self.crash) if self.crash else attempt(self, work=Judgement.conclude)
        if isinstance(concluded, Crash):
            crashed = f"the replicas of {self.name} could not be judged: {concluded.why}"
            return report.merge(ReplicaReport(undecided=(crashed,)))
        return report.merge(concluded)


Plan = Callable[[Judgement], Iterator[Any]]
Take = Callable[[Judgement, Sequence[Any]], None]

STAGES: Final[Sequence[tuple[Plan, Callable[[Any], Any], Take]]] = (
    (Judgement.plan_segments, decode, Judgement.take_segments),
    (Judgement.plan_logs, LogTask.lay_out, Judgement.take_logs),
    (Judgement.plan_operations, stated, Judgement.take_operations),
    (Judgement.plan_ranges, RangeOfLogs.examine, Judgement.take_ranges),
    (Judgement.plan_answers, QuestionedRange.answer, Judgement.take_answers),
    (Judgement.plan_sent, sent, Judgement.take_sent),
)


def rows_of(tasks: Sequence[ReplicaTask]) -> int:
    """About how many records the tasks' replicas and dumps have."""
    logs = [(task, data) for task in tasks for _, data in (*task.replicas, *task.earlier)]
    files = [file for task, data in logs for file in segments_of(task.key, Path(data))]
    return sum(file.stat().st_size for file in files) // BYTES_PER_ROW


def check_replicas(
    tasks: Sequence[ReplicaTask], spread: TaskMap = in_sequence, *, span: int = SPAN, part_bytes: int = PART_BYTES
) -> ReplicaReport:
    """Check all partitions; `span`: offsets per range, `part_bytes`: of the segment files of one task."""
    for table in {str(Path(task.tables) / name) for task in tasks for name in (REPLICAS, EPOCHS, *SCRATCH)}:
        remove(Path(table))
    judgements = [Judgement(task, span, part_bytes) for task in tasks]
    sizes = [_size_of(task) for task in tasks]
    small = [number for number, size in enumerate(sizes) if size <= span]
    reports = dict(
        zip(small, spread(_judged, [judgements[at] for at in small], [sizes[at] for at in small]), strict=True)
    )
    large = {number: judgement for number, judgement in enumerate(judgements) if number not in reports}
    _run_stages(list(large.values()), spread)
    reports |= {number: judgement.report() for number, judgement in large.items()}
    for table in {str(Path(task.tables) / name) for task in tasks for name in SCRATCH}:
        remove(Path(table))
    return functools.reduce(ReplicaReport.merge, (reports[number] for number in range(len(tasks))), ReplicaReport())


def _size_of(task: ReplicaTask) -> int:
    """The records and operations that the check of a partition reads, as far as known; INF with remote segments."""
    if task.store and Path(task.store).exists():
        return INF
    return rows_of([task]) + sum(group.rows for group in task.operations)


def _judged(judgement: Judgement) -> ReplicaReport:
    """The report on a partition after all stages."""
    _run_stages([judgement], in_sequence)
    return judgement.report()


def _run_stages(judgements: Sequence[Judgement], spread: TaskMap) -> None:
    for plan, work, take in STAGES:
        unfinished = [judgement for judgement in judgements if judgement.task.replicas and not judgement.crash]
        _run_stage(unfinished, spread, plan, work, take)


def _run_stage(
    judgements: Sequence[Judgement], spread: TaskMap, plan: Plan, work: Callable[[Any], Any], take: Take
) -> None:
    planned = [attempt(judgement, work=lambda judged: list(plan(judged))) for judgement in judgements]
    tasks = [task for planned_tasks in planned if not isinstance(planned_tasks, Crash) for task in planned_tasks]
    results = iter(spread(functools.partial(attempt, work=work), tasks, [task.weight for task in tasks]))
    for judgement, planned_tasks in zip(judgements, planned, strict=True):
        results_of_one = [planned_tasks] if isinstance(planned_tasks, Crash) else [next(results) for _ in planned_tasks]
        crash = next((result for result in results_of_one if isinstance(result, Crash)), None)
        crash = crash or attempt(results_of_one, work=functools.partial(take, judgement))
        judgement.crash = crash.why if isinstance(crash, Crash) else ""


# ---- Compares the segments in remote storage with the replicas, partition by partition: tasks that an engine maps.


@dataclass(frozen=True)
class StoreTask:
    """A partition: the data directories of all nodes, the nodes with a replica, and the
    directory of the objects. `intact`: the nodes whose replica lacks only what it removed; `keeps_committed`: no
    replica can have lost a committed record; `forgets_producers`: a replica may forget a producer. `deleted_to`:
    records of lower offsets may have been deleted, INF without a bound."""

    key: Key
    nodes: Mapping[str, Path]
    replicas: tuple[str, ...]
    store: Path
    intact: frozenset[str]
    keeps_committed: bool
    forgets_producers: bool
    deleted_to: int = 0

    @cached_property
    def rows(self) -> int:
        """About how many records the replicas have."""
        places = [self.nodes[name] for name in self.replicas if name in self.nodes]
        files = [file for place in places for file in segments_of(self.key, place)]
        return sum(file.stat().st_size for file in files) // BYTES_PER_ROW


@dataclass(frozen=True)
class StoreFindings:
    """The complete segments of some partitions, and what is wrong with them."""

    segments: int
    anomalies: tuple[Anomaly, ...]


def compare_store(tasks: Sequence[StoreTask], spread: TaskMap) -> StoreFindings:
    """The findings of all partitions, in the order of the tasks."""
    heaviest_first = sorted(range(len(tasks)), key=lambda number: -tasks[number].rows)
    unordered = spread(_compare, [tasks[number] for number in heaviest_first], [tasks[n].rows for n in heaviest_first])
    of_number = dict(zip(heaviest_first, unordered, strict=True))
    results = [of_number[number] for number in range(len(tasks))]
    return StoreFindings(
        sum(findings.segments for findings in results),
        tuple(anomaly for findings in results for anomaly in findings.anomalies),
    )


def _compare(task: StoreTask) -> StoreFindings:
    remote = read_remote(task.nodes, task.store, task.key)
    if remote is None:
        return StoreFindings(0, ())
    logs = [
        read_partition(name, task.key, task.nodes[name], remote=remote) for name in task.replicas if name in task.nodes
    ]
    anomalies = [*rules.incomplete(remote), *rules.differing(remote, logs)]
    objects = [read_objects(segment, remote.objects.get(segment.id, {})) for segment in remote.finished]
    anomalies += wrong_objects(objects, logs, forgets_producers=task.forgets_producers, deleted_to=task.deleted_to)
    anomalies += rules.removed([log for log in logs if log.node in task.intact], remote, task.deleted_to)
    anomalies += rules.uncommitted(remote, logs) if task.keeps_committed else ()
    return StoreFindings(len(remote.finished), tuple(anomalies))
