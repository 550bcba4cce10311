"""What a world must offer so that faults can be inflicted in it and seen to take effect."""

from __future__ import annotations

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
    """Something done to a host failed in a way that leaves its effect unknown; the message names host and deed.

    Hosts, power switches, networks and suspenders raise nothing else."""


class HostUnreachableError(HostError):
    """The host could not be reached; the command was not started."""


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
    """A machine with a broker on it, reached through one kept connection."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """Where the other hosts reach it."""
        ...

    @property
    def port(self) -> int:
        """The broker's port."""
        ...

    @property
    def probe_port(self) -> int:
        """A TCP port on which something answers whether or not the broker runs: where partitions are probed."""
        ...

    @property
    def data_dir(self) -> str:
        """The directory on the host's own disk under which the broker keeps its data."""
        ...

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        """Run a shell command to its end. Raises `HostUnreachableError` when it could not be started, `HostError` when
        its end was not seen (timeout, connection lost)."""
        ...

    def service_pid(self) -> int | None:
        """The process id, as the host counts, of the broker last started; None when none was or it has ended."""
        ...

    def service_exit(self, pid: int | None = None) -> int | None:
        """How the service of this pid (None: the one last started) ended, as shells have it: its exit code, or 128 +
        the number of the signal that killed it; None where that is not known. Raises `HostError`."""
        ...

    def start_service(self) -> None:
        """Start the broker's process, without waiting for its port; nothing happens when it runs already."""
        ...


class PowerSwitch(Protocol):
    """The plugs of all hosts."""

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        """Take the power from hosts, all at the same moment; what each lost. `tear` is the seed by which some
        unsynced pages reach the disk first; None: none does. A host that is off already stays off."""
        ...

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Power on and wait for the hosts to answer; brokers are not started. A host that is on stays on."""
        ...

    def is_on(self, name: str) -> bool: ...


@dataclass(frozen=True)
class PacketCount:
    """Packets from one host to another since the network was built; `dropped` counts since the pair was cut, those that
    were rejected too."""

    seen: int
    dropped: int


class Network(Protocol):
    """What connects the hosts. Control connections are never cut."""

    def cut(self, pairs: Collection[tuple[str, str]], *, reject: bool = False) -> None:
        """Drop everything from the first host of each pair to the second, from now on, all pairs at once. With `reject`
        whoever sends is answered, by a reset of TCP or by ICMP, as if nobody listened there."""
        ...

    def heal(self, pairs: Collection[tuple[str, str]] | None = None) -> None:
        """Let these pairs pass again; None: all. Pairs that are not cut are left alone."""
        ...

    def counters(self) -> dict[tuple[str, str], PacketCount]:
        """The counters of every ordered pair of hosts."""
        ...

    def cut_pairs(self) -> set[tuple[str, str]]:
        """What is cut now, as the network itself says."""
        ...


class Suspender(Protocol):
    """Stops whole machines from outside and lets them go on. Each answers, by name, what it knows of the deed."""

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """The machines execute nothing; their clocks go on, so that they have jumped when the machines resume."""
        ...

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """The machines and all their clocks stop; afterwards their clocks are behind by the time that was frozen."""
        ...

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Let machines go on. One that runs is left alone."""
        ...

    def state(self, name: str) -> MachineState:
        """What the machine does now, as whoever runs it says; not what was last asked for."""
        ...


@dataclass(frozen=True)
class Burst:
    """What has become of datagrams that were sent at once: how many, how many of them arrived, how many of these twice,
    and how many the wire has held back for later ones to overtake."""

    sent: int
    arrived: int
    twice: int
    overtaken: int


class Wire(Protocol):
    """What packets go through on their way from one host to the others, where it can be told to treat them badly."""

    def duplicate(self, name: str, share: float) -> None:
        """Have this share (0 to 1) of what a host sends arrive twice, from now on."""
        ...

    def reorder(self, name: str, share: float) -> None:
        """Have this share (0 to 1) of what a host sends be overtaken by later packets, from now on."""
        ...

    def reset(self, name: str) -> int:
        """Break all connections of a host with others, with a reset to both ends; how many."""
        ...

    def keep_resetting(self, name: str, every_s: float | None) -> int:
        """Do so again and again from now on; None: no longer. How many it were since that was begun."""
        ...

    def times_reset(self, name: str) -> int:
        """How many times all connections of a host have been reset until now, had it any or none."""
        ...

    def burst(self, name: str, to: str, count: int) -> Burst:
        """Send datagrams from one host to another, all at once, and see them arrive."""
        ...


@dataclass(frozen=True)
class DiskCount:
    """What of a disk's faults has been met since it was made: syncs that failed, writes that found no space."""

    failed_syncs: int
    refused_writes: int


class Disks(Protocol):
    """The disks of all hosts, from below their filesystems."""

    def fail_syncs(self, name: str, failing: bool) -> None:
        """Have syncs fail with EIO, and forget what they should have written; or no longer."""
        ...

    def leave(self, name: str, free_bytes: int | None) -> None:
        """Leave so much space on a disk; None: as much as there was."""
        ...

    def slow_down(self, name: str, by_s: float) -> None:
        """Have each sync take so much longer."""
        ...

    def hang(self, name: str, hung: bool) -> None:
        """Have no sync return, until told otherwise."""
        ...

    def flip(self, name: str, seed: int, count: int) -> list[str]:
        """Turn over so many bits of what a stopped service's logs hold; which, in words."""
        ...

    def mend(self, name: str) -> int:
        """Turn back what was turned over and is still there; how many bits."""
        ...

    def keep_copy(self, name: str) -> int:
        """Put aside a copy of what is durable now; of how many files."""
        ...

    def replace(self, name: str, *, by_copy: bool) -> int:
        """Put in another disk under a stopped service: an empty one, or the copy; how many files the old one had."""
        ...

    def probe(self, name: str, seconds: float) -> float | None:
        """How long a small write and its sync take; None: it has not returned in so many seconds. Raises `OSError`."""
        ...

    def counts(self, name: str) -> DiskCount: ...


class Oscillators(Protocol):
    """What the clocks of hosts count by."""

    def drift(self, name: str, gain: float) -> None:
        """Have a host's clocks gain (negative: lose) so many seconds a second."""
        ...


_SILENCE_S = 0.1


def answers(host: Host) -> bool:
    """Whether something says a word at a host's probe port, or refuses to."""
    with contextlib.suppress(OSError), socket.create_connection((host.address, host.probe_port), timeout=_SILENCE_S):
        return True
    return False


def first_word_s(host: Host, patience_s: float) -> float | None:
    """After how many seconds a host's probe port said something; None: nothing in time.

    A refusal is a word too, for somebody must be awake to refuse."""
    begun_s = time.monotonic()
    try:
        with socket.create_connection((host.address, host.probe_port), timeout=patience_s) as connection:
            connection.settimeout(max(0.01, begun_s + patience_s - time.monotonic()))
            connection.recv(1)
    except ConnectionError:
        pass
    except OSError:  # no answer in time, or no way to it
        return None
    return time.monotonic() - begun_s


def new_mark() -> str:
    """A text that nobody has written before."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Site:
    """Everything that a nemesis can reach in a world. `power`, `network`, `suspender`, `wire`, `disks`, `oscillators`:
    None where the world has no such thing. `time_scale`: how much longer everything takes than on an ordinary machine;
    deadlines are multiplied by it. `start_deadline_s`, `stop_deadline_s`: within which the service's port opens after
    its start, and its process ends
    after it was asked to (seconds on an ordinary machine). `scheduler`: the world's time. `answers`: whether a host
    says a word to who tries to reach it. `first_word_s`: after how many seconds it did, within
    so many. `new_mark`: where the marks come from that are left on disks.
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
