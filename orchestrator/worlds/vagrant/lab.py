"""The lab of virtual machines: boots them with Vagrant and provisions them with Ansible once, restores them per run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from installation.files import PROJECT_ROOT
from nemeses import Host, HostError, injectable
from nemeses.scheduling import for_each
from nodeimage import JAVA, Image, ImageError, find
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import UsageError, WorldError
from orchestrator.machine import cgroups, playbooks
from orchestrator.machine import packages as system_packages
from orchestrator.machine.sandbox import current_sandbox
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import Progress, World, WorldSpec, no_progress
from orchestrator.worlds.lab import Lab, LabSpec
from orchestrator.worlds.remote import paths, playbook_variables
from orchestrator.worlds.remote.playbook_variables import Provisions
from orchestrator.worlds.remote.world import RemoteWorld
from orchestrator.worlds.vagrant import driver, kvm, lab_directory, network, requirements
from orchestrator.worlds.vagrant.driver import Driver
from orchestrator.worlds.vagrant.hypervisor import POOL, Hypervisor
from orchestrator.worlds.vagrant.image_root import with_made_files
from orchestrator.worlds.vagrant.lab_directory import PLACE
from orchestrator.worlds.vagrant.machine import BOOT_DEADLINE_S, BootError, VirtualMachine
from orchestrator.worlds.vagrant.machines import VirtualMachines
from orchestrator.worlds.vagrant.vagrant_up import VagrantUp

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
            given = playbook_variables.provisions(with_made_files(image, self._spec.software, on_progress))
        except ImageError as error:
            raise WorldError(str(error)) from error
        self._settle(driver.choose(image.directory))
        try:
            self._make_all(sandbox, image, given, on_progress)
        except (HostError, OSError) as error:
            words = str(error) if isinstance(error, WorldError) else f"the virtual machines cannot be made: {error}"
            if not self._spec.keep:
                with on_failure(self.close):
                    words = lab_directory.keep_logs(self._machines, words)
                clean_up(self.close, cause=error)
            raise WorldError(words) from error
        except BaseException as error:
            clean_up(self.close, cause=error)
            raise

    def _make_all(self, sandbox: str, image: Image, given: Provisions, on_progress: Progress) -> None:
        """Boot and provision all machines; emulated ones if they do not boot with KVM."""
        try:
            self._make(sandbox, image, given, on_progress)
        except BootError as error:
            if self._driver.emulates or self._driver.is_asked:
                raise
            said = lab_directory.keep_logs(self._machines, str(error))
            on_progress(f"machines did not boot with KVM, and are now emulated: {said}")
            kvm.distrust(image.directory, "machines did not boot with it")
            self.close()
            self._settle(Driver("qemu", f"machines did not boot with KVM: {said}"))
            self._make(sandbox, image, given, on_progress)

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
            lab_directory.remove,
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

    def play(self, playbook: str, on_progress: Progress) -> playbooks.Played:
        """Run a playbook on all machines. Raises `WorldError`."""
        if self._ready is None:
            raise WorldError("the virtual machines do not exist: the lab was not opened")
        return self._ready.play(playbook, on_progress)

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

    def _make(self, sandbox: str, image: Image, given: Provisions, on_progress: Progress) -> None:
        """Make, provision and save all machines. Raises `BootError` if they do not boot, `WorldError`, `OSError`."""
        lab_directory.make(self._spec.directory, self._spec.node_count, self._memory_mb)
        self._hypervisor = hypervisor = Hypervisor(PLACE, cgroups.sandbox_group(sandbox).child("hypervisor"))
        on_progress(f"starting libvirt; machines are {'emulated' if self._driver.emulates else 'virtual (KVM)'}")
        hypervisor.start(self._numbers)
        lab_directory.link_box(image, hypervisor.pool)
        hypervisor.virsh("pool-refresh", POOL)
        for number in self._numbers:
            self._machines[f"n{number}"] = machine = self._machine(number, hypervisor)
            machine.disks.create(self._spec.disk_bytes)
        VagrantUp(
            list(self._machines),
            self._environment(image),
            PLACE / "vagrant.log",
            alive=lambda name: self._machines[name].pid() is not None,
            last_words=lambda name: self._machines[name].last_words(),
        ).run(self.time_scale, on_progress)
        for_each(self._machines.values(), self._greet)
        targets = {name: self._target(name, image, given) for name in self._machines}
        directory = PLACE / "ansible"
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

    def _target(self, name: str, image: Image, given: Provisions) -> playbooks.Target:
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
                **given.variables(image.site, image.site_key),
            },
        )


def _runs_on_java(spec: LabSpec) -> bool:
    return playbook_variables.least_java(spec.software) > 0 or "java" in playbook_variables.programs(spec.software)


def _image_for(spec: LabSpec) -> Image:
    """An image with what the software needs. Raises `ImageError`, and `UsageError` if no image can have it."""
    least = playbook_variables.least_java(spec.software)
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


def _emulated_scale(spec: LabSpec) -> float:
    return EMULATED_JAVA_TIME_SCALE if _runs_on_java(spec) else EMULATED_TIME_SCALE


def _require_programs(spec: LabSpec, image: Image) -> None:
    """Machines have no network to install packages from. Raises `UsageError`."""
    for program, package in playbook_variables.programs(spec.software).items():
        if not any(os.path.lexists(image.rootfs / directory / program) for directory in _PROGRAM_PLACES):
            title = next(each.title for each in spec.software if program in each.programs)
            raise UsageError(
                f"{title} needs {program} (package {package}), which the image of virtual machines does not have; "
                "test it in the namespace world, or on hosts of an inventory"
            )


LAB: Final = VagrantLab
