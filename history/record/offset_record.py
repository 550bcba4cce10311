"""The record of operations on offsets: a file of checksummed lines for each client, in `history/groups/` for the
members of a consumer group, and in `history/lookups/` for clients that look up offsets by timestamp.

The first line names the client, the last one is its orderly end. The others are operations and the events of a group,
for one partition each. Times are nanoseconds of CLOCK_MONOTONIC, timestamps milliseconds. A commit is announced before
it is sent, by a line of unknown outcome.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec
from msgspec import Meta

from history.checksummed_lines import LineReader, LineWriter
from history.record.schemas import INF

ASSIGN: Final = "assign"
REVOKE: Final = "revoke"
LOSE: Final = "lose"
DELIVER: Final = "deliver"
COMMIT: Final = "commit"
FETCH: Final = "fetch"
LOOKUP: Final = "lookup"
SIGHT: Final = "sight"

GROUPS: Final = "groups"
LOOKUPS: Final = "lookups"
_FUNCTIONS: Final = {GROUPS: (ASSIGN, REVOKE, LOSE, DELIVER, COMMIT, FETCH), LOOKUPS: (LOOKUP, SIGHT)}
"""What the files of a folder have."""
_SUFFIX: Final = ".jsonl"
_CLOSED: Final = {"closed": True}

NO_OFFSET: Final = -1
ATTEMPT_S: Final = 4.0
"""The time that the members' library waits for an answer before it closes the connection and sends a commit again on
another one. It is multiplied by the time scale of a run's world."""

Time = Annotated[int, Meta(ge=0, lt=INF)]


class OffsetOperation(msgspec.Struct, frozen=True):
    """An operation on the offsets of a partition, or an event at `inv` and `ret`.

    `assign`, `revoke`, `lose`: the member was given the partition, gave it back, or has lost it: others may have had it
    for a while. `deliver`: all records from `first` to `offset` were handed to the member. `commit`, `fetch`: of the
    group's committed offset. `lookup`: of the first record that is not earlier than `timestamp` (ListOffsets). `sight`:
    the client had read records with these `timestamps`, from the offset `first` on."""

    f: str
    client: str
    partition: Annotated[int, Meta(ge=0, lt=1 << 31)]
    inv: Time
    ret: Annotated[int, Meta(ge=0, le=INF)]
    """INF: a commit without an acknowledgement. It may take effect at any later time."""
    offset: Annotated[int, Meta(ge=NO_OFFSET, lt=INF)] = NO_OFFSET
    """Of a fetch and a lookup: the answer, or `NO_OFFSET`."""
    first: Time = 0
    timestamp: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    timestamps: tuple[Annotated[int, Meta(ge=-1, lt=1 << 62)], ...] = ()
    id: int = 0
    """Of a commit: the number of the request, which may have several partitions."""
    attempt_s: float = ATTEMPT_S
    """Of a commit: how long the member's library waited for an answer."""

    def __post_init__(self) -> None:
        if self.inv > self.ret or (self.ret == INF and self.f != COMMIT):
            raise ValueError("its times")
        if self.offset < {DELIVER: self.first, COMMIT: 0}.get(self.f, NO_OFFSET):
            raise ValueError("its offsets")

    @property
    def acknowledged(self) -> bool:
        return self.ret < INF

    @property
    def last_time(self) -> int:
        """The latest known time of the operation."""
        return self.ret if self.acknowledged else self.inv

    @property
    def over(self) -> int:
        """The time after which a commit cannot take effect any more; INF if unknown. A member without an answer within
        the time of an attempt may have sent it twice: the first request may still be on its way in another connection.
        A connection that the other side has closed delivers nothing more, so a commit that was sent again earlier had
        failed before."""
        return self.ret if self.ret - self.inv < self.attempt_s * 1e9 else INF


class OffsetWriter:
    """Records the operations of one client, each at once. Use it as a context manager.

    `operations`: the directory of the client's other operations, beside the folder. Raises FileExistsError."""

    def __init__(
        self, operations: Path | str, folder: str, client: str, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.clock = clock
        self._commits = 0
        path = Path(operations).parent / folder / (client + _SUFFIX)
        path.parent.mkdir(exist_ok=True)
        self._lines = LineWriter(path)
        self._lines.write({"client": client})

    def add(self, f: str, partition: int, *, inv: int | None = None, ret: int | None = None, **columns: Any) -> None:
        """An operation that ends now unless `ret` says otherwise, with the columns of `OffsetOperation`; without `inv`,
        an event."""
        end = self.clock() if ret is None else ret
        self._lines.write({"f": f, "partition": partition, "inv": end if inv is None else inv, "ret": end, **columns})

    def event(self, f: str, partitions: Iterable[int]) -> None:
        """An event of the group that changes which of these partitions the member has."""
        now = self.clock()
        for partition in partitions:
            self.add(f, partition, ret=now)

    def commit(self, offsets: Mapping[int, int], attempt_s: float) -> Callable[[Iterable[int]], None]:
        """Announces a commit of these partitions, which is then sent. Returns what records the acknowledged ones."""
        self._commits += 1
        columns: dict[str, Any] = {"inv": self.clock(), "id": self._commits, "attempt_s": attempt_s}

        def acknowledged(partitions: Iterable[int]) -> None:
            ret = self.clock()
            for partition in partitions:
                self.add(COMMIT, partition, ret=ret, offset=offsets[partition], **columns)

        for partition, offset in offsets.items():
            self.add(COMMIT, partition, ret=INF, offset=offset, **columns)
        return acknowledged

    def fetched(self, offsets: Mapping[int, int], inv: int) -> None:
        """One answer has the committed offsets of these partitions."""
        now = self.clock()
        for partition, offset in offsets.items():
            self.add(FETCH, partition, inv=inv, ret=now, offset=offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Record the orderly end of the client, and close the file."""
        if not self._lines.closed:
            self._lines.write(_CLOSED)
            self._lines.close()


@dataclass(frozen=True)
class OffsetRecord:
    """The operations of all clients, those of each in their order. `clients`: those with a file; `defects`: why the
    record is incomplete, as sentences."""

    operations: tuple[OffsetOperation, ...] = ()
    clients: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()

    def of(self, f: str) -> list[OffsetOperation]:
        return [operation for operation in self.operations if operation.f == f]


def read_offsets(run: Path | str, folder: str) -> OffsetRecord:
    """The record in a folder of a run; empty for a run without it. Lines that no client would write are defects, and
    left out. Damage is a defect, never an exception."""
    paths = sorted((Path(run) / "history" / folder).glob(f"*{_SUFFIX}"))
    defects: list[str] = []
    operations = tuple(operation for path in paths for operation in _operations_of(path, defects))
    return OffsetRecord(operations, tuple(path.stem for path in paths), tuple(defects))


def _operations_of(path: Path, defects: list[str]) -> Iterator[OffsetOperation]:
    """The operations of one client; adds what is wrong with its file to `defects`. A commit is there once."""
    name, reader = f"{path.parent.name}/{path.name}", LineReader(path)
    try:
        lines = list(reader.contents())
    except OSError as error:
        defects.append(f"{name}: it cannot be read ({error.strerror})")
        return
    defects += [f"{name}: {defect}" for defect in reader.defects]
    if lines and lines[-1][1] == _CLOSED and not reader.is_torn:
        lines.pop()
    else:
        defects.append(f"{name}: it does not say that its client has ended")
    if lines and lines[0][1] == {"client": path.stem}:
        del lines[0]
    else:
        defects.append(f"{name}: its first line does not say that it is this client's")
    commits: dict[tuple[int, int], OffsetOperation] = {}
    latest = 0
    for number, line in lines:
        try:
            operation = _operation(line, path, commits)
            if operation.last_time < latest:
                raise ValueError("its time is before that of an earlier line")
        except (ValueError, msgspec.ValidationError) as error:
            defects.append(f"{name}: line {number} is not what clients write: {error}")
            continue
        latest = operation.last_time
        if operation.f == COMMIT:
            commits[operation.id, operation.partition] = operation
        else:
            yield operation
    yield from commits.values()


def _operation(
    line: Mapping[str, Any], path: Path, commits: Mapping[tuple[int, int], OffsetOperation]
) -> OffsetOperation:
    """The operation of a line of a client with these earlier commits. Raises ValueError and msgspec.ValidationError."""
    operation = msgspec.convert({**line, "client": path.stem}, OffsetOperation)
    if operation.f not in _FUNCTIONS[path.parent.name]:
        raise ValueError(f"f is {operation.f!r}")
    if operation.f == COMMIT:
        announced = msgspec.structs.replace(operation, ret=INF) if operation.acknowledged else None
        if commits.get((operation.id, operation.partition)) != announced:
            raise ValueError("a commit that was not announced, or twice")
    return operation
