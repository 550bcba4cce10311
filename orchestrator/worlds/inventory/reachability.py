"""Checks that hosts and clients can reach every broker port, so that firewalls are found before a run."""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Iterator, Mapping

from nemeses.mechanisms.shell import ask, reach_script
from nemeses.ports import HostError
from nemeses.scheduling import for_each
from orchestrator.errors import WorldError
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.services import accepts

_LISTENS_S = 60
_PATIENCE_S = 5.0  # more than a slow connection needs; a firewall takes longer
# Accepts connections as the broker would, and ends after a timeout if it is not killed.
_LISTENER = """
import os, signal, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
signal.alarm(int(sys.argv[3]))
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for standard in (0, 1, 2):
    os.dup2(null, standard)
while True:
    server.accept()[0].close()
"""


def require_ways(hosts: Mapping[str, SshHost], titles: Mapping[str, str], time_scale: float = 1.0) -> None:
    """Check that every host, and this machine, can connect to every broker port; no broker may run. `time_scale`
    multiplies the time for a connection.

    Raises `WorldError` with each blocked connection, `HostError` when a host does not answer."""
    closed: list[str] = []
    with contextlib.ExitStack() as listening:
        for_each(hosts.values(), lambda host: listening.enter_context(_listener(host, time_scale)))

        def look(host: SshHost) -> None:
            others = [other for other in hosts.values() if other is not host]
            give_up = time.monotonic() + _PATIENCE_S * time_scale
            while others:
                seen = ask(host, reach_script([(other.name, other.address, other.port) for other in others]))
                others = [other for other in others if seen.get(other.name) != "open"]
                if time.monotonic() > give_up:
                    break
            closed.extend(
                f"{titles[host.name]} cannot connect to {titles[other.name]} at {other.address} port {other.port}"
                for other in others
            )

        for_each(hosts.values(), look)
        closed.extend(
            f"this machine cannot connect to {titles[host.name]} at {host.address} port {host.port}"
            for host in hosts.values()
            if not accepts(host.address, host.port)
        )
    if closed:
        ways = "\n".join(f"  {way}" for way in sorted(closed))
        raise WorldError(
            f"brokers and clients would not reach each other; open the port in the firewalls, or set brownout_address "
            f"to addresses that are reachable:\n{ways}"
        )


@contextlib.contextmanager
def _listener(host: SshHost, time_scale: float) -> Iterator[None]:
    lasts_s = math.ceil(_LISTENS_S * time_scale)
    started = host.run(f"python3 -c {shlex.quote(_LISTENER)} {host.address} {host.port} {lasts_s}")
    if not started.ok:
        last = started.stderr.strip().splitlines()[-1:]
        raise WorldError(f"{host.name}: its port {host.port} cannot be listened at: {' '.join(last)}")
    try:
        yield
    finally:
        with contextlib.suppress(HostError):
            host.run(f"kill -9 {int(started.stdout)}")
