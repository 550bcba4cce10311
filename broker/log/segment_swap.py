"""Replaces segments by a compacted one, so that after a crash the log has the old ones or the new one.

The names are Kafka's. `<base>.log.cleaned` is being written and does not count yet. When all of it is on disk, it is
renamed to `<base>.log.swap`, durably: from then on it is part of the log, and recovery after a crash completes the
swap. Then the replaced segments are removed or renamed (`deleted_files`), durably, and one rename gives it the name of
the first of them.
"""

from collections.abc import Sequence

from broker.log.deleted_files import DeletedFiles, unlink_leftovers
from broker.log.segment import Segment
from broker.ports import Disk
from broker.protocol.records import CorruptBatch

CLEANED, SWAP = ".cleaned", ".swap"
_LOG, _INDEX = ".log", ".positions"


async def swap_in(
    disk: Disk, directory: str, cleaned: Segment, replaced: Sequence[Segment], deleted: DeletedFiles
) -> None:
    """Replace segments by a compacted one, durably. The caller has made its content durable."""
    cleaned.rename(SWAP)
    await disk.sync_directory(directory)
    for segment in replaced:
        if deleted.delays:
            deleted.rename(segment)
        else:
            segment.retire()
    await disk.sync_directory(directory)
    cleaned.rename()
    await disk.sync_directory(directory)


async def finish_swaps(disk: Disk, directory: str, interval_bytes: int) -> None:
    """Complete interrupted swaps, and remove files that do not count. Raises `CorruptBatch` for a damaged swap file."""
    changed = unlink_leftovers(disk, directory)
    names = disk.list(directory)
    for name in names:
        if name.endswith(CLEANED):
            disk.unlink(f"{directory}/{name}")
    for name in names:
        if name.endswith(_LOG + SWAP):
            await _finish(disk, directory, name.removesuffix(SWAP), interval_bytes)
    if changed or any(name.endswith((CLEANED, SWAP)) for name in names):
        await disk.sync_directory(directory)


async def _finish(disk: Disk, directory: str, name: str, interval_bytes: int) -> None:
    base = int(name.removesuffix(_LOG))
    swap = Segment(disk, directory, base, interval_bytes, suffix=SWAP)
    for _, header in swap.intact_batches(compacted=True):
        swap.next_offset = header.next_offset
    swap.close()
    if swap.next_offset == base:
        raise CorruptBatch(f"{directory}/{name}{SWAP}: the file has no batch")
    for file_name in disk.list(directory):
        stem, dot, suffix = file_name.partition(".")
        if dot + suffix not in (_LOG, _INDEX) or not (len(stem) == 20 and stem.isdecimal()):
            continue
        if base < int(stem) < swap.next_offset or (int(stem) == base and dot + suffix == _INDEX):
            disk.unlink(f"{directory}/{file_name}")
    await disk.sync_directory(directory)
    disk.rename(f"{directory}/{name}{SWAP}", f"{directory}/{name}")
