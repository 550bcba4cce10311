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
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from simulator.conditions import Conditions
from simulator.host import CURRENT_HOST, HostContext
from simulator.loop import VirtualLoop
from simulator.network_interface import Disturbance, Outlet

# ---- The two ends of a simulated connection, and the pipes that carry bytes between them.

Buffer = bytes | bytearray | memoryview
HIGH_WATER = 64 * 1024
READ_SIZE = 256 * 1024
END = b""  # received when the other end has closed: no more bytes


class SimulatedListener(Protocol):
    """Observes the bytes in pipes without changing them."""

    def sent(self, pipe: Pipe, data: bytes) -> None:
        """Bytes were sent."""
        ...

    def arrived(self, pipe: Pipe, size: int) -> None:
        """`size` bytes have arrived at the other end's kernel."""
        ...


class Pipe:
    """One direction of a connection: bytes in transit, in order, and unread bytes that have arrived."""

    def __init__(self, network: SimulatedNetwork, source: SimulatedTransport, target: SimulatedTransport) -> None:
        self.source = source
        self.target = target
        self._network = network
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._arrived: deque[bytes] = deque()
        self._outstanding = 0  # bytes that were sent and not yet read
        self._unacknowledged = 0
        self._last_arrival = 0.0
        self._sent_at = -1.0

    def room(self) -> int:
        """The free window: how many bytes may be sent before the receiver reads."""
        return max(0, self._network.conditions.window - self._outstanding)

    def send(self, data: bytes) -> None:
        """Send bytes; `END` after the last. Bytes sent at one moment travel together."""
        now = self._network.loop.now
        source, target = self.source.address, self.target.address
        self._outstanding += len(data)
        if self._network.listener is not None:
            self._network.listener.sent(self, data)
        departs_at = self._network.sent(source, target, len(data))
        if departs_at == now and self._sent_at == now and self._under_way and data and self._under_way[-1][1]:
            at, earlier = self._under_way[-1]
            self._under_way[-1] = (at, earlier + data)
            return
        at = max(self._last_arrival, departs_at + self._network.delivery(source, target))
        self._last_arrival, self._sent_at = at, now
        self._under_way.append((at, data))
        self._network.at(at, self.arrive)

    def arrive(self) -> None:
        """Receive what is due by now, or stall if packets do not pass."""
        network, now = self._network, self._network.loop.now
        source, target = self.source.address, self.target.address
        has_data = False
        if self._under_way and self._under_way[0][0] <= now and network.rejects(source, target):
            self._under_way.clear()
            self.source.reset()
            return
        while self._under_way and self._under_way[0][0] <= now:
            network.count(source, target)
            acknowledged = network.passes(target, source)
            excess = self._unacknowledged > network.conditions.unacknowledged
            if not network.passes(source, target) or (not acknowledged and excess):
                network.stall(self)
                return
            data = self._under_way.popleft()[1]
            self._unacknowledged = 0 if acknowledged else self._unacknowledged + len(data)
            self._arrived.append(data)
            if network.listener is not None:
                network.listener.arrived(self, len(data))
            has_data = True
        if not has_data:
            return
        if not self.target.connected:
            # The process is gone: the kernel answers with a reset.
            self._arrived.clear()
            network.send_reset(target, self.target.pipe_out)
        elif network.rejects(target, source):
            self.target.reset()  # by what answers its acknowledgement
        else:
            self.target.wake()

    def take(self) -> bytes | None:
        """The next arrived bytes; `END` at the end, None if no bytes have arrived."""
        if not self._arrived:
            return None
        data = self._arrived.popleft()
        size = min(READ_SIZE, self._network.piece_of(len(data)))
        if size < len(data):
            self._arrived.appendleft(data[size:])
            data = data[:size]
        return data

    def put_back(self, data: bytes) -> None:
        """Put back a part of the bytes taken last; it still occupies the window."""
        self._arrived.appendleft(data)
        self._outstanding += len(data)

    @property
    def waits(self) -> bool:
        """Whether unread bytes have arrived."""
        return bool(self._arrived)

    def read(self, size: int) -> None:
        """The receiver has read `size` bytes, which frees the window."""
        self._outstanding -= size
        self.source.continue_writing()

    def drop(self) -> None:
        """Discard the bytes in transit: the sender's machine is gone and will not retransmit."""
        self._under_way.clear()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection, as asyncio's transports behave."""

    def __init__(
        self, network: SimulatedNetwork, host: HostContext, local: tuple[str, int], remote: tuple[str, int]
    ) -> None:
        super().__init__()
        self.host = host
        self.address = local[0]
        self.peer = remote[0]
        self.number = 0
        self.connected = True
        """Whether this end still exists in the kernel."""
        self.pipe_out: Pipe
        self._network = network
        self._loop = network.loop
        self._context = host.context.copy()
        self._extra_info = {"peername": remote, "sockname": local}
        self._protocol: asyncio.BaseProtocol | None = None
        self._unsent: deque[bytes] = deque()
        self._unsent_size = 0
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._write_paused = False
        self._reading = True
        self._reading_scheduled = False
        self._closing = False
        self._ended = False
        self._pipe_in: Pipe

    # --- life

    def connect(self, out: Pipe) -> None:
        """Set the outgoing pipe; called once for each end, before anything is sent."""
        self.pipe_out = out
        out.target._pipe_in = out

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """On the server's side: make the protocol, as accepting a connection does."""
        if self.connected:
            self.attach(factory())

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Give this end its protocol; in the context of its host."""
        self._protocol = protocol
        if not self.connected:
            self._loop.call_soon(self._lost, ConnectionResetError("Connection reset by peer"), context=self._context)
        protocol.connection_made(self)
        self.wake()

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that the process has not read."""
        return self._pipe_in.waits

    def vanish(self) -> None:
        """The process or the machine is gone: no callback runs any more."""
        self.connected = False
        self._protocol = None
        self._unsent.clear()
        self._network.forget(self)

    def reset(self) -> None:
        """The peer's kernel has reset the connection."""
        if self.connected:
            self._disconnect(ConnectionResetError("Connection reset by peer"))

    def _disconnect(self, reason: Exception | None) -> None:
        self.connected = False
        self._closing = True
        self._unsent.clear()
        self._unsent_size = 0
        self._network.forget(self)
        if self._protocol is not None:
            self._loop.call_soon(self._lost, reason, context=self._context)

    def _lost(self, reason: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(reason)

    # --- writing

    def write(self, data: Buffer) -> None:
        if self._closing or not data or not self.host.alive:  # a process that has crashed unwinds
            return
        count = 0
        if not self._unsent:
            count = min(self.pipe_out.room(), len(data))
            if count:
                self.pipe_out.send(bytes(data) if count == len(data) else bytes(memoryview(data)[:count]))
        if count < len(data):
            self._unsent.append(bytes(memoryview(data)[count:]))
            self._unsent_size += len(data) - count
            self._pause_writing_if_full()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def room(self) -> int:
        """How many bytes `write` would send immediately."""
        return 0 if self._unsent or self._closing else self.pipe_out.room()

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), which must not be negative")
        self._high, self._low = high, low
        self._pause_writing_if_full()

    def continue_writing(self) -> None:
        """The receiver has read: send buffered bytes."""
        while self._unsent and (room := self.pipe_out.room()):
            data = self._unsent.popleft()
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self._unsent_size -= len(data)
            self.pipe_out.send(data)
        if self._write_paused and self._unsent_size <= self._low:
            self._write_paused = False
            self._loop.call_soon(self._resume_writing, context=self._context)
        if self._closing and not self._unsent and self.connected:
            self._finish()

    def _pause_writing_if_full(self) -> None:
        if not self._write_paused and self._unsent_size > self._high and self._protocol is not None:
            self._write_paused = True
            self._guarded(self._protocol.pause_writing)

    def _resume_writing(self) -> None:
        if self._protocol is not None and not self._write_paused:
            self._guarded(self._protocol.resume_writing)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send buffered bytes, then disconnect."""
        if self._closing or not self.host.alive:
            return
        self._closing = True
        if not self._unsent:
            self._finish()

    def abort(self) -> None:
        """Disconnect at once; the peer gets a reset."""
        if self.connected and self.host.alive:
            self._network.send_reset(self.address, self.pipe_out)
            self._disconnect(None)

    def _finish(self) -> None:
        self.pipe_out.send(END)
        self._disconnect(None)

    # --- reading

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.wake()

    def wake(self) -> None:
        """Schedule a read: bytes may have arrived."""
        if self._protocol is not None and self._reading and not self._closing and not self._reading_scheduled:
            self._reading_scheduled = True
            self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        """Read once per loop iteration, as a selector event loop does."""
        self._reading_scheduled = False
        if self._protocol is None or not self._reading or self._closing or self._ended:
            return
        data = self._pipe_in.take()
        if data is None:
            return
        self._network.observe(b"%r %s<%s " % (self._network.loop.now, self._name, self._peer) + data)
        if not data:
            self._ended = True
            self._guarded(self._end_received)
            return
        self._guarded(lambda: self._receive(data))
        self._pipe_in.read(len(data))
        if self._pipe_in.waits:
            self.wake()

    def _receive(self, data: bytes) -> None:
        """Pass bytes to the protocol; once it has paused, the rest stays unread as in a socket."""
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and self._protocol is not None and not self._closing:
                if not self._reading:
                    self._pipe_in.put_back(bytes(view))
                    return
                space = memoryview(protocol.get_buffer(-1))
                size = min(len(space), len(view))
                if not size:
                    raise RuntimeError("get_buffer() returned an empty buffer")
                space[:size] = view[:size]
                view = view[size:]
                protocol.buffer_updated(size)
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)

    def _end_received(self) -> None:
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not self._protocol.eof_received():
            self.close()

    def _guarded(self, call: Callable[[], object]) -> None:
        """An exception of the protocol ends its connection, as in asyncio."""
        try:
            call()
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "a protocol's callback failed", "exception": error, "transport": self}
            )
            self.abort()

    # --- the rest of asyncio's interface

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra_info.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self.wake()

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "the connection is lost"
        return self._protocol

    @property
    def _name(self) -> bytes:
        return self.host.name.encode()

    @property
    def _peer(self) -> bytes:
        return b"%s:%d" % (self._extra_info["peername"][0].encode(), self._extra_info["peername"][1])


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

    def partition(self, group: list[str], other_group: list[str], *, reject: bool = False) -> None:
        """Cut every pair between two groups, in both directions."""
        sever = self.reject if reject else self.cut
        for address in group:
            for peer in other_group:
                sever(address, peer)
                sever(peer, address)

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
        broken = [end for end in self._open.values() if end.address == address and end.peer != address]
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
            retry = self._next_retransmission(started, first_pause=1.0)
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
            retry = self._next_retransmission(started, first_pause=1.0)
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
        outbound, back = Pipe(self, client, accepted), Pipe(self, accepted, client)
        client.connect(outbound)
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

    def at(self, moment: float, call: Callable[..., None], *args: object) -> None:
        """Schedule an action of the network, independent of the current host: a packet outlives its sender."""
        self.loop.call_at(moment, call, *args, context=self._context)

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

    def _next_retransmission(self, since: float, first_pause: float | None = None) -> float:
        """When a sender without an acknowledgement since `since` sends again; its pauses double."""
        pause = self.conditions.retransmission_s if first_pause is None else first_pause
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
