"""A broker that is alive never ends a connection of its heartbeats in order: such an end proves that it is gone.

Real sockets: what counts is which end the peer's kernel reports, and when.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from broker.server.client import PeerConnection
from broker.server.lease import Lease
from tests.stories import played_by

pytestmark = pytest.mark.conforms("H31")
Open = tuple[asyncio.Transport, PeerConnection]
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Story:
    """A connection of heartbeats, and the controller's end of it. `lease` is valid at the start."""

    def __init__(self, lease: Lease, opened: Open, peer: Peer) -> None:
        self.lease = lease
        self.transport, self.connection = opened
        self.reader, self.writer = peer

    async def is_ended_in_order(self) -> bool:
        """What the controller sees of the end, once it comes."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return False


def play(story: Callable[[Story], Awaitable[None]]) -> None:
    async def run() -> None:
        loop, lease = asyncio.get_running_loop(), Lease()
        lease.renew(loop.time() + 3600, lease.term)
        peers: asyncio.Queue[Peer] = asyncio.Queue()
        server = await asyncio.start_server(lambda *peer: peers.put_nowait(peer), "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        async with asyncio.timeout(120):
            opened = await loop.create_connection(lambda: PeerConnection(1 << 20, lease.give_up), *address)
            await story(Story(lease, opened, await peers.get()))
        server.close()

    asyncio.run(run())


STORIES = played_by(play)


async def test_a_connection_closed_by_the_event_loop_is_reset_after_the_lease(it: Story, /) -> None:
    it.transport.close()
    assert not await it.is_ended_in_order()
    assert not it.lease.valid()


@pytest.mark.parametrize("end", [PeerConnection.retire, lambda connection: connection.drop("no answer")])
async def test_a_connection_dropped_by_the_broker_is_reset_and_the_lease_stays(
    it: Story, /, end: Callable[[PeerConnection], None]
) -> None:
    end(it.connection)
    assert not await it.is_ended_in_order()
    assert it.lease.valid()


@pytest.mark.parametrize("reset", [False, True])
async def test_an_end_by_the_controller_keeps_the_lease(it: Story, /, reset: bool) -> None:
    if reset:
        sock = it.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    heartbeat = it.connection.send(1, bytearray(b"?"))
    await it.reader.readexactly(1)
    it.writer.close()
    with pytest.raises(ConnectionError):
        await heartbeat
    assert it.lease.valid()


async def test_an_answer_to_a_heartbeat_of_before_does_not_renew_the_lease(it: Story, /) -> None:
    term = it.lease.term
    it.lease.give_up()
    it.lease.renew(asyncio.get_running_loop().time() + 3600, term)
    assert not it.lease.valid()
