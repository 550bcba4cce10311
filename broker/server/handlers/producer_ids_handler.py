"""InitProducerId: ids from blocks that the controller assigns to this broker, so that no id is used twice."""

import asyncio
from collections.abc import Callable

from broker.errors import ErrorCode
from broker.peers import Peers
from broker.producers.producer_ids import NONE, Identity, ProducerIds, next_epoch
from broker.protocol.messages.producer_apis import (
    AllocateProducerIdsRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)


class ProducerIdsHandler:
    """Serves InitProducerId. `controller_id` and `broker_epoch` return what this broker knows now; `first_unused` the
    end of all assigned blocks in its image; `timeout_s` bounds the wait for a block."""

    def __init__(
        self,
        *,
        node_id: int,
        peers: Peers,
        controller_id: Callable[[], int | None],
        broker_epoch: Callable[[], int],
        first_unused: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._peers = peers
        self._controller_id = controller_id
        self._broker_epoch = broker_epoch
        self._first_unused = first_unused
        self._timeout_s = timeout_s
        self.ids = ProducerIds()
        self._turn = asyncio.Lock()
        self._refused_at = float("-inf")

    async def init_producer_id(self, request: InitProducerIdRequest, _version: int) -> InitProducerIdResponse:
        """Without a block COORDINATOR_LOAD_IN_PROGRESS makes every client retry. Transactions are not supported."""
        if request.transactional_id is not None:
            return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        old_identity = Identity(request.producer_id, request.producer_epoch)
        if (old_identity.producer_id == NONE) != (old_identity.epoch == NONE):
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
        identity = next_epoch(old_identity, self._first_unused()) or await self._new()
        if identity is None:
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)

    async def _new(self) -> Identity | None:
        """A new producer; None when the controller assigns no block now. Requests that waited for a failed attempt do
        not start another: their clients retry."""
        loop = asyncio.get_running_loop()
        came_at = loop.time()
        async with self._turn:
            if self.ids.empty and self._refused_at < came_at:
                await self._fetch_block()
            if not self.ids.empty:
                return self.ids.take()
            self._refused_at = max(self._refused_at, loop.time())
            return None

    async def _fetch_block(self) -> None:
        controller = self._controller_id()
        if controller is None:
            return
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        try:
            response = await self._peers.request(controller, request, self._timeout_s)
        except (ConnectionError, TimeoutError):
            return
        if response.error_code == ErrorCode.NONE:
            self.ids.add(response.producer_id_start, response.producer_id_len)
