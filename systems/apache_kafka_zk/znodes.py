"""Reads, creates and deletes ZooKeeper's znodes, each within a deadline, on a session that renews itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

SESSION_S = 4.0
ANSWER_S = 0.7
RECONNECT_S = 0.2


class UnansweredError(Exception):
    """ZooKeeper did not answer in time, or answered with an error; the message says which."""


class Znodes(Protocol):
    """What the observer needs of ZooKeeper. All raise `UnansweredError`."""

    def read(self, path: str) -> bytes | None:
        """The content; None if the znode does not exist."""
        ...

    def children(self, path: str) -> list[str] | None:
        """The names below a znode; None if the znode does not exist."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Whether it was created; False when it exists already, or when its parent does not exist."""
        ...

    def delete(self, path: str) -> None:
        """Delete it if it exists."""
        ...

    def close(self) -> None: ...


class ZooKeeperClient:
    """Znodes of a running ZooKeeper. The client may be made before ZooKeeper runs: it connects as soon as it can, and
    reconnects after each lost connection. While it is not connected, every call raises `UnansweredError` at once."""

    def __init__(self, hosts: Sequence[str], time_scale: float = 1.0) -> None:
        """`hosts`: a list of `address:port`."""
        self._answer_s = ANSWER_S * time_scale
        logger = logging.getLogger("brownout.zookeeper")
        logger.setLevel(logging.CRITICAL)  # a view's complaints report a lost connection
        retry = {"max_tries": -1, "delay": RECONNECT_S, "backoff": 1, "max_delay": RECONNECT_S}
        self._client = KazooClient(
            ",".join(hosts), timeout=SESSION_S * time_scale, connection_retry=retry, logger=logger
        )
        self._client.start_async()

    def read(self, path: str) -> bytes | None:
        try:
            content: bytes = self._ask(self._client.get_async, path)[0]
        except NoNodeError:
            return None
        return content

    def children(self, path: str) -> list[str] | None:
        try:
            names: list[str] = self._ask(self._client.get_children_async, path)
        except NoNodeError:
            return None
        return names

    def create(self, path: str, content: bytes) -> bool:
        try:
            self._ask(self._client.create_async, path, content)
        except (NodeExistsError, NoNodeError):
            return False
        return True

    def delete(self, path: str) -> None:
        try:
            self._ask(self._client.delete_async, path)
        except NoNodeError:
            return

    def close(self) -> None:
        """End the session, whether ZooKeeper still runs or not."""
        self._client.stop()
        self._client.close()

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """Raises `UnansweredError`, and kazoo's errors for existing or missing znodes."""
        if not self._client.connected:
            raise UnansweredError("not connected")
        try:
            return question(*arguments).get(timeout=self._answer_s)
        except (NoNodeError, NodeExistsError):
            raise
        except (KazooException, self._client.handler.timeout_exception) as error:
            raise UnansweredError(str(error) or type(error).__name__) from error
