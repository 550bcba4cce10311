"""Sends changes of the ISR to the controller (AlterPartition, KIP-497): one request at a time, until it is decided."""

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from broker.config import BrokerConfig
from broker.errors import ErrorCode
from broker.peers import Peers
from broker.protocol.messages.partition_apis import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResult,
    AlterPartitionTopicData,
    BrokerState,
)
from broker.replica.background import Background, end
from broker.replica.leader import IsrProposal, PartitionLeader
from broker.replica.partition import Partition

NOT_APPLIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})
"""The controller has checked the proposal against its partition epoch and refused it."""
SETTLED_BY_METADATA = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller is ahead of this broker. The proposal stays pending (an earlier attempt may have been applied) until
the next metadata show the result (H13)."""


class IsrChangeSender:
    """Queues proposals by partition. A proposal that the metadata have settled meanwhile is not sent."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        peers: Peers,
        controller_id: Callable[[], int | None],
        broker_epoch: Callable[[], int],
        on_settled: Callable[[Partition], None],
        background: Background,
    ) -> None:
        self._config = config
        self._peers = peers
        self._controller_id = controller_id
        self._broker_epoch = broker_epoch
        self._on_settled = on_settled
        self._background = background
        self._backoff = config.quorum_retry_backoff_ms / 1000
        self._max_backoff = config.quorum_retry_backoff_max_ms / 1000
        self._timeout = config.quorum_request_timeout_ms / 1000
        self._queue: dict[Partition, IsrProposal] = {}
        self._paused: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()  # removed partitions disappear from it
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def may_propose(self, partition: Partition) -> bool:
        """False for a short time after a refusal, so that not every fetch of a refused follower causes a request."""
        return self._paused.get(partition, 0.0) <= asyncio.get_running_loop().time()

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send a proposal, which its leader holds as pending, to the controller."""
        self._queue[partition] = proposal
        self._wanted.set()
        if self._task is None:
            self._task = self._background.run(self._run(), "ISR changes")

    async def stop(self) -> None:
        """Stop sending."""
        self._queue.clear()
        await end(self._task)
        self._task = None

    async def _run(self) -> None:
        backoff = self._backoff
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if await self._send():
                backoff = self._backoff
                continue
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, self._max_backoff)
            self._wanted.set()

    async def _send(self) -> bool:
        """Send one request with all queued proposals. False: some of them must be sent again."""
        for partition, proposal in list(self._queue.items()):
            if not _is_pending(partition, proposal):
                del self._queue[partition]
        sent = dict(self._queue)
        if not sent:
            return True
        controller = self._controller_id()
        if controller is None:
            return False
        try:
            response = await self._peers.request(controller, self._request(sent), self._timeout)
        except (ConnectionError, TimeoutError):
            return False
        if response.error_code != ErrorCode.NONE:
            return False
        results = {(t.topic_id, p.partition_index): p for t in response.topics for p in t.partitions}
        for partition, proposal in list(sent.items()):
            result = results.get((partition.topic_id, partition.index))
            if result is not None and self._decided(partition, proposal, result):
                del sent[partition]
                if self._queue.get(partition) is proposal:
                    del self._queue[partition]
                self._on_settled(partition)
        return not sent

    def _request(self, proposals: dict[Partition, IsrProposal]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionTopicData] = {}
        for partition, proposal in proposals.items():
            topic = topics.setdefault(
                partition.topic_id, AlterPartitionTopicData(topic_id=partition.topic_id, partitions=[])
            )
            topic.partitions.append(
                AlterPartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker, broker_epoch=epoch)
                        for broker, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                    leader_recovery_state=int(proposal.recovering),
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._config.node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _decided(self, partition: Partition, proposal: IsrProposal, result: AlterPartitionResult) -> bool:
        """Apply the controller's answer for one partition. False: the answer decides nothing, ask again."""
        if not _is_pending(partition, proposal):
            return True
        if result.error_code == ErrorCode.NONE and result.leader_epoch != proposal.leader_epoch:
            # It was applied, and this leader's epoch has ended with it, for example by a completed reassignment. The
            # metadata have the new state; until they arrive, the proposed replicas may be elected (H13).
            return True
        if result.error_code == ErrorCode.NONE and _lets_someone_go(partition, result):
            # The answer overtakes the metadata log, and with it an earlier increase of min.insync.replicas. By the old
            # setting a smaller ISR would commit what the controller regards as not committed, and the replica that left
            # stays eligible (KIP-966). So the change counts when the log has it, after the new setting.
            return True
        if result.error_code == ErrorCode.NONE:
            recovering = bool(result.leader_recovery_state)
            epochs = result.leader_epoch, result.partition_epoch
            if not partition.isr_committed(epochs[0], result.isr, epochs[1], recovering=recovering):
                partition.proposal_refused(proposal)
            return True
        if result.error_code in NOT_APPLIED:
            partition.proposal_refused(proposal)
            self._paused[partition] = asyncio.get_running_loop().time() + self._max_backoff
            return True
        return result.error_code in SETTLED_BY_METADATA


def _is_pending(partition: Partition, proposal: IsrProposal) -> bool:
    """Whether the leader still waits for the outcome of this proposal."""
    leader = partition.role
    return isinstance(leader, PartitionLeader) and leader.pending is proposal


def _lets_someone_go(partition: Partition, result: AlterPartitionResult) -> bool:
    """Whether the answer has made the ISR smaller, and the leader has not read that in the metadata log yet."""
    leader = partition.role
    return (
        isinstance(leader, PartitionLeader)
        and result.partition_epoch > leader.partition_epoch
        and not set(leader.isr) <= set(result.isr)
    )
