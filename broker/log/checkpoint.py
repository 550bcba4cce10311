"""Small text files that are replaced as a whole: after a power cut a file has its old or its new text, never a
mixture."""

import asyncio
from collections.abc import Mapping
from functools import partial

from broker.descriptors import with_descriptors
from broker.errors import StartupError
from broker.ports import Disk

VERSION = "0"

Key = tuple[str, int]
"""A topic's name and the number of a partition."""


class CorruptCheckpointError(StartupError):
    """A checkpoint file does not have its format; the message names the file, the line and the remedy."""


class AtomicFile:
    """A file that is only replaced as a whole, durably (H10)."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._turn = asyncio.Lock()

    def read(self) -> str | None:
        """The text; None without the file. Raises `CorruptCheckpointError` for bytes that are not text."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return None
        try:
            return file.read(0, file.size()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptCheckpointError(f"{self.path}: is not text: {error}") from error
        finally:
            file.close()

    async def write(self, text: str) -> None:
        """Replace the text; durable on return. Writers take turns, so the text of the last caller remains.

        Waits until a descriptor is free. Raises `OSError` of the disk.
        """
        async with self._turn:
            await with_descriptors(partial(self._disk.replace_file, self.path, text.encode("utf-8")))

    def write_unsynced(self, text: str) -> None:
        """The mutant `epoch_file_unsynced`: replace the text in the page cache only."""
        file = self._disk.open(self.path, create=True)
        file.truncate(0)
        file.append([text.encode("utf-8")])
        file.close()


def parse_lines(path: str, text: str, columns: int, remedy: str) -> list[list[str]]:
    """The entries of Kafka's checkpoint format: version, count, one entry a line.

    Raises `CorruptCheckpointError` for a wrong version, count or number of columns; `remedy` becomes part of the
    message.
    """
    lines = text.splitlines()
    if not lines or lines[0] != VERSION:
        actual = repr(lines[0]) if lines else "nothing"
        raise CorruptCheckpointError(f"{path}:1: expected version {VERSION}, found {actual}; {remedy}")
    entries = [line.split(" ") for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        actual = repr(lines[1]) if len(lines) > 1 else "nothing"
        raise CorruptCheckpointError(f"{path}:2: expected the count {len(entries)}, found {actual}; {remedy}")
    for number, entry in enumerate(entries, 3):
        if len(entry) != columns:
            raise CorruptCheckpointError(
                f"{path}:{number}: expected {columns} columns: {lines[number - 1]!r}; {remedy}"
            )
    return entries


def format_lines(entries: list[str]) -> str:
    """Entries in Kafka's checkpoint format."""
    return "\n".join([VERSION, str(len(entries)), *entries]) + "\n"


class OffsetCheckpoint:
    """One offset per partition, in the format of Kafka's `replication-offset-checkpoint`."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._file = AtomicFile(disk, path)
        self._known: dict[Key, int] | None = None
        self._is_certain = True

    @property
    def known(self) -> Mapping[Key, int]:
        """The highest offset that the file may hold for each partition. Raises `CorruptCheckpointError`.

        A write that failed, or whose caller was cancelled, may still have happened, or may still happen.
        """
        return self.read() if self._known is None else self._known

    def holds(self, offsets: Mapping[Key, int]) -> bool:
        """Whether the file certainly has exactly these offsets."""
        return self.known == offsets and self._is_certain

    def read(self) -> dict[Key, int]:
        """Offsets by (topic, partition); empty without the file. Raises `CorruptCheckpointError`."""
        text = self._file.read()
        if text is None:
            self._known = {}
            return {}
        path = self._file.path
        remedy = "remove the file: its offsets are found again, only later"
        offsets: dict[Key, int] = {}
        for number, (topic, partition, offset) in enumerate(parse_lines(path, text, 3, remedy), 3):
            if not (partition.isdecimal() and offset.isdecimal()):
                raise CorruptCheckpointError(f"{path}:{number}: expected 'topic partition offset'; {remedy}")
            offsets[topic, int(partition)] = int(offset)
        self._known = offsets
        return dict(offsets)

    async def write_durably(self, offsets: Mapping[Key, int]) -> None:
        """Replace all offsets."""
        written = dict(offsets)
        entries = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(written.items())]
        self._is_certain, old_offsets = False, self.known
        self._known = {**written, **{key: max(offset, written.get(key, 0)) for key, offset in old_offsets.items()}}
        await self._file.write(format_lines(entries))
        self._is_certain, self._known = True, written
