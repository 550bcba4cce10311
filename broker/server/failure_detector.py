"""How the controller learns of a dead broker before its session runs out.

Theory of operation. A broker sends its heartbeats over one connection, and three signs may follow on it:

- **An end in order (FIN).** The kernel of the broker's host closed the connection because the process closed it or is
  gone. A broker gives its lease up before it closes this connection itself (`server.lease`, `server.client`). So in
  either case no lease is left, and the controller fences the broker at once. A firewall cannot cause this sign: it
  drops packets or answers them with resets. The assumption is that no proxy between broker and controller ends
  connections in the name of a living broker.
- **A reset, or the loss of the connection in any other way.** A firewall that rejects packets causes it, too. The
  controller connects to the broker's listener. If the connection is refused, the broker looks dead: the controller
  waits until the broker's lease has ended (`controller.sessions`), and no longer. The kernel also resets the
  connection of a killed process that had not read all its input.
- **Nothing** (power loss, a partition, a suspended process): the session must run out.

With `s` the session, `l` the lease and `h` the time between heartbeats, another broker leads after a kill two commits
of the metadata quorum later; after a refused connection between 11/9 `l` - `h` and 11/9 `l`, after silence between
`s` - `h` and `s`, plus these two commits.
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
        """Connections to this registration of a broker are refused."""
        ...

    def broker_ended(self, broker_id: int, broker_epoch: int) -> None:
        """The process of this registration of a broker is gone, and its lease with it."""
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
        self._heard_over: dict[int, tuple[Connection, int]] = {}  # with the broker epoch of the latest heartbeat
        self._probes: dict[int, asyncio.Task[None]] = {}

    def heard(self, request: BrokerHeartbeatRequest, connection: Connection) -> None:
        """A heartbeat came over this connection, whose end is watched from now on."""
        broker_id = request.broker_id
        if broker_id not in self._image().brokers:
            return
        before, _ = self._heard_over.get(broker_id, (None, -1))
        self._heard_over[broker_id] = connection, request.broker_epoch
        if before is connection:
            return
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(lambda _: self._lost(broker_id, connection))
        connection.cancel_when_lost(lost)

    def probe_all(self) -> None:
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
        latest, broker_epoch = self._heard_over.get(broker_id, (None, -1))
        if latest is not connection:
            return
        del self._heard_over[broker_id]
        if connection.ended_in_order and self._controller.is_active:
            self._tracer.emit("broker_ended", broker=broker_id, broker_epoch=broker_epoch)
            self._controller.broker_ended(broker_id, broker_epoch)
        else:
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
