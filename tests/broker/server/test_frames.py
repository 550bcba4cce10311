"""The receive buffer: frames are returned whole and in order, and memory follows the received bytes."""

import random
from collections.abc import Callable

import pytest

from broker.server.frames import LENGTH_SIZE, ROOMY, SMALL, FrameBuffer, FrameError, Unlimited


class Budget:
    def __init__(self, limit: int) -> None:
        self.left = limit

    def reserve(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


class Asking(Budget):
    """Asks for memory back before it refuses."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.holders: list[Callable[[], None]] = []

    def reserve(self, size: int) -> bool:
        if size > self.left:
            for release in self.holders:
                release()
        return super().reserve(size)


def feed(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Give the bytes to the buffer, as many at a time as it has room for; the frames that came out."""
    frames = []
    view = memoryview(data)
    while view:
        buffer.make_room()
        space = buffer.space()
        size = min(len(space), len(view))
        assert size > 0
        space[:size] = view[:size]
        buffer.received(size)
        view = view[size:]
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_a_frame_that_is_put_back_is_the_next_one_again() -> None:
    buffer = FrameBuffer(100, Unlimited())
    data = framed(b"first") + framed(b"second")
    buffer.make_room()
    buffer.space()[: len(data)] = data
    buffer.received(len(data))
    frame = buffer.next_frame()
    assert frame is not None
    buffer.put_back(frame)
    assert bytes(buffer.unread) == data
    assert [bytes(buffer.next_frame() or b"") for _ in range(3)] == [b"first", b"second", b""]


def test_frames_decode_to_the_original_for_every_split() -> None:
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.choice([0, 1, 5, 100, 5_000, 40_000, 300_000])) for _ in range(200)]
    stream = b"".join(framed(body) for body in bodies)
    buffer = FrameBuffer(1 << 20, Unlimited())
    seen: list[bytes] = []
    position = 0
    while position < len(stream):
        size = rng.choice([1, 3, 17, 1_000, 70_000])
        seen += feed(buffer, stream[position : position + size])
        position += size
    assert seen == bodies
    assert buffer.pending == 0


@pytest.mark.parametrize("length", [-1, -(1 << 31), 3, 1025, (1 << 31) - 1])
def test_a_length_out_of_bounds_is_refused(length: int) -> None:
    buffer = FrameBuffer(1024, Unlimited(), minimum=4)
    with pytest.raises(FrameError, match="must be 4 to 1024"):
        feed(buffer, length.to_bytes(4, "big", signed=True))


def test_an_announced_length_uses_no_memory_until_the_bytes_arrive() -> None:
    buffer = FrameBuffer(100 << 20, Unlimited())
    feed(buffer, (100 << 20).to_bytes(4, "big") + bytes(1000))
    buffer.make_room()
    assert buffer.capacity <= 2 * SMALL
    feed(buffer, bytes(1 << 20))
    assert buffer.capacity <= 4 << 20


def test_memory_of_a_large_frame_is_given_back() -> None:
    budget = Budget(8 << 20)
    buffer = FrameBuffer(4 << 20, budget)
    assert len(feed(buffer, framed(bytes(3 << 20)))) == 1
    assert budget.left < 5 << 20
    buffer.release_memory()
    assert budget.left == (8 << 20) - SMALL
    buffer.close()
    assert budget.left == 8 << 20


def test_a_spent_budget_refuses_growth_only() -> None:
    buffer = FrameBuffer(4 << 20, Budget(1 << 16))
    assert feed(buffer, framed(bytes(10_000))) == [bytes(10_000)]
    with pytest.raises(FrameError, match="no memory left"):
        feed(buffer, framed(bytes(200_000)))


def test_a_detached_frame_keeps_its_bytes_after_later_receives() -> None:
    buffer = FrameBuffer(1 << 20, Unlimited())
    buffer.make_room()
    two = framed(b"a" * 100) + framed(b"b" * 100)[:50]
    buffer.space()[: len(two)] = two
    buffer.received(len(two))
    frame = buffer.next_frame()
    assert frame is not None
    buffer.detach()
    assert feed(buffer, framed(b"b" * 100)[50:]) == [b"b" * 100]
    assert frame == b"a" * 100


def test_a_detached_buffer_without_references_is_reused_for_received_bytes() -> None:
    buffer = FrameBuffer(1 << 20, Unlimited())
    memory: list[object] = []  # held, so that no other is at its address

    def detached(body: bytes) -> memoryview:
        buffer.make_room()
        stream = framed(body)
        memory.append(buffer.space().obj)
        buffer.space()[: len(stream)] = stream
        buffer.received(len(stream))
        frame = buffer.next_frame()
        assert frame is not None
        buffer.detach()
        return frame

    for number in range(4):
        detached(bytes([number]) * 100)
    addresses = [id(it) for it in memory]
    assert [addresses.index(it) for it in addresses] == [0, 1, 0, 1]
    looked_at = detached(b"a" * 100)
    for number in range(3):
        detached(bytes([number]) * 100)
    assert looked_at == b"a" * 100
    addresses = [id(it) for it in memory]
    assert [addresses.index(it) for it in addresses[4:]] == [0, 1, 6, 1]


def test_a_lent_frame_counts_until_it_is_given_back() -> None:
    budget = Budget(1 << 20)
    buffer = FrameBuffer(1 << 20, budget)
    stream = framed(b"a" * 100_000)
    buffer.make_room()
    view = memoryview(stream)
    while view:
        size = min(len(buffer.space()), len(view))
        buffer.space()[:size] = view[:size]
        buffer.received(size)
        view = view[size:]
        if view:
            buffer.make_room()
    frame = buffer.next_frame()
    assert frame is not None
    before = budget.left
    give_back = buffer.lend()
    assert budget.left == before - buffer.capacity
    assert buffer.capacity == SMALL
    assert feed(buffer, framed(b"b" * 200_000)) == [b"b" * 200_000]
    assert frame == b"a" * 100_000
    give_back()
    buffer.close()
    assert budget.left == 1 << 20
    poor = FrameBuffer(1 << 20, Budget(SMALL))
    feed(poor, framed(b"c"))
    with pytest.raises(FrameError, match="no memory left"):
        poor.lend()


def fill(buffer: FrameBuffer) -> None:
    """One frame, which the next read would find no room behind."""
    buffer.make_room()
    stream = framed(bytes(buffer.capacity - LENGTH_SIZE))
    buffer.space()[:] = stream
    buffer.received(len(stream))
    assert buffer.next_frame() is not None


@pytest.mark.parametrize("lends", [False, True], ids=["grows", "lends"])
def test_a_buffer_counts_its_memory_during_a_reservation(*, lends: bool) -> None:
    budget = Asking(1 << 20)
    buffer, idle = FrameBuffer(1 << 20, budget), FrameBuffer(1 << 20, budget)
    for its in (buffer, idle):
        fill(its)
        fill(its)
        assert its.capacity == 2 * SMALL
        budget.holders.append(its.release_memory)
    of_others = budget.left - (SMALL if lends else 2 * SMALL) + 1
    assert budget.reserve(of_others), "too little is left for another buffer"
    give_back = buffer.lend() if lends else None
    buffer.make_room()
    assert idle.capacity == SMALL, "it was asked"
    if give_back is not None:
        give_back()
    buffer.close()
    idle.close()
    assert budget.left + of_others == 1 << 20


def test_the_buffer_has_room_for_any_number_of_waiting_frames() -> None:
    buffer = FrameBuffer(1 << 20, Unlimited())
    buffer.make_room()
    stream = framed(b"short") * (5 * SMALL)
    position = 0
    while position < 3 * SMALL:  # no reader takes a frame
        size = len(buffer.space())
        assert size > 0
        buffer.space()[:] = stream[position : position + size]
        buffer.received(size)
        position += size
        buffer.make_room()
    assert buffer.capacity <= 2 * position
    assert bytes(buffer.next_frame() or b"") == b"short"


def test_a_frame_in_single_bytes_uses_the_memory_of_a_whole_one() -> None:
    buffer = FrameBuffer(100 << 20, Unlimited())
    buffer.make_room()
    for byte in (100 << 20).to_bytes(4, "big") + bytes(60):
        buffer.space()[0] = byte
        buffer.received(1)
        assert buffer.next_frame() is None
        buffer.make_room()
    assert buffer.capacity == SMALL


def test_a_peer_that_fills_the_buffer_with_more_than_a_frame_gets_larger_reads() -> None:
    buffer = FrameBuffer(1 << 20, Unlimited())
    bodies = [bytes([number]) * 10_000 for number in range(200)]
    assert feed(buffer, b"".join(map(framed, bodies))) == bodies
    assert ROOMY <= buffer.capacity < 2 * ROOMY


def test_larger_reads_are_not_worth_a_connection() -> None:
    buffer = FrameBuffer(1 << 20, Budget(2 * SMALL))
    bodies = [bytes([number]) * 10_000 for number in range(200)]
    assert feed(buffer, b"".join(map(framed, bodies))) == bodies
    assert buffer.capacity <= 2 * SMALL
