"""Tries the kernel features that the namespaces world needs, in separate namespaces, and reports failures.

A program: prints a JSON object that maps each unmet need to the kernel's message. Standard library only. Only a trial
is reliable: containers, security modules and kernel options each restrict in their own way.
"""

import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from orchestrator.machine import cgroups, links, syscalls

_GET_FREE_LOOP_DEVICE = 0x4C82
_TABLE = """table bridge trial {
  set cut { type ipv4_addr . ipv4_addr; counter; }
  chain forward { type filter hook forward priority 0; policy accept; ip saddr . ip daddr @cut drop; }
}
"""


def main(_: list[str]) -> NoReturn:
    unmet: dict[str, str] = {}
    for need, attempt in _ATTEMPTS.items():
        try:
            attempt()
        except OSError as error:
            unmet[need] = str(error)
            if need == "namespaces":
                break  # further trials would affect the machine itself
    print(json.dumps(unmet), flush=True)
    sys.exit(0)


def _control_groups() -> None:
    group = cgroups.sandbox_group(f"trial-{os.getpid()}").create()
    try:
        os.stat(group.path / "cgroup.kill")
    finally:
        group.remove()


def _namespaces() -> None:
    syscalls.unshare(
        syscalls.CLONE_NEWNS
        | syscalls.CLONE_NEWNET
        | syscalls.CLONE_NEWUTS
        | syscalls.CLONE_NEWIPC
        | syscalls.CLONE_NEWTIME
    )
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", "/run", "tmpfs")


def _process_namespaces() -> None:
    # In a child: a process that unshares this can fork only once.
    child = os.fork()
    if child == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError(os.strerror(os.waitstatus_to_exitcode(status)))


def _overlay() -> None:
    base = tempfile.mkdtemp(dir="/run")
    for name in ("root", "upper", "work"):
        os.mkdir(f"{base}/{name}")
    syscalls.mount("overlay", f"{base}/root", "overlay", 0, f"lowerdir=/,upperdir={base}/upper,workdir={base}/work")


def _network() -> None:
    links.ip_batch(["link add br0 type bridge", "link add v0 type veth peer name v1", "link set v0 master br0"])


def _packet_filter() -> None:
    script = Path("/run/trial.nft")
    script.write_text(_TABLE, encoding="utf-8")
    pid = os.posix_spawnp("nft", ["nft", "-f", str(script)], os.environ)
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(f"nft refused a bridge table with code {os.waitstatus_to_exitcode(status)}")


def _loop_devices() -> None:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, _GET_FREE_LOOP_DEVICE)
    except OSError as error:
        problem = f"it does not name a free loop device ({error.strerror})"
        raise OSError(error.errno, problem, "/dev/loop-control") from error
    finally:
        os.close(control)


_ATTEMPTS: dict[str, Callable[[], None]] = {
    "control groups": _control_groups,
    "loop devices": _loop_devices,
    "namespaces": _namespaces,
    "process namespaces": _process_namespaces,
    "overlay": _overlay,
    "network": _network,
    "packet filter": _packet_filter,
}
