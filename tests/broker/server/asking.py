"""A client of the simulated cluster that sends any request to the broker that it names."""

from typing import Any, TypeVar

from broker.protocol.request import Request
from broker.protocol.schema import Message
from broker.server.client import PeerConnector
from simulator.cluster import SimulatedCluster

R = TypeVar("R", bound=Message)


class Asking:
    """A client that asks one broker and no other."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._connector = PeerConnector(
            -1, cluster.addresses, controllers=cluster.controllers, response_max_bytes=1 << 20
        )

    async def ask(self, broker: int, request: Request[Any], version: int, answer: type[R], timeout: float = 60.0) -> R:
        response = await self._connector.request(broker, request, timeout, version)
        assert isinstance(response, answer)
        return response


async def ready(cluster: SimulatedCluster) -> Asking:
    cluster.start()
    await cluster.ready()
    return Asking(cluster)
