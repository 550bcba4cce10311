"""Starting and stopping a broker on any host, and waiting until that is done."""

from __future__ import annotations

import contextlib
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from nemeses.ports import Host
from orchestrator.worlds.base import Node, WorldError

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0
LOOK_S = 0.2
_LAST_WORDS_BYTES = 2_000

T = TypeVar("T")


def in_parallel(items: Iterable[T], action: Callable[[T], object]) -> None:
    """Do one thing for each item at the same time. Raises the first failure, once all have ended."""
    todo = list(items)
    if not todo:
        return
    with ThreadPoolExecutor(len(todo), thread_name_prefix="world") as pool:
        futures = [pool.submit(action, item) for item in todo]
    for future in futures:
        future.result()


class ServicesOnHosts(ABC):
    """The brokers of a world, started and stopped through the hosts of their nodes: the same in every world."""

    time_scale: float = 1.0

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]: ...

    @property
    @abstractmethod
    def hosts(self) -> Mapping[str, Host]: ...

    @abstractmethod
    def collect(self, node: Node, destination: Path) -> None: ...

    def start_service(self, node: Node) -> None:
        host, patience_s = self.hosts[node.name], START_DEADLINE_S * self.time_scale
        host.start_service()
        deadline = time.monotonic() + patience_s
        next_look = time.monotonic() + LOOK_S
        while not accepts(node.address, node.port):
            now = time.monotonic()
            if now >= next_look:
                next_look = now + LOOK_S * self.time_scale
                if host.service_pid() is None:
                    raise WorldError(
                        f"{node.name}: the broker ended at its start; its last words: {self.last_words(node)}"
                    )
                if now > deadline:
                    raise WorldError(
                        f"{node.name}: the broker's port {node.port} did not open within {patience_s:g} s; "
                        f"its last words: {self.last_words(node)}"
                    )
            time.sleep(0.01)

    def start_services(self, nodes: Sequence[Node] | None = None) -> None:
        in_parallel(self.nodes if nodes is None else nodes, self.start_service)

    def stop_service(self, node: Node) -> None:
        host, patience_s = self.hosts[node.name], STOP_DEADLINE_S * self.time_scale
        pid = host.service_pid()
        if pid is None:
            return
        host.run(f"kill -TERM {pid}")
        deadline = time.monotonic() + patience_s
        while host.service_pid() == pid:
            if time.monotonic() > deadline:
                raise WorldError(
                    f"{node.name}: the broker did not end within {patience_s:g} s of SIGTERM; "
                    f"its last words: {self.last_words(node)}"
                )
            time.sleep(0.02)

    def restart(self, node: Node) -> None:
        self.stop_service(node)
        self.start_service(node)

    def last_words(self, node: Node) -> str:
        """The end of a broker's log, or where it would be."""
        return end_of_log(node.record_dir / "service.log")

    def collect_all(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(FileNotFoundError):
                self.collect(node, node.record_dir)


def accepts(address: str, port: int) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1.0):
        return True
    return False


def end_of_log(path: Path) -> str:
    """The last words in a file, or where they would be."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _LAST_WORDS_BYTES))
            return log.read().decode(errors="replace").strip() or f"none ({path} is empty)"
    except OSError as error:
        return f"none ({path}: {error.strerror})"
