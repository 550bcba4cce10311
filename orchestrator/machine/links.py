"""Network devices of the caller's network namespace. Standard library only.

Operations with an ioctl use it and take microseconds; operations that need netlink share one call of `ip -batch`.
"""

import contextlib
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCGIFINDEX = 0x8933
_SIOCBRADDIF = 0x89A2
_IFF_UP = 1


def _ioctl(request: int, name: str, payload: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        ifreq = struct.pack("16s24s", name.encode(), payload)
        return fcntl.ioctl(channel, request, ifreq)[16:]


def _set_flag(name: str, up: bool) -> None:
    flags = struct.unpack_from("H", _ioctl(_SIOCGIFFLAGS, name, b""))[0]
    _ioctl(_SIOCSIFFLAGS, name, struct.pack("H", flags | _IFF_UP if up else flags & ~_IFF_UP))


def set_up(name: str) -> None:
    _set_flag(name, True)


def set_down(name: str) -> None:
    """From now on, packets from the other end are discarded."""
    _set_flag(name, False)


def add_to_bridge(bridge: str, name: str) -> None:
    index = struct.unpack_from("i", _ioctl(_SIOCGIFINDEX, name, b""))[0]
    _ioctl(_SIOCBRADDIF, bridge, struct.pack("i", index))


def delete(name: str) -> None:
    """Delete a device; for a veth, also its other end. No error if it does not exist."""
    with contextlib.suppress(OSError):
        ip_batch([f"link del {name}"])


def disable_ipv6() -> None:
    """Prevent neighbour discovery and its delays in this namespace. Does nothing on a kernel without IPv6."""
    for scope in ("all", "default"):
        with (
            contextlib.suppress(OSError),
            open(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "w", encoding="utf-8") as switch,
        ):
            switch.write("1")


def ip_batch(commands: Sequence[str]) -> None:
    """Run several `ip` commands in one process. Raises `OSError` with its error output when one fails."""
    script, output = os.memfd_create("commands"), os.memfd_create("output")
    try:
        os.write(script, "\n".join([*commands, ""]).encode())
        os.lseek(script, 0, os.SEEK_SET)
        actions = [(os.POSIX_SPAWN_DUP2, script, 0), (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
        sys.stdout.flush()
        pid = os.posix_spawnp("ip", ["ip", "-batch", "-"], os.environ, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        if status:
            message = os.pread(output, 4096, 0).decode(errors="replace").strip()
            raise OSError(f"ip: {message or os.waitstatus_to_exitcode(status)}")
    finally:
        os.close(script)
        os.close(output)
