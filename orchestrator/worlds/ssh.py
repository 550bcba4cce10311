"""A host reached by SSH: one fabric connection, kept, with Nagle's delay off.

Without TCP_NODELAY each command costs 48 ms of delayed acknowledgement; with it, about 4 ms.
"""

from __future__ import annotations

import logging
import shlex
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemeses.ports import HostError, HostUnreachableError, Result

_CONNECT_TIMEOUT_S = 5.0
# How long bytes may go unacknowledged before the kernel gives a connection up: a host without power says no word.
_USER_TIMEOUT_MS = 5_000


@dataclass(frozen=True)
class BrokerUnit:
    """How a host starts its broker. `pid_file` must not survive a boot."""

    command: tuple[str, ...]
    directory: str
    log: str
    pid_file: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def start_script(self) -> str:
        """Start it unless it runs. The pid is written with the process's start time, which makes it unmistakable."""
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.environment.items())
        return f"""{self._running()}
[ -n "$pid" ] && exit 0
cd {shlex.quote(self.directory)} || exit 1
env {variables} setsid {shlex.join(self.command)} </dev/null >>{shlex.quote(self.log)} 2>&1 &
look $!
echo "$! $start" > {shlex.quote(self.pid_file)}
"""

    def pid_script(self) -> str:
        """Print the broker's pid if it runs."""
        return f"{self._running()}\necho $pid"

    def _running(self) -> str:
        return f"""\
look() {{ s=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null); set -- $s; state=$1; start=${{20}}; }}
pid=; born=
[ -r {shlex.quote(self.pid_file)} ] && read pid born < {shlex.quote(self.pid_file)}
if [ -n "$pid" ]; then
  look "$pid"
  [ "$start" = "$born" ] && [ "$state" != Z ] || pid=
fi"""


class SshHost:
    """One host of a world. Commands run one at a time; each may come from another thread."""

    def __init__(
        self,
        name: str,
        address: str,
        port: int,
        unit: BrokerUnit,
        *,
        key_file: Path,
        known_hosts: Path,
        user: str = "root",
        ssh_port: int = 22,
    ) -> None:
        self.name = name
        self.address = address
        self.port = port
        self.probe_port = ssh_port
        self._unit = unit
        self._key_file = key_file
        self._known_hosts = known_hosts
        self._user = user
        self._connection: Any = None
        self._opening: Any = None
        self._stale = False
        self._lock = threading.Lock()

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        from invoke.exceptions import CommandTimedOut

        with self._lock:
            connection = self._connected()
            try:
                done = connection.run(command, hide=True, warn=True, in_stream=False, timeout=timeout_s)
            except CommandTimedOut as error:
                raise HostError(f"{self.name}: {_brief(command)!r} did not end within {timeout_s:g} s") from error
            except Exception as error:
                # fabric, paramiko and sockets each have exceptions of their own; all mean that the end was not seen.
                self._drop()
                raise HostError(f"{self.name}: {_brief(command)!r}: the connection was lost: {error!r}") from error
            return Result(int(done.return_code), str(done.stdout), str(done.stderr))

    def broker_pid(self) -> int | None:
        said = self.run(self._unit.pid_script()).stdout.strip()
        return int(said) if said else None

    def start_broker(self) -> None:
        done = self.run(self._unit.start_script())
        if not done.ok:
            raise HostError(f"{self.name}: the broker could not be started: {(done.stderr or done.stdout).strip()}")

    def connect(self) -> None:
        """Connect now rather than at the first command. Raises `HostUnreachableError`."""
        with self._lock:
            self._connected()

    def disconnect(self) -> None:
        """Give the connection up: the next command makes a new one. For hosts that are known to have gone.

        Returns at once, even while another thread waits for the host: that thread's wait ends now."""
        self._stale = True
        for connection in (self._opening, self._connection):
            if connection is not None:
                connection.client.close()

    def _connected(self) -> Any:
        """The kept connection, or a new one where that is closed: before a command is sent, trying again is safe."""
        if self._connection is not None and self._connection.is_connected and not self._stale:
            return self._connection
        self._drop()
        self._stale = False
        connection = self._opening = self._new_connection()
        try:
            connection.client.load_host_keys(str(self._known_hosts))
            connection.open()
            channel = connection.transport.sock
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        except Exception as error:
            connection.close()
            raise HostUnreachableError(f"{self.name} ({self.address}) cannot be reached by SSH: {error!r}") from error
        finally:
            self._opening = None
        self._connection = connection
        return connection

    def _new_connection(self) -> Any:
        # fabric and paramiko take a good part of a second to import: only those who connect pay for it.
        from fabric import Config, Connection
        from fabric.runners import Remote
        from paramiko import RejectPolicy

        # It logs a traceback for each lost connection; losing them is our daily business, and told by exceptions.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)

        class Attentive(Remote):  # type: ignore[misc]
            """Looks for a command's end each millisecond; the default of ten is most of a short command's time."""

            input_sleep = 0.001

        connection = Connection(
            self.address,
            user=self._user,
            port=self.probe_port,
            config=Config(overrides={"load_ssh_configs": False, "runners": {"remote": Attentive}}),
            connect_timeout=_CONNECT_TIMEOUT_S,
            connect_kwargs={
                "key_filename": str(self._key_file),
                "allow_agent": False,
                "look_for_keys": False,
                "banner_timeout": _CONNECT_TIMEOUT_S,
                "auth_timeout": _CONNECT_TIMEOUT_S,
            },
        )
        connection.client.set_missing_host_key_policy(RejectPolicy())
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _brief(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 80 else f"{line[:77]}..."
