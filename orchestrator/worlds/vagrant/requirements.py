"""The requirements of the vagrant world on a machine, each with its remedy."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nodeimage import MACHINES
from orchestrator.machine.requirement import Requirement, installed, root
from orchestrator.worlds.vagrant import driver, kvm

PACKAGES: Mapping[str, str] = {
    "vagrant": "vagrant",
    "libvirtd": "libvirt-daemon-system",
    "virsh": "libvirt-clients",
    "dnsmasq": "dnsmasq-base",
    kvm.EMULATOR: "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "nft": "nftables",
    "ip": "iproute2",
}
"""Programs and their Debian packages."""

PLUGIN_PACKAGE = "vagrant-libvirt"
PLUGIN_MARK = f"/var/lib/dpkg/info/{PLUGIN_PACKAGE}.list"
"""Exists if Debian's package is installed."""


def check() -> list[Requirement]:
    """All requirements, met or not, in the order in which to remedy them."""
    if sys.platform != "linux":
        remedy = "use a Linux machine; or `vagrant up` with VirtualBox, and its machines as an inventory"
        return [Requirement("Linux", False, f"this is {sys.platform}", remedy)]
    return [
        root(),
        _processor(platform.machine()),
        *(installed(name, package) for name, package in PACKAGES.items()),
        plugin(),
        _device("/dev/net/tun", "load the module (modprobe tun), or give the container this device"),
    ]


def missing() -> list[Requirement]:
    """The unmet requirements; empty if the vagrant world can run. KVM is not one of them: without it, machines are
    emulated, which is slower."""
    return [requirement for requirement in check() if not requirement.met]


def acceleration(image: Path | None) -> Requirement:
    """Whether machines that boot the image in this directory run on the processor itself, by a new trial. Never a
    requirement: `met` is the result. Raises `UsageError`."""
    chosen = driver.choose(image, again=True)
    detail = f"{chosen.reason}: machines are emulated" if chosen.emulates else chosen.reason
    return Requirement("KVM", not chosen.emulates, detail.removeprefix("KVM: "), "nothing to do: only slower")


def plugin() -> Requirement:
    """Vagrant's libvirt provider; Debian's Ruby finds its packages."""
    ask = "Gem::Specification.find_by_name('vagrant-libvirt')"
    remedy = f"apt-get install {PLUGIN_PACKAGE}"
    try:
        done = subprocess.run(["ruby", "-e", ask], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return Requirement(PLUGIN_PACKAGE, False, "not installed", remedy)
    met = done.returncode == 0
    return Requirement(PLUGIN_PACKAGE, met, "installed" if met else "not installed", remedy)


def _processor(machine: str) -> Requirement:
    remedy = "the image of virtual machines is for x86_64 only; use the namespace world, or hosts of an inventory"
    return Requirement("x86_64", machine in MACHINES, f"this machine is {machine}", remedy)


def _device(path: str, remedy: str) -> Requirement:
    met = os.path.exists(path)
    return Requirement(path, met, "is there" if met else "is not there", remedy)
