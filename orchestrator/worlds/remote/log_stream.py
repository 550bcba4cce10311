"""Copies a node's trace and log line by line, while the service writes them.

A node keeps both in memory, so a power cut takes what was not copied by then, as on any machine. Nothing else is lost:
a broken connection is made again and continues at the same position.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from nemeses.ports import HostError
from nemeses.scheduling import for_each
from orchestrator.machine.ssh import FollowedOutput, SshHost
from orchestrator.worlds.base import Node

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PAUSE_S = 0.2
_POLL_S = 0.02


class MirroredFile:
    """One file of one host, copied to `target` as it grows.

    `stamped`: the file has one JSON object per line; each gets `seen`, this machine's wall clock at arrival in
    nanoseconds."""

    def __init__(self, host: SshHost, path: str, target: Path, *, stamped: bool) -> None:
        self._host = host
        self._path = path
        self._target = target
        self._stamped = stamped
        self._boot: bytes | None = None
        self._position = 0
        self._following: FollowedOutput | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"mirror-{host.name}-{target.name}", daemon=True)

    def begin(self) -> None:
        self._target.touch()
        self._thread.start()

    def end(self) -> None:
        """Stop copying; what has arrived is written."""
        self._ending.set()
        following = self._following
        if following is not None:
            following.close()
        if self._thread.ident is not None:
            self._thread.join()

    def settle(self, timeout_s: float) -> str | None:
        """Wait until everything that the file contains now has arrived; returns the problem, if that takes too long.

        Raises `HostError` when the host does not answer."""
        done = self._host.run(f"cat {BOOT_ID}; stat -c %s {shlex.quote(self._path)} 2>/dev/null || echo 0")
        said = done.stdout.split()
        if len(said) != 2:  # a host that cannot start programs prints less
            raise HostError(f"{self._host.name}: its boot and {self._path} cannot be read: {done.stderr.strip()}")
        boot, size = said
        give_up = time.monotonic() + timeout_s
        while (have := self._received(boot.encode())) < int(size):
            if time.monotonic() > give_up:
                return f"{self._host.name}: only {have} of {size} bytes of {self._path} came within {timeout_s:g} s"
            time.sleep(_POLL_S)
        return None

    def _received(self, boot: bytes) -> int:
        """The number of bytes of the file that have arrived, including an incomplete last line."""
        following = self._following
        if boot != self._boot:
            return 0
        return self._position + (0 if following is None else len(following.unfinished))

    def _work(self) -> None:
        with self._target.open("ab", buffering=0) as target:
            while not self._ending.is_set():
                with contextlib.suppress(HostError):
                    self._follow(target)
                self._ending.wait(_PAUSE_S)

    def _follow(self, target: BinaryIO) -> None:
        """Copy until the connection is lost. The first line is the boot id."""
        first = True

        def take(line: bytes) -> None:
            nonlocal first
            if first:
                first = False
                if line != self._boot:  # after a boot the file is a new one
                    self._boot, self._position = line, 0
                return
            target.write((_stamp(line) if self._stamped else line) + b"\n")
            self._position += len(line) + 1

        following = self._host.follow(_tail(self._path, self._boot or b"none", self._position), take)
        self._following = following
        try:
            if not self._ending.is_set():
                following.wait()
        finally:
            following.close()


def _tail(path: str, boot: bytes, position: int) -> str:
    """Print the boot id, then the file from `position` on if the boot id is still the same, else from its start."""
    directory = shlex.quote(path.rpartition("/")[0])
    return f"""b=$(cat {BOOT_ID}); echo "$b"; start=1
[ "$b" = {boot.decode()} ] && start={position + 1}
[ -d {directory} ] || mkdir -p {directory}
exec tail -s 0.5 --pid=$$ -c +$start -F {shlex.quote(path)} 2>/dev/null"""


def _stamp(line: bytes) -> bytes:
    """A JSON object with one more field; other lines (cut short by a kill) unchanged."""
    if line.startswith(b"{") and line.endswith(b"}") and len(line) > 2:
        return b'%s,"seen":%d}' % (line[:-1], time.time_ns())
    return line


class Mirror:
    """The trace and the log of every node, copied into its `record_dir`."""

    def __init__(self, nodes: Sequence[Node], hosts: Mapping[str, SshHost]) -> None:
        self._hosts = hosts
        self._files = {
            node.name: (
                MirroredFile(hosts[node.name], node.trace_path, node.record_dir / "events.jsonl", stamped=True),
                MirroredFile(hosts[node.name], node.service_log, node.record_dir / "service.log", stamped=False),
            )
            for node in nodes
        }

    def begin(self) -> None:
        for files in self._files.values():
            for file in files:
                file.begin()

    def settle(self, name: str, timeout_s: float) -> list[str]:
        """Wait until everything that a node has written by now has arrived; returns complaints about what has not.

        Raises `HostError` when the node does not answer."""
        return [complaint for file in self._files[name] if (complaint := file.settle(timeout_s)) is not None]

    def end(self) -> None:
        """Stop copying. Can be called twice."""
        for host in self._hosts.values():
            host.unfollow()
        for_each([file for files in self._files.values() for file in files], MirroredFile.end)
