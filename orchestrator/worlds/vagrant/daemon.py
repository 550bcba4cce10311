"""Starts libvirt's daemon with its own configuration and state, separate from the machine's libvirt.

`hypervisor` starts it as a program: `[control group, directory, command...]`. The directory replaces libvirt's usual
paths for the daemon and all its children. Standard library only.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from orchestrator.machine import cgroups, syscalls

PLACES = {
    "etc": "/etc/libvirt",
    "state": "/var/lib/libvirt",
    "log": "/var/log/libvirt",
    "cache": "/var/cache/libvirt",
}
"""Directories within the lab's, and libvirt's usual paths for them."""

_CONTROL_GROUPS = "/sys/fs/cgroup"


def main(arguments: list[str]) -> NoReturn:
    group, directory, command = Path(arguments[0]), arguments[1], arguments[2:]
    try:
        cgroups.Cgroup(group).adopt(0)
        os.setsid()  # Ctrl-C at the terminal goes to the orchestrator only, which then ends the machines
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        for name, place in PLACES.items():
            os.makedirs(place, exist_ok=True)
            syscalls.bind(f"{directory}/{name}", place)
        # Without visible control groups libvirt makes none. They would outlive the sandbox and have the same names in
        # each.
        # It must see the devices of this network namespace.
        _hide_control_groups()
        syscalls.mount("sysfs", "/sys", "sysfs", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error}")


def _hide_control_groups() -> None:
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        places = [line.split()[1] for line in mounts]
    for place in reversed(places):
        if place == _CONTROL_GROUPS or place.startswith(f"{_CONTROL_GROUPS}/"):
            with contextlib.suppress(OSError):
                syscalls.unmount(place, syscalls.MNT_DETACH)
