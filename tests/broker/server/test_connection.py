"""A connection keeps the order of answers, bounds its memory, and survives any input of a peer."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.log.reading import Slice
from broker.server.connection import Connection, ConnectionHost, Outcome, Rejected, Shortcut, Slot
from broker.server.frames import FrameBuffer
from broker.server.listener import Listener
from broker.trace import Tracer, Value
from tests.stories import played_by


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class OneAtATime:
    """A shortcut for `like` that has no room for a second request."""

    def __init__(self) -> None:
        self.held: list[bytes] = []

    def gather(self, received: FrameBuffer) -> bool:
        if (frame := received.next_frame()) is None:
            return False
        if bytes(frame[:4]) == b"like":
            self.held.append(bytes(frame[4:]))
        else:
            received.put_back(frame)
        return bool(self.held)

    def finish(self) -> Outcome:
        return framed(self.held.pop())


class Echo:
    """A host whose requests say how to be answered (`now `, `long`, `late`, `bloc`, `none`, `bad!`), then a payload.

    After `know` the connection has a shortcut. `fill` first answers the late request with its payload."""

    def __init__(self, file: object | None = None, **limits: Any) -> None:
        self.events: list[dict[str, Value]] = []
        self.begun: list[bytes] = []
        self.turn_is_over = False
        self.late: dict[bytes, Slot] = {}
        self.arrived = asyncio.Event()
        self.file = file
        tracer = Tracer(1, lambda: 0, self.events.append)
        settings: dict[str, Any] = {"request_max_bytes": 4 << 20, "max_connections": 100, "max_queued": 10, **limits}
        self.listener = Listener(self, tracer, **settings)

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        what, payload = bytes(frame[:4]), bytes(frame[4:])
        self.begun.append(payload)
        self.arrived.set()
        if what == b"know":
            connection.shortcut = OneAtATime()
        if what in (b"now ", b"know"):
            return framed(payload)
        if what == b"long":
            return framed(payload + bytes(1 << 20))
        if what in (b"late", b"bloc"):
            slot = connection.reserve(blocking=what == b"bloc")
            self.late[payload] = slot
            return slot
        if what == b"fill":
            self.late[payload].fill([framed(payload)])
            return framed(b"filled")
        if what == b"file":
            length, start = struct.unpack(">ii", payload[:8])
            return [length.to_bytes(4, "big"), Slice(self.file, start, length)]  # type: ignore[arg-type]
        if what == b"none":
            return None
        raise Rejected("as you wish: " + payload.decode("latin-1"))

    def finish(self, shortcut: Shortcut) -> Outcome:
        return shortcut.finish()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.arrived.clear()
            await self.arrived.wait()


def serve(story: Callable[[Echo, int], Awaitable[None]], file: object | None = None, **limits: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(120):
            echo = Echo(file, **limits)
            await echo.listener.start("127.0.0.1", 0)
            assert echo.listener._server is not None
            port = echo.listener._server.sockets[0].getsockname()[1]
            await story(echo, port)
            await echo.listener.stop()

    for runner in (asyncio.run, uvloop.run):
        runner(run())


STORIES = played_by(serve)


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def test_answers_keep_the_order_of_requests(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in (b"now 1xxx", b"late2xxx", b"now 3xxx", b"late4xxx", b"none5xxx", b"now 6xxx"):
        writer.write(framed(request))
    await echo.until(lambda: len(echo.begun) == 6)
    echo.late[b"4xxx"].fill([framed(b"4xxx")])
    await asyncio.sleep(0)
    echo.late[b"2xxx"].fill([framed(b"2xxx")])
    assert [await answer(reader) for _ in range(5)] == [b"1xxx", b"2xxx", b"3xxx", b"4xxx", b"6xxx"]
    writer.close()


async def test_an_answer_caused_by_another_request_keeps_its_place_in_the_order(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(map(framed, (b"now 1xxx", b"late2xxx", b"fill2xxx", b"now 3xxx"))))
    assert [await answer(reader) for _ in range(4)] == [b"1xxx", b"2xxx", b"filled", b"3xxx"]
    assert echo.begun == [b"1xxx", b"2xxx", b"2xxx", b"3xxx"]
    writer.close()


async def test_the_only_answer_that_is_waited_for_is_sent_at_once(echo: Echo, port: int, /) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", port))
        await loop.sock_sendall(peer, framed(b"late1xxx"))
        await echo.until(lambda: echo.begun == [b"1xxx"])
        echo.late[b"1xxx"].fill([framed(b"1xxx")])
        peer.settimeout(60)  # the loop has no turn in which it could be sent
        assert peer.recv(100) == framed(b"1xxx")


async def test_a_request_without_room_in_a_shortcut_passes_through_it_alone(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    requests = (b"know1xxx", b"like2xxx", b"like3xxx", b"like4xxx", b"now 5xxx", b"like6xxx", b"like7xxx")
    writer.write(b"".join(map(framed, requests)))
    assert [await answer(reader) for _ in requests] == [request[4:] for request in requests]
    assert echo.begun == [b"1xxx", b"5xxx"]
    writer.close()


async def test_a_blocking_request_holds_back_the_next_one(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"bloc1xxx") + framed(b"now 2xxx"))
    await echo.until(lambda: len(echo.begun) == 1)
    writer.write(framed(b"now 3xxx"))
    echo.late[b"1xxx"].fill([framed(b"1xxx")])
    assert [await answer(reader) for _ in range(3)] == [b"1xxx", b"2xxx", b"3xxx"]
    assert echo.begun == [b"1xxx", b"2xxx", b"3xxx"]
    writer.close()


async def test_requests_in_progress_stay_within_the_bound(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    names = [b"%04d" % number for number in range(50)]
    for name in names:
        writer.write(framed(b"late" + name))
    for number, name in enumerate(names):
        await echo.until(lambda name=name: name in echo.late)  # type: ignore[misc]
        assert len(echo.begun) <= number + 10
        echo.late[name].fill([framed(name)])
        assert await answer(reader) == name
    writer.close()


async def test_a_peer_that_does_not_read_is_not_read_either(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    request = framed(b"now " + bytes(1 << 20))

    async def send() -> None:
        for _ in range(100):
            writer.write(request)
            await writer.drain()

    sending = asyncio.create_task(send())
    await echo.until(lambda: len(echo.begun) >= 3)
    done, _ = await asyncio.wait([sending], timeout=0.3)
    assert not done
    assert len(echo.begun) < 60  # what fits into both sockets' buffers and the bound on output
    for _ in range(100):
        assert len(await answer(reader)) == 1 << 20
    await sending
    writer.close()


@pytest.mark.parametrize("waits", [False, True])
@played_by(serve, max_queued=200)
async def test_answers_are_bounded_wherever_they_wait(echo: Echo, port: int, /, waits: bool) -> None:
    """Behind one that is not there yet, and among those to requests that have come with one read of the socket."""
    names = [b"%04d" % number for number in range(100)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    before = [b"head"] if waits else []
    writer.write(b"".join([framed(b"late" + name) for name in before]))
    writer.write(b"".join([framed(b"long" + name) for name in names]))
    await echo.until(lambda: len(echo.begun) >= 5)
    await asyncio.sleep(0.1)  # no event shows a request that has not started
    assert len(echo.begun) <= (6 if waits else 40), "both sockets' buffers take some, where nothing waits"
    for name in before:
        echo.late[name].fill([framed(name)])
        assert await answer(reader) == name
    for name in names:
        got = await answer(reader)
        assert (got[:4], len(got)) == (name, 4 + (1 << 20))
    assert echo.begun == before + names
    (connection,) = echo.listener._connections
    assert connection.is_idle
    assert not connection._output_bytes
    writer.close()


def test_memory_of_a_connection_is_counted_once_for_every_kind_of_answer(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(100))

    async def story(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ranges = framed(b"file" + struct.pack(">ii", 100, 0))
        for kind in (b"late", b"bloc"):
            writer.write(framed(kind + b"1xxx") + framed(b"now 2xxx") + ranges + framed(b"none3xxx"))
            await echo.until(lambda: b"1xxx" in echo.late)
            (connection,) = echo.listener._connections
            echo.late.pop(b"1xxx").fill([framed(b"1x")])
            assert [len(await answer(reader)) for _ in range(3)] == [2, 4, 100]
            assert not connection._output_bytes
        writer.close()

    serve(story, PlainFile(tmp_path / "log"))


class PlainFile:
    """A file sent with sendfile where the socket is real."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.fd = os.open(path, os.O_RDONLY)

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        return os.sendfile(transport.get_extra_info("socket").fileno(), self.fd, offset, length)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.fd, length, offset)


def test_file_ranges_arrive_whole_and_in_order_with_a_slow_reader(tmp_path: Path) -> None:
    content = os.urandom(8 << 20)
    (tmp_path / "log").write_bytes(content)

    async def story(echo: Echo, port: int) -> None:  # noqa: ARG001
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        for start in range(0, 8 << 20, 1 << 20):
            writer.write(framed(b"file" + struct.pack(">ii", 1 << 20, start)) + framed(b"now between"))
        for start in range(0, 8 << 20, 1 << 20):
            assert await answer(reader) == content[start : start + (1 << 20)]
            assert await answer(reader) == b"between"
        writer.close()

    serve(story, PlainFile(tmp_path / "log"))


def test_a_range_that_the_file_no_longer_holds_ends_the_connection(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(100))

    async def story(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"file" + struct.pack(">ii", 500, 0)))
        received = await reader.read()
        assert len(received) < 504
        assert "shorter than" in str(echo.events[0]["reason"])
        writer.close()

    serve(story, PlainFile(tmp_path / "log"))


async def test_a_peer_that_breaks_the_protocol_is_disconnected_after_the_answers_before(
    echo: Echo, port: int, /
) -> None:
    for bad in (framed(b"bad!xxxx"), (5 << 20).to_bytes(4, "big"), b"\xff\xff\xff\xff", framed(b"tiny")):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"now good"))
        assert await answer(reader) == b"good"
        writer.write(bad)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    assert [event["event"] for event in echo.events] == ["connection_rejected"] * 4


async def test_a_rejection_writes_a_short_trace_event(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"bad!" + b"x" * (1 << 20)))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    (event,) = echo.events
    assert str(event["reason"]).startswith("as you wish: xxx")
    assert len(str(event["reason"])) < 1000


@played_by(serve, max_idle=0.1)
async def test_a_silent_or_blocked_connection_is_idle_and_a_waiting_one_is_not(echo: Echo, port: int, /) -> None:
    waiting_reader, waiting = await asyncio.open_connection("127.0.0.1", port)
    waiting.write(framed(b"late1xxx"))
    await echo.until(lambda: b"1xxx" in echo.late)
    reader, halfway = await asyncio.open_connection("127.0.0.1", port)
    halfway.write((1 << 20).to_bytes(4, "big") + b"and")
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b"", "a part of a request keeps no connection"
    _, deaf = await asyncio.open_connection("127.0.0.1", port, limit=1)
    for _ in range(20):
        deaf.write(framed(b"now " + bytes(1 << 20)))
    await echo.until(lambda: len(echo.begun) > 1)
    while echo.listener.connections > 1:  # noqa: ASYNC110 - what the transport does has no event to wait for
        await asyncio.sleep(0.001)
    echo.late[b"1xxx"].fill([framed(b"1xxx")])
    assert await answer(waiting_reader) == b"1xxx"
    for writer in (waiting, halfway, deaf):
        writer.transport.abort()


def test_the_serving_host_sets_the_size_limit_of_requests() -> None:
    class Narrow:
        """Stands before a listener until something has been asked."""

        def __init__(self, inside: ConnectionHost) -> None:
            self.budget, self.max_queued, self.request_max_bytes = inside.budget, inside.max_queued, 100
            self.opened, self.closed, self.rejected = inside.opened, inside.closed, inside.rejected
            self.finish, self.turn_is_over = inside.finish, False
            self._inside = inside

        def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
            connection.served_by(self._inside)
            return self._inside.dispatch(connection, frame)

    async def story(echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((101).to_bytes(4, "big"))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert "must be 8 to 100" in str(echo.events[0]["reason"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"now in  ") + framed(b"now " + bytes(1000)))
        assert [len(await answer(reader)) for _ in range(2)] == [4, 1000]
        writer.close()

    serve(story, entrance=Narrow)


@played_by(serve, max_connections=3)
async def test_connections_beyond_the_bound_are_refused_and_room_is_found_again(echo: Echo, port: int, /) -> None:
    pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    for reader, writer in pairs:
        writer.write(framed(b"now here"))
        assert await answer(reader) == b"here"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"now full"))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    pairs[0][1].close()
    await pairs[0][1].wait_closed()
    while echo.listener.connections == 3:  # noqa: ASYNC110 - what the transport does has no event to wait for
        await asyncio.sleep(0.001)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"now room"))
    assert await answer(reader) == b"room"
    for _, other in [*pairs, (reader, writer)]:
        other.close()


async def test_a_wait_for_a_disconnected_peer_is_cancelled(echo: Echo, port: int, /) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(b"late1xxx"))
    await echo.until(lambda: b"1xxx" in echo.late)
    waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    slot = echo.late[b"1xxx"]
    slot.connection.cancel_when_lost(waiting)
    writer.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert not slot.connection.is_open
    slot.fill([framed(b"too late")])
    assert await reader.read() == b""
