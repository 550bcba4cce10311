"""The data disk of a virtual machine over several of its lives, however each ended; QEMU is played."""

from pathlib import Path
from typing import cast

import pytest

from orchestrator.errors import WorldError
from orchestrator.machine import cgroups
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.vagrant.hypervisor import Hypervisor
from orchestrator.worlds.vagrant.machine import MachineDisks, VirtualMachine
from tests.worlds.test_vagrant_write_log import SECTOR, WriteLog

DISK_BYTES = 1 << 16


class Lives:
    """A machine's disks, and what its lives write on them."""

    def __init__(self, directory: Path) -> None:
        root = directory / "root.qcow2"
        root.write_bytes(b"root")
        self.directory = directory / "n1"
        self.disks = MachineDisks(self.directory, root)
        self.disks.create(DISK_BYTES)

    def live(self, sector: int, letter: str) -> None:
        """A whole life of QEMU, which writes and flushes one sector: on the disk, and in the log, which it keeps from
        its first entry."""
        self.disks.resume()
        log = WriteLog(self._elsewhere()).write(sector, letter).flush()
        for name, offset, content in (
            ("data.raw", sector * SECTOR, letter.encode() * SECTOR),
            ("writes.log", 0, bytes(log.data)),
        ):
            with (self.directory / name).open("r+b") as file:
                file.seek(offset)
                file.write(content)

    def sector(self, number: int) -> str:
        found = set((self.directory / "data.raw").read_bytes()[number * SECTOR : (number + 1) * SECTOR])
        return "".join(map(chr, found)).replace("\0", "")

    def _elsewhere(self) -> Path:
        made = self.directory / "made"
        made.mkdir(exist_ok=True)
        return made


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


def test_a_power_cut_keeps_data_flushed_before_an_earlier_end(lives: Lives) -> None:
    """A kernel without memory ends QEMU, or the guest powers off: the next life's cut must not take this one's."""
    lives.live(10, "A")
    lives.live(20, "B")
    replayed = lives.disks.lose_power(None)
    assert (lives.sector(10), lives.sector(20)) == ("A", "B")
    assert (replayed.writes, replayed.lost) == (1, 0)


def test_a_second_power_cut_keeps_later_flushed_writes(lives: Lives) -> None:
    lives.live(10, "A")
    lives.disks.lose_power(None)
    lives.live(20, "B")
    lives.disks.lose_power(None)
    assert (lives.sector(10), lives.sector(20)) == ("A", "B")


def a_cp_that_fails(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one without disk space does."""
    program = directory / "bin" / "cp"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'No space left on device' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def test_no_machine_starts_from_a_disk_that_a_cut_has_half_made(
    lives: Lives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives.disks.save()
    lives.live(10, "A")
    with monkeypatch.context() as patch:
        a_cp_that_fails(tmp_path, patch)
        with pytest.raises(WorldError, match=r"base\.raw cannot be copied: No space left"):
            lives.disks.lose_power(None)
    with pytest.raises(WorldError, match=r"data\.raw is incomplete"):
        lives.disks.resume()
    lives.disks.restore()
    lives.live(20, "B")
    assert (lives.sector(10), lives.sector(20)) == ("", "B")


def test_no_machine_starts_after_an_invalid_write_log(lives: Lives) -> None:
    lives.live(10, "A")
    (lives.directory / "writes.log").write_bytes(b"?" * SECTOR)
    with pytest.raises(WorldError, match="not a write log"):
        lives.disks.lose_power(None)
    with pytest.raises(WorldError, match=r"data\.raw is incomplete"):
        lives.disks.resume()


class Libvirt(Hypervisor):
    """Says that every machine is off, and notes what it was asked."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cgroups.Cgroup(directory / "group"))
        self.asked: list[str] = []

    def virsh(self, *arguments: str) -> str:
        self.asked.append(arguments[0])
        return "shut off"


class NoHost:
    name = "n1"


def test_the_disk_is_checked_before_the_machine_is_started(tmp_path: Path) -> None:
    libvirt = Libvirt(tmp_path)
    machine = VirtualMachine(cast("SshHost", NoHost()), "127.0.0.1", libvirt, tmp_path / "n1")
    machine.disks.create(DISK_BYTES)
    (tmp_path / "n1" / "writes.log").write_bytes(b"?" * SECTOR)
    machine.start()
    assert (libvirt.asked[-1], (tmp_path / "n1" / "writes.log").stat().st_size) == ("start", 0)
    (tmp_path / "n1" / "writes.log").write_bytes(b"?" * SECTOR)
    with pytest.raises(WorldError):
        machine.disks.lose_power(None)
    libvirt.asked.clear()
    with pytest.raises(WorldError, match="incomplete"):
        machine.start()
    assert "start" not in libvirt.asked
