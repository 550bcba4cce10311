"""The outer sandbox: runs a command in its own mount, network, process, host-name and IPC namespaces.

Theory of operation. The kernel removes everything that the command makes inside - bridges, mounts, nodes - when its
last process ends, and this module ensures that the last process ends. The processes, and what ends each:

    outer parent      in the machine's namespaces, single-threaded; ends when PID 1 does. When it ends, PID 1 ends (the
      |               parent-death signal). It ends PID 1 when the holder of its leash (the other end of a pipe) ends.
      +- janitor      removes the sandbox's control group when the other two are gone, for any reason; at the start
      |               also the groups that older sandboxes left behind.
      +- PID 1        of the process namespace: reaps, and ends when the command does; its end kills all below.
           +- command (and all nodes)

So SIGKILL of any of them leaves nothing behind. Only an empty control group outlives the kernel's own cleanup: the
janitor removes it, or the next janitor. Standard library only; `enter_sandbox` starts it as a program.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator.machine import cgroups, links, syscalls
from orchestrator.machine.programs import program, search_path

PRIVATE_ROOT = Path("/run/brownout")
_MARK = PRIVATE_ROOT / "sandbox"
_ID_VARIABLE = "BROWNOUT_SANDBOX"
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_HELD_BACK = (signal.SIGINT, *_FORWARDED)
"""Signals that are blocked until there is a child to forward them to, so that none is lost."""


def current_sandbox() -> str | None:
    """The id of the sandbox that this process runs in; None outside of any."""
    # The variable alone could be inherited by a process outside; the mark is in the sandbox's own /run.
    try:
        identifier = _MARK.read_text(encoding="ascii")
    except OSError:
        return None
    return identifier if os.environ.get(_ID_VARIABLE) == identifier else None


def enter_sandbox(argv: Sequence[str]) -> NoReturn:
    """Become the outer parent of a new sandbox and run `argv` in it; the exit code is the command's.

    Replaces the calling process (exec), so its state is lost. Raises `OSError` when Python itself cannot be started.
    """
    command = program(__name__, "-1", *argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def main(arguments: list[str]) -> NoReturn:
    """The outer parent: `[leash descriptor or -1, command...]`."""
    leash, argv = int(arguments[0]), arguments[1:]
    identifier = os.urandom(4).hex()
    try:
        group = cgroups.sandbox_group(identifier).create()
        lock = group.try_lock()
    except OSError as error:
        sys.exit(
            f"the sandbox's control group cannot be made: {error}; `brownout doctor` lists what this machine lacks"
        )
    assert lock is not None, "a new group is not locked"
    finished, alive = os.pipe()
    janitor = os.fork()
    if janitor == 0:
        _be_janitor(group, finished, keep={finished, lock}, close=alive)
    os.close(finished)
    os.environ[_ID_VARIABLE] = identifier
    os.environ["PATH"] = search_path()
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
    except OSError as error:
        sys.exit(f"the sandbox cannot be made: {error}; `brownout doctor` lists what this machine lacks")
    parent_here, parent_there = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    first = os.fork()
    if first == 0:
        os.close(parent_there)
        _be_first(identifier, argv, parent_here, mask)
    os.close(parent_here)
    status = _watch(first, leash, mask)
    os.close(alive)
    os.waitpid(janitor, 0)
    os._exit(status)


def _be_janitor(group: cgroups.Cgroup, finished: int, keep: set[int], close: int) -> NoReturn:
    """Wait until every holder of the pipe is gone, then remove what the kernel does not remove."""
    os.setsid()
    os.close(close)
    quiet = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(quiet, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    with contextlib.suppress(OSError):
        cgroups.reap_leftovers()
    os.read(finished, 1)
    with contextlib.suppress(OSError):
        group.remove()
    os._exit(0)


def _watch(first: int, leash: int, mask: set[int]) -> int:
    """Wait for PID 1 to end; meanwhile forward signals, and end it when the leash is released. Returns the command's
    exit code.

    `mask`: the blocked signals before this module blocked more."""
    # A terminal sends SIGINT to the command as well. A signal from a process may be for this process alone: it is
    # forwarded as SIGTERM, which the command treats as the same request if both arrive.
    received = syscalls.signal_descriptor({signal.SIGINT, *_forwarded()})
    signal.pthread_sigmask(signal.SIG_SETMASK, {*mask, signal.SIGINT, *_forwarded()})
    ending = os.pidfd_open(first)
    poll = select.poll()  # unlike select(), not limited to small descriptors
    for descriptor in (ending, received, *([leash] if leash >= 0 else [])):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if ending in ready:
            break
        if received in ready:
            number, by_a_process = syscalls.read_signal(received)
            if number != signal.SIGINT or by_a_process:
                os.kill(first, signal.SIGTERM if number == signal.SIGINT else number)
        if leash in ready:
            os.kill(first, signal.SIGKILL)
            poll.unregister(leash)
    # When PID 1 has been waited for, the kernel has killed and reaped its whole namespace.
    _, status = os.waitpid(first, 0)
    return _exit_code(status)


def _be_first(identifier: str, argv: list[str], parent: int, mask: set[int]) -> NoReturn:
    """PID 1: make the namespaces, start the command, reap until it ends.

    The kernel discards signals that a PID 1 does not handle: they are blocked until it does.
    """
    syscalls.die_with_parent(signal.SIGKILL)
    orphaned = select.poll()
    orphaned.register(parent, select.POLLIN)
    if orphaned.poll(0):
        os._exit(1)  # the parent ended before the parent-death signal was requested: its end of the pipe is closed
    os.close(parent)
    try:
        _make_namespaces(identifier)
    except OSError as error:
        _give_up(70, f"the sandbox cannot be made: {error}; `brownout doctor` lists what this machine lacks")
    interrupted = signal.SIGINT in signal.sigpending()  # from a terminal, before the command existed
    received = syscalls.signal_descriptor({signal.SIGCHLD, *_forwarded()})
    command = os.fork()
    if command == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            _give_up(127, f"{argv[0]} cannot be run: {error.strerror}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if interrupted:
        os.kill(command, signal.SIGINT)
    while True:
        number, _ = syscalls.read_signal(received)
        if number != signal.SIGCHLD:
            os.kill(command, number)
        elif (status := _reap(command)) is not None:
            os._exit(_exit_code(status))


def _reap(command: int) -> int | None:
    """Reap the children that ended: one SIGCHLD may stand for several. Returns the command's status if it ended."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in (0, command):
            return status if pid else None


def _forwarded() -> set[int]:
    """The forwarded signals. The command ignores the signals that this process ignores (SIGHUP with `nohup`)."""
    return {number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN}


def _give_up(code: int, message: str) -> NoReturn:
    os.write(2, f"{message}\n".encode())
    os._exit(code)


def _make_namespaces(identifier: str) -> None:
    syscalls.unshare(
        syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC,
    )
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", "/run", "tmpfs", syscalls.MS_NOSUID, "mode=755")
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    syscalls.mount("tmpfs", "/dev/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=1777")
    PRIVATE_ROOT.mkdir(mode=0o700)
    _MARK.write_text(identifier, encoding="ascii")
    links.set_up("lo")


def _exit_code(status: int) -> int:
    """In a shell's numbering: the exit code, or 128 plus the signal's number."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
