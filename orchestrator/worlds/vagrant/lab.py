"""The lab of virtual machines: boots them with Vagrant and provisions them with Ansible once, restores them per run."""

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import IO, Any, Final

from installation.files import PROJECT_ROOT, cache_directory
from installation.programs import run_program
from nemeses import Host, HostError, injectable
from nemeses.ports import MachineState
from nemeses.scheduling import for_each, results_by_name
from nodeimage import JAVA, Image, ImageError, files_archive, find
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine import cgroups, playbooks, syscalls
from orchestrator.machine import packages as system_packages
from orchestrator.machine.pair_filter import PairFilter
from orchestrator.machine.playbooks import Target
from orchestrator.machine.sandbox import PRIVATE_ROOT, current_sandbox
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import Progress, World, WorldSpec, no_progress
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.remote import paths, playbook_variables
from orchestrator.worlds.remote.machines import Collected, Machines
from orchestrator.worlds.remote.playbook_variables import Provisions
from orchestrator.worlds.remote.world import RemoteWorld
from orchestrator.worlds.vagrant import driver, kvm, network, requirements
from orchestrator.worlds.vagrant.driver import Driver
from orchestrator.worlds.vagrant.hypervisor import POOL, Hypervisor
from orchestrator.worlds.vagrant.machine import (
    BOOT_DEADLINE_S,
    RESTORE_DEADLINE_S,
    BootError,
    VirtualMachine,
    kill_all,
    process_state,
)
from orchestrator.worlds.vagrant.network import BRIDGES, DATA
from systems import MachineRoot, Software

# ---- `vagrant up` in the sandbox: reports progress, and is ended when it takes too long or is interrupted.

NODES_DEADLINE_S = 30.0
"""For the first node, multiplied by the time scale; each further one adds a part."""
_FURTHER_NODE = 0.3
_LOOK_S = 0.5
_SAID = re.compile(r"^(?:==>|   ) (?P<node>[\w.-]+): (?P<text>.*)$")
# Lines of Vagrant's output that are reported as progress.
_MESSAGES = {
    "Starting domain.": "{node} is booting",
    "Machine booted and ready!": "{node} answers",
}
_READY = "Machine booted and ready!"
_STARTED = "Starting domain."
# A Ruby exception starts with the place where it was raised, followed by its stack.
_RAISED = re.compile(r"^/\S+:\d+:in `[^']*': ")
_TRACE = re.compile(r"^(from )?/\S+:\d+:in ")
_FIRST_LINES = 8


@dataclass(eq=False)
class VagrantUp:
    """One `vagrant up` of nodes that do not exist yet.

    `_alive(name)`: whether a node's machine runs. `_last_words(name)`: the end of its console output."""

    _names: Sequence[str]
    _environment: Mapping[str, str]
    _log: Path
    _alive: Callable[[str], bool]
    _last_words: Callable[[str], str]
    _booting: set[str] = field(default_factory=set, init=False)
    _seen_alive: set[str] = field(default_factory=set, init=False)
    _ready: set[str] = field(default_factory=set, init=False)
    _lines: list[str] = field(default_factory=list, init=False)

    def run(self, time_scale: float, on_progress: Progress) -> None:
        """Boot all nodes and wait until each answers. Raises `BootError` with the node and the cause, and `WorldError`
        if Vagrant itself cannot be run."""
        deadline_s = NODES_DEADLINE_S * time_scale * (1 + _FURTHER_NODE * (len(self._names) - 1))
        give_up = time.monotonic() + deadline_s
        command = ["vagrant", "up", "--no-color", "--no-provision", "--provider", "libvirt", "--parallel"]
        try:
            process = subprocess.Popen(
                [*command, *self._names],
                cwd=PROJECT_ROOT,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the orchestrator only: Vagrant would take long to clean up
            )
        except OSError as error:
            raise WorldError(
                f"vagrant cannot be run: {error.strerror}; `brownout doctor` lists what is missing"
            ) from error
        try:
            self._watch(process, give_up, deadline_s, on_progress)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _watch(
        self, process: subprocess.Popen[bytes], give_up: float, deadline_s: float, on_progress: Progress
    ) -> None:
        assert process.stdout is not None
        output_lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(
            target=_read, args=(process.stdout, output_lines, self._log), name="vagrant-up", daemon=True
        ).start()
        while True:
            try:
                line = output_lines.get(timeout=_LOOK_S)
            except queue.Empty:
                pass
            else:
                if line is None:
                    break
                self._hear(line, on_progress)
            self._look()
            if time.monotonic() > give_up:
                late = next(name for name in self._names if name not in self._ready)
                raise BootError(
                    f"{late}: the virtual machine has not booted within {deadline_s:g} s; {self._last_words(late)}; "
                    f"Vagrant's output is in {self._log}"
                )
        code = process.wait()
        if code != 0 or self._ready != set(self._names):
            raise BootError(f"vagrant up ended with code {code}: {self._complaint()}; its output is in {self._log}")

    def _hear(self, line: str, on_progress: Progress) -> None:
        self._lines.append(line)
        match = _SAID.match(line)
        if match is None:
            return
        node, text = match["node"], match["text"]
        if text == _STARTED:
            self._booting.add(node)
        if text == _READY:
            self._ready.add(node)
        if text in _MESSAGES:
            on_progress(_MESSAGES[text].format(node=node))

    def _look(self) -> None:
        """Detect machines that have ended: Vagrant would wait for them for minutes."""
        for name in self._booting - self._ready:
            if self._alive(name):
                self._seen_alive.add(name)
            elif name in self._seen_alive:
                raise BootError(f"{name}: the virtual machine ended while it booted; {self._last_words(name)}")

    def _complaint(self) -> str:
        """Vagrant's output without the progress of nodes and without stack traces."""
        plain = [line.strip() for line in self._lines if line.strip() and not _SAID.match(line)]
        raised = [_RAISED.sub("", line) for line in plain if _RAISED.match(line)]
        complaints = raised or [line for line in plain if not _TRACE.match(line)]
        return " ".join(complaints[:_FIRST_LINES]) or (self._lines[-1].strip() if self._lines else "it printed nothing")


def _read(output: IO[bytes], output_lines: queue.SimpleQueue[str | None], log: Path) -> None:
    with output, log.open("ab", buffering=0) as log_file:
        for line in output:
            log_file.write(line)
            output_lines.put(line.decode(errors="replace").rstrip())
    output_lines.put(None)


# ---- A lab's virtual machines as the machines of a run: restored from their saved state, collected by playbook.

# ---- Suspends virtual machines from outside: with their clocks (QEMU's stop) or without (the process is stopped).

_DEADLINE_S = 5.0


class VirtualSuspender:
    """Stalls, freezes and resumes virtual machines.

    A stalled QEMU does not answer, not even libvirt: requests to libvirt about that machine hang until it is resumed. A
    freeze flushes the machine's disks, because QEMU flushes whenever it stops: the guest's writes are then durable.
    """

    def __init__(self, machines: Mapping[str, VirtualMachine], hypervisor: Hypervisor) -> None:
        self._machines = machines
        self._hypervisor = hypervisor
        self._frozen: set[str] = set()

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return {name: self._signal(name, signal.SIGSTOP, "stalled") for name in names}

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        # Recorded first: if a command fails halfway, the machine must still be resumed.
        self._frozen |= set(names)
        return self._ask(names, "suspend")

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        stalled = [name for name in names if self.state(name) == "stalled"]
        evidence = {name: self._signal(name, signal.SIGCONT, "running") for name in stalled}
        frozen = [name for name in names if name in self._frozen]
        evidence |= self._ask(frozen, "resume")
        self._frozen -= set(frozen)
        return evidence

    def state(self, name: str) -> MachineState:
        """By the kernel's state of the process, and libvirt's state of the machine."""
        pid = self._machines[name].pid()
        if pid is not None and process_state(pid) in "Tt":
            return "stalled"
        if name in self._frozen and self._hypervisor.virsh("domstate", self._machines[name].domain).strip() == "paused":
            return "frozen"
        return "running"

    def forget(self) -> None:
        """Reset: all machines are new and running."""
        self._frozen.clear()

    def _signal(self, name: str, number: signal.Signals, state: MachineState) -> dict[str, Any]:
        pid = self._machines[name].pid()
        if pid is None:
            raise WorldError(f"{name}: it has no power and cannot be {state}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        self._wait(name, lambda: (process_state(pid) in "Tt") == (state == "stalled"), state)
        return {"qemu_pid": pid}

    def _ask(self, names: Collection[str], command: str) -> dict[str, dict[str, Any]]:
        def one(name: str) -> dict[str, Any]:
            started = time.monotonic()
            self._hypervisor.virsh(command, self._machines[name].domain)
            return {"took_ms": round((time.monotonic() - started) * 1e3, 1)}

        return results_by_name(names, one)

    def _wait(self, name: str, done: Callable[[], bool], state: MachineState) -> None:
        give_up = time.monotonic() + _DEADLINE_S
        while not done():
            if time.monotonic() > give_up:
                raise WorldError(f"{name}: not {state} {_DEADLINE_S:g} s after it was asked to be")
            time.sleep(0.001)


# ---- The power switch of virtual machines: QEMU is killed, and the data disk loses the content of its cache.


class VirtualPower:
    """Cuts and restores the power of virtual machines."""

    def __init__(self, machines: Mapping[str, VirtualMachine], time_scale: float) -> None:
        self._machines = machines
        self._deadline_s = BOOT_DEADLINE_S * time_scale

    def is_on(self, name: str) -> bool:
        return self._machines[name].pid() is not None

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        affected = {name: self._machines[name] for name in names if self.is_on(name)}
        started = time.monotonic()
        # A machine that does not execute sends nothing: nodes that share this kernel, in contrast, may close
        # connections.
        kill_all(list(affected.values()))
        killed_ms = _ms(started)
        details = results_by_name(affected, lambda name: _lose(affected[name], tear))
        return {name: {"killed_ms": killed_ms, **detail} for name, detail in details.items()}

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return results_by_name([name for name in names if not self.is_on(name)], self._boot)

    def _boot(self, name: str) -> dict[str, Any]:
        machine, started = self._machines[name], time.monotonic()
        machine.start()
        ahead_s = machine.wait_until_ready(self._deadline_s)
        return {"booted_s": round(time.monotonic() - started, 2), "clock_was_ahead_s": round(ahead_s, 3)}


def _lose(machine: VirtualMachine, tear: int | None) -> dict[str, Any]:
    started = time.monotonic()
    machine.lose_connection()
    replayed = machine.disks.lose_power(None if tear is None else Random(f"{tear}:{machine.name}"))
    return {
        "writes_logged": replayed.writes,
        "writes_lost": replayed.lost,
        "flushes": replayed.flushes,
        "log_gaps": replayed.gaps,
        "replay_ms": _ms(started),
    }


def _ms(since: float) -> float:
    return round((time.monotonic() - since) * 1e3, 1)


class VirtualMachines(Machines):
    """Booted and provisioned machines."""

    suspender: VirtualSuspender
    network: PairFilter

    def __init__(
        self,
        machines: Mapping[str, VirtualMachine],
        hypervisor: Hypervisor,
        targets: Mapping[str, Target],
        directory: Path,
        time_scale: float,
    ) -> None:
        super().__init__(targets, directory)
        self._machines = machines
        self._restore_deadline_s = RESTORE_DEADLINE_S * time_scale
        self.hosts = {name: machine.host for name, machine in machines.items()}
        self.power = VirtualPower(machines, time_scale)
        self.suspender = VirtualSuspender(machines, hypervisor)
        self.network = PairFilter({name: host.address for name, host in self.hosts.items()}, BRIDGES[DATA])

    def save(self) -> None:
        """Save every machine's current state for `reset`; the machines are off afterwards. Raises `WorldError`."""
        for_each(self._machines.values(), VirtualMachine.save)

    def reset(self, on_progress: Progress) -> None:
        self.network.heal()
        self.suspender.forget()
        for_each(self._machines.values(), self._restore)
        on_progress(f"{', '.join(self._machines)} are restored to the state after provisioning")

    def collect(self, destinations: Mapping[str, Path], collected: Collected) -> None:
        try:
            for name, destination in destinations.items():
                destination.mkdir(parents=True, exist_ok=True)
                self._machines[name].write_console(destination / "console.log")
        except OSError as error:
            raise WorldError(f"the console output cannot be stored: {error}") from error
        super().collect(destinations, collected)

    def _restore(self, machine: VirtualMachine) -> None:
        machine.lose_connection()
        machine.restore()
        machine.wait_until_ready(self._restore_deadline_s, was_up=True)


# ---- The directory of a lab of virtual machines: in memory if there is enough, removed with the lab.

PLACE = PRIVATE_ROOT / "lab"
"""The path within the sandbox: sockets need short paths, and QEMU's options plain ones."""

# The initial size of a node's disks and saved state; the same again is reserved for its runs.
_SAVED_BYTES = 512 << 20
_FAILED = cache_directory() / "vagrant-failed"
_LOGS = ("vagrant.log", "libvirtd.log", "log", "ansible")


def make(directory: Path, nodes: int, memory_mb: int) -> None:
    """Make it in memory if there is enough, where it is fastest and removed with the sandbox; else in `directory`.
    Raises `WorldError` without enough space in either, `OSError`."""
    needed = 2 * nodes * max(_SAVED_BYTES, memory_mb << 20)
    if _memory_suffices(needed + nodes * (memory_mb << 20), needed):
        PLACE.mkdir()
        return
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise WorldError(
            f"{directory} has {free >> 20} MB free, and {nodes} virtual machines need {needed >> 20} MB; free some, or "
            "use another place: --store DIR"
        )
    PLACE.symlink_to(directory)


def remove() -> None:
    """Empty it. A given directory itself stays, because its owner may have locked it."""
    if not PLACE.is_symlink():
        shutil.rmtree(PLACE, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError):
        for path in PLACE.resolve().iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    PLACE.unlink()


def link_box(image: Image, pool: Path) -> None:
    """Give Vagrant and libvirt's storage pool the image as if they had it already, so that neither copies it: it is
    never written.

    This is Vagrant's layout of boxes; its libvirt provider uploads the disk unless the pool has it under this name."""
    name = f"brownout-VAGRANTSLASH-node-{image.key}"
    box = PLACE / "home" / "boxes" / name / "0" / "libvirt"
    box.mkdir(parents=True)
    with tarfile.open(image.box) as archive:
        for member in ("metadata.json", "Vagrantfile"):
            archive.extract(member, box)
    disk = box / "box.img"
    disk.symlink_to(image.disk)
    changed = int(disk.stat().st_mtime)
    (pool / f"{name}_vagrant_box_image_0_{changed}_box.img").symlink_to(image.disk)


def keep_logs(machines: Iterable[str], message: str) -> str:
    """Keep the logs of a lab that could not be made, until the next such lab. Returns `message`, with the
    logs' new paths in place of the old ones."""
    with contextlib.suppress(OSError):
        shutil.rmtree(_FAILED, ignore_errors=True)
        _FAILED.mkdir(parents=True)
        for log in (*_LOGS, *(f"{name}/console.log" for name in machines)):
            source, target = PLACE / log, _FAILED / log
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copyfile(source, target)
    return message.replace(str(PLACE), str(_FAILED))


def _memory_suffices(needed: int, stored: int) -> bool:
    """Whether this number of bytes is free, and the sandbox's memory filesystem has room for the files."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return available > needed and shutil.disk_usage(PRIVATE_ROOT).free > stored


# ---- The image's root filesystem as a directory, in which the machines' programs run at this machine's full speed.

_PLACE = PRIVATE_ROOT / "image-root"
_SHOWN = ("dev", "proc")


def with_made_files(
    image: Image, software: Sequence[Software], on_progress: Callable[[str], None]
) -> tuple[Software, ...]:
    """The same software, with the files that its systems generate on machines with this image. Needs a sandbox."""
    return tuple(_with_made_files(image, component, on_progress) for component in software)


def _with_made_files(image: Image, component: Software, on_progress: Callable[[str], None]) -> Software:
    files_dir = f"{paths.FILES}/{component.name}"
    root = MachineRoot(image.key, files_dir, lambda: _opened(image, files_dir, component.files))
    return replace(component, files={**component.files, **component.make(root, on_progress)})


@contextlib.contextmanager
def _opened(image: Image, files_dir: str, files: Mapping[str, Path]) -> Iterator[Path]:
    """With these files in the same places as on the machines. Changes are in memory and discarded: the image's
    directory is never written."""
    root, changes, work = (_PLACE / name for name in ("root", "changes", "work"))
    for directory in (root, changes, work):
        directory.mkdir(parents=True)
    mounted: list[Path] = []
    try:
        syscalls.mount_overlay(str(root), lower=str(image.rootfs), upper=str(changes), work=str(work))
        mounted.append(root)
        for name in _SHOWN:
            (root / name).mkdir(exist_ok=True)
            syscalls.bind(f"/{name}", str(root / name))
            mounted.append(root / name)
        target = root / files_dir.lstrip("/")
        target.mkdir(parents=True)
        archive = files_archive(PROJECT_ROOT, files).archive
        command = ["tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(target)]
        done = run_program(command)
        if done.returncode:
            raise OSError(f"{archive} cannot be unpacked: {done.stderr.strip()}")
        yield root
    finally:
        for path in reversed(mounted):
            with contextlib.suppress(OSError):
                syscalls.unmount(str(path), syscalls.MNT_DETACH)
        shutil.rmtree(_PLACE, ignore_errors=True)


EMULATED_TIME_SCALE = 4.0
EMULATED_JAVA_TIME_SCALE = 12.0
"""Emulation of Java's compiled code is slow: a Kafka broker that starts in 4 s takes minutes there."""
DATA_SERIAL = "data"

_MEMORY_MB = 512
# MB: a Java with a heap of 256 MB, and the kernel's file cache.
_JAVA_MEMORY_MB = 1024
_PROGRAM_PLACES = ("usr/bin", "usr/sbin", "usr/local/bin")


class VagrantLab(Lab):
    """Virtual machines n1, n2, ... in this sandbox."""

    name = "vagrant"
    capabilities: frozenset[str] = injectable(("power", "network", "netem", "stall", "freeze", "clock"))
    needs_sandbox = True

    def __init__(self, spec: LabSpec) -> None:
        if not 1 <= spec.node_count <= network.MAX_NODES:
            raise WorldError(f"{spec.node_count} nodes: the vagrant world takes 1 to {network.MAX_NODES}")
        self._spec = spec
        self._driver = Driver("kvm", "until it is settled")
        self.time_scale = 1.0
        self.limits: list[str] = []
        self._memory_mb = _JAVA_MEMORY_MB if _runs_on_java(spec) else _MEMORY_MB
        self._numbers = range(1, spec.node_count + 1)
        self._hypervisor: Hypervisor | None = None
        self._machines: dict[str, VirtualMachine] = {}
        self._ready: VirtualMachines | None = None

    @classmethod
    def time_scales(cls, spec: LabSpec) -> tuple[float, ...]:
        return 1.0, _emulated_scale(spec)

    @classmethod
    def prepare(cls, spec: LabSpec) -> None:
        driver.asked()
        system_packages.ensure(requirements.PACKAGES, "virtual machines")
        if not requirements.plugin().met:
            system_packages.ensure({requirements.PLUGIN_MARK: requirements.PLUGIN_PACKAGE}, "virtual machines")
        missing = requirements.missing()
        if missing:
            lacks = " / ".join(str(requirement) for requirement in missing)
            raise UsageError(f"the vagrant world cannot run here: {lacks}")
        try:
            _require_programs(spec, _image_for(spec))
        except ImageError as error:
            raise UsageError(str(error)) from error

    def open(self, on_progress: Progress = no_progress) -> None:
        sandbox = current_sandbox()
        if sandbox is None:
            raise WorldError("virtual machines need a sandbox; start the command through `enter_sandbox`")
        try:
            image = _image_for(self._spec)
            provisions = playbook_variables.provisions(with_made_files(image, self._spec.software, on_progress))
        except ImageError as error:
            raise WorldError(str(error)) from error
        self._settle(driver.choose(image.directory))
        try:
            self._make_all(sandbox, image, provisions, on_progress)
        except (HostError, OSError) as error:
            message = str(error) if isinstance(error, WorldError) else f"the virtual machines cannot be made: {error}"
            if not self._spec.keep:
                with on_failure(self.close):
                    message = keep_logs(self._machines, message)
                clean_up(self.close, cause=error)
            raise WorldError(message) from error
        except BaseException as error:
            clean_up(self.close, cause=error)
            raise

    def _make_all(self, sandbox: str, image: Image, provisions: Provisions, on_progress: Progress) -> None:
        """Boot and provision all machines; emulated ones if they do not boot with KVM."""
        try:
            self._make(sandbox, image, provisions, on_progress)
        except BootError as error:
            if self._driver.emulates or self._driver.is_asked:
                raise
            message = keep_logs(self._machines, str(error))
            on_progress(f"machines did not boot with KVM, and are now emulated: {message}")
            kvm.distrust(image.directory, "machines did not boot with it")
            self.close()
            self._settle(Driver("qemu", f"machines did not boot with KVM: {message}"))
            self._make(sandbox, image, provisions, on_progress)

    def world(self, spec: WorldSpec) -> World:
        if self._ready is None:
            raise WorldError("the virtual machines do not exist: the lab was not opened")
        return RemoteWorld(spec, self.name, self._ready, self.capabilities, self.limits, self.time_scale)

    def close(self) -> None:
        clean_up(
            *(machine.lose_connection for machine in self._machines.values()),
            self._uninstall_network,
            self._stop_hypervisor,
            self._machines.clear,
            remove,
        )

    def _uninstall_network(self) -> None:
        if self._ready is not None:
            self._ready.network.uninstall()
            self._ready = None

    def _stop_hypervisor(self) -> None:
        if self._hypervisor is not None:
            self._hypervisor.stop()
            self._hypervisor = None

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {name: machine.host for name, machine in self._machines.items()}

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        if name not in self._machines:
            raise WorldError(f"unknown node {name}; the nodes are {', '.join(self._machines) or 'not there yet'}")
        return [
            *("ssh", "-i", str(self._key_file), "-l", "root"),
            *("-o", f"UserKnownHostsFile={PLACE}/known_hosts", "-o", "StrictHostKeyChecking=accept-new"),
            *(() if command else ("-t",)),
            network.control_address(int(name[1:])),
            *command,
        ]

    @property
    def _key_file(self) -> Path:
        """Vagrant's well-known key, which every machine accepts: their network exists in this sandbox only."""
        return PLACE / "home" / "insecure_private_key"

    def _settle(self, chosen: Driver) -> None:
        """Set the driver and what follows from it for the runs."""
        self._driver = chosen
        emulated = _emulated_scale(self._spec)
        self.time_scale = emulated if chosen.emulates else 1.0
        self.limits = (
            [f"machines are emulated ({chosen.reason}): every timeout is {emulated:g} times as long"]
            if chosen.emulates
            else []
        )

    def _make(self, sandbox: str, image: Image, provisions: Provisions, on_progress: Progress) -> None:
        """Make, provision and save all machines. Raises `BootError` if they do not boot, `WorldError`, `OSError`."""
        make(self._spec.directory, self._spec.node_count, self._memory_mb)
        self._hypervisor = hypervisor = Hypervisor(PLACE, cgroups.sandbox_group(sandbox).child("hypervisor"))
        on_progress(f"starting libvirt; machines are {'emulated' if self._driver.emulates else 'virtual (KVM)'}")
        hypervisor.start(self._numbers)
        link_box(image, hypervisor.pool)
        hypervisor.virsh("pool-refresh", POOL)
        for number in self._numbers:
            self._machines[f"n{number}"] = machine = self._machine(number, hypervisor)
            machine.disks.create(self._spec.disk_bytes)
        VagrantUp(
            list(self._machines),
            self._environment(image),
            PLACE / "vagrant.log",
            lambda name: self._machines[name].pid() is not None,
            lambda name: self._machines[name].last_words(),
        ).run(self.time_scale, on_progress)
        for_each(self._machines.values(), self._greet)
        targets = {name: self._target(name, image, provisions) for name in self._machines}
        ready = VirtualMachines(self._machines, hypervisor, targets, PLACE / "ansible", self.time_scale)
        ready.play("provision", on_progress)
        ready.network.install()
        on_progress("saving the state of all nodes")
        ready.save()
        self._ready = ready

    def _machine(self, number: int, hypervisor: Hypervisor) -> VirtualMachine:
        name, address = f"n{number}", network.control_address(number)
        host = SshHost(
            name,
            network.data_address(number),
            paths.DEFAULT_PORT,
            paths.service_unit(systemd=True),
            key_file=self._key_file,
            known_hosts=PLACE / "known_hosts",
            ssh_address=address,
            accept_new=True,
            data_dir=paths.DATA,
            time_scale=self.time_scale,
        )
        return VirtualMachine(host, address, hypervisor, PLACE / name)

    def _greet(self, machine: VirtualMachine) -> None:
        machine.wait_until_ready(BOOT_DEADLINE_S * self.time_scale)

    def _environment(self, image: Image) -> dict[str, str]:
        """The environment of Vagrant and the Vagrantfile. Vagrant uses none of the user's settings and never
        prompts."""
        return {
            "VAGRANT_HOME": str(PLACE / "home"),
            "VAGRANT_CWD": str(PROJECT_ROOT),
            "VAGRANT_DOTFILE_PATH": str(PLACE / "dotfile"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "BROWNOUT_LAB": str(PLACE),
            "BROWNOUT_IMAGE": str(image.directory),
            "BROWNOUT_NODES": str(self._spec.node_count),
            "BROWNOUT_MEMORY": str(self._memory_mb),
            driver.VARIABLE: self._driver.name,
        }

    def _target(self, name: str, image: Image, provisions: Provisions) -> playbooks.Target:
        return playbooks.Target(
            name,
            network.control_address(int(name[1:])),
            key_file=self._key_file,
            known_hosts=PLACE / "known_hosts",
            time_scale=self.time_scale,
            variables={
                "brownout_address": self._machines[name].host.address,
                "brownout_data_dir": paths.DATA,
                "brownout_data_serial": DATA_SERIAL,
                "brownout_filesystem": self._spec.filesystem,
                **provisions.variables(image.site, image.site_key),
            },
        )


def _runs_on_java(spec: LabSpec) -> bool:
    return playbook_variables.least_java(spec.software) > 0 or "java" in playbook_variables.programs(spec.software)


def _image_for(spec: LabSpec) -> Image:
    """An image with what the software needs. Raises `ImageError`, and `UsageError` if no image can have it."""
    oldest = playbook_variables.least_java(spec.software)
    if oldest > JAVA:
        title = next(component.title for component in spec.software if component.least_java == oldest)
        raise UsageError(
            f"{title} needs Java {oldest}, and images of virtual machines have Java {JAVA}; test it in the namespace "
            "world, or on hosts of an inventory that have it"
        )
    try:
        return find(PROJECT_ROOT, ("java",) if _runs_on_java(spec) else ())
    except ImageError as error:
        title = next((component.title for component in spec.software), "") if _runs_on_java(spec) else ""
        raise ImageError(f"{title} needs Java on its machines: {error}" if title else str(error)) from error


def _emulated_scale(spec: LabSpec) -> float:
    return EMULATED_JAVA_TIME_SCALE if _runs_on_java(spec) else EMULATED_TIME_SCALE


def _require_programs(spec: LabSpec, image: Image) -> None:
    """Machines have no network to install packages from. Raises `UsageError`."""
    for program, package in playbook_variables.programs(spec.software).items():
        if not any(os.path.lexists(image.rootfs / directory / program) for directory in _PROGRAM_PLACES):
            title = next(component.title for component in spec.software if program in component.programs)
            raise UsageError(
                f"{title} needs {program} (package {package}), which the image of virtual machines does not have; "
                "test it in the namespace world, or on hosts of an inventory"
            )


LAB: Final = VagrantLab
