"""A client of the simulated cluster that sends any request to the broker that it names."""

from broker.protocol.request import Request, Response
from broker.server.client import PeerConnector
from simulator.cluster import SimulatedCluster


class Asking:
    """A client that asks one broker and no other."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._connector = PeerConnector(
            -1, cluster.addresses, controllers=cluster.controllers, response_max_bytes=1 << 20
        )

    async def ask(
        self, broker: int, request: Request[Response], version: int | None = None, timeout: float = 60.0
    ) -> Response:
        return await self._connector.request(broker, request, timeout, version)


async def ready(cluster: SimulatedCluster) -> Asking:
    cluster.start()
    await cluster.ready()
    return Asking(cluster)
