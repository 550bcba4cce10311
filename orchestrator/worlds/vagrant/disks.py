"""The disks of one virtual machine, and their state after a power cut or a restore."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

from orchestrator.errors import WorldError
from orchestrator.worlds.vagrant import write_log


class MachineDisks:
    """A data disk with a write log, and a root disk without. Only for machines that do not run.

    The Vagrantfile gives QEMU `data.raw` and `writes.log` in the machine's directory. `base.raw` is the data disk at
    the machine's start; `saved` has memory and disks after provisioning. If a copy or a replay failed halfway, the data
    disk is incomplete, and no machine is started from it.
    """

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        self._data = directory / "data.raw"
        self._log = directory / "writes.log"
        self._base = directory / "base.raw"
        self._root = root
        self._saved = directory / "saved"
        self.memory = self._saved / "memory"
        self._whole = True

    def create(self, data_bytes: int) -> None:
        """Make an empty data disk."""
        self._saved.mkdir(parents=True)
        for path in (self._data, self._base):
            with path.open("wb") as disk:
                disk.truncate(data_bytes)
        self._log.write_bytes(b"")

    def lose_power(self, tear: Random | None) -> write_log.Replayed:
        """Bring the data disk into the state after a power cut. Raises `WorldError`."""
        self._whole = False
        try:
            replayed = write_log.replay(self._log, self._base, tear)
        except (write_log.LogError, OSError) as error:
            raise WorldError(f"the write log {self._log} cannot be replayed: {error}") from error
        self._begin()
        return replayed

    def resume(self) -> None:
        """Prepare for the machine's next start, also if it ended without a power cut: then all its writes are kept, and
        the next cut must not take them. Raises `WorldError`."""
        if not self._whole:
            raise WorldError(f"{self._data} is incomplete: a copy or a replay that makes it failed halfway")
        try:
            # QEMU starts a new log at every start: the old one belongs to a run of the machine that the base does not
            # have.
            if self._log.stat().st_size:
                self._whole = False
                _copy(self._data, self._base)
                self._log.write_bytes(b"")
                self._whole = True
        except OSError as error:
            raise WorldError(f"the write log {self._log} cannot be restarted: {error}") from error

    def save(self) -> None:
        """Save the disks beside the memory. Raises `WorldError`."""
        _copy(self._data, self._saved / "data.raw")
        _copy(self._root, self._saved / "root.qcow2")

    def restore(self) -> None:
        """Restore the saved disks. Raises `WorldError`."""
        self._whole = False
        _copy(self._saved / "root.qcow2", self._root)
        _copy(self._saved / "data.raw", self._base)
        self._begin()

    def _begin(self) -> None:
        _copy(self._base, self._data)
        self._log.write_bytes(b"")
        self._whole = True


def _copy(source: Path, target: Path) -> None:
    """Copy without holes, which are most of it; shares blocks with the source if the filesystem supports that."""
    command = ["cp", "--sparse=always", "--reflink=auto", str(source), str(target)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="backslashreplace", check=False
    )
    if done.returncode:
        raise WorldError(f"{source.name} cannot be copied: {done.stderr.strip()}")
