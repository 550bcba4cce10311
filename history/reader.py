"""Reads a run's record, complete or not.

A run that was killed reads like any other: torn tails are dropped, and every value that a producer announced without
completing it becomes an append that may have happened. The records of all clients are compared with what the journal
says that each client left. Missing or damaged parts are reported as defects of the part, and everything else is read.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.errors import HistoryError
from history.journal.reader import read_journal
from history.journal.service_events import FatalLine, ServiceExit, fatal_lines, service_exits
from history.journal.timeline import FaultSpan, RunClock, RunPhase, fault_spans, phases_of
from history.journal.writer import ADMINISTERED, ASSIGNMENT, CLIENT, CLIENT_ENDED, FILE_NAME, REASSIGN, REASSIGNED
from history.record.client_files import LINES, owner, segment_of
from history.record.client_reader import ClientRecording, PieceMap, StreamRecord, read_recordings
from history.record.jsonl_reader import MOST_CLOCK_ERROR_NS, Recorded, TakenNames, read_lines
from history.record.operation_tables import IndexedGroup, record_name, remove_tables, write_index, write_operations
from history.record.operations import Operations
from history.record.shapes import LOG, REGISTER, SHAPES, Shape
from history.record.validation import written_values
from history.record.values import producer_of
from history.regular_files import sha256_of
from history.seconds import SECONDS, SecondCounts, write_seconds
from history.value_runs import ValueRuns

# ---- The records of all clients.

Line = Mapping[str, Any]

_ANNOUNCED: Final = tuple(shape.announced for shape in SHAPES.values())


@dataclass(frozen=True)
class ClientRecord:
    """One client's record. `files`: by name, those that were found. `operations`: how many were read. `defects`: why
    the record is incomplete, as sentences that name the file or the client.

    `producers`: the numbers of producers that its values may have; None: unknown. `announced`: every possible write is
    known, completed or not; this includes a killed client, if its announcements exist. `changed`: by name, the files
    that differ from what the client left, each with a sentence; without the missing ones.
    """

    client: str
    files: tuple[str, ...]
    operations: int
    defects: tuple[str, ...]
    announced: bool
    producers: range | None
    changed: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return not self.defects

    def may_have_written(self, value: int) -> bool:
        """Whether a value may be an unrecorded one of this client."""
        return not self.announced and (self.producers is None or producer_of(value) in self.producers)


def _by_shape() -> dict[Shape, list[Any]]:
    return {shape: [] for shape in SHAPES.values()}


@dataclass
class Clients:
    """The records of all clients. By shape: `completed` operations, those that were `left` open, `groups`, the index of
    the operations that were written to tables, and `written`, the values that operations write. `seconds`: the numbers
    of all operations by second."""

    completed: dict[Shape, list[pa.Table]] = field(default_factory=_by_shape)
    left: dict[Shape, list[pa.Table]] = field(default_factory=_by_shape)
    groups: dict[Shape, list[IndexedGroup]] = field(default_factory=_by_shape)
    written: dict[Shape, list[ValueRuns]] = field(default_factory=_by_shape)
    records: list[ClientRecord] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    seconds: list[SecondCounts] = field(default_factory=list)


def read_clients(
    directory: Path, journal: Sequence[Line], *, tables: Path | None = None, keeps: bool = True, each: PieceMap = map
) -> Clients:
    """Reads `history/operations`, and checks it for completeness by the journal. Damage is a defect, never raised.

    Writes the operations to `tables`, if given; without `keeps`, completed ones of streams are only there."""
    clients = Clients()
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    parts: dict[str, ClientRecording] = {}
    for shape in SHAPES.values():
        records = [StreamRecord(directory / first, numbers) for first, numbers in _segments(names, shape).items()]
        recordings = read_recordings(shape, records, tables=tables, keeps=keeps, each=each)
        for record, part in zip(records, recordings, strict=True):
            parts[record.stream.name] = part
            clients.completed[shape].append(part.completed)
            clients.left[shape].append(part.left)
            clients.groups[shape] += part.groups
            clients.written[shape].append(part.used)
            clients.seconds += part.seconds
    for part in parts.values():
        clients.torn += part.torn
    lines = _read_elsewhere(directory, names, journal, parts, clients, tables=tables, keeps=keeps)
    clients.records = list(_Books(directory, names, journal, parts, lines).records())
    return clients


def _segments(names: Sequence[str], shape: Shape) -> dict[str, list[int]]:
    """The segments of each recording, by the name of its segment 0, including recordings that only have
    announcements."""
    segments = {Path(name).stem + shape.stream: set[int]() for name in names if Path(name).suffix == shape.announced}
    for name in names:
        if Path(name).suffix == shape.stream:
            first_name, number = segment_of(name)
            segments.setdefault(first_name, set()).add(number)
    return {first_name: sorted(segments[first_name]) for first_name in sorted(segments)}


def _read_elsewhere(
    directory: Path,
    names: Sequence[str],
    journal: Sequence[Line],
    parts: Mapping[str, ClientRecording],
    clients: Clients,
    *,
    tables: Path | None,
    keeps: bool,
) -> Recorded:
    paths = [directory / name for name in names if name.endswith(LINES)]
    if not paths:
        return Recorded()
    numbers = itertools.count()

    def add(shape: Shape, rows: pa.Table, part: str) -> None:
        clients.seconds.append(SecondCounts.of(rows, shape))
        clients.written[shape].append(ValueRuns.of(written_values(rows, shape.written)))
        if tables is not None:
            clients.groups[shape] += write_operations(shape, rows, tables, record_name("", part))

    def take(shape: Shape, rows: pa.Table) -> None:
        if keeps:
            clients.completed[shape].append(rows)
        add(shape, rows, f"lines-{next(numbers)}")

    lines = read_lines(paths, journal, _known(parts), take)
    for shape in SHAPES.values():
        left = lines.table(shape)
        clients.left[shape].append(left)
        add(shape, left, "unfinished-lines")
    clients.torn += lines.torn
    return lines


def _known(parts: Mapping[str, ClientRecording]) -> TakenNames:
    """The names that Arrow files have used, which no JSON lines may use again."""
    claims = TakenNames(producers={}, process=0)
    for name, part in parts.items():
        client = Path(name).stem.rpartition("-")[0]
        of_log = Path(name).suffix == LOG.stream
        runs = claims.runs[client] = ValueRuns.union([claims.runs.get(client, ValueRuns()), part.used])
        claims.process = max(claims.process, part.last_process + 1)
        if of_log:
            for first, last in zip(runs.first.tolist(), runs.last.tolist(), strict=True):
                claims.producers |= dict.fromkeys(range(first >> 32, (last >> 32) + 1), client)
    return claims


class _Books:
    """Compares what was read with what the journal says about the clients."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        journal: Sequence[Line],
        parts: Mapping[str, ClientRecording],
        lines: Recorded,
    ) -> None:
        self._directory = directory
        self._names = names
        self._parts = parts
        self._lines = lines
        self._started = [line for line in journal if line["event"] == CLIENT]
        self._ended = [line for line in journal if line["event"] == CLIENT_ENDED]

    def records(self) -> Iterator[ClientRecord]:
        """One for each client of the journal, and one for each file without a client."""
        clients = sorted({line["client"] for line in self._started})
        owners = {name: owner(name, clients) for name in self._names}
        for client in clients:
            yield self._record(client, [name for name in self._names if owners[name] == client])
        for name in self._names:
            if owners[name] is None:
                yield self._strange(name)

    def _record(self, client: str, files: list[str]) -> ClientRecord:
        started = [line for line in self._started if line["client"] == client]
        ended = [line for line in self._ended if line["client"] == client]
        parts = [part for name, part in self._parts.items() if owner(name, [client])]
        of_lines = [defect for name in files for defect in self._lines.defects.get(name, [])]
        changed = dict(self._changed(ended[0], files)) if ended else {}
        shared = list(self._shared(client, parts))
        is_closed = bool(parts) and all(part.closed for part in parts)
        defects = [*(defect for part in parts for defect in part.defects), *of_lines, *changed.values(), *shared]
        defects += [_vague(name, self._lines.vague[name]) for name in files if name in self._lines.vague]
        if len(started) > 1 or len(ended) > 1:
            defects.append(f"client {client} is in the journal more than once")
        elif not ended:
            defects.append(f"the journal does not say that client {client} has ended")
        elif (exit_code := ended[0]["exit_code"]) is None:  # what it did after its last record is unknown
            defects.append(f"client {client} ended, and its exit code was not observed")
        elif exit_code != 0:
            defects.append(f"client {client} ended with exit code {exit_code}")
        if not files:
            defects.append(f"client {client} is in the journal, but left no record")
        understood = all(part.understood for part in parts) and not of_lines and not shared
        is_as_left = bool(ended) and not any(name.endswith((*_ANNOUNCED, LINES)) for name in changed)
        return ClientRecord(
            client=client,
            files=tuple(files),
            operations=sum(part.believed.total() for part in parts)
            + sum(self._lines.counts.get(name, 0) for name in files),
            defects=tuple(dict.fromkeys(defects)),
            announced=bool(files)
            and understood
            and (is_as_left or (is_closed and not ended))
            and not (ended and self._may_lack_the_last(ended[0], files))
            and not self._says_nothing(started[0], files),
            producers=self._producers(started[0], files),
            changed={name: change for name, change in changed.items() if name in files},
        )

    def _may_lack_the_last(self, ended: Line, files: Sequence[str]) -> bool:
        """Whether a program was killed (possibly by the run) and may have sent operations that it had no time to
        record. A program that announces its writes has recorded them."""
        lines = [name for name in files if name.endswith(LINES)]
        announced = {mark for name in lines for mark in self._lines.announced.get(name, ())}
        was_killed = bool(ended.get("killed")) or ended["exit_code"] != 0
        return bool(lines) and was_killed and announced != {True}

    def _says_nothing(self, started: Line, files: Sequence[str]) -> bool:
        """Whether a writing program has no operation on record, like one that exits normally and leaves its whole
        record in a buffer: its writes are unknown."""
        lines = [name for name in files if name.endswith(LINES)]
        return bool(lines) and started["producers"][1] > 0 and not any(self._lines.counts.get(name) for name in lines)

    def _producers(self, started: Line, files: Sequence[str]) -> range | None:
        """The numbers of producers that the journal gives a client, if its values contain them. User-defined programs
        may write any values to registers; only their values show whether they contain such numbers."""
        first, count = started["producers"]
        own_producers, lines = range(first, first + count), [name for name in files if name.endswith(LINES)]
        is_program = bool(lines) or (not files and count > 1)  # only a program may restart as another producer
        used = {producer for name in lines for producer in self._lines.producers.get(name, ())}
        return own_producers if not is_program or (used and all(number in own_producers for number in used)) else None

    def _strange(self, name: str) -> ClientRecord:
        suffix = Path(name).suffix
        part = self._parts.get(name)
        defects = [f"{name} is in history/operations, but the journal names no client of it"]
        defects += [] if part is None else part.defects
        defects += self._lines.defects.get(name, [])
        return ClientRecord(
            client=Path(name).stem,
            files=(name,),
            operations=(0 if part is None else part.believed.total()) + self._lines.counts.get(name, 0),
            defects=tuple(defects),
            # Announcements are checked with their stream.
            announced=suffix in _ANNOUNCED or (part is not None and part.understood and part.closed),
            producers=None,
        )

    def _changed(self, ended: Line, files: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The files that differ from what the client left, each with a sentence."""
        for name, digest in ended["files"].items():
            if name not in files:
                yield name, f"{name} is missing: client {ended['client']} left it"
                continue
            path = self._directory / name
            try:
                is_same = path.stat().st_size == digest["bytes"] and sha256_of(path) == digest["sha256"]
            except OSError as error:
                yield name, f"{name} cannot be read: {error.strerror}"
                continue
            if not is_same:
                yield name, f"{name} differs from what client {ended['client']} left"
        for name in files:
            if name not in ended["files"]:
                yield name, f"{name} was not there when client {ended['client']} had ended"

    def _shared(self, client: str, parts: Sequence[ClientRecording]) -> Iterator[str]:
        """What two clients must not share: a number, and the numbers of producers."""
        mine = next(line for line in self._started if line["client"] == client)
        for part in parts:
            if part.process is not None and part.process != mine["process"]:
                yield f"client {client} is number {mine['process']} in the journal, but {part.process} in its record"
            first, count = mine["producers"]
            if part.producer is not None and part.producer not in range(first, first + count):
                yield f"client {client} has values of producer {part.producer}, which the journal does not give it"
        for other_line in self._started:
            if other_line is mine:
                continue
            if other_line["process"] == mine["process"]:
                yield f"client {client} has the number of client {other_line['client']}"
            (first, count), (other_first, other_count) = mine["producers"], other_line["producers"]
            if count and other_count and first < other_first + other_count and other_first < first + count:
                yield f"client {client} has the producer of client {other_line['client']}"


def _vague(name: str, error_ns: int) -> str:
    reason = f"more than {MOST_CLOCK_ERROR_NS / 1e9:g} s show nothing"
    return (
        f"{name}: its clock may be {error_ns / 1e9:g} s off, and {reason}: "
        "have its clock kept by NTP or the like, and declare a smaller error_ns"
    )


# ---- The record of a run.


@dataclass(frozen=True)
class History:
    """A run's record.

    `recorded`: the operations of each shape. `unfinished` of them are info operations for what was announced and never
    completed. `written`: the values that operations on registers write. `torn` names the files whose tail was lost.
    `journal` has the valid lines, `journal_defects` the errors of the others; `records` has for each client whether its
    record is complete. `seconds`: the numbers of the operations, as in `tables/seconds.parquet`.
    """

    recorded: tuple[Operations, ...]
    journal: list[dict[str, Any]]
    unfinished: int = 0
    torn: list[str] = field(default_factory=list)
    written: ValueRuns = field(default_factory=ValueRuns)
    journal_defects: tuple[str, ...] = ()
    records: tuple[ClientRecord, ...] = ()
    seconds: pa.Table = field(default_factory=SECONDS.empty_table)

    def of(self, shape: Shape) -> Operations:
        """The operations of a shape."""
        nothing = Operations(shape, shape.columns.empty_table())
        return next((operations for operations in self.recorded if operations.shape is shape), nothing)

    @property
    def logs(self) -> Operations:
        return self.of(LOG)

    @property
    def registers(self) -> Operations:
        return self.of(REGISTER)

    @property
    def size(self) -> int:
        """The number of all operations. Raises TablesError as `Operations`."""
        return sum(operations.size for operations in self.recorded)

    def parts(self, *columns: str) -> Iterator[pa.Table]:
        """These common columns of the operations of all shapes, part by part. Raises TablesError as `Operations`."""
        for operations in self.recorded:
            yield from operations.parts(*columns)

    @property
    def defects(self) -> Iterator[str]:
        """Why the record is incomplete, as sentences; empty if it is complete."""
        yield from self.journal_defects
        for record in self.records:
            yield from record.defects

    @property
    def assignment(self) -> tuple[tuple[int, ...], ...] | None:
        """Each partition's replicas by node number, as decided when the topic was created; None if that is not
        recorded."""
        for line in self.journal:
            if line["event"] == ASSIGNMENT:
                return tuple(tuple(ids) for ids in line["replicas"])
        return None

    @property
    def reassigned(self) -> dict[int, tuple[int, ...]]:
        """The replicas, by node number, of the partitions that the run gave other replicas; the last ones count."""
        lines = [line for line in self.journal if line["event"] == REASSIGNED]
        lines += [
            line["arguments"]
            for line in self.journal
            if line["event"] == ADMINISTERED and (line["operation"], line["outcome"]) == (REASSIGN, "ok")
        ]
        return {line["partition"]: tuple(line["replicas"]) for line in lines}

    @property
    def has_uncertain_reassignment(self) -> bool:
        return any(
            line["event"] == ADMINISTERED and (line["operation"], line["outcome"]) == (REASSIGN, "info")
            for line in self.journal
        )

    @cached_property
    def clock(self) -> RunClock:
        """The run's zero, by its journal; of a run without one, the first operation."""
        clock = RunClock.of_journal(self.journal)
        if clock != RunClock():
            return clock
        return RunClock(min((int(part["inv"].to_numpy().min()) for part in self.parts("inv")), default=0))

    @cached_property
    def faults(self) -> tuple[FaultSpan, ...]:
        """The faults in the order of their invocations."""
        return fault_spans(self.journal, self.clock)

    @property
    def phases(self) -> tuple[RunPhase, ...]:
        """The phases of the run in order."""
        return phases_of(self.journal)

    @property
    def phase_names(self) -> tuple[str, ...]:
        return tuple(phase.name for phase in self.phases)

    @property
    def service_exits(self) -> list[ServiceExit]:
        """The exits of the system's processes that the run did not cause."""
        return service_exits(self.journal)

    @property
    def fatal_lines(self) -> list[FatalLine]:
        """The lines that the system's processes logged and that the system declares fatal."""
        return fatal_lines(self.journal)

    def may_have_written(self, value: int) -> bool:
        """Whether an unrecorded value may have been written, by a client whose record is incomplete. A read of such a
        value proves nothing."""
        return bool(self.journal_defects) or any(record.may_have_written(value) for record in self.records)


MOST_BYTES_KEPT: Final = 16 << 20
"""The most bytes of clients' streams whose rows stay in memory: about a million operations."""


BYTES_PER_OPERATION: Final = 13
"""Of a client's stream, as `python -m benchmarks.ingest` records it."""


def read_run(run: Path | str, *, tables: Path | None = None, each: PieceMap = map) -> History:
    """Reads `<run>/history/`. Raises HistoryError if the directory is missing; all other damage is a defect in the
    result.

    With `tables`, writes the operations there, with their indexes and the table of seconds, in place of older ones; the
    operations of a large run are then read from there when they are first used. `each` maps the reading of a segment of
    a log's record to the segments, and that of a record of registers to the records, for instance in several
    processes."""
    directory = Path(run) / "history"
    if not directory.is_dir():
        raise HistoryError(f"{directory} does not exist: {run} is not a run, or it stopped before its first operation")
    read = read_journal(directory / FILE_NAME)
    journal = list(read.lines)
    keeps = tables is None or _bytes_of(directory / "operations") <= MOST_BYTES_KEPT
    shapes = SHAPES.values()
    if tables is not None:
        for shape in shapes:
            remove_tables(shape, tables)
    clients = read_clients(directory / "operations", journal, tables=tables, keeps=keeps, each=each)
    seconds = SecondCounts.union(clients.seconds).table()
    if tables is not None:
        for shape in shapes:
            if clients.groups[shape] or not shape.is_optional:
                write_index(shape, clients.groups[shape], tables)
        write_seconds(seconds, tables)
    return History(
        recorded=tuple(Operations(shape, _rows(shape, clients) if keeps or not tables else tables) for shape in shapes),
        journal=journal,
        unfinished=sum(rows.num_rows for shape in shapes for rows in clients.left[shape]),
        torn=[*clients.torn, *([str(directory / FILE_NAME)] if read.is_torn else [])],
        written=ValueRuns.union(clients.written[REGISTER]),
        journal_defects=read.defects,
        records=tuple(clients.records),
        seconds=seconds,
    )


def _rows(shape: Shape, clients: Clients) -> pa.Table:
    """Completed rows first, so that the unfinished ones are the table's tail."""
    rows = [*clients.completed[shape], *clients.left[shape], shape.columns.empty_table()]
    return pa.concat_tables(rows).unify_dictionaries().combine_chunks()


def _bytes_of(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.glob("*"))


def estimated_operations(run: Path) -> int:
    """About how many operations the clients of a run recorded, by the size of their files."""
    return _bytes_of(run / "history" / "operations") // BYTES_PER_OPERATION
