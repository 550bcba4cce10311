"""The two ends of a simulated connection, and the pipes that carry bytes between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from simulator.conditions import Conditions
from simulator.host import HostContext
from simulator.loop import VirtualLoop

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


class Carrier(Protocol):
    """The network, as connections' ends and pipes use it."""

    conditions: Conditions
    observe: Callable[[bytes], None]
    """Gets a line for everything that is received."""
    listener: SimulatedListener | None

    @property
    def loop(self) -> VirtualLoop: ...

    def passes(self, source: str, target: str) -> bool:
        """Whether packets get through now from one address to another."""
        ...

    def rejects(self, source: str, target: str) -> bool:
        """Whether a packet sent now is answered with a reset in transit."""
        ...

    def count(self, source: str, target: str) -> None:
        """Count a packet that is sent now, delivered or not."""
        ...

    def delivery(self, source: str, target: str) -> float:
        """The seconds that one packet takes, including retransmissions of lost ones."""
        ...

    def sent(self, source: str, target: str, size: int) -> float:
        """When the last of `size` bytes has left, if they are sent now."""
        ...

    def at(self, when: float, call: Callable[..., None], *args: object) -> None:
        """Schedule an arrival; it happens even if the sender dies."""
        ...

    def piece_of(self, size: int) -> int:
        """How many of `size` arrived bytes are received in one piece."""
        ...

    def stall(self, pipe: Pipe) -> None:
        """A packet did not pass: call `pipe.arrive` when it does."""
        ...

    def send_reset(self, source: str, pipe: Pipe) -> None:
        """Notify the receiver of a pipe that its connection is gone."""
        ...

    def forget(self, transport: SimulatedTransport) -> None:
        """Remove this end of a connection."""
        ...


class Pipe:
    """One direction of a connection: bytes in transit, in order, and unread bytes that have arrived."""

    def __init__(self, network: Carrier, source: SimulatedTransport, target: SimulatedTransport) -> None:
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
        taken = False
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
            taken = True
        if not taken:
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

    def __init__(self, network: Carrier, host: HostContext, local: tuple[str, int], remote: tuple[str, int]) -> None:
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
        if self._closing or not data:
            return
        taken = 0
        if not self._unsent:
            taken = min(self.pipe_out.room(), len(data))
            if taken:
                self.pipe_out.send(bytes(data) if taken == len(data) else bytes(memoryview(data)[:taken]))
        if taken < len(data):
            self._unsent.append(bytes(memoryview(data)[taken:]))
            self._unsent_size += len(data) - taken
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
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._finish()

    def abort(self) -> None:
        """Disconnect at once; the peer gets a reset."""
        if self.connected:
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
