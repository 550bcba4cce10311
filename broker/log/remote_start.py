"""The start of a log whose first records are in remote storage only: the file `remote-log-start` in its directory.

Without the file a log starts with its first segment, or inside it. With the file it starts at or above the offset in
it, below the first segment. The file is durable before the first local segment is removed whose records the log keeps,
and it is removed before a log starts again without such records. A file whose offset is not below the first segment is
of an interrupted bootstrap, and has no meaning.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.log.checkpoint import AtomicFile, CorruptCheckpointError
from broker.log.epochs import EpochEntry
from broker.log.recovery import base_offsets
from broker.ports import Disk
from broker.producers.producer_state import ProducerState

FILE = "remote-log-start"


class StateBelow(NamedTuple):
    """The state of a log's records from its start to before an offset, as remote storage has it (K1023-11).

    `log_start`: the first of these offsets. `epochs`: the epochs of the records. `producers`: the state of producers
    after the last one.
    """

    log_start: int
    epochs: Sequence[EpochEntry]
    producers: ProducerState


def remote_start_of(disk: Disk, directory: str, known_start: int | None = None) -> int | None:
    """Where the log of a directory starts if that is below its first segment. `known_start`: instead of the offset
    in the file. Raises `CorruptCheckpointError`."""
    offset = RemoteStart(disk, directory).read() if known_start is None else known_start
    bases = base_offsets(disk, directory)
    return offset if offset is not None and bases and offset < bases[0] else None


class RemoteStart:
    """The file of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._file = AtomicFile(disk, f"{directory}/{FILE}")
        self._is_set = disk.exists(self._file.path)

    def read(self) -> int | None:
        """The offset in the file; None without it. Raises `CorruptCheckpointError`."""
        text = self._file.read()
        if text is None:
            return None
        if not text.endswith("\n") or not text[:-1].isdecimal():
            remedy = "move the directory away: the replica is fetched again from its leader"
            raise CorruptCheckpointError(f"{self._file.path}: expected an offset, found {text!r}; {remedy}")
        return int(text)

    async def write(self, offset: int) -> None:
        """Store the log's start, durably."""
        await self._file.write(f"{offset}\n")
        self._is_set = True

    async def remove(self) -> None:
        """The log has no records below its first segment any more; durable on return."""
        if self._is_set:
            self._disk.unlink(self._file.path)
            await self._disk.sync_directory(self._directory)
            self._is_set = False
