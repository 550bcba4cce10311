"""How the controller learns of a dead broker before its session runs out.

Theory of operation. A broker sends its heartbeats over one connection, and keeps such a connection to each other voter
of the quorum, too, because each can become the controller. Three signs may follow on it:

- **An end in order (FIN).** The kernel of the broker's host closed the connection because the process is gone: a broker
  that is alive only resets these connections (`server.client`). So no lease is left, whichever controller gave it. The
  controller fences the broker at once. Another voter remembers the end, and fences the broker when it becomes the
  controller. A firewall cannot cause this sign: it drops packets or answers them with resets. The assumption is that no
  proxy between broker and controller ends connections in the name of a living broker.
- **A reset, or the loss of the connection in any other way.** A firewall that rejects packets causes it, too. The
  controller connects to the broker's listener. If the connection is refused, the broker looks dead: the controller
  waits until the broker's lease has ended (`controller.sessions`), and no longer. The kernel also resets the
  connection of a killed process that had not read all its input.
- **Nothing** (power loss, a partition, a suspended process): the session must run out.

With `s` the session, `l` the lease and `h` the time between heartbeats, another broker leads after a kill two commits
of the metadata quorum later; after a refused connection between 11/9 `l` - `h` and 11/9 `l`, after silence between
`s` - `h` and `s`, plus these two commits. If the broker was the controller as well, the election of another controller
comes first; after silence the session counts from the last answer of the quorum's old leader (`controller.active`).
"""

import asyncio
from collections.abc import Callable

from broker.controller.active import ActiveController
from broker.controller.image import MetadataImage
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest
from broker.server.connection import Connection
from broker.trace import Tracer

PROBE_TIMEOUT_S = 0.5


class DeathWatch:
    """Watches the connections that carry heartbeats; acts only while this node is the active controller, and at the
    start of that time on what it has seen before."""

    def __init__(
        self, *, node_id: int, image: Callable[[], MetadataImage], controller: ActiveController, tracer: Tracer
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._controller = controller
        self._tracer = tracer
        self._heard_over: dict[int, tuple[Connection, int]] = {}  # with the broker epoch of the latest heartbeat
        self._ended: dict[int, int] = {}  # by broker the epoch of its last registration whose process is gone
        self._probes: dict[int, asyncio.Task[None]] = {}

    def heard(self, request: BrokerHeartbeatRequest, connection: Connection) -> None:
        """A heartbeat came over this connection, whose end is watched from now on."""
        broker_id = request.broker_id
        if broker_id not in self._image().brokers:
            return
        previous_connection, _ = self._heard_over.get(broker_id, (None, -1))
        self._heard_over[broker_id] = connection, request.broker_epoch
        if previous_connection is connection:
            return
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(lambda _: self._lost(broker_id, connection))
        connection.cancel_when_lost(lost)

    def leads(self) -> None:
        """This node is the controller from now on: report the brokers that have ended, and probe all others, because
        one that died before it could connect has no connection that could close."""
        for broker in list(self._image().brokers.values()):
            if self._ended.get(broker.id) == broker.epoch:
                self._report_end(broker.id, broker.epoch)
            elif broker.id != self._node_id:
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
        if connection.ended_in_order:
            self._ended[broker_id] = broker_epoch
        if connection.ended_in_order and self._controller.is_active:
            self._report_end(broker_id, broker_epoch)
        else:
            self._probe_soon(broker_id)

    def _report_end(self, broker_id: int, broker_epoch: int) -> None:
        self._tracer.emit("broker_ended", broker=broker_id, broker_epoch=broker_epoch)
        self._controller.broker_ended(broker_id, broker_epoch)

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
