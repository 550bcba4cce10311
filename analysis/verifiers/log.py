"""Verifies a certificate: its linearization explains the recorded history. Shares no code with the checker.

A linearization gives each append that happened an offset and a time `at`. It explains a history under these conditions.
Per partition, the offsets are 0, 1, 2, ... and `at` never decreases. Each entry is an append of the history that was
not refused, at a time within its interval, and no append is in it twice. Exception: a record that its client library
may have sent again (`history.record.schemas.SENT_AGAIN`) may be in it more than once, each time after its invocation;
only the entry at its acknowledged offset has a latest time. Each durable acknowledged append is in it, at its offset.
Each read returned exactly the entries at its offsets. Each query has a time in its own interval at which the log had
the length that the query reported: between `at` of the last record it showed and `at` of the first record it showed to
be absent. Because `at` never decreases, that is so if the query returned no earlier than the former and was invoked no
later than the latter.

Theory of operation. Each of these conditions compares an operation with one offset, so each part of the linearization
is confirmed alone, with the row groups that show or name its offsets. What parts cannot decide alone is small: where
the parts start and end, which values of a producer they hold, what sessions were shown, and the appends that name no
offset of the part that holds them.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history import strict_json
from history.record.operation_digest import digest_of_streams, digest_of_tables
from history.record.operation_tables import IndexedGroup, TablesError, read_index
from history.record.schemas import ACKS_ALL, APPEND, FAIL, INF, OK, PHASE_FINAL, SENT_AGAIN
from history.record.shapes import LOG, Shape
from history.regular_files import read_bytes, require_regular
from installation.counted import counted

TaskT = TypeVar("TaskT")
ConfirmedT = TypeVar("ConfirmedT")
ClaimT = TypeVar("ClaimT", bound="AnyClaim")
Columns = dict[str, Any]
Bounds = dict[int, tuple[int, int]]
Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Applies a function to tasks and returns the results in the order of the tasks."""


class CertificateError(Exception):
    """The certificate does not prove its claim; the message names the first error."""


STRENGTH: Final = ("lower-bound-only", "session", "strict")
"""What a certificate may prove, from the weakest to the strongest."""

FORMAT: Final = 3
BEYOND: Final = 1 << 63
"""Above every offset that a row can have, impossible ones included."""
ENTRIES: Final = pa.schema([("offset", pa.int64()), ("value", pa.int64()), ("at", pa.int64())])
READ_COLUMNS: Final = (
    *("topic", "partition", "process", "session", "f", "type", "acks", "inv", "ret"),
    *("offset", "value", "lo", "hi", "offsets", "values", "phase", "error"),
)


class AnyPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file with entries."""

    file: str
    sha256: str


class AnyClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every certificate states. `streams`, `tables`: the digests of the clients' recorded streams and of the
    tables that were made from them."""

    format: int
    operations: int
    streams: str
    tables: str
    parts: tuple[Any, ...]


class Part(AnyPart, frozen=True, kw_only=True):
    """A file with the entries of the offsets start .. start + length - 1 of a partition."""

    topic: str
    partition: int
    start: int
    length: int


class Claim(AnyClaim, frozen=True, kw_only=True):
    """`lengths`: the length of each partition's log."""

    upper_bound: str
    lengths: dict[str, int]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class PartTask:
    """A part to confirm, and the row groups that show or name offsets of its range. The range of a partition's last
    part has no end; `part` is None for a partition without entries. `owned[i]`: what concerns no offset is confirmed
    for `groups[i]` here."""

    where: str
    start: int
    stop: int
    part: Part | None
    directory: str
    tables: str
    groups: tuple[IndexedGroup, ...]
    owned: tuple[bool, ...]
    upper_bound: str


@dataclass
class Confirmed:
    """What the parts of a partition must agree on. `values`: the least and the greatest value of each producer;
    `sessions`: the latest invocation with an upper bound here and the earliest return that shows an offset here;
    `unexplained`: value and time of entries that no append with its offset explains; `unplaced`: value, inv, ret of
    appends that may explain them, whether they must, and whether they may explain several; `twice`: values of several
    entries."""

    first: int = 0
    last: int = 0
    values: Bounds | None = None
    twice: Any = None
    sessions: Bounds | None = None
    unexplained: Any = None
    unplaced: Any = None


def one_by_one(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """Applies a function to tasks in this process."""
    return map(function, tasks)


def verify(directory: Path | str, run: Path | str, *, upper_bound: str = "strict", spread: Spread = one_by_one) -> str:
    """Returns a sentence with what `directory` proves about the operations of `run`, or raises CertificateError.

    `upper_bound`: the weakest acceptable claim.
    """
    root, tables = Path(directory), Path(run) / "tables"
    claim = read_claim(root / "certificate.json", Claim, FORMAT)
    groups = claimed_groups(claim, LOG, Path(run))
    demand(claim.upper_bound in STRENGTH, "its upper bound has no meaning")
    demand(
        STRENGTH.index(claim.upper_bound) >= STRENGTH.index(upper_bound),
        f"it proves {claim.upper_bound} bounds only, not {upper_bound} ones",
    )
    tasks = _tasks_of(claim, groups, root, tables)
    results = confirm_all(_confirmed, tasks, spread)
    lengths = {task.where: 0 for task in tasks}
    for name in lengths:
        mine = [(task, result) for task, result in zip(tasks, results, strict=True) if task.where == name]
        lengths[name] = _verify_partition(name, mine, spread)
    demand(claim.lengths == lengths, "the partitions and lengths that it states are not those that it holds")
    records = sum(lengths.values())
    proven = f"{counted(claim.operations, 'operation')} {'is' if claim.operations == 1 else 'are'} linearizable"
    return f"{proven} ({claim.upper_bound}): {counted(records, 'record')} in order"


def demand(holds: Any, otherwise: str) -> None:
    """Raises CertificateError unless the condition is true, in all elements of an array."""
    if not np.all(holds):
        raise CertificateError(otherwise)


def read_claim(path: Path, form: type[ClaimT], number: int) -> ClaimT:
    """The claim of a certificate, of the format with this number, in a strict form that leaves no room for hidden
    content: the directory holds its parts and nothing else. Raises CertificateError."""
    try:
        content = strict_json.decode(read_bytes(path))
        demand(isinstance(content, dict), "it is not a certificate")
        demand(content.get("format") == number, "its format is unknown to this verifier")
        claim = msgspec.convert(content, form)
        names = {entry.name for entry in path.parent.iterdir()} - {path.name}
    except msgspec.ValidationError as error:
        raise CertificateError(f"its fields are not those of a certificate: {error}") from error
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path.parent}: cannot be read: {error}") from error
    demand(names == {part.file for part in claim.parts}, "its files are not those that it states")
    return claim


def claimed_groups(claim: AnyClaim, shape: Shape, run: Path) -> list[IndexedGroup]:
    """The row groups of a run's tables, which are those that the claim is about. Raises CertificateError."""
    tables = run / "tables"
    try:
        demand(claim.streams == digest_of_streams(run), "it was made for another history")
        demand(claim.tables == digest_of_tables(shape, tables), "it was made for other tables of operations")
        groups = read_index(shape, tables)
    except OSError as error:
        raise CertificateError(f"a file of the history cannot be read: {error}") from error
    except TablesError as error:
        raise CertificateError(str(error)) from error
    rows = sum(group.rows for group in groups)
    demand(claim.operations == rows, "it was made for a history with another number of operations")
    return groups


def read_part(directory: str, part: AnyPart, schema: pa.Schema, kind: str) -> pa.Table:
    """The entries of a part. `kind`: what they are, with an article. Raises CertificateError."""
    try:
        content = read_bytes(Path(directory) / part.file)
        demand(part.sha256 == hashlib.sha256(content).hexdigest(), f"{part.file} is not the file it was made for")
        entries = pq.read_table(pa.BufferReader(content))
        demand(entries.column_names == schema.names, f"its columns are not those of {kind}")
        entries = entries.cast(schema).combine_chunks()
    except (OSError, ValueError) as error:
        raise CertificateError(f"{part.file}: cannot be read: {error}") from error
    demand(not any(column.null_count for column in entries.columns), "an entry lacks a field")
    return entries


def confirm_all(confirm: Callable[[TaskT], ConfirmedT], tasks: Sequence[TaskT], spread: Spread) -> list[ConfirmedT]:
    """The results of all tasks. Raises the CertificateError of the first one that is not confirmed."""
    results = list(spread(partial(_result_or_error, confirm), tasks))
    for result in results:
        if isinstance(result, CertificateError):
            raise result
    return results


def _result_or_error(confirm: Callable[[TaskT], ConfirmedT], task: TaskT) -> ConfirmedT | CertificateError:
    try:
        return confirm(task)
    except CertificateError as error:
        return error


def _tasks_of(claim: Claim, groups: Sequence[IndexedGroup], directory: Path, tables: Path) -> list[PartTask]:
    """The parts of each partition in order, each with its row groups."""
    of_partition: dict[tuple[Any, ...], list[IndexedGroup]] = {}
    for group in groups:
        of_partition.setdefault(group.key, []).append(group)
    parts: dict[tuple[Any, ...], list[Part]] = {}
    for part in claim.parts:
        parts.setdefault((part.topic, part.partition), []).append(part)
    tasks = []
    for key in sorted(of_partition.keys() | parts.keys()):
        name, partition_parts = f"{key[0]}-{key[1]}", sorted(parts.get(key, []), key=lambda part: part.start)
        ends = np.cumsum([0, *(part.length for part in partition_parts)]).tolist()
        demand(all(part.length > 0 for part in partition_parts), f"{name}: it has a part without entries")
        demand([part.start for part in partition_parts] == ends[:-1], f"{name}: its offsets are not 0, 1, 2, ...")
        owned: set[tuple[str, int]] = set()
        for number, start in enumerate(ends[:-1] or [0]):
            stop = ends[number + 1] if number + 1 < len(partition_parts) else BEYOND
            mine = tuple(group for group in of_partition.get(key, ()) if _shows(group, start, stop))
            names = [(group.path, group.row_group) for group in mine]
            owner = tuple(group_name not in owned for group_name in names)
            owned.update(names)
            part_ = partition_parts[number] if partition_parts else None
            bound = claim.upper_bound
            tasks.append(PartTask(name, start, stop, part_, str(directory), str(tables), mine, owner, bound))
        demand(len(owned) == len(of_partition.get(key, ())), f"{name}: no part has the operations of a row group")
    return tasks


def _shows(group: IndexedGroup, start: int, stop: int) -> bool:
    if group.highest < group.lowest:
        return start == 0
    return bool(group.lowest < stop and group.highest >= start)


def _confirmed(task: PartTask) -> Confirmed:
    log = _entries(task)
    name = task.where
    demand(np.diff(log["at"]) >= 0, f"{name}: its moments go back")
    explained = np.zeros(len(log["at"]), np.bool_)
    acknowledged = np.zeros(len(log["at"]), np.int64)
    unplaced = []
    shown = _SessionBounds()
    for group, is_owned in zip(task.groups, task.owned, strict=True):
        rows = _rows(task, group)
        unplaced.append(_verify_appends(task, log, rows, is_owned, explained, acknowledged))
        _verify_queries(task, log, rows, is_owned)
        if task.upper_bound == "session":
            shown.add(task, rows)
    unexplained_entries = np.flatnonzero(~explained)
    first, last = (int(log["at"][0]), int(log["at"][-1])) if len(log["at"]) else (0, 0)
    unplaced_appends = np.concatenate([np.empty((5, 0), np.int64), *unplaced], axis=1)
    sessions = shown.verified(name)
    unexplained = np.stack((log["value"][unexplained_entries], log["at"][unexplained_entries]))
    bounds, twice = _values_of(log["value"])
    return Confirmed(first, last, bounds, twice, sessions, unexplained, unplaced_appends)


def _entries(task: PartTask) -> Columns:
    part = task.part
    if part is None:
        return {name: np.empty(0, np.int64) for name in ENTRIES.names}
    table = read_part(task.directory, part, ENTRIES, "a linearization")
    log = {name: table[name].to_numpy() for name in ENTRIES.names}
    expected = np.arange(part.start, part.start + part.length)
    demand(np.array_equal(log["offset"], expected), f"{task.where}: its offsets are not 0, 1, 2, ...")
    return log


def _rows(task: PartTask, group: IndexedGroup) -> Columns:
    """The columns of a row group, which must be of the partition and reach no further than the index states."""
    try:
        with pq.ParquetFile(require_regular(Path(task.tables) / group.path)) as file:
            table = file.read_row_group(group.row_group, columns=READ_COLUMNS, use_threads=False)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{group.path} cannot be read: {error}") from error
    table = table.unify_dictionaries().combine_chunks()
    rows: Columns = {name: table[name].to_numpy() for name in READ_COLUMNS if pa.types.is_integer(table[name].type)}
    rows["count"] = pc.list_value_length(table["values"]).to_numpy()
    for name in ("offsets", "values"):
        rows[name] = pc.list_flatten(table[name]).to_numpy()
    rows["final"] = pc.equal(table["phase"], PHASE_FINAL).to_numpy(zero_copy_only=False)
    rows["again"] = pc.ends_with(table["error"].cast(pa.string()), SENT_AGAIN).to_numpy(zero_copy_only=False)
    is_query = rows["f"] != APPEND
    rows["answered"] = is_query & (rows["type"] == OK)
    rows["shown"] = np.where(is_query, rows["lo"], -1)
    nonempty = np.flatnonzero(rows["answered"] & (rows["count"] > 0))
    rows["shown"][nonempty] = np.maximum(rows["lo"][nonempty], rows["offset"][nonempty] + rows["count"][nonempty])
    topic, partition = group.key
    demand(pc.unique(table["topic"]).to_pylist() == [topic], f"{group.path} has operations of another topic")
    demand(rows["partition"] == partition, f"{group.path} has operations of another partition")
    named = (rows["offset"][~is_query], rows["offsets"], rows["shown"] - 1, np.where(is_query, rows["hi"], -1))
    for offsets in named:
        offsets = offsets[offsets >= 0]
        reached = (offsets >= group.lowest) & (offsets <= group.highest)
        demand(reached, f"{group.path} shows offsets that its index does not state")
    return rows


def _verify_appends(task: PartTask, log: Columns, rows: Columns, is_owned: bool, explained: Any, counts: Any) -> Any:
    """Confirms the appends that name an offset of the part; returns those that explain no entry yet."""
    name, size = task.where, len(log["at"])
    possible = (rows["f"] == APPEND) & (rows["type"] != FAIL)
    durable = possible & (rows["type"] == OK) & (rows["acks"] == ACKS_ALL)
    is_repeat = possible & rows["again"]
    here = (rows["offset"] >= task.start) & (rows["offset"] < task.stop)
    at = np.flatnonzero(durable & here)
    entry = rows["offset"][at] - task.start
    demand(entry < size, f"{name}: an acknowledged append is missing")
    demand(log["value"][entry] == rows["value"][at], f"{name}: an append is not where it was acknowledged")
    demand(rows["inv"][at] <= log["at"][entry], f"{name}: an append takes effect before its invocation")
    demand(log["at"][entry] <= rows["ret"][at], f"{name}: an append takes effect after its return")
    np.add.at(counts, entry, 1)
    demand(counts[entry] == 1, f"{name}: an offset was acknowledged twice")
    explained[entry] = True
    weak = np.flatnonzero(possible & ~durable & ~is_repeat & here)
    entry = np.minimum(rows["offset"][weak] - task.start, max(0, size - 1))
    fits = np.zeros(len(weak), np.bool_)
    if size:
        fits = (rows["offset"][weak] - task.start < size) & (log["value"][entry] == rows["value"][weak])
        fits &= rows["inv"][weak] <= log["at"][entry]
    explained[entry[fits]] = True
    anywhere = np.flatnonzero(is_repeat | (possible & (rows["offset"] < 0))) if is_owned else np.empty(0, np.int64)
    loose = np.concatenate((weak[~fits], anywhere))
    sure = durable[loose] & (rows["offset"][loose] < 0)
    latest = np.where(sure & ~is_repeat[loose], rows["ret"][loose], INF)
    return np.stack((rows["value"][loose], rows["inv"][loose], latest, sure, is_repeat[loose])).astype(np.int64)


def _verify_queries(task: PartTask, log: Columns, rows: Columns, is_owned: bool) -> None:
    name, size = task.where, len(log["at"])
    count = rows["count"]
    items = np.repeat(rows["answered"], count)
    offsets, values = rows["offsets"][items], rows["values"][items]
    answered = np.flatnonzero(rows["answered"])
    count, start = count[answered], rows["offset"][answered]
    expected = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(len(offsets))
    if is_owned:
        demand(offsets == expected, f"{name}: a read is not contiguous")
        demand(offsets >= 0, f"{name}: a read shows a record before the first")
        demand(rows["inv"] <= rows["ret"], f"{name}: an operation returned before its invocation")
    inside = np.flatnonzero((offsets >= task.start) & (offsets < task.stop))
    entry = offsets[inside] - task.start
    demand(entry < size, f"{name}: a read shows a record past its end")
    demand(log["value"][entry] == values[inside], f"{name}: a read shows another record")
    shown, hi, final = rows["shown"][answered], rows["hi"][answered], rows["final"][answered]
    last_queries = np.flatnonzero((shown > task.start) & (shown <= task.stop))
    entry = shown[last_queries] - 1 - task.start
    demand(entry < size, f"{name}: a query shows more records than there are")
    unlike = f"{name}: a query saw a length that the log did not have while it ran"
    demand(log["at"][entry] <= rows["ret"][answered][last_queries], unlike)
    capped = (hi >= 0) & (final | (task.upper_bound == "strict"))
    if is_owned:
        contradicting = hi >= 0 if task.upper_bound != "lower-bound-only" else capped
        demand(~contradicting | (shown <= hi), f"{name}: a query contradicts itself")
    absent = np.flatnonzero(capped & (hi >= task.start) & (hi < task.stop) & (hi - task.start < size))
    demand(rows["inv"][answered][absent] <= log["at"][hi[absent] - task.start], unlike)


class _SessionBounds:
    """The bounds that sessions were shown within a part: session, offset, invocation or return, which of them."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def add(self, task: PartTask, rows: Columns) -> None:
        session = rows["process"].astype(np.int64) << 32 | rows["session"]
        written = (rows["f"] == APPEND) & (rows["type"] == OK) & (rows["acks"] == ACKS_ALL)
        shown = np.where(written, rows["offset"], np.where(rows["answered"], rows["shown"] - 1, -1))
        capped = np.where(rows["answered"] & ~rows["final"], rows["hi"], -1)
        for offset, time, kind in ((capped, rows["inv"], 0), (shown, rows["ret"], 1)):
            at = np.flatnonzero((offset >= task.start) & (offset < task.stop))
            self._events.append(np.stack((session[at], offset[at], np.full(len(at), kind), time[at])))

    def verified(self, name: str) -> Bounds:
        """By session the latest invocation with an upper bound and the earliest return; a session must not be shown an
        end at or below an offset that it was shown before the query."""
        session, offset, kind, time = np.concatenate([np.empty((4, 0), np.int64), *self._events], axis=1)
        if not len(session):  # no operation was shown an offset, such as reads of an empty partition
            return {}
        order = np.lexsort((kind, offset, session))
        by_session: Bounds = {}
        session, kind, time = session[order], kind[order], time[order]
        edges = np.flatnonzero(np.concatenate(([True], session[1:] != session[:-1])))
        for a, z in zip(edges.tolist(), [*edges[1:].tolist(), len(session)], strict=True):
            invoked = np.maximum.accumulate(np.where(kind[a:z] == 0, time[a:z], -INF - 1))
            returned = np.where(kind[a:z] == 1, time[a:z], INF + 1)
            demand(invoked <= returned, f"{name}: a client was shown a shorter log than before")
            by_session[int(session[a])] = int(invoked[-1]), int(returned.min())
        return by_session


def _values_of(values: Any) -> tuple[Bounds, Any]:
    """The least and the greatest value of each producer, and the values that are there more than once."""
    twice = np.empty(0, np.int64)
    if not len(values):
        return {}, twice
    producer = values >> 32
    small = producer - int(producer.min())
    small = small.astype(np.uint16) if int(small.max()) < 1 << 16 else small  # radix sort
    order = np.argsort(small, kind="stable")
    grouped, value = producer[order], values[order]
    edges = np.concatenate(([True], grouped[1:] != grouped[:-1]))
    if not (edges[1:] | (value[1:] > value[:-1])).all():
        value = np.sort(values, kind="stable")
        twice = value[1:][value[1:] == value[:-1]]
        edges = np.concatenate(([True], (value[1:] >> 32) != (value[:-1] >> 32)))
    first = np.flatnonzero(edges)
    last = np.append(first[1:], len(value)) - 1
    bounds = {int(low) >> 32: (int(low), int(high)) for low, high in zip(value[first], value[last], strict=True)}
    return bounds, twice


def _verify_partition(name: str, parts: Sequence[tuple[PartTask, Confirmed]], spread: Spread) -> int:
    """Verifies what the parts of a partition must agree on; returns the log's length."""
    length = 0
    latest_moment = -INF - 1
    sessions: dict[int, int] = {}
    for task, confirmed in parts:
        if task.part is not None:
            demand(latest_moment <= confirmed.first, f"{name}: its moments go back")
            latest_moment, length = confirmed.last, length + task.part.length
        for session, (invoked, returned) in (confirmed.sessions or {}).items():
            latest_invocation = sessions.get(session, -INF - 1)
            demand(latest_invocation <= returned, f"{name}: a client was shown a shorter log than before")
            sessions[session] = max(latest_invocation, invoked)
    pairs = sorted(_overlapping([confirmed.values or {} for _, confirmed in parts]))
    files = [tuple(str(_path(parts[number][0])) for number in pair) for pair in pairs]
    twice = np.concatenate([*(confirmed.twice for _, confirmed in parts), *spread(_shared_values, files)])
    unplaced = np.concatenate([confirmed.unplaced for _, confirmed in parts], axis=1)
    demand(np.isin(twice, unplaced[0][unplaced[4] == 1]), f"{name}: it holds a value twice")
    _verify_unplaced(name, np.concatenate([confirmed.unexplained for _, confirmed in parts], axis=1), unplaced)
    return length


def _verify_unplaced(name: str, entries: Any, appends: Any) -> None:
    """Each entry that is not at an offset which its append names is one of the other appends."""
    value, inv, ret, sure, _repeat = appends
    order = np.argsort(value, kind="stable")
    ordered = value[order]
    demand(ordered[1:] != ordered[:-1], f"{name}: a value was appended twice")
    at = np.minimum(np.searchsorted(ordered, entries[0]), max(0, len(ordered) - 1))
    is_appended = ordered[at] == entries[0] if len(ordered) else np.zeros(entries.shape[1], np.bool_)
    demand(is_appended, f"{name}: it holds a value that was not appended")
    append = order[at] if len(ordered) else at[:0]
    demand(inv[append] <= entries[1], f"{name}: an append takes effect before its invocation")
    demand(entries[1] <= ret[append], f"{name}: an append takes effect after its return")
    demand(np.isin(value[sure == 1], entries[0]), f"{name}: an acknowledged append is missing")


def _path(task: PartTask) -> Path:
    assert task.part is not None  # a part without entries has no values
    return Path(task.directory) / task.part.file


def _overlapping(bounds: Sequence[Mapping[int, tuple[int, int]]]) -> set[tuple[int, int]]:
    """The parts, in pairs, whose values of a producer may be the same."""
    of_producer: dict[int, list[tuple[int, int, int]]] = {}
    for number, values in enumerate(bounds):
        for producer, (low, high) in values.items():
            of_producer.setdefault(producer, []).append((low, high, number))
    pairs: set[tuple[int, int]] = set()
    for ranges in of_producer.values():
        open_: list[tuple[int, int]] = []
        for low, high, number in sorted(ranges):
            open_ = [open_range for open_range in open_ if open_range[0] >= low]
            pairs.update((min(number, other), max(number, other)) for _, other in open_)
            open_.append((high, number))
    return pairs


def _shared_values(files: Sequence[str]) -> Any:
    """The values that both files have."""
    one, other = (pq.read_table(require_regular(file), columns=["value"])["value"].to_numpy() for file in files)
    return np.intersect1d(one, other)
