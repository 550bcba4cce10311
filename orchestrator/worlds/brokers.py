"""Starting and stopping a broker on any host, and waiting until that is done."""

from __future__ import annotations

import contextlib
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from nemeses.ports import Host
from orchestrator.worlds.base import Node, WorldError

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0
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


def start_and_wait(host: Host, node: Node) -> None:
    """Start a broker and wait for its port. Raises `WorldError` with its last words when it ends or stays silent."""
    host.start_broker()
    deadline = time.monotonic() + START_DEADLINE_S
    next_look = time.monotonic() + 0.2
    while not accepts(node.address, node.port):
        now = time.monotonic()
        if now >= next_look:
            next_look = now + 0.2
            if host.broker_pid() is None:
                raise WorldError(f"{node.name}: the broker ended at its start; its last words: {last_words(node)}")
            if now > deadline:
                raise WorldError(
                    f"{node.name}: the broker's port {node.port} did not open within {START_DEADLINE_S:g} s; "
                    f"its last words: {last_words(node)}"
                )
        time.sleep(0.01)


def stop_and_wait(host: Host, node: Node) -> None:
    """SIGTERM a broker and wait until it has ended. Raises `WorldError` when it does not."""
    pid = host.broker_pid()
    if pid is None:
        return
    host.run(f"kill -TERM {pid}")
    deadline = time.monotonic() + STOP_DEADLINE_S
    while host.broker_pid() == pid:
        if time.monotonic() > deadline:
            raise WorldError(
                f"{node.name}: the broker did not end within {STOP_DEADLINE_S:g} s of SIGTERM; "
                f"its last words: {last_words(node)}"
            )
        time.sleep(0.02)


class BrokersOnHosts(ABC):
    """The brokers of a world, started and stopped through the hosts of their nodes: the same in every world."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Node]: ...

    @property
    @abstractmethod
    def hosts(self) -> Mapping[str, Host]: ...

    def start_broker(self, node: Node) -> None:
        start_and_wait(self.hosts[node.name], node)

    def start_brokers(self, nodes: Sequence[Node] | None = None) -> None:
        in_parallel(self.nodes if nodes is None else nodes, self.start_broker)

    def stop_broker(self, node: Node) -> None:
        stop_and_wait(self.hosts[node.name], node)

    def restart(self, node: Node) -> None:
        self.stop_broker(node)
        self.start_broker(node)


def accepts(address: str, port: int) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1.0):
        return True
    return False


def last_words(node: Node) -> str:
    """The end of a broker's log, or where it would be."""
    path = node.record_dir / "broker.log"
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _LAST_WORDS_BYTES))
            return log.read().decode(errors="replace").strip() or f"none ({path} is empty)"
    except OSError as error:
        return f"none ({path}: {error.strerror})"
