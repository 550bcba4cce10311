"""The listeners of a node, each with its dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.listeners import ListenerEndpoint
from broker.server.dispatch import Dispatcher, LocalCalls
from broker.server.listener import Listener, SharedBudget
from broker.server.security import Security
from broker.server.work_budget import Turns
from broker.trace import Tracer


class Door(NamedTuple):
    """A listener and its dispatcher."""

    endpoint: ListenerEndpoint
    dispatcher: Dispatcher
    listener: Listener


class Doors:
    """All listeners of a node. They share the work budget of a turn and the memory budget; each has its own limits.

    The controller listener has its own memory budget: clients' requests must not keep out a vote or a heartbeat.
    """

    def __init__(
        self,
        config: BrokerConfig,
        tracer: Tracer,
        on_disk_failure: Callable[[OSError], None],
        *,
        security: Security,
        descriptors: int | None = None,
    ) -> None:
        """`descriptors`: how many this process may have open; None: unlimited."""
        self._config = config
        self._tracer = tracer
        self._on_disk_failure = on_disk_failure
        self._descriptors = descriptors
        self._security = security
        budget = SharedBudget.for_requests_of(config.socket_request_max_bytes)
        self.turns = Turns()
        self.local = LocalCalls()
        self.for_brokers = [self._door(endpoint, budget) for endpoint in config.broker_listeners]
        endpoint, budget = config.controller_listener, SharedBudget.for_requests_of(config.socket_request_max_bytes, 0)
        self.for_controllers = None if endpoint is None else self._door(endpoint, budget)
        self._behind_no_door = self._dispatcher()

    @property
    def of_controllers(self) -> Dispatcher:
        """The dispatcher of the controller APIs; without a controller listener only this node uses it, locally."""
        return self._behind_no_door if self.for_controllers is None else self.for_controllers.dispatcher

    @property
    def connections(self) -> int:
        """The number of connected peers, at all listeners."""
        return sum(door.listener.connections for door in self._all)

    @property
    def _all(self) -> list[Door]:
        return self.for_brokers + ([] if self.for_controllers is None else [self.for_controllers])

    async def open(self) -> None:
        """Start listening. Raises `StartupError` when an address cannot be used."""
        for door in self._all:
            await door.listener.start(*door.endpoint.address)

    async def close(self) -> None:
        """Stop accepting, and close every connection after its queued data has been sent."""
        for door in self._all:
            await door.listener.stop()

    def abort(self) -> None:
        """Stop accepting, and drop every connection with its queued data."""
        for door in self._all:
            door.listener.abort()

    def rules_changed(self) -> None:
        """Drop cached authorization: the next request of every connection is checked again."""
        for door in self._all:
            door.listener.forget_shortcuts()

    def abandon_requests(self) -> None:
        """Cancel the requests that are still under way."""
        for door in self._all:
            door.dispatcher.stop()

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._tracer, self._on_disk_failure, turns=self.turns, local=self.local, guard=self._security.guard
        )

    def _door(self, endpoint: ListenerEndpoint, budget: SharedBudget) -> Door:
        config, dispatcher = self._config, self._dispatcher()
        listener = Listener(
            dispatcher,
            self._tracer,
            request_max_bytes=config.socket_request_max_bytes,
            max_connections=config.max_connections,
            max_queued=config.queued_max_requests,
            max_connections_per_ip=config.max_connections_per_ip,
            max_connections_per_ip_overrides=config.connections_by_ip,
            max_idle=config.max_idle_s,
            descriptors=self._descriptors,
            budget=budget,
            tls=self._security.server_tls if endpoint.protocol.encrypts else None,
            entrance=self._security.entrance(endpoint),
        )
        return Door(endpoint, dispatcher, listener)
