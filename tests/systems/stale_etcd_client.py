"""etcd's client with a deliberate bug: with the option `stale`, reads return the first value of a key forever."""

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
