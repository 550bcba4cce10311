"""The directories of partitions on the disk: finds, creates and removes them, and checks which topic owns them.

A directory `<topic>-<partition>` belongs to the topic whose id is in its `partition.metadata`. That file is written
first when a partition is created and removed first when it is deleted, so a directory without it has no valuable
content.
"""

from __future__ import annotations

import re
from itertools import count
from typing import NamedTuple
from zlib import crc32

from broker.descriptors import opening
from broker.errors import StartupError
from broker.log.checkpoint import AtomicFile
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.ports import Disk
from broker.protocol.uuids import id_text, parse_id

METADATA_FILE = "partition.metadata"
ASIDE = "-aside"  # suffix of directories that no partition uses any more and that only an operator may delete
LONGEST_NAME = 255  # bytes, of a file or a directory
LONGEST_STEM = LONGEST_NAME - len(f".{10**5}{ASIDE}")
_NAME = re.compile(r"(?P<topic>.+)-(?P<index>\d+)")
_INTERNAL = "__cluster_metadata"
_CONTENT = re.compile(r"version: 0\ntopic_id: (?P<id>[A-Za-z0-9_-]{22})\n?")


class Found(NamedTuple):
    """A partition's directory and the topic that owns it."""

    topic: str
    partition: int
    topic_id: bytes


class PartitionDirectories:
    """Opens, creates and removes the directories of partitions below the disk's root."""

    def __init__(self, disk: Disk, log_config: LogConfig) -> None:
        self._disk = disk
        self._log_config = log_config

    async def scan(self) -> list[Found]:
        """The partitions on the disk. Removes the remains of unfinished creations and deletions."""
        found = []
        for name in self._disk.list(""):
            match = _NAME.fullmatch(name)
            if match is None or match["topic"] == _INTERNAL:
                continue
            text = AtomicFile(self._disk, f"{name}/{METADATA_FILE}").read()
            if text is None:
                await self._remove_leftovers(name)
            else:
                found.append(Found(match["topic"], int(match["index"]), _topic_id(f"{name}/{METADATA_FILE}", text)))
        return found

    async def open(
        self, topic: str, index: int, *, clean_shutdown: bool, recovery_point: int = 0, start_offset: int = 0
    ) -> PartitionLog:
        """Open an existing partition's log and recover it. Raises `DamagedLogError`."""
        return await PartitionLog.open(
            self._disk,
            f"{topic}-{index}",
            self._log_config,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            start_offset=start_offset,
        )

    async def create(self, topic: str, index: int, topic_id: bytes) -> PartitionLog:
        """Create the directory of a new partition, durably, and open its empty log.

        A directory of another topic with the same name is set aside first: an earlier attempt may have been
        interrupted.
        """
        name = f"{topic}-{index}"
        file = AtomicFile(self._disk, f"{name}/{METADATA_FILE}")
        text = file.read()
        if text is not None and _topic_id(file.path, text) != topic_id:
            await self.set_aside(topic, index)
        self._disk.make_directory(name)
        await self._disk.sync_directory("")
        await file.write(f"version: 0\ntopic_id: {id_text(topic_id)}\n")
        return await self.open(topic, index, clean_shutdown=False)

    async def remove(self, topic: str, index: int, log: PartitionLog) -> None:
        """Delete a partition, its metadata file first: the next `scan` completes an interrupted deletion."""
        name = f"{topic}-{index}"
        self._disk.unlink(f"{name}/{METADATA_FILE}")
        await self._disk.sync_directory(name)
        await log.delete()

    async def set_aside(self, topic: str, index: int) -> str:
        """Rename a partition's directory, keep it, and return the new name. The log is closed.

        One rename moves all of it or nothing. A partly moved log without its first segments would look like one whose
        first records were deleted, because its start offset is not stored any more.
        """
        name = f"{topic}-{index}"
        stem, taken = _stem(name), await opening(lambda: self._disk.list(""))
        aside = next(new for number in count(1) if (new := f"{stem}.{number}{ASIDE}") not in taken)
        self._disk.rename(name, aside)
        await self._disk.sync_directory("")
        return aside

    async def _remove_leftovers(self, directory: str) -> None:
        for name in self._disk.list(directory):
            self._disk.unlink(f"{directory}/{name}")
        self._disk.remove_directory(directory)
        await self._disk.sync_directory("")


def _stem(name: str) -> str:
    """The first part of the new name of a directory that is set aside: a topic's name may have the maximal length.

    The topic's id is in the directory's `partition.metadata`.
    """
    if len(name) <= LONGEST_STEM:
        return name
    sum_of_all = f"~{crc32(name.encode()):08x}"
    return name[: LONGEST_STEM - len(sum_of_all)] + sum_of_all


def _topic_id(path: str, text: str) -> bytes:
    match = _CONTENT.fullmatch(text)
    try:
        return parse_id(match["id"] if match else "")
    except ValueError:
        raise StartupError(
            f"{path}: expected 'version: 0' and 'topic_id: <22 characters>', found {text!r}; "
            "restore the file, or remove the partition's directory so that it is fetched again from its leader"
        ) from None
