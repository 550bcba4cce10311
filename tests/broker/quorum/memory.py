"""A log and a disk in memory, for the state machine alone. One entry is one record; entries are (epoch, value)."""

import struct
from dataclasses import dataclass, field

from broker.quorum.election_state import ElectionState

LEADER_CHANGE = -1
"""The value of the control record that opens an epoch."""
VOTERS = -2
"""The value of a control record that names the voters."""

_ENTRY = struct.Struct(">iq")
Entry = tuple[int, int]


def pack(entries: list[Entry]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def unpack(records: bytes) -> list[Entry]:
    return [(epoch, value) for epoch, value in _ENTRY.iter_unpack(records)]


@dataclass
class MemoryLog:
    """What the page cache shows (`entries`) and what a power cut leaves (`durable`)."""

    entries: list[Entry] = field(default_factory=list)
    durable: list[Entry] = field(default_factory=list)
    durable_end_offset: int = 0
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    @property
    def epochs(self) -> "MemoryLog":
        return self

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        end = log_end_offset
        while end > 0 and self.entries[end - 1][0] > epoch:
            end -= 1
        return (self.entries[end - 1][0], end) if end else (-1, -1)

    def append(self, entries: list[Entry]) -> None:
        self.entries.extend(entries)

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.durable_end_offset = min(self.durable_end_offset, offset)

    def begin_at(self, offset: int, epoch: int) -> None:
        """Nothing below `offset` is there any more; its last record had this epoch."""
        self.entries = [(epoch, LEADER_CHANGE)] * offset
        self.log_start_offset = offset
        self.flush()

    def flush(self, snapshot: list[Entry] | None = None) -> None:
        """Make what the log held at the time of the snapshot durable."""
        self.durable = list(self.entries if snapshot is None else snapshot)
        end = 0
        for kept, present in zip(self.durable, self.entries, strict=False):
            if kept != present:
                break
            end += 1
        self.durable_end_offset = end

    def read(self, offset: int, limit: int) -> bytes:
        return pack(self.entries[offset : offset + limit])

    def power_loss(self) -> "MemoryLog":
        return MemoryLog(list(self.durable), list(self.durable), len(self.durable))


@dataclass
class MemoryDisk:
    """The quorum-state file and all its earlier contents."""

    election: ElectionState = field(default_factory=ElectionState)
    history: list[ElectionState] = field(default_factory=list)

    def persist(self, state: ElectionState) -> None:
        self.election = state
        self.history.append(state)
