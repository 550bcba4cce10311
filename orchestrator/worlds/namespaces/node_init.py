"""The first process of a node: makes the node's namespaces and its root, starts sshd, and reaps.

Reads a marshalled mapping from standard input (`Machine._boot_plan`); answers on standard output with one line, `ok
<pid>` (in the sandbox's numbering) or `error <reason>`. Then the launching process ends; PID 1 of the node stays.
Standard library only, and as little of it as possible: importing json and pathlib would double the start time.

The data disk is mounted only in the node's own mount namespace: so it is unmounted when the node's last process ends,
and no other node's namespace can keep it mounted.
"""

import marshal
import os
import signal
import sys
import time
from typing import Any, NoReturn

from orchestrator.machine import links, syscalls

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_NETWORK = "/proc/self/ns/net"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def main(_: list[str]) -> NoReturn:
    boot = marshal.load(sys.stdin.buffer)
    try:
        _write(f"{boot['cgroup']}/cgroup.procs", "0")
        _connect(boot)
        syscalls.unshare(
            syscalls.CLONE_NEWNS
            | syscalls.CLONE_NEWUTS
            | syscalls.CLONE_NEWIPC
            | syscalls.CLONE_NEWPID
            | syscalls.CLONE_NEWTIME
        )
        _start_clocks_at_zero()
    except OSError as error:
        _answer(f"error {error}")
    reports, reporter = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reports)
        _be_first(boot, reporter)
    os.close(reporter)
    failure = os.read(reports, 4096).decode()
    _answer(f"error {failure}" if failure else f"ok {child}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _answer(line: str) -> NoReturn:
    print(line, flush=True)
    os._exit(0)


def _connect(boot: dict[str, Any]) -> None:
    """Make a network namespace with `eth0`, whose other end is in the sandbox's bridge."""
    sandbox, parent = os.open(_NETWORK, os.O_RDONLY | os.O_CLOEXEC), os.getppid()
    syscalls.unshare(syscalls.CLONE_NEWNET)
    network = os.open(_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    links.disable_ipv6()
    links.ip_batch(
        [
            "link set lo up",
            f"link add eth0 address {boot['mac']} type veth peer name {boot['link']} netns {parent}",
            f"addr add {boot['address']}/{boot['prefix_length']} dev eth0",
        ]
    )
    # The bridge's end goes up first. In the other order, the kernel notifies the bridge of the carrier only at its next
    # check, up to a second later.
    syscalls.enter_network(sandbox)
    links.add_to_bridge(boot["bridge"], boot["link"])
    links.set_up(boot["link"])
    syscalls.enter_network(network)
    links.set_up("eth0")


def _start_clocks_at_zero() -> None:
    """Make the uptime and monotonic clock of children start near 0, as on a machine that has just booted."""
    for name, clock in (("monotonic", time.CLOCK_MONOTONIC), ("boottime", time.CLOCK_BOOTTIME)):
        seconds, nanoseconds = divmod(-time.clock_gettime_ns(clock), 1_000_000_000)
        _write("/proc/self/timens_offsets", f"{name} {seconds} {nanoseconds}\n")


def _be_first(boot: dict[str, Any], reporter: int) -> NoReturn:
    try:
        os.setsid()
        syscalls.set_hostname(boot["hostname"])
        _make_root(boot)
        console = os.open(boot["console"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for standard, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, console), (2, console)):
            os.dup2(target, standard)
        sshd = os.fork()
        if sshd == 0:
            os.setsid()
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
            os.execv(boot["start"][0], boot["start"])
    except OSError as error:
        os.write(reporter, str(error).encode()[:4000])
        os._exit(1)
    os.closerange(3, 256)  # closes the reporter: an empty report means success
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()


def _make_root(boot: dict[str, Any]) -> None:
    root = boot["root"]
    syscalls.mount_overlay(root, lower=boot["lower"], upper=boot["upper"], work=boot["work"])
    for directory, mode in (("/run", "755"), ("/tmp", "1777"), ("/root", "700"), ("/home", "755")):
        os.makedirs(root + directory, exist_ok=True)
        syscalls.mount("tmpfs", root + directory, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, f"mode={mode}")
    _make_devices(root + "/dev")
    os.makedirs(root + boot["data_dir"], exist_ok=True)
    syscalls.mount(boot["device"], root + boot["data_dir"], boot["filesystem"])
    for source, target, read_only in boot["binds"]:
        os.makedirs(root + target, exist_ok=True)
        syscalls.bind(source, root + target, read_only=read_only)
    quiet = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", root + "/proc", "proc", quiet)
    syscalls.mount("sysfs", root + "/sys", "sysfs", quiet | syscalls.MS_RDONLY)
    _make_boot_id(root, boot["boot_id"])
    os.makedirs(root + "/run/sshd", mode=0o755)
    syscalls.pivot_root(root)


def _make_devices(dev: str) -> None:
    syscalls.mount("tmpfs", dev, "tmpfs", syscalls.MS_NOSUID, "mode=755")
    for name in _DEVICES:
        _write(f"{dev}/{name}", "")
        syscalls.bind(f"/dev/{name}", f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    syscalls.mount("devpts", f"{dev}/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5")
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    os.mkdir(f"{dev}/shm")
    syscalls.mount("tmpfs", f"{dev}/shm", "tmpfs", syscalls.MS_NOSUID, "mode=1777")
    os.symlink("/proc/self/fd", f"{dev}/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{dev}/{name}")


def _make_boot_id(root: str, boot_id: str) -> None:
    """Give the node a boot id of its own, at the usual path: the kernel's would be the same on all nodes, always."""
    path = f"{root}/run/brownout/boot_id"
    os.makedirs(os.path.dirname(path))
    _write(path, f"{boot_id}\n")
    syscalls.bind(path, root + _BOOT_ID, read_only=True)
