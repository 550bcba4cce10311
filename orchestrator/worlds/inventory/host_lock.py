"""Admits one campaign per host: a lock on the host itself, held through its own connection and released with it."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import threading
import time
from collections.abc import Collection, Mapping

from nemeses.ports import HostError, HostUnreachableError
from nemeses.scheduling import for_each
from orchestrator.errors import WorldError
from orchestrator.machine.ssh import FollowedOutput, Sink, SshHost

_LOCK = "/run/brownout.lock"
_PATIENCE_S = 3
_CONNECT_PATIENCE_S = 5.0
_ANSWER_DEADLINE_S = 30.0


class HostLocks:
    """Locks on hosts. `connections` are used for nothing else; `titles` name the hosts in messages. `time_scale`
    multiplies the time that a host may take to answer."""

    def __init__(self, connections: Mapping[str, SshHost], titles: Mapping[str, str], time_scale: float = 1.0) -> None:
        self._connections = connections
        self._titles = titles
        self._deadline_s = _ANSWER_DEADLINE_S * time_scale
        self._held: dict[str, FollowedOutput] = {}

    def take(self, names: Collection[str]) -> None:
        """Lock hosts, also those whose lock a boot has released. Raises `HostError` when another process holds one."""
        for_each(names, self._take)

    @property
    def held(self) -> frozenset[str]:
        """The hosts that are locked by this process; others may be in use elsewhere."""
        return frozenset(self._held)

    def release(self) -> None:
        for following in self._held.values():
            following.close()
        self._held.clear()
        for connection in self._connections.values():
            connection.disconnect()

    def _take(self, name: str) -> None:
        self._held.pop(name, None)  # a lock that a boot has released
        answers: list[str] = []
        answered = threading.Event()

        def hear(line: bytes) -> None:
            answers.append(line.decode(errors="replace"))
            answered.set()

        following = self._follow(name, hear)
        threading.Thread(target=following.wait, name=f"claim-{name}", daemon=True).start()
        if not answered.wait(self._deadline_s):
            raise HostError(f"{name}: it does not report whether it is in use by another campaign")
        if answers[0] != "locked":
            following.close()
            raise WorldError(
                f"{self._titles[name]} is in use by another campaign ({answers[0]}); wait until it ends, or use "
                "other hosts"
            )
        self._held[name] = following

    def _follow(self, name: str, hear: Sink) -> FollowedOutput:
        """Request the lock on a new connection, with retries: a host that has just booted is slow to answer."""
        connection = self._connections[name]
        script = _script(f"{getpass.getuser()}@{socket.gethostname()}, process {os.getpid()}")
        until = time.monotonic() + self._deadline_s
        while True:
            connection.disconnect()
            try:
                return connection.follow(script, hear, connect_timeout_s=_CONNECT_PATIENCE_S)
            except HostUnreachableError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


def _script(owner: str) -> str:
    """Lock, and stay until the login shell ends. It waits for a short time for another holder that is just ending."""
    return f"""exec 9>>{_LOCK}
if flock -w {_PATIENCE_S} 9; then
  echo {shlex.quote(owner)} > {_LOCK}
  echo locked
  tail -s 0.2 --pid=$$ -f /dev/null 9>&-
else
  cat {_LOCK}
fi"""
