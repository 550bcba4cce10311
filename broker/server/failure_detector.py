"""How the controller detects a dead broker before its session expires.

Theory of operation. When a process is killed, its connections close, and its host refuses connections to its listener.
The controller then does not wait for the whole session, but it still waits for the end of the broker's lease: a
firewall that rejects packets between two living brokers looks the same to one of them. A host that does not answer
(power loss, partition, suspended process) refuses no connection: in that case the session must expire.

No observation over the network proves a death. Every sign of it (a reset of the broker's connection, a refused
connection to its listener, an answer of its host at another port) is a packet. A firewall between controller and broker
can send each of these packets in the host's name while clients still reach the broker. A notice that the broker sends
before it ends would be proof, but a killed process sends none. So the lease is the lower bound of every fail-over, and
only a shorter lease makes it faster. With `s` the session, `l` the lease and `h` the heartbeat interval, another broker
leads after a kill between 11/9 `l` - `h` and 11/9 `l` (`sessions`), and after a suspension or a power loss between
`s` - `h` and `s`, each plus two commits of the metadata quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.controller.image import MetadataImage
from broker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from broker.server.connection import Connection
from broker.trace import Tracer

PROBE_TIMEOUT_S = 0.5


class Fencing(Protocol):
    """The part of the controller that fences dead brokers."""

    @property
    def is_active(self) -> bool: ...

    def broker_looks_dead(self, broker_id: int, broker_epoch: int) -> None:
        """Connections to the address of this incarnation of a broker are refused."""
        ...


class DeathWatch:
    """Watches the connections that carry heartbeats; acts only while this node is the active controller."""

    def __init__(
        self, *, node_id: int, image: Callable[[], MetadataImage], controller: Fencing, tracer: Tracer
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._controller = controller
        self._tracer = tracer
        self._heard_over: dict[int, Connection] = {}
        self._probes: dict[int, asyncio.Task[None]] = {}

    def heard(self, request: BrokerHeartbeatRequest, connection: Connection) -> None:
        """A heartbeat was received: when its connection closes, the broker is probed."""
        broker_id = request.broker_id
        if self._heard_over.get(broker_id) is connection or broker_id not in self._image().brokers:
            return
        self._heard_over[broker_id] = connection
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(lambda _: self._lost(broker_id, connection))
        connection.cancel_when_lost(lost)

    def look_at_all(self) -> None:
        """Probe all brokers. A new controller calls this: brokers that died before have no connection that could
        close."""
        for broker in self._image().brokers.values():
            if broker.id != self._node_id:
                self._probe_soon(broker.id)

    def stop(self) -> None:
        """Stop watching and probing."""
        self._heard_over.clear()
        for task in self._probes.values():
            task.cancel()

    def _lost(self, broker_id: int, connection: Connection) -> None:
        if self._heard_over.get(broker_id) is connection:
            del self._heard_over[broker_id]
            self._probe_soon(broker_id)

    def _probe_soon(self, broker_id: int) -> None:
        if broker_id not in self._probes and self._controller.is_active:
            task = asyncio.get_running_loop().create_task(self._probe(broker_id))
            self._probes[broker_id] = task
            task.add_done_callback(lambda _: self._probes.pop(broker_id, None))

    async def _probe(self, broker_id: int) -> None:
        """Report a broker to the controller when connections to its address are refused."""
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                transport, _ = await loop.create_connection(asyncio.Protocol, *broker.endpoints[0].address)
        except ConnectionRefusedError:
            self._tracer.emit("broker_gone", broker=broker.id, broker_epoch=broker.epoch)
            self._controller.broker_looks_dead(broker.id, broker.epoch)
        except OSError:
            return
        else:
            transport.abort()
