"""The interfaces that a world implements, so that faults can be injected in it and their effect observed."""

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nemeses.scheduling import REAL_TIME, Scheduler

MachineState = Literal["running", "stalled", "frozen"]


class HostError(Exception):
    """An operation on a host failed, and its effect is unknown; the message names the host and the operation.

    Hosts, power switches, networks and suspenders raise no other exceptions."""


class HostUnreachableError(HostError):
    """The host could not be reached; the command did not start."""


@dataclass(frozen=True)
class Result:
    """A finished command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class Host(Protocol):
    """A machine with a service on it, reached through one permanent connection."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """The address by which other hosts reach it."""
        ...

    @property
    def port(self) -> int:
        """The service's port."""
        ...

    @property
    def probe_port(self) -> int:
        """A TCP port that answers whether the service runs or not; partitions are probed there."""
        ...

    @property
    def data_dir(self) -> str:
        """The directory on the host's own disk with the service's data."""
        ...

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        """Run a shell command to its end. Raises `HostUnreachableError` when it could not start, `HostError` when its
        end was not observed (timeout, lost connection)."""
        ...

    def service_pid(self) -> int | None:
        """The process id, on the host, of the service that was started last; None without one, or when it has ended."""
        ...

    def service_exit(self, pid: int | None = None) -> int | None:
        """The exit code of the service with this pid (None: the one started last), as shells report it: 128 + N after
        the signal N; None if it is not known. Raises `HostError`."""
        ...

    def start_service(self) -> None:
        """Start the service's process, without waiting for its port; nothing happens if it runs already."""
        ...


class PowerSwitch(Protocol):
    """Switches the power of all hosts."""

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        """Cut the power of hosts, all at the same moment; returns what each lost. `tear`: the seed by which some
        unsynced pages reach the disk first; None: no page does. A host without power stays without."""
        ...

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Switch power on and wait until the hosts answer; services are not started. Hosts with power keep running."""
        ...

    def is_on(self, name: str) -> bool: ...


@dataclass(frozen=True)
class PacketCount:
    """Packets from one host to another since the network was built; `dropped` counts packets since the pair was cut,
    including rejected ones."""

    seen: int
    dropped: int


class Network(Protocol):
    """The network between the hosts. Control connections are never cut."""

    def cut(self, pairs: Collection[tuple[str, str]], *, reject: bool = False) -> None:
        """Drop all packets from the first host of each pair to the second from now on, for all pairs at once. With
        `reject`, the sender gets a TCP reset or an ICMP error, as if no process listened."""
        ...

    def heal(self, pairs: Collection[tuple[str, str]] | None = None) -> None:
        """Restore these pairs; None: all pairs. Pairs that are not cut do not change."""
        ...

    def counters(self) -> dict[tuple[str, str], PacketCount]:
        """The counters of every ordered pair of hosts."""
        ...

    def cut_pairs(self) -> set[tuple[str, str]]:
        """The pairs that are cut now, read from the network itself."""
        ...


class Suspender(Protocol):
    """Suspends whole machines from outside and resumes them. Each method returns details, by host name."""

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """The machines stop and their clocks continue, so that the clocks have jumped when the machines resume."""
        ...

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """The machines and all their clocks stop; later the clocks lag by the duration of the suspension."""
        ...

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Resume machines. A running machine does not change."""
        ...

    def state(self, name: str) -> MachineState:
        """The machine's current state, as its hypervisor reports it."""
        ...


@dataclass(frozen=True)
class Burst:
    """The fate of datagrams that were sent at once: how many were sent, how many arrived, how many of these arrived
    twice, and how many were held back so that later ones overtook them."""

    sent: int
    arrived: int
    twice: int
    overtaken: int


class Wire(Protocol):
    """The path of packets from a host to the others, in worlds that can manipulate packets."""

    def duplicate(self, name: str, share: float) -> None:
        """Duplicate this share (0 to 1) of the packets that a host sends, from now on."""
        ...

    def reorder(self, name: str, share: float) -> None:
        """Hold back this share (0 to 1) of the packets that a host sends, so that later ones overtake them."""
        ...

    def reset(self, name: str) -> int:
        """Reset all connections between a host and others, at both ends; returns how many."""
        ...

    def keep_resetting(self, name: str, every_s: float | None) -> int:
        """Repeat that from now on; None: stop. Returns the number of resets since the start."""
        ...

    def times_reset(self, name: str) -> int:
        """The number of times that all connections of a host were reset, whether it had any or not."""
        ...

    def burst(self, name: str, to: str, count: int) -> Burst:
        """Send datagrams from one host to another, all at once, and observe their arrival."""
        ...


@dataclass(frozen=True)
class DiskCount:
    """Counts of a disk's faults since it was made: failed syncs, and writes without space."""

    failed_syncs: int
    refused_writes: int


class Disks(Protocol):
    """The disks of all hosts, below their filesystems."""

    def fail_syncs(self, name: str, failing: bool) -> None:
        """Let syncs fail with EIO and lose the data to sync; or end that."""
        ...

    def leave(self, name: str, free_bytes: int | None) -> None:
        """Limit the free space of a disk; None: remove the limit."""
        ...

    def slow_down(self, name: str, by_s: float) -> None:
        """Let each sync take `by_s` seconds longer."""
        ...

    def hang(self, name: str, hung: bool) -> None:
        """Let all syncs block; or end that."""
        ...

    def flip(self, name: str, seed: int, count: int) -> list[str]:
        """Flip `count` bits in the logs of a stopped service; returns a description of each."""
        ...

    def mend(self, name: str) -> int:
        """Restore the flipped bits that are still there; returns how many."""
        ...

    def keep_copy(self, name: str) -> int:
        """Copy the durable data; returns the number of files."""
        ...

    def replace(self, name: str, *, by_copy: bool) -> int:
        """Replace the disk of a stopped service with an empty disk or the copy; returns the old disk's file count."""
        ...

    def crash_at(self, name: str, files: str, number: int, crash: str) -> None:
        """Let the service end at the operation with this number, from 1, of those on some files (a word of the kind
        `crash-point`): killed, or by a power loss, before the operation or after it."""
        ...

    def end_crash_point(self, name: str) -> dict[str, Any]:
        """End the service now if that operation has not come. Returns the `operation`, or `none`, and the number of
        `operations` until the crash; nothing without a crash point."""
        ...

    def probe(self, name: str, seconds: float) -> float | None:
        """The duration of a small write and its sync; None: longer than `seconds`. Raises `OSError`."""
        ...

    def counts(self, name: str) -> DiskCount: ...


class Objects(Protocol):
    """The object store that all hosts share, in worlds that can manipulate it. `work` ends the faults.

    Faults are in force for reasons. The store does what all of them say; `under` a reason, the faults of this reason
    are changed and ended, and a probe meets no others."""

    def under(self, reason: str) -> "Objects":
        """The store with the faults of one reason."""
        ...

    def slow_down(self, by_s: float) -> None:
        """Let each operation take `by_s` seconds longer."""
        ...

    def hang(self) -> None:
        """Let no operation end."""
        ...

    def fail(self, operations: Collection[str], reason: str) -> None:
        """Let these operations (put, get, list, delete) fail with this reason."""
        ...

    def keep_part(self, reason: str) -> None:
        """Let puts fail with this reason after their first bytes, which remain."""
        ...

    def show_old(self, age_s: float) -> None:
        """Let listings show the objects of `age_s` seconds ago."""
        ...

    def mix_up(self) -> int:
        """Let reads return the objects of other names, and put copies of objects under names of unknown segments, which
        stay until the run ends; returns the number of copies."""
        ...

    def damage(self, change: str, seed: int) -> dict[str, str]:
        """Change the stored objects of a segment that no other reason has changed: its object with the records is
        `missing`, `cut` in its middle or `corrupt` there, or all of its objects are `replaced` by those of another
        segment. `seed` chooses the segment. Returns the `object`, its `size` in bytes and its digests `before` and
        `after`, or `absent` without such a segment."""
        ...

    def put_back(self) -> dict[str, str]:
        """End that damage; returns which object is `restored` (`deleted`: the cluster has deleted it meanwhile;
        `nothing`: none was damaged), and its `digest`."""
        ...

    def work(self) -> None: ...

    def probe(self, operation: str, seconds: float) -> tuple[str, float | None]:
        """The result of one operation (put or list), `done` or the reason why it failed, and its duration; (`silent`,
        None): it takes longer than `seconds`."""
        ...

    def shows_new(self, seconds: float) -> bool:
        """Whether a listing has an object that was put just before."""
        ...

    def reads_own(self, seconds: float) -> bool:
        """Whether reads of two objects that were put just before return these."""
        ...


class Oscillators(Protocol):
    """The rate of the hosts' clocks."""

    def drift(self, name: str, gain: float) -> None:
        """Let a host's clocks gain (negative: lose) `gain` seconds per second."""
        ...


_SILENCE_S = 0.1


def answers(host: Host) -> bool:
    """Whether a process at a host's probe port sends data, or the connection is refused."""
    with contextlib.suppress(OSError), socket.create_connection((host.address, host.probe_port), timeout=_SILENCE_S):
        return True
    return False


def first_word_s(host: Host, patience_s: float) -> float | None:
    """After how many seconds a host's probe port answered; None: not within `patience_s`.

    A refused connection is an answer, too, because only a running host can refuse."""
    started_s = time.monotonic()
    try:
        with socket.create_connection((host.address, host.probe_port), timeout=patience_s) as connection:
            connection.settimeout(max(0.01, started_s + patience_s - time.monotonic()))
            connection.recv(1)
    except ConnectionError:
        pass
    except OSError:  # timeout, or no route
        return None
    return time.monotonic() - started_s


def new_mark() -> str:
    """A text that has never been written before."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Site:
    """The parts of a world that a nemesis uses. `power`, `network`, `suspender`, `wire`, `disks`, `oscillators`,
    `objects`: None where the world has no such part. `time_scale`: how much slower everything is than on an ordinary
    machine; deadlines are multiplied by it. `store_dir`: the directory that all hosts share, by its path on them; empty
    without one. `start_deadline_s`, `stop_deadline_s`: the longest time from the service's start to its open port, and
    from SIGTERM to its end (seconds on an ordinary machine). `scheduler`: the world's time. `answers`: whether a host
    answers. `first_word_s`: the time until it answered, within a limit. `new_mark`: makes the marks that are written to
    disks.
    """

    hosts: Mapping[str, Host]
    power: PowerSwitch | None = None
    network: Network | None = None
    suspender: Suspender | None = None
    time_scale: float = 1.0
    start_deadline_s: float = 15.0
    stop_deadline_s: float = 30.0
    scheduler: Scheduler = REAL_TIME
    answers: Callable[[Host], bool] = answers
    first_word_s: Callable[[Host, float], float | None] = first_word_s
    new_mark: Callable[[], str] = new_mark
    wire: Wire | None = None
    disks: Disks | None = None
    oscillators: Oscillators | None = None
    objects: Objects | None = None
    store_dir: str = ""
