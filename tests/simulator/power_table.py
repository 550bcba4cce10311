"""The effects of a power cut, row by row, as measured on ext4 and xfs: played through the Disk port, so that the
simulated disk and a real one run the same rows.

A row acts on the file `old`, alone in its directory except for files of the row. An unrelated journal commit is the
sync of another file.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from broker.ports import Disk, File

PAGE = 4096
SYNCED, TAIL = b"s" * PAGE, b"d" * (8 * PAGE)
"""Of the row about pages in the middle: what was synced, and what was not."""
MIDDLE = range(4, 7)
"""The pages of it that are written back; a kernel may round that up."""
Act = Callable[[Disk], Coroutine[Any, Any, File | None]]
"""Returns the file that is still open when the power goes, if that matters."""
Files = dict[str, bytes]


@dataclass(frozen=True)
class Row:
    """`act`, then perhaps the journal's commit, then the cut: which files are there afterwards, by filesystem."""

    act: Act
    commit: bool
    ext4: Files
    xfs: Files

    def __str__(self) -> str:
        return self.act.__name__.replace("_", " ") + (", then a commit" if self.commit else "")

    async def play(self, disk: Disk, settle: Callable[[], None] = lambda: None) -> File | None:
        """Everything before the cut; what must stay open until then. `settle` ends the writes that the act began: a
        kernel starts some of them when a file is closed, and a commit that overtakes them leaves another table."""
        still_open = await self.act(disk)
        settle()
        if self.commit:
            unrelated = disk.open(UNRELATED, create=True)
            unrelated.append([b"x"])
            await unrelated.sync()
        return still_open


UNRELATED = "unrelated"


def contents(disk: Disk) -> Files:
    """All files but the one that was synced for the commit."""
    found = {}
    for name in disk.list(""):
        if name != UNRELATED:
            file = disk.open(name)
            found[name] = file.read(0, file.size())
            file.close()
    return found


async def base(disk: Disk) -> None:
    """A durable file `old`, in every sense."""
    file = disk.open("old", create=True)
    file.append([b"old"])
    await file.sync()
    await disk.sync_directory("")


async def append_without_sync(disk: Disk) -> None:
    await base(disk)
    disk.open("old").append([b" and new"])


async def append_and_sync(disk: Disk) -> None:
    await base(disk)
    file = disk.open("old")
    file.append([b" and new"])
    await file.sync()


async def extend_twice(disk: Disk) -> None:
    await base(disk)
    file = disk.open("old")
    for more in (b" and new", b" and newer"):
        file.append([more])
        await file.sync()


async def create_and_sync(disk: Disk) -> None:
    file = disk.open("old", create=True)
    file.append([b"created"])
    await file.sync()


async def create_and_sync_directory(disk: Disk) -> None:
    disk.open("old", create=True).append([b"created"])
    await disk.sync_directory("")


async def rename_over(disk: Disk) -> None:
    await base(disk)
    disk.open("new", create=True).append([b"new"])
    disk.rename("new", "old")


async def rename_to_new_name(disk: Disk) -> None:
    disk.open("new", create=True).append([b"new"])
    disk.rename("new", "old")


async def rename_after_sync(disk: Disk) -> None:
    await base(disk)
    file = disk.open("new", create=True)
    file.append([b"new"])
    await file.sync()
    disk.rename("new", "old")


async def rewrite_open(disk: Disk) -> File:
    await base(disk)
    file = disk.open("old")
    file.truncate(0)
    file.append([b"new"])
    return file


async def rewrite_closed(disk: Disk) -> None:
    await base(disk)
    file = disk.open("old")
    file.truncate(0)
    file.append([b"new"])
    file.close()


async def cut_then_append(disk: Disk) -> None:
    await append_and_sync(disk)
    file = disk.open("old")
    file.truncate(3)
    file.append([b"er"])


async def truncate_up_then_write(disk: Disk) -> None:
    await base(disk)
    disk.open("old").truncate(5)


async def unlink(disk: Disk) -> None:
    await base(disk)
    disk.unlink("old")


async def synced_and_tail(disk: Disk) -> File:
    """The file `old` with a durable first page."""
    file = disk.open("old", create=True)
    file.append([SYNCED])
    await file.sync()
    file.append([TAIL])
    return file


def _row(act: Act, commit: bool, ext4: bytes, xfs: bytes | None = None, **others: bytes) -> Row:
    """One in which `old` holds this, and there are these others."""
    return Row(act, commit, {"old": ext4, **others}, {"old": ext4 if xfs is None else xfs, **others})


ROWS = (
    _row(append_without_sync, False, b"old"),
    _row(append_without_sync, True, b"old" + bytes(len(b" and new")), b"old"),
    _row(append_and_sync, False, b"old and new"),
    _row(extend_twice, False, b"old and new and newer"),
    _row(create_and_sync, False, b"created"),
    _row(create_and_sync_directory, False, b""),
    _row(rename_over, False, b"old"),
    _row(rename_over, True, b"new", b""),
    _row(rename_to_new_name, True, b""),
    _row(rename_after_sync, False, b"old", new=b"new"),
    _row(rewrite_open, True, b""),
    _row(rewrite_closed, True, b"new"),
    _row(truncate_up_then_write, True, b"old" + bytes(2)),
    _row(cut_then_append, False, b"old and new"),
    _row(cut_then_append, True, b"older", b"old"),
    _row(unlink, False, b"old"),
)
