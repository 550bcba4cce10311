"""A directory of a machine's disk as a separate disk, for a process with its data there."""

from __future__ import annotations

from broker.ports import File
from simulator.disk import SimulatedDisk


class Subtree:
    """The Disk port below a directory, which must exist."""

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def open(self, path: str, *, create: bool = False) -> File:
        return self._disk.open(self._at(path), create=create)

    def exists(self, path: str) -> bool:
        return self._disk.exists(self._at(path))

    def list(self, directory: str) -> list[str]:
        return self._disk.list(self._at(directory))

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(self._at(path))

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(self._at(source), self._at(target))

    async def replace_file(self, path: str, content: bytes) -> None:
        await self._disk.replace_file(self._at(path), content)

    def unlink(self, path: str) -> None:
        self._disk.unlink(self._at(path))

    def remove_directory(self, path: str) -> None:
        self._disk.remove_directory(self._at(path))

    async def sync_directory(self, path: str) -> None:
        await self._disk.sync_directory(self._at(path))

    def lock(self, path: str) -> None:
        self._disk.lock(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._directory}/{path}" if path else self._directory
