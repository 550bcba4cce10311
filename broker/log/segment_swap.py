"""Putting what compaction has made of some segments in their place, so that a crash leaves the old ones or the new one.

The names are Kafka's. `<base>.log.cleaned` is being written and worth nothing yet. Once all of it is on disk it becomes
`<base>.log.swap`, durably: from then on it is what the log holds, and whoever finds it after a crash goes on from here.
What it replaces is removed, durably, and it takes the place of the first segment by one rename.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.log.segment import Segment
from broker.ports import Disk
from broker.protocol.records import CorruptBatch

CLEANED, SWAP = ".cleaned", ".swap"
_LOG, _INDEX = ".log", ".positions"


async def swap_in(disk: Disk, directory: str, cleaned: Segment, replaced: Sequence[Segment]) -> None:
    """Replace segments by what has become of them, durably. The caller has made the new one's content durable."""
    cleaned.rename(SWAP)
    await disk.sync_directory(directory)
    replaced[0].index.remove()  # its log's name goes by the rename below
    for segment in replaced[1:]:
        segment.retire()
    await disk.sync_directory(directory)
    cleaned.rename()
    await disk.sync_directory(directory)


async def finish_swaps(disk: Disk, directory: str, interval_bytes: int) -> None:
    """Complete what a crash has interrupted. Raises `CorruptBatch` for a swap file that is not intact."""
    names = disk.list(directory)
    for name in names:
        if name.endswith(CLEANED):
            disk.unlink(f"{directory}/{name}")
    for name in names:
        if name.endswith(_LOG + SWAP):
            await _finish(disk, directory, name.removesuffix(SWAP), interval_bytes)
    if any(name.endswith((CLEANED, SWAP)) for name in names):
        await disk.sync_directory(directory)


async def _finish(disk: Disk, directory: str, name: str, interval_bytes: int) -> None:
    base = int(name.removesuffix(_LOG))
    found = Segment(disk, directory, base, interval_bytes, suffix=SWAP)
    for _, header in found.intact_batches(compacted=True):
        found.next_offset = header.next_offset
    found.close()
    if found.next_offset == base:
        raise CorruptBatch(f"{directory}/{name}{SWAP}: there is no batch in it")
    for each in disk.list(directory):
        stem, dot, suffix = each.partition(".")
        if dot + suffix not in (_LOG, _INDEX) or not (len(stem) == 20 and stem.isdecimal()):
            continue
        if base < int(stem) < found.next_offset or (int(stem) == base and dot + suffix == _INDEX):
            disk.unlink(f"{directory}/{each}")
    await disk.sync_directory(directory)
    disk.rename(f"{directory}/{name}{SWAP}", f"{directory}/{name}")
