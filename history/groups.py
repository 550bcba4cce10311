"""What members of a consumer group did and were told: a file of checked lines for each, in `history/groups/`.

Times are nanoseconds of CLOCK_MONOTONIC. A commit whose outcome is not known may take effect at any later time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from history.checked import LineWriter, read_lines
from history.schemas import INF

GROUPS: Final = "groups"
_SUFFIX: Final = ".jsonl"
NO_OFFSET: Final = -1


@dataclass(frozen=True)
class Commit:
    """A commit of one partition's offset. `ret` is INF unless it was acknowledged."""

    member: str
    partition: int
    offset: int
    inv: int
    ret: int

    @property
    def acknowledged(self) -> bool:
        return self.ret < INF


@dataclass(frozen=True)
class Fetched:
    """The committed offset of one partition as somebody was told; -1: there is none."""

    member: str
    partition: int
    offset: int
    inv: int
    ret: int


@dataclass(frozen=True)
class Delivered:
    """Records `first` to `last`, all of them, were handed to a member at `at`."""

    member: str
    partition: int
    first: int
    last: int
    at: int


@dataclass(frozen=True)
class Groups:
    """The record of all members. `members`: whose files are there; `defects`: why it is not whole, as sentences."""

    commits: tuple[Commit, ...] = ()
    fetches: tuple[Fetched, ...] = ()
    deliveries: tuple[Delivered, ...] = ()
    members: tuple[str, ...] = ()
    assignments: int = 0
    defects: tuple[str, ...] = ()


class GroupWriter:
    """Writes the file of one member, each line at once. Use it as a context manager."""

    def __init__(self, operations: Path | str, member: str) -> None:
        """`operations`: where the member's operations are recorded. Raises FileExistsError."""
        directory = Path(operations).parent / GROUPS
        directory.mkdir(exist_ok=True)
        self._lines = LineWriter(directory / f"{member}{_SUFFIX}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.write({"what": "closed"})
        self._lines.close()

    def assigned(self, partitions: Sequence[int]) -> None:
        """The member was given these partitions, beside those that it has."""
        self._lines.write({"what": "assigned", "partitions": list(partitions), "t": time.monotonic_ns()})

    def revoked(self, partitions: Sequence[int], *, lost: bool) -> None:
        """The member has these partitions no more; `lost`: others may have had them for a while."""
        self._lines.write({"what": "revoked", "partitions": list(partitions), "lost": lost, "t": time.monotonic_ns()})

    def delivered(self, partition: int, first: int, last: int, at: int) -> None:
        self._lines.write({"what": "delivered", "partition": partition, "first": first, "last": last, "t": at})

    def committing(self, number: int, offsets: Mapping[int, int]) -> None:
        """A commit is about to be sent: before it is, so that one that was never answered is on record too."""
        places = {str(partition): offset for partition, offset in offsets.items()}
        self._lines.write({"what": "committing", "id": number, "offsets": places, "t": time.monotonic_ns()})

    def committed(self, number: int, partitions: Sequence[int]) -> None:
        """These of its partitions were acknowledged."""
        self._lines.write({"what": "committed", "id": number, "partitions": list(partitions), "t": time.monotonic_ns()})

    def fetched(self, offsets: Mapping[int, int], *, inv: int) -> None:
        places = {str(partition): offset for partition, offset in offsets.items()}
        self._lines.write({"what": "fetched", "offsets": places, "inv": inv, "t": time.monotonic_ns()})


def read_groups(run: Path | str) -> Groups:
    """The record of all members of a run; empty for a run without groups."""
    directory = Path(run) / "history" / GROUPS
    commits: list[Commit] = []
    fetches: list[Fetched] = []
    deliveries: list[Delivered] = []
    defects: list[str] = []
    members: list[str] = []
    assignments = 0
    for path in sorted(directory.glob(f"*{_SUFFIX}")) if directory.is_dir() else ():
        lines = read_lines(path)
        defects += [f"{GROUPS}/{path.name}: {each}" for each in lines.defects]
        contents = [content for _, content in lines.contents]
        if lines.torn or not contents or contents[-1].get("what") != "closed":
            defects.append(f"{GROUPS}/{path.name}: it does not say that its member has ended")
        members.append(path.stem)
        try:
            commits += _commits(path.stem, contents)
            fetches += _fetches(path.stem, contents)
            deliveries += [
                Delivered(path.stem, line["partition"], line["first"], line["last"], line["t"])
                for line in contents
                if line["what"] == "delivered"
            ]
            assignments += sum(line["what"] == "assigned" for line in contents)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            defects.append(f"{GROUPS}/{path.name}: a line is not what members write: {type(error).__name__}: {error}")
    return Groups(tuple(commits), tuple(fetches), tuple(deliveries), tuple(members), assignments, tuple(defects))


def _commits(member: str, contents: Sequence[Mapping[str, Any]]) -> Iterator[Commit]:
    answers = {
        (line["id"], int(partition)): line["t"]
        for line in contents
        if line["what"] == "committed"
        for partition in line["partitions"]
    }
    for line in contents:
        if line["what"] == "committing":
            for partition, offset in line["offsets"].items():
                ret = answers.get((line["id"], int(partition)), INF)
                yield Commit(member, int(partition), int(offset), line["t"], ret)


def _fetches(member: str, contents: Sequence[Mapping[str, Any]]) -> Iterator[Fetched]:
    for line in contents:
        if line["what"] == "fetched":
            for partition, offset in line["offsets"].items():
                yield Fetched(member, int(partition), int(offset), line["inv"], line["t"])
