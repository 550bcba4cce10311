"""The lab of virtual machines: booted by Vagrant and provisioned by Ansible once, restored for each run."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from installation.files import PROJECT_ROOT, cache_directory
from nemeses import Host, HostError, inflictable
from nodeimage import JAVA, Image, ImageError, find
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine import cgroups, playbooks
from orchestrator.machine import packages as system_packages
from orchestrator.machine.sandbox import PRIVATE_ROOT, current_sandbox
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import Progress, World, WorldSpec, no_progress
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.remote import paths, provisions
from orchestrator.worlds.remote.provisions import Provisions
from orchestrator.worlds.remote.world import RemoteWorld
from orchestrator.worlds.services import in_parallel
from orchestrator.worlds.vagrant import kvm, network, requirements
from orchestrator.worlds.vagrant.hypervisor import POOL, Hypervisor
from orchestrator.worlds.vagrant.machine import BOOT_DEADLINE_S, VirtualMachine
from orchestrator.worlds.vagrant.machines import VirtualMachines
from orchestrator.worlds.vagrant.vagrant_up import VagrantUp

EMULATED_TIME_SCALE = 4.0
EMULATED_JAVA_TIME_SCALE = 12.0
"""An emulator translates what Java compiles once more: what takes a Kafka broker 4 s takes it minutes there."""
DATA_SERIAL = "data"

# Where the lab is, for all that runs in the sandbox: sockets must have short paths, and QEMU's options plain ones.
_PLACE = PRIVATE_ROOT / "lab"
# What a node takes of memory when its disks and its saved state are kept there, besides what it runs in.
_SAVED_BYTES = 512 << 20
_MEMORY_MB = 512
# A Java with a heap of 256 MB, and what the kernel keeps of its files.
_JAVA_MEMORY_MB = 1024
_PROGRAM_PLACES = ("usr/bin", "usr/sbin", "usr/local/bin")
# What the last lab that could not be made had said.
_FAILED = cache_directory() / "vagrant-failed"
_LOGS = ("vagrant.log", "libvirtd.log", "log", "ansible")


class VagrantLab:
    """Virtual machines n1, n2, ... in this sandbox."""

    name = "vagrant"
    capabilities: frozenset[str] = inflictable(("power", "network", "netem", "stall", "freeze", "clock"))
    needs_sandbox = True

    def __init__(self, spec: LabSpec) -> None:
        if not 1 <= spec.node_count <= network.MAX_NODES:
            raise WorldError(f"{spec.node_count} nodes: the vagrant world takes 1 to {network.MAX_NODES}")
        self._spec = spec
        self._accelerated, reason = kvm.works()
        emulated = EMULATED_JAVA_TIME_SCALE if _runs_on_java(spec) else EMULATED_TIME_SCALE
        self.time_scale = 1.0 if self._accelerated else emulated
        self.limits: list[str] = []
        if not self._accelerated:
            self.limits.append(f"machines are emulated (KVM: {reason}): every timeout is {emulated:g} times as long")
        self._memory_mb = _JAVA_MEMORY_MB if _runs_on_java(spec) else _MEMORY_MB
        self._numbers = range(1, spec.node_count + 1)
        self._hypervisor: Hypervisor | None = None
        self._machines: dict[str, VirtualMachine] = {}
        self._ready: VirtualMachines | None = None

    @classmethod
    def prepare(cls, spec: LabSpec) -> None:
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
            raise WorldError("virtual machines live in a sandbox; start the command through `enter_sandbox`")
        try:
            image, given = _image_for(self._spec), provisions.provisions(self._spec.software)
        except ImageError as error:
            raise WorldError(str(error)) from error
        try:
            self._make_place()
            self._hypervisor = Hypervisor(_PLACE, cgroups.sandbox_group(sandbox).child("hypervisor"))
            self._build(self._hypervisor, image, given, on_progress)
        except (HostError, OSError) as error:
            words = str(error) if isinstance(error, WorldError) else f"the virtual machines cannot be made: {error}"
            if not self._spec.keep:
                self._keep_logs()
                words = words.replace(str(_PLACE), str(_FAILED))
                self.close()
            raise WorldError(words) from error
        except BaseException:
            self.close()
            raise

    def world(self, spec: WorldSpec) -> World:
        if self._ready is None:
            raise WorldError("the virtual machines are not there: the lab was not opened")
        return RemoteWorld(spec, self.name, self._ready, self.capabilities, self.limits, self.time_scale)

    def close(self) -> None:
        for machine in self._machines.values():
            machine.lose_connection()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.network.uninstall()
        if self._hypervisor is not None:
            self._hypervisor.stop()
            self._hypervisor = None
        self._machines.clear()
        shutil.rmtree(_PLACE.resolve(), ignore_errors=True)
        if _PLACE.is_symlink():
            _PLACE.unlink()

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {name: machine.host for name, machine in self._machines.items()}

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        if name not in self._machines:
            raise WorldError(f"there is no node {name}; the nodes are {', '.join(self._machines) or 'not there yet'}")
        return [
            *("ssh", "-i", str(self._key_file), "-l", "root"),
            *("-o", f"UserKnownHostsFile={_PLACE}/known_hosts", "-o", "StrictHostKeyChecking=accept-new"),
            *(() if command else ("-t",)),
            network.control_address(int(name[1:])),
            *command,
        ]

    def play(self, playbook: str, on_progress: Progress) -> playbooks.Played:
        """Run a playbook on all machines. Raises `WorldError`."""
        if self._ready is None:
            raise WorldError("the virtual machines are not there: the lab was not opened")
        return self._ready.play(playbook, on_progress)

    @property
    def _key_file(self) -> Path:
        """The key that every machine of Vagrant's has: their network is in this sandbox alone."""
        return _PLACE / "home" / "insecure_private_key"

    def _make_place(self) -> None:
        """In memory if there is enough, where it goes with the sandbox and is fastest; else in the lab's directory."""
        if _memory_suffices(self._spec.node_count, self._memory_mb):
            _PLACE.mkdir()
        else:
            self._spec.directory.mkdir(parents=True, exist_ok=True)
            _PLACE.symlink_to(self._spec.directory)

    def _build(self, hypervisor: Hypervisor, image: Image, given: Provisions, on_progress: Progress) -> None:
        on_progress(f"starting libvirt; machines are {'virtual (KVM)' if self._accelerated else 'emulated'}")
        hypervisor.start(self._numbers)
        _link_box(image, _PLACE / "home", hypervisor)
        for number in self._numbers:
            self._machines[f"n{number}"] = machine = self._machine(number, hypervisor)
            machine.disks.create(self._spec.disk_bytes)
        VagrantUp(
            list(self._machines),
            self._environment(image),
            _PLACE / "vagrant.log",
            alive=lambda name: self._machines[name].pid() is not None,
            last_words=lambda name: self._machines[name].last_words(),
        ).run(self.time_scale, on_progress)
        in_parallel(self._machines.values(), self._greet)
        targets = {name: self._target(name, image, given) for name in self._machines}
        directory = _PLACE / "ansible"
        playbooks.play("provision", list(targets.values()), directory, on_progress=on_progress)
        ready = VirtualMachines(self._machines, hypervisor, targets, directory, self.time_scale)
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
            known_hosts=_PLACE / "known_hosts",
            ssh_address=address,
            accept_new=True,
            data_dir=paths.DATA,
            time_scale=self.time_scale,
        )
        return VirtualMachine(host, address, hypervisor, _PLACE / name)

    def _greet(self, machine: VirtualMachine) -> None:
        machine.wait_until_reachable(BOOT_DEADLINE_S * self.time_scale)
        machine.set_clock()

    def _environment(self, image: Image) -> dict[str, str]:
        """What Vagrant and our Vagrantfile are told. Vagrant looks at nothing of the user's, and asks nobody."""
        return {
            "VAGRANT_HOME": str(_PLACE / "home"),
            "VAGRANT_CWD": str(PROJECT_ROOT),
            "VAGRANT_DOTFILE_PATH": str(_PLACE / "dotfile"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "BROWNOUT_LAB": str(_PLACE),
            "BROWNOUT_IMAGE": str(image.directory),
            "BROWNOUT_NODES": str(self._spec.node_count),
            "BROWNOUT_MEMORY": str(self._memory_mb),
            "BROWNOUT_DRIVER": "kvm" if self._accelerated else "qemu",
        }

    def _target(self, name: str, image: Image, given: Provisions) -> playbooks.Target:
        return playbooks.Target(
            name,
            network.control_address(int(name[1:])),
            key_file=self._key_file,
            known_hosts=_PLACE / "known_hosts",
            variables={
                "brownout_address": self._machines[name].host.address,
                "brownout_data_dir": paths.DATA,
                "brownout_data_serial": DATA_SERIAL,
                "brownout_filesystem": self._spec.filesystem,
                **given.variables(image.site, image.site_key),
            },
        )

    def _keep_logs(self) -> None:
        """What a lab that could not be made has said, for people: its directory goes with it."""
        with contextlib.suppress(OSError):
            shutil.rmtree(_FAILED, ignore_errors=True)
            _FAILED.mkdir(parents=True)
            for log in (*_LOGS, *(f"{name}/console.log" for name in self._machines)):
                source, target = _PLACE / log, _FAILED / log
                target.parent.mkdir(exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, target)
                elif source.exists():
                    shutil.copyfile(source, target)


def _runs_on_java(spec: LabSpec) -> bool:
    return provisions.least_java(spec.software) > 0 or "java" in provisions.programs(spec.software)


def _image_for(spec: LabSpec) -> Image:
    """The image that has what the software needs. Raises `ImageError`, and `UsageError` where no image can have it."""
    least = provisions.least_java(spec.software)
    if least > JAVA:
        title = next(each.title for each in spec.software if each.least_java == least)
        raise UsageError(
            f"{title} needs Java {least}, and images of virtual machines have Java {JAVA}; test it in the namespace "
            "world, or on hosts of an inventory that have it"
        )
    try:
        return find(PROJECT_ROOT, ("java",) if _runs_on_java(spec) else ())
    except ImageError as error:
        title = next((each.title for each in spec.software), "") if _runs_on_java(spec) else ""
        raise ImageError(f"{title} needs Java on its machines: {error}" if title else str(error)) from error


def _require_programs(spec: LabSpec, image: Image) -> None:
    """Machines have no network to install packages from. Raises `UsageError`."""
    for program, package in provisions.programs(spec.software).items():
        if not any(os.path.lexists(image.rootfs / place / program) for place in _PROGRAM_PLACES):
            title = next(each.title for each in spec.software if program in each.programs)
            raise UsageError(
                f"{title} needs {program} (package {package}), which the image of virtual machines does not have; "
                "test it in the namespace world, or on hosts of an inventory"
            )


def _memory_suffices(nodes: int, memory_mb: int) -> bool:
    """Whether the machines, their disks and their saved state find room in memory, with as much left for others."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    kept = nodes * max(_SAVED_BYTES, memory_mb << 20)
    room = os.statvfs(PRIVATE_ROOT)
    return available > 2 * kept + nodes * (memory_mb << 20) and room.f_bavail * room.f_frsize > 2 * kept


def _link_box(image: Image, home: Path, hypervisor: Hypervisor) -> None:
    """Give Vagrant and libvirt the image as if they had it already, so that neither makes a copy: it is never written.

    Vagrant keeps boxes in this layout; its libvirt provider uploads the disk unless the pool has it by this name."""
    name = f"brownout-VAGRANTSLASH-node-{image.key}"
    box = home / "boxes" / name / "0" / "libvirt"
    box.mkdir(parents=True)
    with tarfile.open(image.box) as archive:
        for member in ("metadata.json", "Vagrantfile"):
            archive.extract(member, box)
    disk = box / "box.img"
    disk.symlink_to(image.disk)
    changed = int(disk.stat().st_mtime)
    (hypervisor.pool / f"{name}_vagrant_box_image_0_{changed}_box.img").symlink_to(image.disk)
    hypervisor.virsh("pool-refresh", POOL)
