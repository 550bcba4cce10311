"""Splits a stream of bytes into length-prefixed frames, in one buffer that grows only as bytes arrive.

A frame is a big-endian int32 length and that many bytes. The socket is read directly into the buffer, and frames are
handed out as views of it. A view is valid only until the next bytes are received; a caller that needs it longer copies
the bytes.
"""

from collections.abc import Callable
from struct import Struct
from typing import Protocol

_LENGTH = Struct(">i")
LENGTH_SIZE = _LENGTH.size
SMALL = 1 << 14  # the size of a fresh buffer: most connections never need more
ROOMY = 1 << 18  # spare room behind a large frame, so that the next one rarely has to be moved
LEAST_ROOM = 1 << 12  # less free space than this is not worth a read


class FrameError(Exception):
    """The stream contains an unacceptable frame. The start of the next one is unknown, so the connection must close."""


class MemoryBudget(Protocol):
    """The common bound of the receive buffers of all connections."""

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes (negative: release). Returns false, and reserves nothing, when fewer are available."""
        ...


class Unlimited:
    """No common bound: for the few connections that this broker opens."""

    def reserve(self, size: int) -> bool:  # noqa: ARG002 - the signature of MemoryBudget
        return True


class FrameBuffer:
    """The receive buffer of one connection. `maximum` bounds a frame in bytes, its length field not counted.

    It holds no memory before the first `make_room`.
    """

    __slots__ = ("_budget", "_buffer", "_detached", "_end", "_maximum", "_minimum", "_reserving", "_start", "_view")

    def __init__(self, maximum: int, budget: MemoryBudget, minimum: int = 0) -> None:
        self._maximum = maximum
        self._minimum = minimum
        self._budget = budget
        self._start = self._end = 0
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._detached = bytearray()
        self._reserving = False

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._buffer)

    @property
    def pending(self) -> int:
        """Received bytes that belong to no frame handed out yet."""
        return self._end - self._start

    @property
    def unread(self) -> memoryview:
        """The `pending` bytes as a view of the buffer; valid until the next ones are received."""
        return self._view[self._start : self._end]

    def skip(self, size: int) -> None:
        """Consume `size` bytes of `unread`, which are whole frames, without handing them out."""
        self._start += size

    def limit(self, minimum: int, maximum: int) -> None:
        """Accept frames of `minimum` to `maximum` bytes from now on, their length fields not counted."""
        self._minimum, self._maximum = minimum, maximum

    def space(self) -> memoryview:
        """The free part of the buffer, for the next read; not empty after `make_room`."""
        return self._view[self._end :]

    def received(self, size: int) -> None:
        """`size` bytes were read to `space()`."""
        self._end += size

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length field, or None. Raises `FrameError` for a length out of bounds."""
        start = self._start
        available = self._end - start
        if available < LENGTH_SIZE:
            return None
        length: int = _LENGTH.unpack_from(self._buffer, start)[0]
        if not self._minimum <= length <= self._maximum:
            raise FrameError(f"a frame of {length} bytes: must be {self._minimum} to {self._maximum}")
        if available < LENGTH_SIZE + length:
            return None
        self._start = end = start + LENGTH_SIZE + length
        return self._view[start + LENGTH_SIZE : end]

    def put_back(self, frame: memoryview) -> None:
        """Make the frame that `next_frame` returned last the next one again."""
        self._start -= LENGTH_SIZE + len(frame)

    def release_memory(self) -> None:
        """Return to a small buffer if this one holds no pending bytes.

        A budget that runs low calls this on every connection, including the one that is reserving. That one is skipped:
        its size is being changed at this moment.
        """
        if self._start == self._end and len(self._buffer) > SMALL and not self._reserving:
            self._replace(SMALL)

    def detach(self) -> None:
        """Leave the memory of the frames handed out to their owner and continue in another buffer of the same size.

        The buffer detached before is used again when no view of it is left: new memory would have to be cleared and
        paged in.
        """
        spare, self._detached = self._detached, self._buffer
        if 0 < len(spare) == len(self._buffer) and not _has_views(spare):
            self._go_on_in(spare)
        else:
            self._replace(len(self._buffer))

    def lend(self) -> Callable[[], None]:
        """Keep the memory of the frames handed out unchanged until the returned function is called.

        The memory still counts against the budget. Received bytes go to another buffer. Raises `FrameError` when the
        budget has no memory for that one.
        """
        size, capacity = len(self._buffer), max(SMALL, self.pending + LEAST_ROOM)
        self._reserve(capacity, capacity)
        self._go_on_in(bytearray(capacity))

        def give_back() -> None:
            self._budget.reserve(-size)

        return give_back

    def close(self) -> None:
        """Release the memory to the budget."""
        self._budget.reserve(-len(self._buffer))
        self._buffer = self._detached = bytearray()
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def make_room(self) -> None:
        """Move or enlarge the buffer for the frame under way. It grows to at most twice the bytes received.

        Views handed out before are no longer valid. Raises `FrameError` when the budget is exhausted.
        """
        start, end, capacity = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = 0
            if end == capacity < ROOMY:  # the buffer is new, or the last read filled it: a busy peer gets larger reads
                self._replace(max(SMALL, 2 * capacity))
            return
        wanted_size = end - start + LEAST_ROOM
        if end - start >= LENGTH_SIZE:
            wanted_size = LENGTH_SIZE + _LENGTH.unpack_from(self._buffer, start)[0]
        if end < capacity and start + wanted_size <= capacity:
            return
        if start and end == capacity < ROOMY and self._is_granted(capacity):
            # The last read filled the buffer with more than one frame: a larger buffer means fewer reads.
            self._go_on_in(bytearray(2 * capacity))
            return
        if wanted_size > capacity and end - start + LEAST_ROOM <= capacity:
            # A peer can announce any length at no cost and send byte by byte: use the present buffer up first.
            if start:
                self._to_the_front()
        elif wanted_size > capacity or not start:
            # The buffer grows with the bytes received, which may belong to more frames than the first.
            roomy = wanted_size + max(SMALL, min(ROOMY, wanted_size // 4))
            self._replace(max(end - start + LEAST_ROOM, min(roomy, 2 * capacity)))
        else:
            self._to_the_front()

    def _to_the_front(self) -> None:
        size = self.pending
        self._view[:size] = self._view[self._start : self._end]
        self._start, self._end = 0, size

    def _replace(self, capacity: int) -> None:
        self._reserve(capacity - len(self._buffer), capacity)
        self._go_on_in(bytearray(capacity))

    def _reserve(self, size: int, capacity: int) -> None:
        if not self._is_granted(size):
            raise FrameError(f"no memory left for a receive buffer of {capacity} bytes")

    def _is_granted(self, size: int) -> bool:
        self._reserving = True
        try:
            return self._budget.reserve(size)
        finally:
            self._reserving = False

    def _go_on_in(self, buffer: bytearray) -> None:
        pending = self._view[self._start : self._end]
        buffer[: len(pending)] = pending
        self._start, self._end = 0, len(pending)
        self._buffer = buffer
        self._view = memoryview(buffer)


def _has_views(buffer: bytearray) -> bool:
    """Whether a view of the buffer still exists: exactly then Python refuses to change its length."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
