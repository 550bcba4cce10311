"""Power cuts of a real filesystem on a loop device, inside a sandbox of a test.

A program: `python -m tests.worlds.power_scenarios <name> <arguments>` prints the scenario's result as JSON.
"""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, Any

from broker.disk import RealDisk
from broker.ports import Disk
from orchestrator.machine import syscalls
from orchestrator.machine.sandbox import PRIVATE_ROOT
from orchestrator.worlds.namespaces.filesystems import DataDisk as DataDisk
from tests.simulator.power_table import MIDDLE, PAGE, ROWS, SYNCED, UNRELATED, Row, contents, synced_and_tail
from tests.worlds.scenarios import tell

ROOT = Path(PRIVATE_ROOT) / "power-table" / "data"
SIZE = 512 << 20
_WAIT_BEFORE = 1  # SYNC_FILE_RANGE_WAIT_BEFORE of sync_file_range(2)
# Unsynced data must not be committed automatically while a row is played, on a machine of any speed.
OPTIONS = {"ext4": "commit=300", "xfs": ""}


def table(filesystem: str, backing: str) -> list[dict[str, str]]:
    """What each row leaves: the files' contents in hexadecimal."""
    data = DataDisk("table", Path(backing), SIZE, filesystem)
    data.create()
    try:
        return [_told(_cut(data, _settled(row))) for row in ROWS]
    finally:
        data.close()


def _settled(row: Row) -> Callable[[Disk], Awaitable[object]]:
    """The row, whose commit waits for the writes that the kernel has begun."""

    async def play(disk: Disk) -> object:
        waited: list[IO[bytes]] = []
        still_open = await row.play(disk, lambda: waited.extend(map(_wait_for_writes, ROOT.glob("old"))))
        return still_open, waited

    return play


def _wait_for_writes(path: Path) -> IO[bytes]:
    """Wait for the pages of a file that are on their way to the disk, and start no write. A filesystem records the new
    length before the last of them is done. The file stays open until the cut: to close it would be an act, too."""
    file = path.open("rb")
    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    if call(file.fileno(), ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_WAIT_BEFORE)):
        raise OSError(ctypes.get_errno(), f"sync_file_range: {path}")
    return file


def middle(filesystem: str, backing: str) -> dict[str, str]:
    """Some pages in the middle of the unsynced data are written back, and the journal is committed."""
    data = DataDisk("middle", Path(backing), SIZE, filesystem)
    data.create()

    async def play(disk: Disk) -> object:
        held = await synced_and_tail(disk)
        descriptor = os.open(held.path, os.O_RDONLY | os.O_CLOEXEC)
        syscalls.write_back(descriptor, MIDDLE.start * PAGE, len(MIDDLE) * PAGE)
        os.close(descriptor)
        unrelated = disk.open(UNRELATED, create=True)
        unrelated.append([b"x"])
        await unrelated.sync()
        return held

    try:
        left = _cut(data, play)
    finally:
        data.close()
    assert left["old"].startswith(SYNCED), "what was synced stays"
    return _told(left)


def _cut(data: DataDisk, play: Callable[[Disk], Awaitable[object]]) -> dict[str, bytes]:
    """Play on an emptied disk, cut its power, and say what is there when it is mounted again."""
    point = ROOT.parent
    point.mkdir(parents=True, exist_ok=True)
    attached = data.attach()
    syscalls.mount(attached.device, str(point), data.filesystem, 0, OPTIONS[data.filesystem])
    if ROOT.exists():
        for path in ROOT.iterdir():
            path.unlink()
    ROOT.mkdir(exist_ok=True)
    # This one alone: what others have not synced is not to be saved by this.
    subprocess.run(["sync", "--file-system", ROOT], check=True)
    disk = RealDisk(str(ROOT))
    held = asyncio.run(_hold(play, disk))
    mounted = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.shut_filesystem_down(mounted, syscalls.SHUTDOWN_AT_ONCE)
    os.close(mounted)
    del held
    disk.close()
    syscalls.unmount(str(point))
    attached.wait_detached()
    attached = data.attach()
    syscalls.mount(attached.device, str(point), data.filesystem)
    again = RealDisk(str(ROOT))
    try:
        return contents(again)
    finally:
        again.close()
        syscalls.unmount(str(point))
        attached.wait_detached()


async def _hold(play: Callable[[Disk], Awaitable[object]], disk: Disk) -> object:
    return await play(disk)


def _told(files: dict[str, bytes]) -> dict[str, str]:
    return {name: content.hex() for name, content in sorted(files.items())}


if __name__ == "__main__":
    result: Any = globals()[sys.argv[1]](*sys.argv[2:])
    tell(result)
