"""The register client of etcd: a key's value is one register.

The option `reads` selects the kind of reads: `linearizable` (etcd's default: the member first makes sure that it has
all acknowledged changes) or `serializable` (the member answers from its own state).
"""

import http.client
from collections.abc import Mapping, Sequence
from typing import Any, Final

from history.record.values import NOT_A_VALUE
from systems.etcd.gateway import Gateway, GatewayError, NotConnectedError, decoded, encoded
from workloads.api import Refused, RegisterClient

READS: Final = ("linearizable", "serializable")
# Errors that etcd returns before it proposes a change to Raft, or when its Raft rejects it: the change will never be
# applied. All other errors leave the outcome open: timeouts, and "database space exceeded", which etcd also returns for
# a change that was applied.
_NEVER_APPLIED: Final = (
    "etcdserver: too many requests",
    "etcdserver: request is too large",
    "raft proposal dropped",
)
_CONNECT_SHARE: Final = 0.2  # of an operation's time, so that the client can try other members within it
_ANY_KEY: Final = "k0"


class EtcdClient(RegisterClient):
    """Prefers the first endpoint; skips endpoints that do not answer at the start."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, options: Mapping[str, str]) -> None:
        """Raises OSError when no member answers a read, TypeError for an unknown option."""
        super().__init__(endpoints, timeout_s, options)
        reads = self.options.get("reads", READS[0])
        if reads not in READS or set(self.options) - {"reads"}:
            raise TypeError(f"options of etcd's client: reads = one of {', '.join(READS)}; given: {self.options}")
        self._serializable = reads == "serializable"
        self._turn = 0
        self._gateway: Gateway | None = None
        self._find_member()

    def read(self, key: str) -> int | None:
        entries = self._ask("/v3/kv/range", self._range(key)).get("kvs", [])
        return _number(decoded(entries[0].get("value", ""))) if entries else None

    def write(self, key: str, value: int) -> None:
        self._change("/v3/kv/put", _put(key, value))

    def compare_and_set(self, key: str, expected: int | None, new: int) -> bool:
        condition = {"target": "VALUE", "value": encoded(str(expected))}
        if expected is None:
            condition = {"target": "VERSION", "version": "0"}
        request = {
            "compare": [{"key": encoded(key), "result": "EQUAL", **condition}],
            "success": [{"request_put": _put(key, new)}],
        }
        return bool(self._change("/v3/kv/txn", request).get("succeeded", False))

    def close(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None

    def _find_member(self) -> None:
        """Stay with the first member that answers a read of this client's kind. Without a reachable leader, writes
        would only leave one open outcome after the other."""
        troubles = []
        for _ in self.endpoints:
            try:
                self._ask("/v3/kv/range", self._range(_ANY_KEY), timeout_s=self.timeout_s / len(self.endpoints))
            except (OSError, http.client.HTTPException, GatewayError, Refused, ValueError) as error:
                troubles.append(f"{self.endpoints[self._turn]}: {error}")
                self._move_on()
            else:
                return
        raise ConnectionError(f"no member answers a read: {'; '.join(troubles)}")

    def _range(self, key: str) -> dict[str, Any]:
        request: dict[str, Any] = {"key": encoded(key)}
        return {**request, "serializable": True} if self._serializable else request

    def _change(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        """Raises `Refused` for a change that will certainly never be applied; other exceptions leave it open."""
        try:
            return self._ask(path, request)
        except GatewayError as error:
            if error.message in _NEVER_APPLIED:
                raise Refused(str(error)) from error
            raise

    def _ask(self, path: str, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        return self._connection().ask(path, request, self.timeout_s if timeout_s is None else timeout_s)

    def _connection(self) -> Gateway:
        """The connection to the current member, or to the next one that accepts a connection. Raises `Refused`."""
        if self._gateway is not None and self._gateway.is_open:
            return self._gateway
        self.close()
        troubles = []
        for _ in self.endpoints:
            address, _, port = self.endpoints[self._turn].rpartition(":")
            try:
                self._gateway = Gateway(address, int(port), self.timeout_s * _CONNECT_SHARE)
            except NotConnectedError as error:
                troubles.append(str(error))
                self._move_on()
            else:
                self.endpoint = self.endpoints[self._turn]
                return self._gateway
        raise Refused("; ".join(troubles))

    def _move_on(self) -> None:
        self.close()
        self.endpoint = ""
        self._turn = (self._turn + 1) % len(self.endpoints)


def _number(content: bytes) -> int:
    """The number in a value's bytes, as `_put` writes it; `NOT_A_VALUE` for other bytes."""
    try:
        number = int(content)
    except ValueError:
        return NOT_A_VALUE
    return number if str(number).encode() == content else NOT_A_VALUE


def _put(key: str, value: int) -> dict[str, Any]:
    return {"key": encoded(key), "value": encoded(str(value))}
