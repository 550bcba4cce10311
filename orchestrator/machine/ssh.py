"""A host reached by SSH: one persistent fabric connection, with TCP_NODELAY.

Without TCP_NODELAY each command costs 48 ms of delayed acknowledgement; with it, about 4 ms.
"""

import contextlib
import logging
import posixpath
import shlex
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nemeses.mechanisms.shell import LEFT, PROCESS, brief_command
from nemeses.ports import HostError, HostUnreachableError, Result, answers, first_word_s
from orchestrator.machine.ssh_proxy import ProxyConnection, why_no_way

_CONNECT_TIMEOUT_S = 5.0
# How long bytes may be unacknowledged before the kernel closes a connection: a host without power never answers.
_USER_TIMEOUT_MS = 5_000
# Retry interval of a second connection, also while its host is known to be off.
_FOLLOW_CONNECT_TIMEOUT_S = 1.0
_KEEPALIVE_S = 2
_CHUNK = 1 << 16
# sudo's options if it reads the password from its input. `-k`: it always reads one, which the command then never gets.
_BY_INPUT = "-S -k -p ''"

Sink = Callable[[bytes], None]
"""Takes one line, without its end."""


class Unit(Protocol):
    """How a host starts its service and finds its process."""

    def start_script(self) -> str:
        """Start it unless it runs; does not wait until it serves. First ends processes that an earlier service left
        behind, since they use the same data."""
        ...

    def pid_script(self) -> str:
        """Print the service's pid if it runs."""
        ...

    def exit_script(self, pid: int | None) -> str:
        """Print how the process of this pid (None: the last one) ended, in a shell's numbering (128 + the number of a
        signal); nothing if that is unknown."""
        ...


@dataclass(frozen=True)
class ScriptUnit:
    """A service in its own session, found by its pid. `pid_file` must not survive a boot."""

    command: tuple[str, ...]
    directory: str
    log: str
    pid_file: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def start_script(self) -> str:
        """The pid is written together with the process's start time, which identifies it uniquely; without the time if
        the process ended before that could be read."""
        variables = " ".join(shlex.quote(f"{key}={value}") for key, value in self.environment.items())
        places = {posixpath.dirname(self.log), posixpath.dirname(self.pid_file)}
        pid_file = shlex.quote(self.pid_file)
        creation = "".join(f"[ -d {place} ] || mkdir -p {place}\n" for place in map(shlex.quote, sorted(places)))
        # A terminal between the orchestrator and the host (of sudo) sends SIGHUP when it closes.
        log = shlex.quote(self.log)
        # The exit status of an earlier process must not be reported as the new service's, even if the start fails.
        previous = shlex.quote(f"{self.pid_file}.before")
        return f"""{self._running()}
[ -n "$pid" ] && exit 0
[ -z "$last" ] || mv {pid_file} {previous}
[ -r {previous} ] && read last born < {previous}
cd {shlex.quote(self.directory)} || exit 1
{creation}{LEFT}
if [ -n "$last" ]; then
  end_left 0 "$last" || {{ echo "what the service has left behind does not end:$ended" >&2; exit 1; }}
  [ -z "$ended" ] || echo "brownout: killed what the service had left behind:$ended" >>{log}
fi
trap '' HUP
rm -f {pid_file} {previous}
( # its parent stays, to record how it ends
  env {variables} setsid {shlex.join(self.command)} </dev/null >>{log} 2>&1 &
  look $!
  echo "$! $start" > {pid_file}.new && mv {pid_file}.new {pid_file}
  wait $!
  echo $? > {pid_file}.$!
) </dev/null >/dev/null 2>&1 &
until [ -e {pid_file} ] || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
"""

    def pid_script(self) -> str:
        return f"{self._running()}\necho $pid"

    def exit_script(self, pid: int | None) -> str:
        pid_file = shlex.quote(self.pid_file)
        which = f"read pid born < {pid_file}" if pid is None else f"pid={pid}"
        return f'{{ {which}; }} 2>/dev/null; cat {pid_file}."$pid" 2>/dev/null'

    def _running(self) -> str:
        return f"""\
{PROCESS}pid=; born=
[ -r {shlex.quote(self.pid_file)} ] && read pid born < {shlex.quote(self.pid_file)}
last=$pid
if [ -n "$pid" ]; then
  look "$pid"
  [ -n "$start" ] && [ "$start" = "$born" ] && [ "$state" != Z ] || pid=
fi"""


@dataclass(frozen=True)
class SystemdUnit:
    """A service started by systemd, which also ends its remaining processes when the main process has ended. `name`: a
    unit whose main process becomes the service and writes its pid to `service.main`."""

    name: str = "brownout-service.service"
    directory: str = "/run/brownout"

    def start_script(self) -> str:
        return f"systemctl start {shlex.quote(self.name)}"

    def pid_script(self) -> str:
        """Reads the service's control group: asking systemd takes ten times as long. It is asked only if the group has
        processes but not the recorded one: the service has not written its pid yet, or has left processes behind."""
        group = shlex.quote(f"system.slice/{self.name}/cgroup.procs")
        return f"""\
pid=; main=; others=
{{ read -r main < {self.directory}/service.main; }} 2>/dev/null
for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
  [ -r "$root"/{group} ] || continue
  while read -r each; do if [ "$each" = "$main" ]; then pid=$each; else others=yes; fi; done < "$root"/{group}
  [ -z "$pid$others" ] || break
done
if [ -z "$pid" ] && [ -n "$others" ]; then
  pid=$(systemctl show --property=MainPID --value {shlex.quote(self.name)}); [ "$pid" != 0 ] || pid=
fi
echo $pid"""

    def exit_script(self, pid: int | None) -> str:
        """Written by the unit: systemd itself forgets a service that ended normally."""
        which = f"read -r pid < {self.directory}/service.main" if pid is None else f"pid={pid}"
        return f'{{ {which}; }} 2>/dev/null; cat {self.directory}/service.exit."$pid" 2>/dev/null'


class SshHost:
    """One host of a world. Commands run one at a time; each may come from another thread.

    `address` and `port`: of its service, as the other hosts reach it; `ssh_address`: for SSH, if that is another one.
    `condition` returns a known reason why the host is unreachable, such as a power cut; messages about lost connections
    end with it. `key_file`, `known_hosts`: None for the user's own keys, agent and known hosts. With `accept_new`, the
    key of a host that is not in `known_hosts` is added: for machines in a private network. `become`: commands run as
    root through sudo; `become_password`: None if it wants no password. `proxy`: the shell
    command of the way to the host, if it is not direct. `time_scale` multiplies every timeout.
    """

    def __init__(
        self,
        name: str,
        address: str,
        port: int,
        unit: Unit,
        *,
        key_file: Path | None,
        known_hosts: Path | None,
        user: str = "root",
        ssh_address: str | None = None,
        ssh_port: int = 22,
        proxy: str | None = None,
        become: bool = False,
        become_password: str | None = None,
        accept_new: bool = False,
        data_dir: str = "/data",
        time_scale: float = 1.0,
    ) -> None:
        self.name = name
        self.address = address
        self.port = port
        self.probe_port = ssh_port
        self.data_dir = data_dir
        self.condition: Callable[[], str] = lambda: ""
        self._unit = unit
        self._key_file = key_file
        self._known_hosts = known_hosts
        self._user = user
        self._ssh_address = ssh_address or address
        self._proxy = proxy
        self._become = become
        self._password_line = None if become_password is None else f"{become_password}\n".encode()
        self._accept_new = accept_new
        self._time_scale = time_scale
        self._connection: Any = None
        self._opening: set[Any] = set()
        self._stale = False
        self._lock = threading.Lock()
        self._side: Any = None
        self._side_lock = threading.Lock()

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        from invoke.exceptions import CommandTimedOut

        command = self._as_root(command)
        patience_s = timeout_s * self._time_scale
        with self._lock:
            connection = self._connected()
            try:
                done = connection.run(command, hide=True, warn=True, in_stream=False, timeout=patience_s)
            except CommandTimedOut as error:
                raise HostError(
                    f"{self.name}: {brief_command(command)!r} did not end within {patience_s:g} s{self._condition()}"
                ) from error
            except Exception as error:
                # fabric, paramiko and sockets each have their own exceptions; with each the end of the command was not
                # observed.
                self._drop()
                raise HostError(
                    f"{self.name}: {brief_command(command)!r}: the connection was lost: {error!r}{self._condition()}"
                ) from error
            if done.return_code < 0:  # paramiko's value for a channel that was closed without an exit status
                self._drop()
                raise HostError(
                    f"{self.name}: {brief_command(command)!r}: the connection ended before the command did"
                    f"{self._condition()}"
                )
            return Result(int(done.return_code), str(done.stdout), str(done.stderr))

    def service_pid(self) -> int | None:
        done = self.run(self._unit.pid_script())
        if not done.ok:  # a failed query does not show that no service runs
            raise HostError(f"{self.name}: its service cannot be looked for: {(done.stderr or done.stdout).strip()}")
        output = done.stdout.strip()
        return int(output) if output else None

    def service_exit(self, pid: int | None = None) -> int | None:
        output = self.run(self._unit.exit_script(pid)).stdout.strip()
        return int(output) if output.isdigit() else None

    def start_service(self) -> None:
        done = self.run(self._unit.start_script())
        if not done.ok:
            raise HostError(f"{self.name}: the service could not be started: {(done.stderr or done.stdout).strip()}")

    def put(self, path: str, text: str) -> None:
        """Write a small file atomically: readers see the old text or the new one. Raises `HostError`."""
        done = self.run(put_script(path, text))
        if not done.ok:
            raise HostError(f"{self.name}: {path} cannot be written: {done.stderr.strip()}")

    def follow(
        self, command: str, sink: Sink, *, connect_timeout_s: float = _FOLLOW_CONNECT_TIMEOUT_S
    ) -> "FollowedOutput":
        """Start a long-running command on a second connection; `FollowedOutput.wait` passes its output to `sink`.

        The command ends with the connection. Raises `HostUnreachableError` when it could not be started."""
        with self._side_lock:
            try:
                if self._side is None or not self._side.is_connected:
                    self._side = None
                    self._side = self._open(connect_timeout_s)
                    self._side.transport.set_keepalive(_KEEPALIVE_S)
                channel = self._side.transport.open_session(timeout=_CONNECT_TIMEOUT_S * self._time_scale)
                # Its input ends with the connection, and `tail --pid` and similar commands with the shell that waits
                # for that.
                channel.exec_command(self._as_root(f"{{ {command}\n}} </dev/null & exec cat > /dev/null"))
                if self._password_line is not None:
                    channel.sendall(self._password_line)
            except HostUnreachableError:
                raise
            except Exception as error:  # as in `run`
                raise HostUnreachableError(
                    f"{self.name}: {brief_command(command)!r} cannot be started: {error!r}"
                ) from error
        return FollowedOutput(self.name, channel, sink)

    def unfollow(self) -> None:
        """End everything that is followed."""
        side = self._side
        if side is not None:
            side.client.close()

    def answers(self) -> bool:
        """Whether sshd answers this machine."""
        return answers(self) if self._proxy is None else self.first_word_s(_CONNECT_TIMEOUT_S) is not None

    def first_word_s(self, patience_s: float) -> float | None:
        """After how many seconds sshd answered this machine, on the way to it; None: not within `patience_s`."""
        if self._proxy is None:
            return first_word_s(self, patience_s)
        started_s = time.monotonic()
        return None if why_no_way(self._proxy, patience_s) else time.monotonic() - started_s

    def connect(self) -> None:
        """Connect now, not at the first command. Raises `HostUnreachableError`."""
        with self._lock:
            self._connected()

    def disconnect(self) -> None:
        """Drop the connections; the next command makes a new one. For hosts that are known to be gone.

        Returns immediately, also while another thread waits for the host: that thread's wait ends now."""
        self._stale = True
        for connection in (*tuple(self._opening), self._connection, self._side):
            if connection is not None:
                connection.client.close()

    def _as_root(self, command: str) -> str:
        if not self._become:
            return command
        return f"sudo {'-n' if self._password_line is None else _BY_INPUT} sh -c {shlex.quote(command)}"

    def _connected(self) -> Any:
        """The persistent connection, or a new one if it is closed: before a command is sent, a retry is safe."""
        if self._connection is not None and self._connection.is_connected and not self._stale:
            return self._connection
        self._drop()
        self._stale = False
        self._connection = self._open(_CONNECT_TIMEOUT_S)
        return self._connection

    def _open(self, timeout_s: float) -> Any:
        connection = self._new_connection(timeout_s * self._time_scale)
        self._opening.add(connection)
        way = None
        try:
            if self._proxy is not None:
                way = connection.connect_kwargs["sock"] = ProxyConnection(self._proxy)
            if self._known_hosts is None:
                connection.client.load_system_host_keys()
            else:
                if self._accept_new:
                    self._known_hosts.touch()
                connection.client.load_host_keys(str(self._known_hosts))
            connection.open()
            channel = connection.transport.sock
            if way is None:
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if way is None and hasattr(socket, "TCP_USER_TIMEOUT"):
                patience_ms = int(_USER_TIMEOUT_MS * self._time_scale)
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
        except Exception as error:
            connection.close()
            if way is not None:
                way.close()
            raise HostUnreachableError(
                f"{self.name} ({self._ssh_address}) cannot be reached by SSH: {error!r}{self._condition()}"
            ) from error
        finally:
            self._opening.discard(connection)
        return connection

    def _new_connection(self, connect_timeout_s: float) -> Any:
        # Importing fabric and paramiko takes a large part of a second, so it is done at the first connection.
        from fabric import Config, Connection
        from fabric.runners import Remote
        from paramiko import RejectPolicy

        # It logs a traceback for each lost connection. Lost connections are expected here and raised as exceptions.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)

        password_line = self._password_line

        class Attentive(Remote):  # type: ignore[misc]
            """Polls for a command's end every millisecond; the default of ten is most of a short command's time."""

            input_sleep = 0.001

            def send_start_message(self, command: str) -> None:
                super().send_start_message(command)
                if password_line is not None:
                    self.channel.sendall(password_line)
                    self.channel.shutdown_write()  # sudo would wait for a second attempt at a wrong password

            def kill(self) -> None:
                """Called by a timer in a separate thread, where an exception would only be printed. The lost connection
                is reported to the thread that waits for the command."""
                with contextlib.suppress(Exception):
                    super().kill()

        answer_timeout_s = _CONNECT_TIMEOUT_S * self._time_scale
        own_keys = self._key_file is None
        connection = Connection(
            self._ssh_address,
            user=self._user,
            port=self.probe_port,
            config=Config(overrides={"load_ssh_configs": False, "runners": {"remote": Attentive}}),
            connect_timeout=connect_timeout_s,
            connect_kwargs={
                **({} if own_keys else {"key_filename": str(self._key_file)}),
                "allow_agent": own_keys,
                "look_for_keys": own_keys,
                "banner_timeout": answer_timeout_s,
                "auth_timeout": answer_timeout_s,
            },
        )
        hosts_file = self._known_hosts if self._accept_new else None
        connection.client.set_missing_host_key_policy(RejectPolicy() if hosts_file is None else _Accept(hosts_file))
        return connection

    def _condition(self) -> str:
        boot = self.condition()
        return f"; {boot}" if boot else ""

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class FollowedOutput:
    """A long-running command and its output."""

    def __init__(self, name: str, channel: Any, sink: Sink) -> None:
        self._name = name
        self._channel = channel
        self._sink = sink
        self.unfinished = b""
        """The start of a line whose end has not arrived yet."""

    def wait(self) -> None:
        """Pass line after line to the sink until the command ends, the connection is lost, or `close` is called."""
        while True:
            try:
                data = self._channel.recv(_CHUNK)
            except OSError:
                return
            if not data:
                return
            *lines, rest = (self.unfinished + data).split(b"\n")
            self.unfinished = b""  # set before the sink gets the line, so that it is never counted twice
            for line in lines:
                self._sink(line)
            self.unfinished = rest

    def close(self) -> None:
        """End the command; its `wait` returns."""
        self._channel.close()


class _Accept:
    """paramiko's policy for new hosts: store their keys, one line each."""

    _lock = threading.Lock()

    def __init__(self, known_hosts: Path) -> None:
        self._known_hosts = known_hosts

    def missing_host_key(self, _client: Any, hostname: str, key: Any) -> None:
        with self._lock, self._known_hosts.open("a", encoding="ascii") as hosts_file:
            hosts_file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")


def put_script(path: str, text: str) -> str:
    """Write a file atomically: readers see the old text or the new one, also after a power cut."""
    directory, draft, name = map(shlex.quote, (posixpath.dirname(path), f"{path}.new", path))
    steps = [f"mkdir -p {directory}", f"printf %s {shlex.quote(text)} > {draft}", f"sync {draft}"]
    return " && ".join([*steps, f"mv {draft} {name}", f"sync {directory}"])
