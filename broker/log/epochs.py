"""Where each leader epoch begins in a log (KIP-101), in memory and in the file `leader-epoch-checkpoint`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from broker.log.checkpoint import AtomicFile, CorruptCheckpointError, format_lines, parse_lines
from broker.ports import Disk

UNDEFINED = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record (or, without records yet, the log's end when it began)."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log. Invariant: epochs and start offsets both rise from entry to entry.

    Methods that end in `_durably` return when the file holds what memory holds. The others change memory only: their
    caller brings the file up to date with `write_durably` at the moment that the protocol asks for.
    """

    def __init__(self, disk: Disk, path: str, entries: Iterable[EpochEntry] = ()) -> None:
        self._file = AtomicFile(disk, path)
        self._entries: list[EpochEntry] = []
        self._unsynced = self._drops_live = False
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochCache:
        """Read the file; no entries when there is none. Raises `CorruptCheckpointError`."""
        cache = cls(disk, path)
        text = cache._file.read()
        if text is None:
            return cache
        remedy = "remove the file: it is made anew from the log"
        for number, entry in enumerate(parse_lines(path, text, 2, remedy), 3):
            try:
                epoch, start_offset = map(int, entry)
                cache.assign(epoch, start_offset)
            except ValueError as error:
                raise CorruptCheckpointError(f"{path}:{number}: {' '.join(entry)!r}: {error}; {remedy}") from None
            if len(cache._entries) != number - 2:
                raise CorruptCheckpointError(f"{path}:{number}: {' '.join(entry)!r}: offsets must rise; {remedy}")
        return cache

    def mutate(self, *, unsynced: bool, drops_live: bool) -> None:
        """Switch on the mutants `epoch_file_unsynced` and `trim_drops_live_epoch`."""
        self._unsynced, self._drops_live = unsynced, drops_live

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The largest epoch, -1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and where it ends (H1, K101-5).

        The latest epoch ends at the log's end. Below the first known epoch the answer is the one asked for, ending
        where the first one starts (H2); so it is below -1, as in Kafka. (-1, -1): nothing is known, `epoch` is -1 or
        larger than all that are known.
        """
        if epoch == UNDEFINED or epoch > self.latest_epoch or not self._entries:
            return (UNDEFINED, UNDEFINED)
        above = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if above == len(self._entries):
            return (self.latest_epoch, log_end_offset)
        end = self._entries[above].start_offset
        return (self._entries[above - 1].epoch if above else epoch, end)

    def epoch_at(self, offset: int) -> int:
        """The epoch that `offset` has, or will have as the next record; -1 below the first entry."""
        if self._entries and offset >= self._entries[-1].start_offset:
            return self._entries[-1].epoch
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[index].epoch if index >= 0 else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin `epoch` at `start_offset`; false if it has begun. Raises `ValueError` for an older one (K101-1).

        Epochs that begin at or past `start_offset` have no record and go: the file never contradicts the log.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset}: neither may be negative")
        if epoch == self.latest_epoch:
            return False
        if epoch < self.latest_epoch:
            raise ValueError(f"epoch {epoch} from offset {start_offset} follows epoch {self.latest_epoch}")
        self.truncate_from_end(start_offset)
        self._entries.append(EpochEntry(epoch, start_offset))
        return True

    async def assign_durably(self, epoch: int, start_offset: int) -> None:
        """`assign`, and on return the file has it, also when an earlier call has put it into memory only."""
        self.assign(epoch, start_offset)
        await self.write_durably()

    def truncate_from_end(self, offset: int) -> bool:
        """Drop the epochs that begin at or past `offset`, the log's new end (K101-7, H8, H27); whether any went."""
        kept = len(self._entries)
        while kept and self._entries[kept - 1].start_offset >= offset:
            kept -= 1
        changed = kept < len(self._entries)
        del self._entries[kept:]
        return changed

    def truncate_from_start(self, offset: int) -> bool:
        """Drop the epochs that end at or before `offset`, the new start of the log; whether anything changed (K101-11).

        The epoch that `offset` lies in stays and begins there: the live epoch is never forgotten (H27).
        """
        covering = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        if covering < 0 or (covering == 0 and self._entries[0].start_offset == offset):
            return False
        if self._drops_live:
            self._entries = [entry for entry in self._entries if entry.start_offset >= offset]
            return True
        self._entries[: covering + 1] = [EpochEntry(self._entries[covering].epoch, offset)]
        return True

    def replace(self, entries: Iterable[EpochEntry]) -> bool:
        """Take over what the log's batches say; whether that differs from what was known."""
        before, self._entries = self._entries, []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        return before != self._entries

    def clear(self) -> None:
        """Forget all epochs: the log begins anew."""
        self._entries.clear()

    async def write_durably(self) -> None:
        """Bring the file up to date."""
        text = format_lines([f"{epoch} {start}" for epoch, start in self._entries])
        if self._unsynced:
            self._file.write_unsynced(text)
        else:
            await self._file.write(text)
