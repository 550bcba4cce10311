"""etcd's client with a bug on purpose: with the option `stale`, whatever a key held first is what it holds forever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from systems.etcd.client import EtcdClient


class FirstSeen(EtcdClient):
    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        super().__init__(endpoints, timeout_s, {})
        self._stale = options["stale"] == "yes"
        self._first: dict[str, int | None] = {}

    def read(self, key: str) -> int | None:
        value = super().read(key)
        return self._first.setdefault(key, value) if self._stale else value
