"""A connection to an SSH port through a proxy: a jump host, or any command that ssh's configuration names.

Theory of operation. The program ssh makes the way to the host, so the user's configuration, keys and
known hosts apply to each jump host. Its input and output are one end of a socket pair, and paramiko gets the other end.
So a lost way ends the connection, as a lost connection without a proxy does. The command is in a session of its own: a
Ctrl-C at the terminal must not end it before the run has healed its faults.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

_BANNER = b"SSH-"


class ProxyConnection(socket.socket):
    """The connection that a proxy's command makes; the command ends with it. Raises `OSError` without `sh`."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object; a full pipe would stop ssh
        with theirs:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )

    def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        super().close()

    def errors(self) -> str:
        """The command's last message, on one line."""
        return " ".join(os.pread(self._errors.fileno(), 1 << 16, 0).decode(errors="replace").split())[-300:]


def why_no_way(command: str, timeout_s: float) -> str:
    """Empty if sshd answers through this proxy, else the proxy's message or the kind of silence."""
    with ProxyConnection(command) as connection:
        connection.settimeout(timeout_s)
        try:
            if connection.recv(len(_BANNER)) == _BANNER:
                return ""
        except TimeoutError:
            return connection.errors() or f"no answer within {timeout_s:g} s"
        return connection.errors() or "the connection ended without an answer"


def proxy_command(settings: Mapping[str, Sequence[str]], arguments: Sequence[str]) -> str | None:
    """The shell command of a host's proxy; None without one.

    `settings`: the host's by `ssh -G` with these `arguments`. As in ssh, `-F` applies to jump hosts, too."""
    host, port = settings["hostname"][0], settings["port"][0]
    jumps = settings.get("proxyjump", ("none",))[0]
    if jumps != "none":
        *earlier, last = jumps.split(",")
        words = ["ssh", "-oBatchMode=yes", *_configuration(arguments)]
        words += ["-J", ",".join(earlier)] if earlier else []
        return shlex.join([*words, "-W", f"[{host}]:{port}", last if "://" in last else f"ssh://{last}"])
    command = settings.get("proxycommand", ("none",))[0]
    if command == "none":
        return None
    tokens = {"%%": "%", "%h": host, "%n": host, "%p": port, "%r": settings["user"][0]}
    return re.sub("%[%hnpr]", lambda token: tokens[token[0]], command)


def _configuration(arguments: Sequence[str]) -> list[str]:
    """The `-F FILE` of ssh's arguments."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if word.startswith("-F"):
            return ["-F", word[2:] or after]
    return []


def proxy_options(command: str | None) -> list[str]:
    """ssh's options for this proxy."""
    return [] if command is None else ["-o", f"ProxyCommand={command.replace('%', '%%')}"]
