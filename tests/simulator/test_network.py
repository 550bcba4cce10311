"""The simulated network, with echo servers: the promises of TCP, and its failures."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from simulator.conditions import Conditions
from tests.simulator.running import QUIET, World

PORT = 9


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Client(asyncio.Protocol):
    """Collects what it gets, and how its connection ended."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.changed = asyncio.Event()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.paused = 0
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    async def until(self, size: int) -> bytes:
        while len(self.received) < size:
            self.changed.clear()
            await self.changed.wait()
        return bytes(self.received)


class Buffered(asyncio.BufferedProtocol):
    """Receives into a buffer of three bytes. `pauses_at`: it pauses at this number of bytes."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.buffer = bytearray(3)
        self.received = bytearray()
        self.ended = False
        self.pauses_at = 1 << 30

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        if len(self.received) >= self.pauses_at:
            self.pauses_at = 1 << 30
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended = True
        return False


def serve(world: World, host: str = "b", factory: Callable[[], asyncio.BaseProtocol] = Echo) -> None:
    async def listen() -> None:
        await world.loop.create_server(factory, host, PORT)

    world.run(host, listen())


async def connect(world: World, host: str = "b") -> Client:
    _, client = await world.loop.create_connection(Client, host, PORT)
    return client


def test_echoed_bytes_arrive_in_order_after_a_latency() -> None:
    world = World(conditions=Conditions(spike_probability=0.3, split_probability=0.3))
    serve(world)
    data = bytes(range(256)) * 1000

    async def body() -> None:
        client = await connect(world)
        assert client.transport.get_extra_info("peername") == ("b", PORT)
        assert client.transport.get_extra_info("sockname")[0] == "a"
        for start in range(0, len(data), 1000):
            client.transport.write(data[start : start + 1000])
            if start % 7000 == 0:
                await asyncio.sleep(0.001)
        assert await client.until(len(data)) == data
        assert 0.002 < world.loop.time() < 2

    world.run("a", body())


def test_buffered_protocols() -> None:
    world = World()
    server = Buffered()
    serve(world, factory=lambda: server)

    async def body() -> None:
        client = await connect(world)
        client.transport.writelines([b"abc", memoryview(b"defgh")])
        client.transport.close()
        assert client.transport.is_closing()
        assert await client.lost is None
        await asyncio.sleep(1)

    world.run("a", body())
    assert (bytes(server.received), server.ended) == (b"abcdefgh", True)


def test_a_paused_protocol_gets_no_bytes_until_it_resumes() -> None:
    world = World()
    server = Buffered()
    serve(world, factory=lambda: server)

    async def body() -> None:
        server.pauses_at = 3
        client = await connect(world)
        client.transport.write(b"abcdefgh")
        client.transport.close()
        await asyncio.sleep(1)
        assert (bytes(server.received), server.ended) == (b"abc", False)
        server.transport.resume_reading()
        await asyncio.sleep(1)

    world.run("a", body())
    assert (bytes(server.received), server.ended) == (b"abcdefgh", True)


def test_connections_without_a_listener_are_refused() -> None:
    world = World()
    serve(world)

    async def body() -> None:
        with pytest.raises(ConnectionRefusedError):
            await connect(world, "c")
        assert world.loop.time() < 0.01
        server = await world.loop.create_server(Echo, "a", PORT)
        assert server.is_serving()
        with pytest.raises(OSError, match="in use"):
            await world.loop.create_server(Echo, "a", PORT)
        with pytest.raises(OSError, match="assign"):
            await world.loop.create_server(Echo, "b", PORT + 1)
        await connect(world, "a")
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await connect(world, "a")

    world.run("a", body())


def test_a_slow_reader_stops_the_writer() -> None:
    world = World()
    server = Client
    made: list[Client] = []

    def factory() -> Client:
        made.append(server())
        return made[-1]

    serve(world, factory=factory)

    async def body() -> None:
        client = await connect(world)
        await asyncio.sleep(0.1)
        made[0].transport.pause_reading()
        client.transport.set_write_buffer_limits(high=1000)
        data = bytes(QUIET.window)
        client.transport.write(data)
        assert client.transport.get_write_buffer_size() == 0
        client.transport.write(bytes(5000))
        assert client.transport.get_write_buffer_size() == 5000
        await asyncio.sleep(10)
        assert client.events == ["pause"]
        assert made[0].received == b""
        made[0].transport.resume_reading()
        await made[0].until(QUIET.window + 5000)
        assert client.events == ["pause", "resume"]
        assert client.transport.get_write_buffer_size() == 0

    world.run("a", body())


def test_closing_sends_buffered_bytes() -> None:
    world = World()
    made: list[Client] = []

    def factory() -> Client:
        made.append(Client())
        return made[-1]

    serve(world, factory=factory)

    async def body() -> None:
        client = await connect(world)
        client.transport.write(bytes(3 * QUIET.window))
        client.transport.close()
        client.transport.write(b"too late")
        await made[0].until(3 * QUIET.window)
        assert await made[0].lost is None
        assert made[0].events == ["eof"]
        assert await client.lost is None
        assert len(made[0].received) == 3 * QUIET.window

    world.run("a", body())


def test_aborting_resets_the_peer() -> None:
    world = World()
    serve(world, factory=lambda: made.append(Client()) or made[-1])  # type: ignore[func-returns-value]
    made: list[Client] = []

    async def body() -> None:
        client = await connect(world)
        client.transport.abort()
        assert await client.lost is None
        assert isinstance(await made[0].lost, ConnectionResetError)

    world.run("a", body())


def test_a_failing_protocol_loses_its_connection_only() -> None:
    class Broken(Echo):
        def data_received(self, data: bytes) -> None:
            raise ValueError(data)

    world = World()
    serve(world, factory=Broken)

    async def body() -> None:
        first, second = await connect(world), await connect(world)
        first.transport.write(b"x")
        assert isinstance(await first.lost, ConnectionResetError)
        assert not second.transport.is_closing()

    world.run("a", body())
    assert [str(error.exception) for error in world.loop.unhandled] == ["b'x'"]


def test_a_partition_stalls_bytes_in_flight_until_its_heal() -> None:
    world = World()
    serve(world)

    async def body() -> None:
        client = await connect(world)
        client.transport.write(b"before ")
        await client.until(7)
        world.network.partition(["a"], ["b"])
        client.transport.write(b"during")
        await asyncio.sleep(10)
        assert client.received == b"before "
        assert not client.lost.done()
        world.network.heal()
        healed = world.loop.time()
        assert await client.until(13) == b"before during"
        assert 0 < world.loop.time() - healed < 10, "the sender's pauses have grown with the outage"

    world.run("a", body())


def test_a_one_way_cut() -> None:
    world = World()
    serve(world)

    async def body() -> None:
        client = await connect(world)
        world.network.cut("b", "a")
        client.transport.write(b"x")
        await asyncio.sleep(5)
        assert client.received == b""
        assert any(b"b<a" in line and line.endswith(b"x") for line in world.seen), "the request arrived"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await connect(world)
        world.network.heal("b", "a")
        assert await client.until(1) == b"x"

    world.run("a", body())


def test_without_acknowledgements_only_a_window_arrives() -> None:
    world = World()
    made: list[Client] = []
    serve(world, factory=lambda: made.append(Client()) or made[-1])  # type: ignore[func-returns-value]

    async def body() -> None:
        client = await connect(world)
        world.network.cut("b", "a")
        for _ in range(100):
            client.transport.write(bytes(4096))
            await asyncio.sleep(0.01)
        assert QUIET.unacknowledged <= len(made[0].received) <= QUIET.unacknowledged + 4096
        world.network.heal()
        await made[0].until(100 * 4096)

    world.run("a", body())


def test_connecting_into_a_partition_times_out_like_a_kernel() -> None:
    world = World()
    serve(world)
    world.network.partition(["a"], ["b"])

    async def body() -> None:
        with pytest.raises(TimeoutError) as caught:
            await connect(world)
        assert caught.value.errno == errno.ETIMEDOUT
        assert 120 < world.loop.time() < 135
        connecting = asyncio.create_task(connect(world))
        await asyncio.sleep(10)
        world.network.heal()
        await connecting

    world.run("a", body())


def test_a_killed_process_resets_its_peers() -> None:
    world = World()
    serve(world)

    async def body() -> None:
        client = await connect(world)
        world.hosts["b"].kill()
        world.network.process_died(world.hosts["b"])
        assert isinstance(await client.lost, ConnectionResetError)
        assert world.loop.time() < 0.1
        with pytest.raises(ConnectionRefusedError):
            await connect(world)

    world.run("a", body())


def test_bytes_sent_by_a_killed_process_arrive() -> None:
    world = World()
    made: list[Client] = []
    serve(world, factory=lambda: made.append(Client()) or made[-1])  # type: ignore[func-returns-value]

    async def sender() -> None:
        client = await connect(world)
        client.transport.write(b"last words")

    async def observer() -> None:
        await world.start("a", sender())
        world.hosts["a"].kill()
        await asyncio.sleep(1)
        assert made[0].received == b"last words"
        assert not made[0].lost.done()
        world.network.process_died(world.hosts["a"])
        assert isinstance(await made[0].lost, ConnectionResetError)

    world.run("c", observer())


def test_a_machine_without_power_is_silent_and_resets_once_it_is_back() -> None:
    world = World()
    serve(world)

    async def body() -> None:
        talking, waiting = await connect(world), await connect(world)
        world.hosts["b"].kill()
        world.network.power_lost(world.hosts["b"], "b")
        talking.transport.write(b"a request")
        with pytest.raises(OSError, match="No route to host"):
            await connect(world)
        await asyncio.sleep(20)
        assert not talking.lost.done()
        world.restart("b")
        world.network.power_restored("b")
        await world.start("b", world.loop.create_server(Echo, "b", PORT))
        assert isinstance(await talking.lost, ConnectionResetError)
        assert not waiting.lost.done(), "a connection that only waits never detects it"
        waiting.transport.write(b"hello")
        assert isinstance(await waiting.lost, ConnectionResetError)
        await connect(world)

    world.run("a", body())


def test_some_connections_are_reset_by_a_partition() -> None:
    def resets(probability: float) -> int:
        world = World(seed=3, conditions=Conditions(reset_after_partition=probability))
        serve(world)

        async def body() -> int:
            clients = [await connect(world) for _ in range(20)]
            world.network.partition(["a"], ["b"])
            for client in clients:
                client.transport.write(b"x")
            await asyncio.sleep(1)
            world.network.heal()
            await asyncio.sleep(10)
            return sum(client.lost.done() for client in clients)

        return world.run("a", body())

    assert resets(0.0) == 0
    assert 0 < resets(0.5) < 20


def test_a_cancelled_connection_attempt_is_removed() -> None:
    world = World()
    made: list[Client] = []
    accepted = asyncio.Event()

    def factory() -> Client:
        accepted.set()
        made.append(Client())
        return made[-1]

    serve(world, factory=factory)

    async def body() -> None:
        connecting = asyncio.create_task(connect(world))
        await accepted.wait()
        connecting.cancel()
        assert isinstance(await made[0].lost, ConnectionResetError)
        assert not world.network._open

    world.run("a", body())


def test_the_seed_determines_the_network() -> None:
    def seen(seed: int) -> list[bytes]:
        world = World(seed, Conditions(split_probability=0.5))
        serve(world)

        async def body() -> None:
            clients = [await connect(world) for _ in range(3)]
            for number, client in enumerate(clients):
                client.transport.write(b"%d" % number * 100)
            for client in clients:
                await client.until(100)

        world.run("a", body())
        return world.seen

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)


def test_a_rejecting_direction_refuses_connections_and_resets_senders() -> None:
    world = World()
    made: list[Client] = []
    serve(world, factory=lambda: made.append(Client()) or made[-1])  # type: ignore[func-returns-value]

    async def body() -> None:
        first, second = await connect(world), await connect(world)
        await asyncio.sleep(0.1)
        world.network.reject("a", "b")
        with pytest.raises(ConnectionRefusedError):
            await connect(world)
        assert not first.lost.done(), "nothing was sent over it"
        first.transport.write(b"x")
        assert isinstance(await first.lost, ConnectionResetError)
        assert not made[0].lost.done(), "its end has sent nothing"
        # What the other end sends arrives, but the acknowledgement is answered with a reset.
        made[1].transport.write(b"y")
        assert isinstance(await second.lost, ConnectionResetError)
        world.network.heal()
        await connect(world)

    world.run("a", body())


def test_a_rejecting_way_back_prevents_connections() -> None:
    world = World()
    serve(world)

    async def body() -> None:
        world.network.reject("b", "a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connect(world), 5)
        world.network.heal("b", "a")
        await connect(world)

    world.run("a", body())


def test_a_bandwidth_is_shared_by_the_connections_of_a_direction() -> None:
    world = World()
    made: list[Client] = []
    serve(world, factory=lambda: made.append(Client()) or made[-1])  # type: ignore[func-returns-value]

    async def body() -> None:
        clients = [await connect(world), await connect(world)]
        world.network.limit("a", "b", 50_000.0)
        began = world.loop.time()
        for client in clients:
            client.transport.write(bytes(50_000))
        await made[0].until(50_000)
        assert world.loop.time() - began == pytest.approx(1.0, abs=0.01)
        await made[1].until(50_000)
        assert world.loop.time() - began == pytest.approx(2.0, abs=0.01)
        made[0].transport.write(bytes(50_000))
        await clients[0].until(50_000)
        assert world.loop.time() - began == pytest.approx(2.0, abs=0.02), "the way back has none"
        world.network.limit("a", "b", None)
        clients[0].transport.write(bytes(50_000))
        await made[0].until(100_000)
        assert world.loop.time() - began == pytest.approx(2.0, abs=0.03)

    world.run("a", body())
