"""The start offset of each leader epoch in a log (KIP-101), in memory and in the file `leader-epoch-checkpoint`."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from broker.log.checkpoint import AtomicFile, CorruptCheckpointError, format_lines, parse_lines
from broker.ports import Disk

UNDEFINED = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record (without records yet: the log's end when the epoch started)."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log. Invariant: epochs and start offsets both rise from entry to entry.

    Methods that end in `_durably` return when the file has the content of memory. The others change memory only; their
    caller updates the file with `write_durably` when the protocol requires it.
    """

    def __init__(self, disk: Disk, path: str, entries: Iterable[EpochEntry] = ()) -> None:
        self._file = AtomicFile(disk, path)
        self._entries: list[EpochEntry] = []
        self._unsynced = self._drops_live = False
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochCache":
        """Read the file; no entries without a file. Raises `CorruptCheckpointError`."""
        cache = cls(disk, path)
        text = cache._file.read()
        if text is None:
            return cache
        remedy = "remove the file: it is rebuilt from the log"
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
        """The largest epoch; -1 without entries."""
        return self._entries[-1].epoch if self._entries else UNDEFINED

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch <= `epoch`, and its end offset (H1, K101-5).

        The latest epoch ends at the log's end. For an epoch below the first known one the answer is that epoch itself,
        with the start of the first known one as its end (H2); this includes epochs below -1, as in Kafka. (-1, -1):
        unknown, because `epoch` is -1 or larger than all known epochs.
        """
        if epoch == UNDEFINED or epoch > self.latest_epoch or not self._entries:
            return (UNDEFINED, UNDEFINED)
        above = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if above == len(self._entries):
            return (self.latest_epoch, log_end_offset)
        end = self._entries[above].start_offset
        return (self._entries[above - 1].epoch if above else epoch, end)

    def epoch_at(self, offset: int) -> int:
        """The epoch of `offset`, or of the next record at that offset; -1 below the first entry."""
        if self._entries and offset >= self._entries[-1].start_offset:
            return self._entries[-1].epoch
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[index].epoch if index >= 0 else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Start `epoch` at `start_offset`; false if it has started before. Raises `ValueError` for an older one
        (K101-1).

        Epochs that start at or past `start_offset` have no record and are dropped: the file never contradicts the log.
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
        """As `assign`; durable on return, even if an earlier call has changed only memory."""
        self.assign(epoch, start_offset)
        await self.write_durably()

    def truncate_from_end(self, offset: int) -> bool:
        """Drop the epochs that start at or past `offset`, the log's new end (K101-7, H8, H27); whether any was
        dropped."""
        kept_count = len(self._entries)
        while kept_count and self._entries[kept_count - 1].start_offset >= offset:
            kept_count -= 1
        changed = kept_count < len(self._entries)
        del self._entries[kept_count:]
        return changed

    def truncate_from_start(self, offset: int) -> bool:
        """Drop the epochs that end at or before `offset`, the new start of the log; whether anything changed (K101-11).

        The epoch that contains `offset` stays and starts there: the live epoch is never forgotten (H27).
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
        """Replace the entries by those of the log's batches; returns whether they differ."""
        old_entries, self._entries = self._entries, []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        return old_entries != self._entries

    def clear(self) -> None:
        """Forget all epochs, because the log starts again empty."""
        self._entries.clear()

    async def write_durably(self) -> None:
        """Write the current entries to the file."""
        text = format_lines([f"{epoch} {start}" for epoch, start in self._entries])
        if self._unsynced:
            self._file.write_unsynced(text)
        else:
            await self._file.write(text)
