"""One connection of a client: frames in, responses out in the order of their requests, bounded in both directions.

Invariants:
- responses leave strictly in the order in which their requests came, however long each takes;
- a frame's memory is valid only while `dispatch` runs: whoever answers later keeps nothing that points into it, or
  keeps it (`keep_frame`);
- at most `max_queued` requests are under way, and past `OUTPUT_HIGH` bytes of answers that are not sent yet, for
  whatever reason, no further one is begun; past either bound the connection stops reading, so that a peer that does not
  read its answers costs a bounded amount of memory;
- a peer that breaks the protocol loses its connection and nothing else happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from broker.log.log import Slice
from broker.security.principals import ANONYMOUS
from broker.server.frames import FrameBuffer, FrameError, MemoryBudget
from broker.server.reply import Part, Reply

OUTPUT_HIGH = 4 << 20  # bytes held in memory for a peer that does not read
COPIED_WHEN_FULL = 1 << 16  # bytes of a file that are copied to learn when the socket takes more
SMALLEST_REQUEST = 8  # bytes: api key, version, correlation id


class Rejected(Exception):  # noqa: N818 - what happened to the connection, not a defect
    """The peer broke the protocol; the connection is closed. The message says how."""


class NotReady(Exception):  # noqa: N818 - the peer did nothing wrong
    """This broker cannot answer yet; the connection is closed, so that the client asks another."""


class Slot:
    """The place of one response in its connection's order, filled when the answer is there."""

    __slots__ = ("blocking", "connection", "parts")

    def __init__(self, connection: Connection, *, blocking: bool) -> None:
        self.connection = connection
        self.blocking = blocking
        self.parts: Reply | None = None

    def fill(self, parts: Reply) -> None:
        """The answer (an empty one: nothing is sent). Call it once; after the connection is gone it does nothing."""
        self.parts = parts
        self.connection.slot_filled(self)


Outcome = bytes | Reply | Slot | None
"""What dispatching one frame gives: a whole response, the slot that will hold it, or None for no response at all."""


class Shortcut(Protocol):
    """A handler that knows a connection's previous request and serves those that are like it, many at once."""

    def take(self, frame: memoryview) -> bool:
        """Gather a request that is of the known kind, its memory valid until `finish`; false when it is not."""
        ...

    def take_alike(self, unread: memoryview) -> int:
        """Gather the whole frames at the front of what has come, their lengths in front of each, that are as long as
        the last one that was taken and like it; how many bytes these are."""
        ...

    def finish(self) -> Outcome:
        """Serve what was gathered: one outcome for all of it, in order. None when nothing was."""
        ...


class ConnectionHost(Protocol):
    """What a connection needs of the listener that accepted it."""

    budget: MemoryBudget
    request_max_bytes: int
    max_queued: int

    def opened(self, connection: Connection) -> ConnectionHost | None:
        """A peer has connected: who serves it from here on; None when there are too many already."""
        ...

    def closed(self, connection: Connection) -> None: ...

    def rejected(self, connection: Connection, reason: str) -> None:
        """The peer broke the protocol and is being disconnected."""
        ...

    @property
    def turn_is_over(self) -> bool:
        """Whether enough has been done in this turn of the loop."""
        ...

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Answer one request. Raises `Rejected` when the peer has to go."""
        ...

    def finish(self, shortcut: Shortcut) -> Outcome:
        """Answer the requests that a shortcut has gathered. Raises `Rejected` when the peer has to go."""
        ...


def shown_address(address: object) -> str:
    """Who is at the other end of a socket, for people."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


class Connection(asyncio.BufferedProtocol):
    """The server's end of a connection."""

    def __init__(self, host: ConnectionHost) -> None:
        self.peer = "?"
        self.address = "?"  # the peer's, without its port
        self.principal = ANONYMOUS
        self.quiet_for = 0  # looks of the listener since bytes came or were taken
        self.shortcut: Shortcut | None = None
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._encrypted = False
        self._input = FrameBuffer(host.request_max_bytes, host.budget, SMALLEST_REQUEST)
        self._slots: deque[Slot] = deque()
        self._output: deque[Part] = deque()
        self._output_bytes = 0  # of all answers that are there: in slots, in `_output`, and on their way from one to it
        self._write_paused = False
        self._reading = True
        self._resting = False
        self._processing = False  # answers that are to be sent first may not have been yet
        self._flush_scheduled = False
        self._on_lost: dict[asyncio.Future[Any], None] = {}  # in the order in which they came

    # --- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        name = transport.get_extra_info("peername")
        self.peer = shown_address(name)
        self.address = str(name[0]) if isinstance(name, tuple) else str(name)
        self._transport = transport
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        # With no buffer of its own the transport says at once when the socket is full, and a file can follow bytes. One
        # that encrypts must have some: at zero it would never say that it takes more.
        transport.set_write_buffer_limits(high=int(self._encrypted))
        host = self._host.opened(self)
        if host is None:
            transport.abort()
            return
        self.served_by(host)
        try:
            self._input.make_room()
        except FrameError as error:
            self.reject(str(error))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._input.space()

    def buffer_updated(self, nbytes: int) -> None:
        self.quiet_for = 0
        self._input.received(nbytes)
        self._process()

    def eof_received(self) -> bool:
        return False  # close; a client that shuts down its sending side has no use for answers

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self.quiet_for = 0  # the peer has taken something
        self._write_paused = False
        self._pump()
        self._continue_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._slots.clear()
        self._output.clear()
        self._output_bytes = 0
        self._input.close()
        for future in list(self._on_lost):
            future.cancel()
        self._host.closed(self)

    # --- for handlers

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def is_idle(self) -> bool:
        """Nothing received in part, nothing under way, nothing to send."""
        return not (self._slots or self._output or self._input.pending)

    @property
    def owes_an_answer(self) -> bool:
        """Whether the peer has asked something and waits for this broker."""
        return bool(self._slots)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """What the peer has shown of itself, as `ssl.SSLSocket.getpeercert` gives it; None when it has not."""
        return None if self._transport is None else self._transport.get_extra_info("peercert") or None

    @property
    def descriptor(self) -> int:
        """The number that the system has for the socket; -1 where there is none."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    def reserve(self, *, blocking: bool) -> Slot:
        """A slot for an answer that comes later. `blocking`: no further request is begun before it is filled."""
        return Slot(self, blocking=blocking)

    def cancel_when_lost(self, future: asyncio.Future[Any]) -> None:
        """Cancel `future` when the peer goes away: for waiting that only serves the answer."""
        if self._transport is None:
            future.cancel()
            return
        self._on_lost[future] = None
        future.add_done_callback(self._on_lost.pop)

    def slot_filled(self, slot: Slot) -> None:
        """An answer is there; what completes in one turn of the loop is sent in one write.

        The only one that is waited for is sent at once: nothing else can complete, and its peer may be the follower for
        which a producer waits."""
        if self._transport is None:
            return
        self._output_bytes += _held(slot.parts or ())
        if self._flush_scheduled or not self._slots:
            return
        is_next = slot is self._slots[0]
        if is_next and len(self._slots) == 1 and self._reading and not self._processing:
            self._slots.popleft()
            self._send(slot.parts or ())
        elif is_next or slot.blocking:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def served_by(self, host: ConnectionHost) -> None:
        """Further requests go to `host`, and may be as large as it says."""
        self._host = host
        self._input.limit(SMALLEST_REQUEST, host.request_max_bytes)

    def expect_tokens(self) -> None:
        """The next frames are no requests, and may be empty, until somebody else serves them."""
        self._input.limit(0, self._host.request_max_bytes)

    def keep_frame(self) -> Callable[[], None]:
        """Keep the memory of the frame that is being dispatched until the function that is returned is called.

        Raises `Rejected` when there is no memory for what comes next."""
        try:
            return self._input.lend()
        except FrameError as error:
            raise Rejected(str(error)) from error

    def release_memory(self) -> None:
        """Shrink the receive buffer when it is not in use."""
        if self.is_idle:
            self._input.release_memory()

    def end_idle(self) -> None:
        """Close; at once where the peer does not take what is sent to it, or it would not be closed ever."""
        if self._output or self._write_paused:
            self.abort()
        else:
            self.close()

    def close(self) -> None:
        """Close once what is to be sent has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what waited to be sent is not sent."""
        if self._transport is not None:
            self._transport.abort()

    def reject(self, reason: str) -> None:
        """Disconnect a peer that broke the protocol."""
        if self._transport is not None:
            self._host.rejected(self, reason)
            self.abort()

    # --- requests

    def _process(self) -> None:
        """Begin every request that has arrived whole, within the bounds, and send what is answered at once."""
        answered: list[Part] = []
        gathered: Shortcut | None = None
        self._processing = True
        try:
            is_full = self._is_full()  # only what is placed can change it
            while not is_full:
                shortcut = self.shortcut
                if shortcut is not None and (taken := shortcut.take_alike(self._input.unread)):
                    self._input.skip(taken)
                    gathered = shortcut
                if (frame := self._input.next_frame()) is None:
                    break
                if shortcut is not None and shortcut.take(frame):
                    gathered = shortcut
                    continue
                if gathered is not None:
                    self._place(self._host.finish(gathered), answered)
                    gathered = None
                    if self.shortcut is not None and self.shortcut.take(frame):  # it was too much with the others only
                        gathered = self.shortcut
                if gathered is None:
                    self._place(self._host.dispatch(self, frame), answered)
                # Looked at only now: whoever else is busy, each connection begins one request in a turn.
                if self._host.turn_is_over and self._input.pending:
                    self._rest()
                    break
                is_full = self._is_full()
            if gathered is not None:
                self._place(self._host.finish(gathered), answered)
            if answered:
                self._send(answered)
                if is_full and not self._is_full():
                    self._rest()  # the socket has taken it: requests that have come whole are begun in the next turn
            self._input.make_room()
        except (FrameError, Rejected) as error:
            self._send(answered)
            self.reject(str(error))
            return
        finally:
            self._processing = False
        self._pause_if_full()

    def _place(self, outcome: Outcome, answered: list[Part]) -> None:
        """Put an outcome into the order: to what is sent at once if nothing is waited for, else into a slot."""
        if isinstance(outcome, Slot):
            if outcome.parts is None or self._slots:
                self._slots.append(outcome)
                return
            outcome = outcome.parts  # filled already, and counted then
        elif isinstance(outcome, bytes):
            self._output_bytes += len(outcome)
        elif outcome is not None:
            self._output_bytes += _held(outcome)
        if outcome is None:
            return
        if self._slots:
            slot = Slot(self, blocking=False)
            slot.parts = [outcome] if isinstance(outcome, bytes) else outcome
            self._slots.append(slot)
        elif isinstance(outcome, bytes):
            answered.append(outcome)
        else:
            answered += outcome

    def _is_full(self) -> bool:
        slots = self._slots
        if slots and ((slots[-1].blocking and slots[-1].parts is None) or len(slots) >= self._host.max_queued):
            return True
        return self._output_bytes > OUTPUT_HIGH or len(self._output) > self._host.max_queued

    def _pause_if_full(self) -> None:
        """Stop reading when more has come than may be begun; a peer that waits for its answers never gets here."""
        if self._reading and self._transport is not None and self._input.pending and self._is_full():
            self._reading = False
            self._transport.pause_reading()

    def _rest(self) -> None:
        """Begin no further request in this turn of the loop, and go on in the next."""
        if self._transport is None or self._resting:
            return
        self._resting = True
        if self._reading:
            self._reading = False
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._continue_reading()

    def _continue_reading(self) -> None:
        """Take up reading when the bounds allow it again, beginning with what was received before."""
        if self._reading or self._resting or self._transport is None or self._is_full():
            return
        self._process()
        if self._transport is None or self._transport.is_closing() or self._resting or self._is_full():
            return
        self._reading = True
        self._transport.resume_reading()

    # --- responses

    def _flush(self) -> None:
        """Send the answers at the head of the order."""
        self._flush_scheduled = False
        slots = self._slots
        answered: list[Part] = []
        while slots and slots[0].parts is not None:
            answered += slots.popleft().parts or ()
        if answered:
            self._send(answered)
        self._continue_reading()

    def _send(self, parts: Sequence[Part]) -> None:
        self._output += parts
        self._pump()

    def _pump(self) -> None:
        """Hand over as much as the socket takes; the rest waits for `resume_writing`."""
        output = self._output
        while output and not self._write_paused:
            transport = self._transport
            if transport is None or transport.is_closing():
                return
            part = output[0]
            if isinstance(part, Slice):
                try:
                    self._send_slice(transport, part)
                except OSError as error:
                    self.reject(f"cannot send from {part.file.path}: {error}")
                    return
            else:
                transport.write(self._take_bytes())

    def _take_bytes(self) -> bytes | bytearray | memoryview:
        """All bytes up to the next slice of a file, as one buffer."""
        output = self._output
        run = [output.popleft()]
        while output and not isinstance(output[0], Slice):
            run.append(output.popleft())
        data = run[0] if len(run) == 1 else b"".join(run)  # type: ignore[arg-type]
        assert not isinstance(data, Slice)
        self._output_bytes -= len(data)
        return data

    def _send_slice(self, transport: asyncio.Transport, part: Slice) -> None:
        """Send from the slice at the head of the output; what is left of it stays there.

        When the socket is full, a copied piece makes the transport report when it takes more: the same way for every
        kind of transport. What is encrypted is copied always.
        """
        file, position, length = part
        try:
            if self._encrypted:
                raise BlockingIOError("what is in the file is not what is sent")
            sent = file.send_to(transport, position, length)
        except BlockingIOError:
            piece = file.read(position, min(length, COPIED_WHEN_FULL))
            transport.write(piece)
            sent = len(piece)
        if sent == 0:
            raise OSError("the log is shorter than the slice that was announced")
        if sent == length:
            self._output.popleft()
        else:
            self._output[0] = Slice(file, position + sent, length - sent)


def _held(parts: Sequence[Part]) -> int:
    """How many bytes of memory an answer has; what is sent from files has none."""
    size = 0
    for part in parts:
        if not isinstance(part, Slice):
            size += len(part)
    return size
