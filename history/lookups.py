"""The record of lookups by timestamp: a file of checksummed lines for each client, in `history/lookups/`.

A lookup asks for the first record that is not earlier than a timestamp (ListOffsets). A sight is the timestamps of
consecutive records that the client has read. Times are nanoseconds of CLOCK_MONOTONIC, timestamps milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history.checksummed_lines import read_lines
from history.client_lines import ClientLineWriter

LOOKUPS: Final = "lookups"
_SUFFIX: Final = ".jsonl"
NO_RECORD: Final = -1
_LARGEST: Final = 1 << 62


@dataclass(frozen=True)
class Lookup:
    """An answered lookup. `offset`: the answer, `NO_RECORD` if the log has no such record."""

    client: str
    partition: int
    timestamp: int
    offset: int
    inv: int
    ret: int


@dataclass(frozen=True)
class Sight:
    """The timestamps of the records from the offset `first` on, as a client had read them at `at`."""

    client: str
    partition: int
    first: int
    timestamps: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class LookupRecords:
    """The record of all clients. `clients`: those with a file; `defects`: why it is incomplete, as sentences."""

    lookups: tuple[Lookup, ...] = ()
    sights: tuple[Sight, ...] = ()
    clients: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()


class LookupWriter(ClientLineWriter):
    """Writes the lookups and sights of one client."""

    def __init__(self, operations: Path | str, client: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(operations, LOOKUPS, _SUFFIX, "client", client, clock)

    def looked_up(self, partition: int, timestamp: int, offset: int, *, inv: int) -> None:
        fields = {"partition": partition, "timestamp": timestamp, "offset": offset}
        self._lines.write({"what": "lookup", **fields, "inv": inv, "t": self.clock()})

    def seen(self, partition: int, first: int, timestamps: Sequence[int]) -> None:
        fields = {"partition": partition, "first": first, "timestamps": list(timestamps)}
        self._lines.write({"what": "seen", **fields, "t": self.clock()})


def read_lookups(run: Path | str) -> LookupRecords:
    """The record of all clients of a run; empty for a run without lookups. Damage is a defect, never an exception."""
    directory = Path(run) / "history" / LOOKUPS
    read = [_Reader(path) for path in sorted(directory.glob(f"*{_SUFFIX}"))] if directory.is_dir() else []
    return LookupRecords(
        tuple(lookup for reader in read for lookup in reader.lookups),
        tuple(sight for reader in read for sight in reader.sights),
        tuple(reader.client for reader in read),
        tuple(f"{LOOKUPS}/{reader.client}{_SUFFIX}: {defect}" for reader in read for defect in reader.defects),
    )


class _Reader:
    """Reads the file of one client. Lines that no client would write are defects, and left out."""

    def __init__(self, path: Path) -> None:
        self.client = path.stem
        self.lookups: list[Lookup] = []
        self.sights: list[Sight] = []
        self.defects: list[str] = []
        self._latest = 0
        try:
            lines = read_lines(path)
        except OSError as error:
            self.defects.append(f"it cannot be read ({error.strerror})")
            return
        self.defects += lines.defects
        if lines.torn or not lines.contents or lines.contents[-1][1].get("what") != "closed":
            self.defects.append("it does not say that its client has ended")
        if not lines.contents or lines.contents[0][1].get("client") != self.client:
            self.defects.append("its first line does not say that it is this client's")
        for at, line in lines.contents[1:-1]:
            try:
                self._take(line)
            except (KeyError, TypeError, ValueError) as error:
                self.defects.append(f"line {at} is not what clients write: {error or type(error).__name__}")

    def _take(self, line: Mapping[str, Any]) -> None:
        if line["what"] not in ("seen", "lookup"):
            raise ValueError(f"what {line['what']!r}")
        partition, moment = _number(line["partition"], 0), _number(line["t"], self._latest)
        self._latest = moment
        if line["what"] == "seen":
            timestamps = tuple(_number(timestamp, -1) for timestamp in line["timestamps"])
            self.sights.append(Sight(self.client, partition, _number(line["first"], 0), timestamps, moment))
            return
        timestamp, offset, inv = (
            _number(line["timestamp"], 0),
            _number(line["offset"], NO_RECORD),
            _number(line["inv"], 0),
        )
        if inv > moment:
            raise ValueError("an answer before its question")
        self.lookups.append(Lookup(self.client, partition, timestamp, offset, inv, moment))


def _number(value: object, lowest: int) -> int:
    if type(value) is not int or not lowest <= value < _LARGEST:
        raise ValueError(f"{value!r} is not a number from {lowest} on")
    return value
