"""One connection of a client: frames in, responses out in request order, bounded in both directions.

Theory of operation. The transport reads into the `FrameBuffer`. `_process` then starts requests until no whole frame is
left, a bound is reached, or this turn of the event loop has used its work budget (`work_budget`). A request that is
answered at once adds its bytes to one common write. A request that is answered later gets a `Slot`; the slots form a
queue, and only a filled slot at its head is sent. After a turn without budget, or at a bound, the connection pauses
reading and continues in a later turn. A `Shortcut` takes the requests that it recognizes from the front of the buffer
and answers them with one outcome. Without one, each request goes to the dispatcher.

Invariants:
- responses leave strictly in the order of their requests, however long each takes;
- a frame's memory is valid only while `dispatch` runs: a handler that answers later copies what it needs, or keeps the
  memory with `keep_frame`;
- a connection has at most `max_queued` requests under way. It starts no request while it holds more than `OUTPUT_HIGH`
  bytes of unsent answers. At either bound it stops reading, so that a peer that does not read its answers costs a
  bounded amount of memory;
- a peer that breaks the protocol loses its connection; nothing else happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from broker.log.reading import Slice
from broker.ports import Buffer
from broker.security.principals import ANONYMOUS
from broker.server.frames import FrameBuffer, FrameError, MemoryBudget
from broker.server.reply import Part, Reply

OUTPUT_HIGH = 4 << 20  # bytes held in memory for a peer that does not read
COPIED_WHEN_FULL = 1 << 16  # bytes of a file that are copied to learn when the socket takes more
COPIED_TO_JOIN = 1 << 18  # bytes in buffers that are written as one; a larger one costs less as a write of its own
SMALLEST_REQUEST = 8  # bytes: api key, version, correlation id


class Rejected(Exception):  # noqa: N818 - what happened to the connection, not a defect
    """The peer broke the protocol; the connection is closed. The message says how."""


class NotReady(Exception):  # noqa: N818 - the peer did nothing wrong
    """This broker cannot answer yet. The connection is closed, so that the client tries another broker."""


class Slot:
    """The place of one response in the order of its connection; filled when the answer is available."""

    __slots__ = ("blocking", "connection", "parts")

    def __init__(self, connection: Connection, *, blocking: bool) -> None:
        self.connection = connection
        self.blocking = blocking
        self.parts: Reply | None = None

    def fill(self, parts: Reply) -> None:
        """Set the answer (an empty one: nothing is sent). Call it once. Ignored after the connection is lost."""
        self.parts = parts
        self.connection.slot_filled(self)


Outcome = bytes | Reply | Slot | None
"""The result of dispatching one frame: a whole response, the slot that will hold it, or None for no response."""


class Shortcut(Protocol):
    """A handler that knows the previous request of a connection and serves requests of the same kind in one batch."""

    def gather(self, received: FrameBuffer) -> bool:
        """Consume the requests of the known kind at the front. Their memory stays valid until `finish`, which follows
        in the same turn of the loop. False: the next request is of another kind, or incomplete. Raises `FrameError`."""
        ...

    def finish(self) -> Outcome:
        """Serve the gathered requests: one outcome for all of them, in order."""
        ...


class ConnectionHost(Protocol):
    """What a connection needs from the listener that accepted it."""

    budget: MemoryBudget
    request_max_bytes: int
    max_queued: int

    def opened(self, connection: Connection) -> ConnectionHost | None:
        """A peer has connected. Returns the host that serves it, or None when there are too many connections."""
        ...

    def closed(self, connection: Connection) -> None: ...

    def rejected(self, connection: Connection, reason: str) -> None:
        """The peer broke the protocol and is being disconnected."""
        ...

    @property
    def turn_is_over(self) -> bool:
        """Whether this turn of the event loop has used its work budget."""
        ...

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Answer one request. Raises `Rejected` when the peer must be disconnected."""
        ...

    def finish(self, shortcut: Shortcut) -> Outcome:
        """Answer the requests that a shortcut has gathered. Raises `Rejected` when the peer must be disconnected."""
        ...


def shown_address(address: object) -> str:
    """The peer's address of a socket as text for messages."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


class Connection(asyncio.BufferedProtocol):
    """The server's end of a connection."""

    def __init__(self, host: ConnectionHost) -> None:
        self.peer = "?"
        self.address = "?"  # the peer's, without its port
        self.principal = ANONYMOUS
        self.silent_checks = 0  # number of the listener's checks since bytes were received, or taken by the peer
        self.ended_in_order = False  # the peer's kernel said that the peer closed it (FIN)
        self.shortcut: Shortcut | None = None
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._encrypted = False
        self._input = FrameBuffer(host.request_max_bytes, host.budget, SMALLEST_REQUEST)
        self._slots: deque[Slot] = deque()
        self._output: deque[Part] = deque()
        self._output_bytes = 0  # of all known answers: in slots, in `_output`, and between the two
        self._write_paused = False
        self._reading = True
        self._resting = False
        self._processing = False  # answers of earlier requests may still be unsent
        self._flush_scheduled = False
        self._on_lost: dict[asyncio.Future[Any], None] = {}  # in the order of registration

    # --- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from asyncio.Transport
        name = transport.get_extra_info("peername")
        self.peer = shown_address(name)
        self.address = str(name[0]) if isinstance(name, tuple) else str(name)
        self._transport = transport
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        # Without a buffer the transport reports at once that the socket is full, and a file can follow bytes. An
        # encrypting transport needs some: with a limit of zero it would never report that it accepts more.
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
        self.silent_checks = 0
        self._input.received(nbytes)
        self._process()

    def eof_received(self) -> bool:
        self.ended_in_order = True
        return False  # close; a client that shuts down its sending side does not read answers

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self.silent_checks = 0  # the peer has taken bytes
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
        """No partly received frame, no request under way, nothing to send."""
        return not (self._slots or self._output or self._input.pending)

    @property
    def owes_an_answer(self) -> bool:
        """Whether the peer waits for an answer of this broker."""
        return bool(self._slots)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The peer's certificate as `ssl.SSLSocket.getpeercert` returns it; None without one."""
        return None if self._transport is None else self._transport.get_extra_info("peercert") or None

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor; -1 without a socket."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    def reserve(self, *, blocking: bool) -> Slot:
        """A slot for a later answer. `blocking`: the connection starts no further request before it is filled."""
        return Slot(self, blocking=blocking)

    def cancel_when_lost(self, future: asyncio.Future[Any]) -> None:
        """Cancel `future` when the connection is lost: for waiting that only serves the answer."""
        if self._transport is None:
            future.cancel()
            return
        self._on_lost[future] = None
        future.add_done_callback(self._on_lost.pop)

    def slot_filled(self, slot: Slot) -> None:
        """Schedule the answer. Answers that complete in one turn of the loop are sent in one write.

        The answer to the only request under way is sent at once: no other answer can complete, and the peer may be the
        follower whose fetch completes a producer's append."""
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
        """Further requests go to `host`, whose size limit applies to them."""
        self._host = host
        self._input.limit(SMALLEST_REQUEST, host.request_max_bytes)

    def expect_tokens(self) -> None:
        """The next frames are SASL tokens, not requests, and may be empty, until `served_by` is called again."""
        self._input.limit(0, self._host.request_max_bytes)

    def keep_frame(self) -> Callable[[], None]:
        """Keep the memory of the frame that is being dispatched until the returned function is called.

        Raises `Rejected` when the budget has no memory for the next frames."""
        try:
            return self._input.lend()
        except FrameError as error:
            raise Rejected(str(error)) from error

    def release_memory(self) -> None:
        """Shrink the receive buffer when it is not in use."""
        if self.is_idle:
            self._input.release_memory()

    def end_idle(self) -> None:
        """Close the connection; abort it where the peer does not take its data, because close would wait for that."""
        if self._output or self._write_paused:
            self.abort()
        else:
            self.close()

    def close(self) -> None:
        """Close after everything queued has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; queued data is discarded."""
        if self._transport is not None:
            self._transport.abort()

    def reject(self, reason: str) -> None:
        """Disconnect a peer that broke the protocol."""
        if self._transport is not None:
            self._host.rejected(self, reason)
            self.abort()

    # --- requests

    def _process(self) -> None:
        """Start every whole request within the bounds, and send the answers that are available at once."""
        answered: list[Part] = []
        self._processing = True
        try:
            is_full = self._is_full()  # changes only when an outcome is placed
            while not is_full and self._start_next(answered) and self._input.pending:
                # Checked after the request: each connection starts at least one in a turn, however busy others are.
                if self._host.turn_is_over:
                    self._rest()
                    break
                is_full = self._is_full()
            if answered:
                self._send(answered)
                if is_full and not self._is_full():
                    self._rest()  # the socket has taken it: whole requests already received start in the next turn
            self._input.make_room()
        except (FrameError, Rejected) as error:
            self._send(answered)
            self.reject(str(error))
            return
        finally:
            self._processing = False
        self._pause_if_full()

    def _start_next(self, answered: list[Part]) -> bool:
        """Start the next whole request, or those that the shortcut recognizes. Returns False without one."""
        if self.shortcut is not None and self.shortcut.gather(self._input):
            self._place(self._host.finish(self.shortcut), answered)
        elif (frame := self._input.next_frame()) is not None:
            self._place(self._host.dispatch(self, frame), answered)
        else:
            return False
        return True

    def _place(self, outcome: Outcome, answered: list[Part]) -> None:
        """Put an outcome into the order: into what is sent at once when no answer is outstanding, else into a slot."""
        if isinstance(outcome, Slot):
            if outcome.parts is None or self._slots:
                self._slots.append(outcome)
                return
            outcome = outcome.parts  # filled already, and counted by then
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
        """Stop reading when more requests have arrived than may start. Peers that await their answers never cause
        it."""
        if self._reading and self._transport is not None and self._input.pending and self._is_full():
            self._reading = False
            self._transport.pause_reading()

    def _rest(self) -> None:
        """Start no further request in this turn of the loop; continue in the next."""
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
        """Resume reading when the bounds allow it; requests received before start first."""
        if self._reading or self._resting or self._transport is None or self._is_full():
            return
        self._process()
        if self._transport is None or self._transport.is_closing() or self._resting or self._is_full():
            return
        self._reading = True
        self._transport.resume_reading()

    # --- responses

    def _flush(self) -> None:
        """Send the filled slots at the head of the order."""
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
        """Write as much as the socket takes; the rest waits for `resume_writing`."""
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

    def _take_bytes(self) -> Buffer:
        """The queued bytes before the next slice of a file or the next large buffer, as one buffer. A large buffer is
        returned alone: it is not copied."""
        output = self._output
        first_piece = output.popleft()
        assert not isinstance(first_piece, Slice)
        run, size = [first_piece], len(first_piece)
        while output and not isinstance(part := output[0], Slice) and size + len(part) <= COPIED_TO_JOIN:
            output.popleft()
            run.append(part)
            size += len(part)
        self._output_bytes -= size
        return run[0] if len(run) == 1 else b"".join(run)

    def _send_slice(self, transport: asyncio.Transport, part: Slice) -> None:
        """Send from the slice at the head of the output; the unsent rest stays there.

        When the socket is full, a piece of the file is copied to the transport, which then reports when it accepts
        more; this works the same for every kind of transport. For an encrypted connection all data is copied.
        """
        file, position, length = part
        try:
            if self._encrypted:
                raise BlockingIOError("an encrypted connection cannot send from a file")
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
    """The memory of an answer in bytes; slices of files count nothing."""
    size = 0
    for part in parts:
        if not isinstance(part, Slice):
            size += len(part)
    return size
