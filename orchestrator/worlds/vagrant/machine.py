"""One virtual machine: its process, its disks, its clock, and the SSH connection to it.

The disks of one virtual machine, and their state after a power cut or a restore.

Computes what a power cut leaves on a disk that has a volatile write cache.

Theory of operation. QEMU's `blklogwrites` filter records every write and flush that the guest sends to the disk, in the
format of Linux's dm-log-writes: a superblock, then entries, each a sector of header and, for writes, the data. After a
cut the log is replayed onto the disk's state at the machine's start: writes before the last flush are applied, and
writes through the cache (FUA); of the rest, nothing, or a random part.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from installation.programs import run_program
from nemeses.ports import HostError, HostUnreachableError
from orchestrator.errors import WorldError
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import end_of_log
from orchestrator.worlds.vagrant.hypervisor import Hypervisor

FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8

_MAGIC = 0x6A736677736872
_SUPERBLOCK = struct.Struct("<QQQI")  # magic, version, number of entries, sector size
_HEADER = struct.Struct("<QQQQ")  # sector, number of sectors, flags, bytes of data that follow for marks
_USUAL_SECTOR = 512
_KNOWN_FLAGS = FLUSH | FUA | DISCARD | MARK
_CHUNK = 1 << 20


@dataclass(frozen=True)
class WriteLogEntry:
    """One request of the guest: `offset` and `length` on the disk; `data`: position of its bytes in the log, or -1."""

    offset: int
    length: int
    flags: int
    data: int

    @property
    def writes(self) -> bool:
        """Whether it changes the disk."""
        return self.length > 0 and not self.flags & MARK


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. `lost`: logged writes that were not applied. `gaps`: places in the log that a killed QEMU
    left empty, for requests that it had not completed."""

    writes: int
    lost: int
    flushes: int
    gaps: int


class LogError(Exception):
    """The file is not a write log."""


def replay(log: Path, disk: Path, tear: Random | None = None) -> Replayed:
    """Apply a log to the disk image that it started on. Without `tear`, everything after the last flush is lost; with
    it, each of those writes survives with probability 1/2. Raises `LogError`, `OSError`."""
    size = disk.stat().st_size
    with log.open("rb") as source, disk.open("r+b") as target:
        entries, gaps = _read(source.fileno(), size)
        last_flush = max((number for number, entry in enumerate(entries) if entry.flags & FLUSH), default=-1)
        writes = lost = 0
        for number, entry in enumerate(entries):
            if not entry.writes:
                continue
            writes += 1
            # A flush that carries data flushes the writes before it, not its own data.
            durable = number < last_flush or entry.flags & FUA
            if not durable and (tear is None or tear.random() < 0.5):
                lost += 1
            else:
                _apply(entry, source.fileno(), target.fileno())
    return Replayed(writes, lost, sum(1 for entry in entries if entry.flags & FLUSH), gaps)


def _read(log: int, disk_size: int) -> tuple[list[WriteLogEntry], int]:
    """All complete entries in order, and the number of gaps between them."""
    superblock = os.pread(log, _SUPERBLOCK.size, 0)
    if len(superblock) < _SUPERBLOCK.size:
        return [], 0  # the machine ended before it opened its disk
    magic, version, _, sector = _SUPERBLOCK.unpack(superblock)
    if not any(superblock):
        magic, version, sector = _MAGIC, 1, _USUAL_SECTOR  # QEMU writes the superblock only with the first flush
    if magic != _MAGIC or version != 1 or not 512 <= sector <= 65536:
        raise LogError(f"not a write log: magic {magic:#x}, version {version}, sector size {sector}")
    scan = _Scan(log, os.fstat(log).st_size, sector, disk_size)
    return list(scan.entries()), scan.gaps


class _Scan:
    """Reads a log. Requests are logged concurrently, so a kill can leave a gap for a request that was not written yet,
    with complete (and flushed) entries after it: reading continues at the next possible entry."""

    def __init__(self, log: int, log_size: int, sector: int, disk_size: int) -> None:
        self._log = log
        self._log_size = log_size
        self._sector = sector
        self._disk_size = disk_size
        self.gaps = 0

    def entries(self) -> Iterator[WriteLogEntry]:
        position = self._sector
        while position + self._sector <= self._log_size:
            entry = self._entry_at(position)
            if entry is None:
                self.gaps += 1
                resumed = self._next_after(position)
                if resumed is None:
                    return
                position = resumed
                continue
            end = self._end(position, entry)
            if end > self._log_size:
                return  # its data is incomplete, so the request was not completed
            yield entry
            position = end

    def _entry_at(self, position: int) -> WriteLogEntry | None:
        """The entry whose header is at this position; None at the end of the log."""
        raw = os.pread(self._log, self._sector, position)
        if len(raw) < self._sector or raw.count(0, _HEADER.size) != self._sector - _HEADER.size:
            return None
        sector, count, flags, extra = _HEADER.unpack_from(raw)
        offset, length = sector * self._sector, count * self._sector
        if not (flags or count) or flags & ~_KNOWN_FLAGS or extra or offset + length > self._disk_size:
            return None
        has_data = count and not flags & (DISCARD | MARK)
        return WriteLogEntry(offset, length, flags, position + self._sector if has_data else -1)

    def _end(self, position: int, entry: WriteLogEntry) -> int:
        return position + self._sector + (entry.length if entry.data >= 0 else 0)

    def _next_after(self, position: int) -> int | None:
        """The next position from which entries follow each other to the log's end or the next gap."""
        for candidate in range(position + self._sector, self._log_size - self._sector + 1, self._sector):
            entry = self._entry_at(candidate)
            if entry is None:
                continue
            end = self._end(candidate, entry)
            # Data may look like a header; the entries after it are then invalid.
            if end >= self._log_size or self._entry_at(end) is not None or not any(self._peek(end)):
                return candidate
        return None

    def _peek(self, position: int) -> bytes:
        return os.pread(self._log, _HEADER.size, position)


def _apply(entry: WriteLogEntry, log: int, disk: int) -> None:
    done = 0
    while done < entry.length:
        size = min(_CHUNK, entry.length - done)
        data = bytes(size) if entry.data < 0 else os.pread(log, size, entry.data + done)
        if len(data) < size:
            raise LogError(f"the log ends within an entry at {entry.data}")
        os.pwrite(disk, data, entry.offset + done)
        done += size


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

    def lose_power(self, tear: Random | None) -> Replayed:
        """Bring the data disk into the state after a power cut. Raises `WorldError`."""
        self._whole = False
        try:
            replayed = replay(self._log, self._base, tear)
        except (LogError, OSError) as error:
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
    done = run_program(command)
    if done.returncode:
        raise WorldError(f"{source.name} cannot be copied: {done.stderr.strip()}")


BOOT_DEADLINE_S = 45.0
RESTORE_DEADLINE_S = 20.0
"""Both are multiplied by the lab's time scale."""

CLOCK_TOLERANCE_S = 0.1
_CLOCK_TRIES = 3
_LOOKS = 4
_LOOK_S = 0.1
_CONNECT_S = 0.5
# Polling too often makes an emulated machine start further SSH servers, which slows all of them down.
_GREETING_S = 10.0
_SECOND_CONNECTION_S = 5.0
_DEATH_DEADLINE_S = 10.0
_LAST_LINES = 8
# QEMU stops a machine when its writes find no space, instead of failing the disk.
_IO_ERROR = "paused (I/O error)"
# The kernel prints its name before anything else.
_SILENCE = (
    "its console printed nothing, so its processor did not reach the kernel's first line: the hypervisor "
    "does not run it, or this machine is overloaded (BROWNOUT_DRIVER=qemu runs without KVM)"
)
_PID_FILES = Path("/run/libvirt/qemu")


class BootError(WorldError):
    """Machines do not boot; the message names one, with the end of its console output."""


class VirtualMachine:
    """A machine made by `vagrant up`. `directory` has its disks and its console's output."""

    def __init__(self, host: SshHost, control_address: str, hypervisor: Hypervisor, directory: Path) -> None:
        self.host = host
        self.name = host.name
        self.domain = f"brownout_{host.name}"
        self.disks = MachineDisks(directory, hypervisor.pool / f"{self.domain}.img")
        self.console = directory / "console.log"
        self._all_consoles = directory / "consoles.log"
        self._control_address = control_address
        self._hypervisor = hypervisor
        host.condition = self.condition

    def pid(self) -> int | None:
        """Its QEMU process; None while the machine is off."""
        try:
            pid = int((_PID_FILES / f"{self.domain}.pid").read_text(encoding="utf-8"))
            # libvirt removes the file some time after the process has ended.
            named = f"guest={self.domain},".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if named else None

    def kill(self) -> None:
        """Kill it at once, without syncing its disks."""
        kill_all([self])

    def lose_connection(self) -> None:
        self.host.disconnect()

    def save(self) -> None:
        """Save memory and disks for `restore`. The machine is off afterwards. Raises `WorldError`."""
        # Otherwise installed files would be in its memory only, and the first power cut after a restore would lose
        # them.
        done = self.host.run("sync")
        if not done.ok:
            raise WorldError(f"{self.name}: its disks cannot be synced: {done.stderr.strip()}")
        self.lose_connection()
        self._hypervisor.virsh("save", self.domain, str(self.disks.memory), "--running")
        self.disks.save()

    def restore(self) -> None:
        """Restore the saved state, whatever the current state; it then runs and is reachable. Raises `WorldError`."""
        self.kill()
        self._wait_until_off()
        self.disks.restore()
        self._hypervisor.virsh("restore", str(self.disks.memory), "--running")

    def start(self) -> None:
        """Power on: boot from its disks. Raises `WorldError`."""
        self._wait_until_off()
        self.disks.resume()
        self._keep_console()
        self._hypervisor.virsh("start", self.domain)

    def wait_until_ready(self, deadline_s: float, *, was_up: bool = False) -> float:
        """Wait for its SSH server, connect, and set its clock by this machine's; returns by how many seconds it was
        ahead. Raises `BootError`, and `WorldError` for a clock that cannot be set.

        With `was_up` its SSH server runs already: waiting for its banner would cost half a second. A busy machine drops
        connections, above all the first ones: they are retried."""
        give_up = time.monotonic() + deadline_s
        greeted = was_up
        while True:
            if greeted or self._greets():
                try:
                    self.host.connect()
                    return self._set_clock()
                except WorldError:
                    raise
                except HostError as error:
                    reason, greeted = str(error), False
            else:
                reason = "its SSH server does not answer"
            if self.pid() is None:
                raise BootError(f"{self.name}: the virtual machine ended while it booted; {self.last_words()}")
            if time.monotonic() > give_up:
                raise BootError(
                    f"{self.name}: not reachable {deadline_s:g} s after its start: {reason}; {self.last_words()}"
                )
            time.sleep(_LOOK_S)

    def _set_clock(self) -> float:
        """The number of seconds by which its clock is ahead; sets the clock unless it is right. Raises `WorldError`,
        `HostError`.

        A booted machine is about a second behind, a restored one as far as its save is in the past."""
        first = ahead = self._clock_ahead()
        for _ in range(_CLOCK_TRIES):
            if abs(ahead) <= CLOCK_TOLERANCE_S:
                return first
            # Shifted, not set to a time: a command takes long to start in an emulated machine.
            now = f"time.clock_gettime(time.CLOCK_REALTIME) - {ahead!r}"
            done = self.host.run(f"python3 -I -S -c 'import time; time.clock_settime(time.CLOCK_REALTIME, {now})'")
            if not done.ok:
                raise WorldError(f"{self.name}: its clock cannot be set: {done.stderr.strip()}")
            ahead = self._clock_ahead()
        raise WorldError(f"{self.name}: its clock is {ahead:+.3f} s from this machine's and does not keep the time set")

    def last_words(self) -> str:
        """The end of its console output, for a message."""
        with contextlib.suppress(OSError):
            if self.console.stat().st_size == 0:
                return _SILENCE
        last_lines = " | ".join(end_of_log(self.console).splitlines()[-_LAST_LINES:])
        return f"the end of its console: {last_lines}"

    def condition(self) -> str:
        """Why it is unreachable, as far as that is visible from outside; empty if nothing is visible."""
        pid = self.pid()
        if pid is None:
            return f"its virtual machine is off; the last line of QEMU's log: {self._hypervisor.said_of(self.domain)}"
        if process_state(pid) in "Tt":
            return "its virtual machine is stalled"
        try:
            state = self._hypervisor.virsh("domstate", "--reason", self.domain).strip()
        except WorldError as error:
            return str(error)
        if state == _IO_ERROR:
            free = shutil.disk_usage(self.disks.directory).free
            full = f"{self.disks.directory.resolve()} has {free >> 20} MB left"
            return f"its virtual machine is stopped, because its disk cannot be written ({full})"
        return "" if state.startswith("running") else f"its virtual machine is {state}"

    def write_console(self, destination: Path) -> None:
        """Write its console output since the lab was opened, of all boots. Raises `OSError`."""
        with destination.open("wb") as target:
            for part in (self._all_consoles, self.console):
                if part.exists():
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, target)

    def _keep_console(self) -> None:
        """QEMU truncates the console's file at each start."""
        if self.console.exists():
            with self._all_consoles.open("ab") as all_consoles, self.console.open("rb") as source:
                shutil.copyfileobj(source, all_consoles)
            self.console.write_bytes(b"")

    def _wait_until_off(self) -> None:
        """Wait until libvirt has noticed the end of the process."""
        give_up = time.monotonic() + _DEATH_DEADLINE_S
        while (state := self._hypervisor.virsh("domstate", self.domain).strip()) != "shut off":
            if time.monotonic() > give_up:
                raise WorldError(f"{self.name}: still {state!r} {_DEATH_DEADLINE_S:g} s after it was killed")
            time.sleep(0.02)

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self._control_address, self.host.probe_port), _CONNECT_S) as channel:
                channel.settimeout(_GREETING_S)
                return channel.recv(4) == b"SSH-"
        except OSError:
            return False

    def _clock_ahead(self) -> float:
        """Measured several times by its shell: each answer is late by its transmission, so the fastest is used."""
        looks: list[float] = []

        def heard(line: bytes) -> None:
            looks.append(float(line) - time.time())
            if len(looks) == _LOOKS:
                following.close()

        looking = f"for i in {'. ' * _LOOKS}; do bash -c 'echo $EPOCHREALTIME'; done"
        following = self.host.follow(looking, heard, connect_timeout_s=_SECOND_CONNECTION_S)
        try:
            following.wait()
        finally:
            following.close()
        if not looks:
            raise HostUnreachableError(f"{self.name}: its clock cannot be read: the connection was lost")
        return max(looks)


def process_state(pid: int) -> str:
    """The kernel's letter for a process's state: T when it is stopped; X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def kill_all(machines: list[VirtualMachine]) -> None:
    """Kill all within microseconds, and wait until they have ended. Machines that are off stay off."""
    descriptors = []
    for machine in machines:
        pid = machine.pid()
        if pid is not None:
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:
                continue
    try:
        for descriptor in descriptors:
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for descriptor in descriptors:
            select.select([descriptor], [], [], _DEATH_DEADLINE_S)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
