"""Files of removed segments, which remain for `file.delete.delay.ms`, as in Apache Kafka.

Theory of operation. The files of a segment that leaves its log are renamed to `*.deleted` at once and unlinked after
the delay. Until then an administrator can still copy records that were removed by mistake. A renamed file is not part
of the log: the next start of the broker unlinks what an earlier process has left, however that process ended. So the
log relies on the rename, which has to be durable, and never on the unlinking.
"""

import asyncio
from collections.abc import Callable, Sequence

from broker.descriptors import opening
from broker.log.segment import DELETED, Segment
from broker.ports import Disk, parent


class DeletedFiles:
    """The renamed files of one log."""

    def __init__(self, disk: Disk, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        """Applies to segments that are removed from now on; 0: they are unlinked at once."""
        self.added: Callable[[], None] | None = None
        """Called when a file was added, so that `unlink_due` is called later. Without it nothing is delayed."""
        self._disk = disk
        self._due: dict[str, float] = {}

    @property
    def delays(self) -> bool:
        """Whether files of removed segments remain for some time."""
        return self.delay_ms > 0 and self.added is not None

    @property
    def next_due(self) -> float | None:
        """When the next file is to be unlinked, by the loop's clock in seconds; None without files."""
        return min(self._due.values(), default=None)

    def remove(self, segment: Segment) -> None:
        """Close a segment that its log has dropped, and remove or rename its files."""
        if self.delays:
            self.rename(segment)
            segment.close()
        else:
            segment.remove()

    def rename(self, segment: Segment) -> None:
        """Rename the files of a segment. Readers may finish. A file of that name from before is replaced."""
        due = asyncio.get_running_loop().time() + self.delay_ms / 1000
        self._due |= dict.fromkeys(segment.rename_deleted(), due)
        if self.added is not None:
            self.added()

    def unlink_due(self) -> None:
        """Unlink the files whose delay is over. Raises `OSError`."""
        now = asyncio.get_running_loop().time()
        for path in [path for path, due in self._due.items() if due <= now]:
            del self._due[path]
            if self._disk.exists(path):
                self._disk.unlink(path)


async def remove_log(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Remove a log and its directory, durably. No delay applies."""
    for segment in reversed(segments):
        segment.remove()
    for name in await opening(lambda: disk.list(directory)):
        disk.unlink(f"{directory}/{name}")
    disk.remove_directory(directory)
    await disk.sync_directory(parent(directory))


def unlink_leftovers(disk: Disk, directory: str) -> bool:
    """Unlink the renamed files of an earlier process in a log's directory; returns whether there were any."""
    names = [name for name in disk.list(directory) if name.endswith(DELETED)]
    for name in names:
        disk.unlink(f"{directory}/{name}")
    return bool(names)
