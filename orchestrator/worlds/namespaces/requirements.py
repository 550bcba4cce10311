"""The requirements of the namespaces world on a machine, checked by trying, each with its remedy."""

import json
import os
import pwd
import sys
from pathlib import Path

from installation.programs import run_program
from orchestrator.machine.programs import program, search_path
from orchestrator.machine.requirement import Requirement, installed, root

_PACKAGES = {
    "ip": "iproute2",
    "nft": "nftables",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "setsid": "util-linux",
    "bash": "bash",
}
_MKFS_PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}
_TRIALS = {
    "control groups": "mount cgroup version 2 (Linux 5.14 or later): mount -t cgroup2 none /sys/fs/cgroup/unified",
    "loop devices": "load the module (modprobe loop), or give the container /dev/loop-control and the loop devices",
    "namespaces": "run as root on the machine itself, or in a privileged container (docker run --privileged)",
    "process namespaces": "run as root on the machine itself, or in a privileged container (docker run --privileged)",
    "overlay": "load the module: modprobe overlay",
    "network": "load the modules: modprobe bridge veth",
    "packet filter": "install nftables and load the module: modprobe nf_tables_bridge",
}


def check(filesystem: str = "ext4") -> list[Requirement]:
    """All requirements, met or not, in the order in which to remedy them. Takes about 50 ms."""
    if sys.platform != "linux":
        return [Requirement("Linux", False, f"this is {sys.platform}", "use a Linux machine, or the process world")]
    requirements = [root(), *(installed(name, package) for name, package in _PACKAGES.items()), _sshd_user()]
    requirements.append(installed(f"mkfs.{filesystem}", _MKFS_PACKAGES.get(filesystem, f"{filesystem} tools")))
    requirements.append(_filesystem(filesystem))
    if all(requirement.met for requirement in requirements):
        requirements += _trials()
    return requirements


def missing(filesystem: str = "ext4") -> list[Requirement]:
    """The unmet requirements; empty if the namespaces world can run."""
    return [requirement for requirement in check(filesystem) if not requirement.met]


def _sshd_user() -> Requirement:
    try:
        pwd.getpwnam("sshd")
    except KeyError:
        return Requirement("user sshd", False, "does not exist", "apt-get install --reinstall openssh-server")
    return Requirement("user sshd", True, "exists", "")


def _filesystem(filesystem: str) -> Requirement:
    is_known = filesystem in Path("/proc/filesystems").read_text(encoding="utf-8").split()
    modules = Path("/lib/modules", os.uname().release)
    loadable = is_known or any(modules.rglob(f"{filesystem}.ko*"))
    detail = "in the kernel" if is_known else "loadable" if loadable else "not in this kernel"
    return Requirement(filesystem, loadable, detail, f"load the module: modprobe {filesystem}")


def _trials() -> list[Requirement]:
    command = program("orchestrator.worlds.namespaces.kernel_check")
    environment = {**os.environ, "PATH": search_path()}
    done = run_program(command, env=environment)
    try:
        unmet: dict[str, str] = json.loads(done.stdout)
    except json.JSONDecodeError:
        unmet = {"namespaces": done.stderr.strip() or f"the trial ended with code {done.returncode}"}
    return [Requirement(name, name not in unmet, unmet.get(name, "works"), _TRIALS[name]) for name in _TRIALS]
