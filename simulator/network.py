"""A network of machines whose connections behave like TCP: ordered, with windows, stalling where packets are dropped.

- A cut (one direction of a pair) drops packets silently. What was sent stalls and flows after the cut heals, when the
  sender next retransmits; connecting takes as long as the kernel keeps trying.
- A direction that rejects answers each packet with a reset to its sender: connecting is refused as without a listener,
  and a connection ends at the side that sends or acknowledges in that direction.
- A process that dies has its connections reset. A machine that loses power sends nothing; a peer that still sends to it
  gets a reset once it is back, and a peer that only waits is never notified.
- A direction may have a bandwidth, shared by its connections: their data leaves in sequence.
- Latency comes from the seed, per packet, but bytes never overtake each other within a connection.
- A machine's outgoing packets may be disturbed (`Disturbance`). A connection compensates as TCP does: lost data is sent
  again after pauses that double, duplicates are discarded, and overtaken data is awaited.
- A silent machine (stalled or frozen) neither sends nor receives: to the others it seems cut off.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from simulator.conditions import Conditions
from simulator.host import CURRENT_HOST, HostContext
from simulator.loop import VirtualLoop
from simulator.network_interface import Disturbance, Outlet
from simulator.transport import END, Pipe, SimulatedListener, SimulatedTransport

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
EPHEMERAL = 32_768
LOOPBACK_LATENCY_S = 0.000_02


class SimulatedServer(asyncio.AbstractServer):
    """A listening socket."""

    def __init__(
        self, network: SimulatedNetwork, host: HostContext, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.factory = factory

    def close(self) -> None:
        self._network.close_server(self)

    async def wait_closed(self) -> None:
        """Return at once: closing takes no time."""

    def is_serving(self) -> bool:
        return self._network.listens(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        """Do nothing: a server serves from its creation on."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    @property
    def sockets(self) -> tuple[Any, ...]:
        return ()


class SimulatedNetwork:
    """All machines, listeners and connections. Addresses are names; the port space is per address."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        conditions: Conditions | None = None,
        observe: Callable[[bytes], None] | None = None,
    ) -> None:
        """`observe` gets a line for every arrival, in order."""
        self.loop = loop
        self.conditions = conditions or Conditions()
        self.observe = observe or (lambda _: None)
        self.listener: SimulatedListener | None = None
        self._rng = rng
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._open: dict[int, SimulatedTransport] = {}
        self._cut: set[tuple[str, str]] = set()  # for membership tests only: its order must not matter
        self._rejecting: set[tuple[str, str]] = set()
        self._bandwidth: dict[tuple[str, str], float] = {}
        self._busy_until: dict[tuple[str, str], float] = {}
        self._off: set[str] = set()
        self._silent: set[str] = set()
        self._outlets: dict[str, Outlet] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._stalled: dict[Pipe, float] = {}
        self._context = contextvars.Context()
        self._next_port = EPHEMERAL
        self._numbers = 0
        loop.network = self

    # --- faults

    def cut(self, source: str, target: str) -> None:
        """Drop every packet from address `source` to address `target`, silently."""
        self._cut.add((source, target))
        self._rejecting.discard((source, target))
        self._dropped[source, target] = 0

    @property
    def cuts(self) -> list[tuple[str, str]]:
        """The pairs (source, target) whose packets are dropped or rejected now."""
        return sorted(self._cut | self._rejecting)

    def counts(self, source: str, target: str) -> tuple[int, int]:
        """Packets from one address to another: all, and those dropped since the pair was cut, if it is."""
        return self._seen[source, target], self._dropped[source, target]

    def reject(self, source: str, target: str) -> None:
        """Answer every packet from address `source` to address `target` with a reset, as a firewall can."""
        self._rejecting.add((source, target))
        self._cut.discard((source, target))
        self._dropped[source, target] = 0

    def partition(self, group: list[str], others: list[str], *, reject: bool = False) -> None:
        """Cut every pair between two groups, in both directions."""
        sever = self.reject if reject else self.cut
        for one in group:
            for other in others:
                sever(one, other)
                sever(other, one)

    def limit(self, source: str, target: str, bytes_per_s: float | None) -> None:
        """Give a direction a bandwidth for all its connections together; None: unlimited."""
        if bytes_per_s is None:
            self._bandwidth.pop((source, target), None)
        else:
            self._bandwidth[source, target] = bytes_per_s

    def is_limited(self, source: str, target: str) -> bool:
        """Whether a direction has a bandwidth limit."""
        return (source, target) in self._bandwidth

    def disturb(self, source: str, disturbance: Disturbance | None) -> None:
        """Disturb a machine's packets to all others from now on; None: stop."""
        if disturbance is None:
            self._outlets.pop(source, None)
        elif source in self._outlets:
            self._outlets[source].disturbance = disturbance
        else:
            self._outlets[source] = Outlet(self._rng, disturbance)

    def outlet(self, source: str) -> Outlet | None:
        """The device of a machine whose packets are disturbed, or None."""
        return self._outlets.get(source)

    def silence(self, address: str) -> None:
        """Let a machine neither send nor receive until `awaken`; its connections stay open."""
        self._silent.add(address)

    def awaken(self, address: str) -> None:
        """End the silence of a machine: packets to and from it that were not delivered are sent again."""
        self._silent.discard(address)
        self._retransmit_at(address)

    def reset(self, address: str) -> int:
        """Reset every connection of a machine with others, at both ends; returns how many."""
        broken = [each for each in self._open.values() if each.address == address and each.peer != address]
        for transport in broken:
            transport.reset()
            transport.pipe_out.target.reset()
        return len(broken)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Heal one cut, or all. Stalled connections continue when their senders retransmit; a few are reset."""
        if source is not None and target is not None:
            self._cut.discard((source, target))
            self._rejecting.discard((source, target))
            self._dropped[source, target] = 0
        else:
            self._cut.clear()
            self._rejecting.clear()
            self._dropped.clear()
        for pipe in list(self._stalled):
            if self.passes(pipe.source.address, pipe.target.address):
                since = self._stalled.pop(pipe)
                if self._rng.random() < self.conditions.reset_after_partition:
                    pipe.source.reset()
                    pipe.target.reset()
                else:
                    self._retransmit(pipe, since)

    def process_died(self, host: HostContext) -> None:
        """Close what a process had open, as the kernel does: listeners vanish, peers get a reset or an orderly end."""
        self._forget_servers(host)
        for transport in self._of(host):
            in_order = self.conditions.deaths_end_in_order and not transport.has_unread
            transport.vanish()
            if in_order:
                transport.pipe_out.send(END)
            else:
                self.send_reset(transport.address, transport.pipe_out)

    def power_lost(self, host: HostContext | None, address: str) -> None:
        """Until `power_restored` a machine sends nothing, and nothing answers at its address."""
        self._off.add(address)
        if host is not None:
            self._forget_servers(host)
            for transport in self._of(host):
                transport.vanish()
                transport.pipe_out.drop()

    def power_restored(self, address: str) -> None:
        """The machine answers again; senders that still retransmit to its old connections get a reset."""
        self._off.discard(address)
        self._retransmit_at(address)

    def _retransmit_at(self, address: str) -> None:
        for pipe in list(self._stalled):
            source, target = pipe.source.address, pipe.target.address
            if address in (source, target) and self.passes(source, target):
                self._retransmit(pipe, self._stalled.pop(pipe))

    def passes(self, source: str, target: str) -> bool:
        """Whether packets pass now."""
        return (
            (source, target) not in self._cut
            and source not in self._off
            and target not in self._off
            and (source, target) not in self._rejecting
            and not (self._silent and (source in self._silent or target in self._silent))
        )

    def rejects(self, source: str, target: str) -> bool:
        """Whether a packet sent now is answered with a reset in transit."""
        rejecting = (source, target) in self._rejecting and (source, target) not in self._cut
        return rejecting and source not in self._off and source not in self._silent

    def count(self, source: str, target: str) -> None:
        """Count a packet that is sent now: a datagram, or one of a connection."""
        if source not in self._off and source not in self._silent:
            self._seen[source, target] += 1
            pair = (source, target)
            self._dropped[pair] += pair in self._cut or pair in self._rejecting

    # --- asyncio's calls

    def create_server(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimulatedServer:
        current = self._current()
        if host not in (current.address, "0.0.0.0"):
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        if (current.address, port) in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._servers[current.address, port] = SimulatedServer(self, current, port, factory)
        return server

    async def create_connection(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        current = self._current()
        started = self.loop.now
        self._next_port += 1
        local = (current.address, self._next_port)
        while True:
            await asyncio.sleep(self.latency(current.address, host))
            self.count(current.address, host)
            if self.rejects(current.address, host):
                raise _refused(host, port)
            if host in self._off:
                await asyncio.sleep(self.conditions.unreachable_after_s)
                if host in self._off:
                    raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
            elif self._answers(current.address, host):
                break
            retry = self._next_retransmission(started, first=1.0)
            give_up = started + self.conditions.handshake_timeout_s
            await asyncio.sleep(min(retry, give_up) - self.loop.now)
            if retry > give_up:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        server = self._servers.get((host, port))
        if server is None:
            await asyncio.sleep(self.latency(current.address, host))
            raise _refused(host, port)
        return await self._establish(factory, current, local, server, (host, port))

    def _answers(self, source: str, target: str) -> bool:
        """Whether a packet sent now, and its answer, both pass."""
        passes = self.passes(source, target) and self.passes(target, source)
        return passes and not self._loses(source, target) and not self._loses(target, source)

    async def round_trip(self, source: str, target: str, timeout_s: float) -> float | None:
        """The seconds that a packet and its answer take, with retries as in connecting; None: no answer in time."""
        started = self.loop.now
        while True:
            await self._pause(self.latency(source, target))
            self.count(source, target)
            if self._answers(source, target):
                await self._pause(self.latency(target, source))
                return self.loop.now - started
            retry = self._next_retransmission(started, first=1.0)
            if retry > started + timeout_s:
                await self._pause(started + timeout_s - self.loop.now)
                return None
            await self._pause(retry - self.loop.now)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def burst(self, source: str, target: str, count: int) -> list[tuple[float, int]]:
        """Send `count` datagrams at once; for each that arrives (seconds from now, its number), by time."""
        arrived: list[tuple[float, int]] = []
        for number in range(count):
            self.count(source, target)
            if self.passes(source, target) and not self._loses(source, target):
                outlet = self._outlets.get(source)
                copies = outlet.copies() if outlet is not None else 1
                arrived += [(self.latency(source, target), number) for _ in range(copies)]
        return sorted(arrived)

    def _loses(self, source: str, target: str) -> bool:
        outlet = self._outlets.get(source) if source != target else None
        return outlet is not None and outlet.loses()

    async def _establish(
        self,
        factory: Callable[[], ProtocolT],
        current: HostContext,
        local: tuple[str, int],
        server: SimulatedServer,
        remote: tuple[str, int],
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Both ends of a connection; the server's end is created at once, ours after the return trip."""
        client = SimulatedTransport(self, current, local, remote)
        accepted = SimulatedTransport(self, server.host, remote, local)
        there, back = Pipe(self, client, accepted), Pipe(self, accepted, client)
        client.connect(there)
        accepted.connect(back)
        for transport in (client, accepted):
            self._numbers += 1
            transport.number = self._numbers
            self._open[transport.number] = transport
        self.loop.call_soon(accepted.begin, server.factory, context=server.host.context.copy())
        try:
            await asyncio.sleep(self.latency(local[0], remote[0]))
            protocol = factory()
        except BaseException:
            client.abort()
            raise
        client.attach(protocol)
        return client, protocol

    def is_open(self, address: str, port: int) -> bool:
        """Whether a process listens at this address and port."""
        return (address, port) in self._servers

    # --- for servers, transports and pipes

    def close_server(self, server: SimulatedServer) -> None:
        if self.listens(server):
            del self._servers[server.host.address, server.port]

    def listens(self, server: SimulatedServer) -> bool:
        return self._servers.get((server.host.address, server.port)) is server

    def forget(self, transport: SimulatedTransport) -> None:
        self._open.pop(transport.number, None)

    def at(self, when: float, call: Callable[..., None], *args: object) -> None:
        """Schedule an action of the network, independent of the current host: a packet outlives its sender."""
        self.loop.call_at(when, call, *args, context=self._context)

    def latency(self, source: str, target: str) -> float:
        """The transit time of one packet."""
        if source == target:
            return LOOPBACK_LATENCY_S
        conditions = self.conditions
        spiked = self._rng.random() < conditions.spike_probability
        latency = self._rng.uniform(*(conditions.spike if spiked else conditions.latency))
        outlet = self._outlets.get(source)
        return latency if outlet is None else latency + outlet.lateness()

    def delivery(self, source: str, target: str) -> float:
        """The transit time of a connection's packet, including retransmissions of lost ones."""
        latency, pause = self.latency(source, target), self.conditions.retransmission_s
        while self._loses(source, target):
            latency, pause = latency + pause, min(2 * pause, self.conditions.retransmission_max_s)
        outlet = self._outlets.get(source)
        if outlet is not None and source != target:
            outlet.copies()  # the receiver discards the second copy by its sequence number
        return latency

    def sent(self, source: str, target: str, size: int) -> float:
        """When the last of `size` bytes has left, if they are sent now."""
        now, pair = self.loop.now, (source, target)
        bandwidth = self._bandwidth.get(pair)
        if bandwidth is None:
            return now
        self._busy_until[pair] = max(now, self._busy_until.get(pair, now)) + size / bandwidth
        return self._busy_until[pair]

    def piece_of(self, size: int) -> int:
        """How many of `size` arrived bytes are received in one piece."""
        if size > 1 and self._rng.random() < self.conditions.split_probability:
            return self._rng.randrange(1, size)
        return size

    def stall(self, pipe: Pipe) -> None:
        """A packet did not pass: the sender will retransmit for a long time."""
        self._stalled.setdefault(pipe, self.loop.now)

    def send_reset(self, source: str, pipe: Pipe) -> None:
        """Notify the receiver of a pipe that its connection is gone. A dropped reset is not sent again."""
        delay = self.latency(source, pipe.target.address)
        self.at(self.loop.now + delay, self._reset_arrives, source, pipe.target)

    def _reset_arrives(self, source: str, target: SimulatedTransport) -> None:
        if self.passes(source, target.address):
            target.reset()

    def _retransmit(self, pipe: Pipe, since: float) -> None:
        delay = self.latency(pipe.source.address, pipe.target.address)
        self.at(self._next_retransmission(since) + delay, pipe.arrive)

    def _next_retransmission(self, since: float, first: float | None = None) -> float:
        """When a sender without an acknowledgement since `since` sends again; its pauses double."""
        pause = self.conditions.retransmission_s if first is None else first
        at = since + pause
        while at <= self.loop.now:
            pause = min(2 * pause, self.conditions.retransmission_max_s)
            at += pause
        return at

    def _of(self, host: HostContext) -> list[SimulatedTransport]:
        return [transport for transport in self._open.values() if transport.host is host]

    def _forget_servers(self, host: HostContext) -> None:
        for server in [server for server in self._servers.values() if server.host is host]:
            self.close_server(server)

    @staticmethod
    def _current() -> HostContext:
        host = CURRENT_HOST.get()
        if host is None:
            raise RuntimeError("only a host has an address: run this in a host's context")
        return host


def _refused(host: str, port: int) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('{host}', {port})")
