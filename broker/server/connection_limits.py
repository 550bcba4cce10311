"""Limits on connections: in total, per address, and places that are reserved for brokers.

Theory of operation. A broker whose places are all taken by clients must stay reachable for the other brokers; otherwise
it would be fenced and could not return. Whether a new connection is a broker's shows only in its first request.
Therefore a few more connections are accepted on probation beyond the limits (`Doorway`). One whose first request only
brokers send may stay; all others are closed at once. The oldest connection on probation makes room for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from broker.protocol.api import ApiKey, decode_request_header
from broker.protocol.codec import DecodeError, decode
from broker.protocol.messages.fetch import FetchRequest, fetching_replica
from broker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from broker.server.connection import Connection, ConnectionHost, Outcome, Rejected
from broker.server.host_decorator import InFront
from broker.server.work_budget import most_entries

KEPT_FOR_BROKERS = 128
"""Connections beyond the limits, of brokers and on probation: about six for each peer."""

PROOF_WITHIN_S = 5.0
"""Time limit for the first request on probation; brokers connect only when they have a request to send."""

BROKERS_ASK = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ENVELOPE,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.GET_REPLICA_LOG_INFO,
)


class Admission:
    """Counts connections. `per_address`: the limits of single addresses, `per_address_default`: of all others."""

    def __init__(self, most: int, per_address_default: int, per_address: Mapping[str, int]) -> None:
        self._most = most
        self._per_address_default = per_address_default
        self._per_address = per_address
        self._clients: dict[Connection, str] = {}
        self._by_address: dict[str, int] = {}
        self._brokers: dict[Connection, None] = {}
        self._on_trial: dict[Connection, None] = {}  # in the order in which they connected

    def refusal(self, address: str) -> str | None:
        """Why no further client may connect from `address`; None when one may."""
        if len(self._clients) >= self._most:
            return f"more than max.connections={self._most} connections"
        most = self._per_address.get(address, self._per_address_default)
        if self._by_address.get(address, 0) >= most:
            return f"more than max.connections.per.ip={most} connections from {address}"
        return None

    def admit(self, connection: Connection, address: str) -> None:
        """Count a client."""
        self._clients[connection] = address
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def try_out(self, connection: Connection) -> Connection | None:
        """Accept a connection on probation. Returns the connection to close for it, or None; `connection` itself when
        brokers have all the places."""
        leaving = None
        if len(self._brokers) + len(self._on_trial) >= KEPT_FOR_BROKERS:
            leaving = next(iter(self._on_trial), connection)
            self._on_trial.pop(leaving, None)
        if leaving is not connection:
            self._on_trial[connection] = None
        return leaving

    def is_broker(self, connection: Connection) -> None:
        """A connection on probation has sent a broker's request: it stays."""
        del self._on_trial[connection]
        self._brokers[connection] = None

    def on_trial(self, connection: Connection) -> bool:
        return connection in self._on_trial

    def left(self, connection: Connection) -> None:
        """A connection has ended."""
        self._brokers.pop(connection, None)
        self._on_trial.pop(connection, None)
        address = self._clients.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class Doorway(InFront):
    """The host of a connection on probation until its first request shows whether it is a broker's."""

    def __init__(self, inside: ConnectionHost, admission: Admission, reason: str) -> None:
        super().__init__(inside)
        self._admission = admission
        self._reason = reason
        self._shown = False

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Serve a broker. Raises `Rejected` for other peers.

        A peer that must authenticate does so before this, within the same time limit."""
        if not self._shown:
            if not (self._admission.on_trial(connection) and _asks_as_broker(frame)):
                raise Rejected(self._reason)
            self._admission.is_broker(connection)
            self._shown = True
        return self._inside.dispatch(connection, frame)

    def wait_for_proof(self, connection: Connection) -> None:
        """Disconnect the peer if it sends no broker's request in time."""

        def check() -> None:
            if self._admission.on_trial(connection):
                connection.reject(self._reason)

        asyncio.get_running_loop().call_later(PROOF_WITHIN_S, check)


def _asks_as_broker(frame: memoryview) -> bool:
    try:
        header, body = decode_request_header(frame)
        if header.api_key == ApiKey.FETCH:
            fetch, _ = decode(FetchRequest, header.api_version, frame, body, most_entries=most_entries(ApiKey.FETCH))
            return fetching_replica(fetch).replica_id >= 0
        if header.api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
            most = most_entries(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            ask, _ = decode(OffsetForLeaderEpochRequest, header.api_version, frame, body, most_entries=most)
            return ask.replica_id >= 0
    except DecodeError:
        return False
    return header.api_key in BROKERS_ASK
