"""Examines a host: runs on the host itself, as root, and prints JSON. Changes nothing permanently.

Sent as text to any Python on the host: standard library only, and no syntax newer than 3.7. Arguments: the data
address, the ports of the service (comma-separated), the data directory, and optionally `java`, to examine that too.
"""

import contextlib
import errno
import glob
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from typing import Any

_NOTE = "/etc/brownout/data_dir"
# The initial namespaces have fixed numbers; in a container some of them differ.
_FIRST_NAMESPACES = {"pid": 0xEFFFFFFC, "uts": 0xEFFFFFFE, "ipc": 0xEFFFFFFF, "user": 0xEFFFFFFD}
_CAP_SYS_TIME = 25
_MARK = "BROWNOUT_SERVICE=1"  # in the environment of every service that a run has started
_LISTENS = "0A"
_TRY_LINK = "brownout-try"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main(arguments: list[str]) -> None:
    os.environ["PATH"] = os.environ.get("PATH", "") + ":" + _SYSTEM_PATH
    address, ports, data_dir, java = arguments
    java_release, java_failure = _java() if java else (0, "")
    facts = {
        "root": os.geteuid() == 0,
        "python": list(sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "libc": platform.libc_ver()[0],
        "kernel": platform.release(),
        "systemd": os.path.isdir("/run/systemd/system"),
        "boot_id": _text("/proc/sys/kernel/random/boot_id").strip(),
        "own_kernel": _is_own_kernel(),
        "may_set_clock": bool(_capabilities() >> _CAP_SYS_TIME & 1),
        "programs": [name for name in ("bash", "flock", "tar") if shutil.which(name)],
        "nft": _nft(),
        "netem": _netem(),
        "has_address": _has_address(address),
        "listeners": [listener for listener in map(_listener, map(int, ports.split(","))) if listener],
        "java": java_release,
        "java_failure": java_failure,
        "data": _data(data_dir),
        "free_bytes": _free(data_dir),
    }
    print(json.dumps(facts))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _run(*command: str, given: str = "") -> tuple[int, str, str]:
    try:
        done = subprocess.run(command, input=given.encode(), capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()


def _java() -> tuple[int, str]:
    """The feature release of the Java in root's PATH; 0 and the reason if that is unknown, 0 alone without Java."""
    if not shutil.which("java"):
        return 0, ""
    code, _, output = _run("java", "-version")
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if code == 0 and match:
        return int(match.group(1)), ""
    return 0, output or "no version in its output"


def _is_own_kernel() -> bool:
    try:
        return all(os.stat(f"/proc/self/ns/{name}").st_ino == number for name, number in _FIRST_NAMESPACES.items())
    except OSError:
        return False


def _capabilities() -> int:
    for line in _text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _nft() -> str:
    """Empty if a table can be made here, else nft's message. The kernel checks it without making one."""
    script = "table inet brownout_try { chain c { type filter hook input priority 0; }; }\n"
    code, _, complaint = _run("nft", "-c", "-f", "-", given=script)
    return "" if code == 0 else complaint or "it fails"


def _netem() -> str:
    """Empty if packets can be delayed here, else the reason. Tried on an unused link."""
    complaint = ""
    for kind in ("dummy", "ifb", "veth"):
        code, _, complaint = _run("ip", "link", "add", _TRY_LINK, "type", kind)
        if code == 0:
            code, _, complaint = _run("tc", "qdisc", "add", "dev", _TRY_LINK, "root", "netem", "delay", "1ms")
            _run("ip", "link", "del", _TRY_LINK)
            return "" if code == 0 else complaint or "it fails"
    return complaint or "no link can be made to try it on"


def _has_address(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _listener(port: int) -> dict[str, Any] | None:
    """The process that listens on a port: the port, its pid (0: unknown), its command line, and whether a run started
    it; None without one."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _text(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rsplit(":", 1)[1], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return None
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) in sockets:
                pid = link.split("/")[2]
                ours = _MARK in _text(f"/proc/{pid}/environ").split("\0")
                command = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
                return {"port": port, "pid": int(pid), "command": command, "ours": ours}
    return {"port": port, "pid": 0, "command": "", "ours": False}


def _data(directory: str) -> dict[str, Any]:
    """Whether the data directory is Brownout's, by the note that its preparation left, and its content (at most five
    names)."""
    ours = _text(_NOTE) == f"{directory}\n"
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return {"ours": ours, "names": [], "error": ""}
    except OSError as error:
        return {"ours": ours, "names": [], "error": str(error.strerror)}
    return {"ours": ours, "names": [name for name in names if name != "lost+found"][:5], "error": ""}


def _free(path: str) -> int:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


if __name__ == "__main__":
    main(sys.argv[1:])
