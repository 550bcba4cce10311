"""The record of a consumer group: a file of checksummed lines for each member, in `history/groups/`.

Times are nanoseconds of CLOCK_MONOTONIC. A commit of unknown outcome may take effect at any later time. So may an
acknowledged one that the library had sent twice: the first request may still be on its way in another connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from history.checksummed_lines import read_lines
from history.client_lines import ClientLineWriter
from history.schemas import INF
from history.time_scale import ORDINARY

GROUPS: Final = "groups"
_SUFFIX: Final = ".jsonl"
NO_OFFSET: Final = -1
ATTEMPT_S: Final = 4.0
"""The time that the members' library waits for an answer before it closes the connection and sends a commit again on
another one. It is multiplied by the time scale of a run's world."""


@dataclass(frozen=True)
class Commit:
    """A commit of one partition's offset. `ret` is INF unless it was acknowledged. `attempt_s`: how long the member's
    library waited for an answer."""

    member: str
    partition: int
    offset: int
    inv: int
    ret: int
    attempt_s: float = ATTEMPT_S

    @property
    def acknowledged(self) -> bool:
        return self.ret < INF

    @property
    def over(self) -> int:
        """The time after which it cannot take effect any more; INF if unknown. A member without an answer within the
        time of an attempt may have sent it twice, and the order of arrival is unknown. A connection that the other side
        has closed delivers nothing more, so a commit that was sent again earlier had failed before."""
        return self.ret if self.ret - self.inv < self.attempt_s * 1e9 else INF


@dataclass(frozen=True)
class Fetched:
    """The committed offset of one partition as a member was shown it; -1 without one."""

    member: str
    partition: int
    offset: int
    inv: int
    ret: int


@dataclass(frozen=True)
class Delivered:
    """All records from `first` to `last` were handed to a member at `at`."""

    member: str
    partition: int
    first: int
    last: int
    at: int


@dataclass(frozen=True)
class HeldPartition:
    """A member held a partition from `since` until `until`; INF if it did not record that it gave it back."""

    member: str
    partition: int
    since: int
    until: int = INF


@dataclass(frozen=True)
class GroupRecords:
    """The record of all members. `members`: those with a file; `held`: the partitions that they were assigned;
    `defects`: why it is incomplete, as sentences."""

    commits: tuple[Commit, ...] = ()
    fetches: tuple[Fetched, ...] = ()
    deliveries: tuple[Delivered, ...] = ()
    members: tuple[str, ...] = ()
    assignments: int = 0
    defects: tuple[str, ...] = ()
    held: tuple[HeldPartition, ...] = ()

    @property
    def partitions(self) -> set[int]:
        """The partitions that the record mentions."""
        operations: tuple[Commit | Fetched | Delivered, ...] = (*self.commits, *self.fetches, *self.deliveries)
        return {operation.partition for operation in operations}


class GroupWriter(ClientLineWriter):
    """Writes what one member of a group was given, delivered and committed."""

    def __init__(self, operations: Path | str, member: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(operations, GROUPS, _SUFFIX, "member", member, clock)

    def assigned(self, partitions: Sequence[int]) -> None:
        """The member was given these partitions, in addition to those that it has."""
        self._lines.write({"what": "assigned", "partitions": list(partitions), "t": self.clock()})

    def revoked(self, partitions: Sequence[int], *, lost: bool) -> None:
        """The member no longer has these partitions; `lost`: others may have had them for a while."""
        self._lines.write({"what": "revoked", "partitions": list(partitions), "lost": lost, "t": self.clock()})

    def delivered(self, partition: int, first: int, last: int, at: int) -> None:
        self._lines.write({"what": "delivered", "partition": partition, "first": first, "last": last, "t": at})

    def committing(self, number: int, offsets: Mapping[int, int]) -> None:
        """A commit is about to be sent. Recorded before it is, so that an unanswered one is on record too."""
        places = {str(partition): offset for partition, offset in offsets.items()}
        self._lines.write({"what": "committing", "id": number, "offsets": places, "t": self.clock()})

    def committed(self, number: int, partitions: Sequence[int]) -> None:
        """These of its partitions were acknowledged."""
        self._lines.write({"what": "committed", "id": number, "partitions": list(partitions), "t": self.clock()})

    def fetched(self, offsets: Mapping[int, int], *, inv: int) -> None:
        places = {str(partition): offset for partition, offset in offsets.items()}
        self._lines.write({"what": "fetched", "offsets": places, "inv": inv, "t": self.clock()})


def read_groups(run: Path | str, time_scale: float = ORDINARY) -> GroupRecords:
    """The record of all members of a run; empty for a run without groups. Damage is a defect, never an exception.
    `time_scale`: of the run's world."""
    directory = Path(run) / "history" / GROUPS
    read = (
        [_Reader(path, ATTEMPT_S * time_scale) for path in sorted(directory.glob(f"*{_SUFFIX}"))]
        if directory.is_dir()
        else []
    )
    return GroupRecords(
        tuple(commit for reader in read for commit in reader.commits.values()),
        tuple(fetch for reader in read for fetch in reader.fetches),
        tuple(delivery for reader in read for delivery in reader.deliveries),
        tuple(reader.member for reader in read),
        sum(reader.assignments for reader in read),
        tuple(f"{GROUPS}/{reader.member}{_SUFFIX}: {defect}" for reader in read for defect in reader.defects),
        tuple(hold for reader in read for hold in (*reader.gave_back, *reader.holds.values())),
    )


class _Reader:
    """Reads the file of one member. Lines that no member would write are defects, and left out. `attempt_s`: as of
    `Commit`."""

    def __init__(self, path: Path, attempt_s: float) -> None:
        self.member = path.stem
        self._attempt_s = attempt_s
        self.commits: dict[tuple[int, int], Commit] = {}
        """By the commit's number and the partition."""
        self.fetches: list[Fetched] = []
        self.deliveries: list[Delivered] = []
        self.assignments = 0
        self.holds: dict[int, HeldPartition] = {}
        """By partition, what was assigned and not revoked."""
        self.gave_back: list[HeldPartition] = []
        self.defects: list[str] = []
        try:
            lines = read_lines(path)
        except OSError as error:
            self.defects.append(f"it cannot be read ({error.strerror})")
            return
        self.defects += lines.defects
        if lines.torn or not lines.contents or lines.contents[-1][1].get("what") != "closed":
            self.defects.append("it does not say that its member has ended")
        if not lines.contents or lines.contents[0][1].get("member") != self.member:
            self.defects.append("its first line does not say that it is this member's")
        takes: dict[object, Callable[[Mapping[str, Any]], None]] = {
            "assigned": self._assigned,
            "revoked": self._revoked,
            "delivered": self._delivered,
            "committing": self._committing,
            "committed": self._committed,
            "fetched": self._fetched,
            "member": lambda _: None,
            "closed": lambda _: None,
        }
        for at, line in lines.contents:
            try:
                takes[line["what"]](line)
            except (KeyError, TypeError, ValueError) as error:
                self.defects.append(f"line {at} is not what members write: {error or type(error).__name__}")

    def _assigned(self, line: Mapping[str, Any]) -> None:
        _require(all(_is_partition(number) for number in line["partitions"]) and _is_time(line["t"]), "its partitions")
        self.assignments += 1
        for partition in line["partitions"]:
            self.holds.setdefault(partition, HeldPartition(self.member, partition, line["t"]))

    def _revoked(self, line: Mapping[str, Any]) -> None:
        _require(all(_is_partition(number) for number in line["partitions"]) and _is_time(line["t"]), "its partitions")
        for partition in line["partitions"]:
            if partition in self.holds:
                self.gave_back.append(replace(self.holds.pop(partition), until=line["t"]))

    def _delivered(self, line: Mapping[str, Any]) -> None:
        first, last = line["first"], line["last"]
        _require(_is_offset(first) and _is_offset(last) and first <= last, "its offsets")
        _require(_is_partition(line["partition"]) and _is_time(line["t"]), "its partition or its time")
        self.deliveries.append(Delivered(self.member, line["partition"], first, last, line["t"]))

    def _committing(self, line: Mapping[str, Any]) -> None:
        _require(_is_time(line["t"]) and type(line["id"]) is int, "its time or its number")
        for partition, offset in _places(line["offsets"]):
            _require((line["id"], partition) not in self.commits, "a number that was used before")
            _require(_is_offset(offset), "its offsets")
            self.commits[line["id"], partition] = Commit(
                self.member, partition, offset, line["t"], INF, self._attempt_s
            )

    def _committed(self, line: Mapping[str, Any]) -> None:
        _require(_is_time(line["t"]), "its time")
        for partition in line["partitions"]:
            commit = self.commits[line["id"], partition]
            _require(not commit.acknowledged and commit.inv <= line["t"], "answered twice, or before it was sent")
            self.commits[line["id"], partition] = replace(commit, ret=line["t"])

    def _fetched(self, line: Mapping[str, Any]) -> None:
        _require(_is_time(line["inv"]) and _is_time(line["t"]) and line["inv"] <= line["t"], "its times")
        for partition, offset in _places(line["offsets"]):
            _require(offset == NO_OFFSET or _is_offset(offset), "its offsets")
            self.fetches.append(Fetched(self.member, partition, offset, line["inv"], line["t"]))


def _places(offsets: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """Partitions as numbers, each with its offset. JSON has them as text."""
    places = [(int(partition), offset) for partition, offset in dict(offsets).items()]
    _require(all(_is_partition(partition) for partition, _ in places), "its partitions")
    return places


def _require(holds: bool, subject: str) -> None:
    if not holds:
        raise ValueError(subject)


def _is_partition(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value < INF


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value < INF
