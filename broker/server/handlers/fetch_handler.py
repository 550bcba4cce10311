"""Fetch: consumers read to the high watermark, replicas to the log's end, and quorum members the metadata log.

Fetch sessions (KIP-227) are declined: every answer has session id 0, and clients then send full requests.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from broker.controller.image import MetadataImage
from broker.errors import ErrorCode
from broker.protocol.api import ApiKey
from broker.protocol.messages.fetch import FetchRequest, FetchTopic, fetching_replica
from broker.replica.manager import ReplicaManager
from broker.replica.reads import FetchLimits, FetchPosition, PartitionRead
from broker.server.connection import Outcome
from broker.server.dispatch import Call, Dispatcher, Later, frame_later
from broker.server.handlers.fetch_response import TopicAnswer, fetch_reply
from broker.server.reply import Reply

MOST_BYTES = 64 << 20  # of one answer
LONGEST_WAIT = 30.0  # seconds
FIRST_WITH_TOPIC_IDS = 13
READ_COMMITTED = 1
FEW = 100  # partitions; requests up to this size may name a partition twice


def serve_quorum_fetch(dispatcher: Dispatcher, fetch: Later[FetchRequest]) -> None:
    """Serve Fetch at the controller listener, where only the metadata log can be fetched."""

    def serve(call: Call) -> Outcome:
        request = cast(FetchRequest, call.request(dispatcher.turns))
        work = frame_later(call, fetch(request, call.version))
        return dispatcher.later(call, work, blocking=False, only_for_peer=True)

    dispatcher.serve(ApiKey.FETCH, serve)


@dataclass(eq=False)
class FetchHandler:
    """Serves Fetch requests of consumers and replicas; the metadata log is not served here."""

    _dispatcher: Dispatcher
    _replicas: ReplicaManager
    _image: Callable[[], MetadataImage]

    def serve(self, call: Call) -> Outcome:
        request = cast(FetchRequest, call.request(self._dispatcher.turns))
        if request.session_id:
            return self._reply(call, request, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        limits = _limits(request)
        names = [self._name(call.version, topic) for topic in request.topics]
        positions = _positions(call.version, request, names)
        if len(positions) > FEW and len({(position.topic, position.partition) for position in positions}) < len(
            positions
        ):
            # Every append reads all partitions of a parked fetch again: the number of partitions bounds that work.
            return self._reply(call, request, [], ErrorCode.INVALID_REQUEST)
        if None in names:
            limits.max_wait = 0  # an unknown topic is reported at once
        reads = self._replicas.fetch_now(limits, positions)
        if reads is not None:
            return self._reply(call, request, _answers(request, names, reads))
        work = self._wait(call, request, names, self._replicas.wait_for_fetch(limits, positions))
        # Each append reads all parked fetches again, so a consumer has one parked fetch per connection, as in Kafka.
        # A replica's next request on the connection does not wait for its parked fetch.
        return self._dispatcher.later(call, work, blocking=not limits.is_replica, only_for_peer=True)

    async def _wait(
        self,
        call: Call,
        request: FetchRequest,
        names: Sequence[str | None],
        reads: Awaitable[list[PartitionRead]],
    ) -> Reply:
        return self._reply(call, request, _answers(request, names, await reads))

    def _name(self, version: int, topic: FetchTopic) -> str | None:
        """The name of a requested topic; None when its id is unknown here."""
        if version < FIRST_WITH_TOPIC_IDS:
            return topic.topic
        known_topic = self._image().topic_by_id(topic.topic_id)
        return None if known_topic is None else known_topic.name

    def _reply(
        self, call: Call, request: FetchRequest, topics: Sequence[TopicAnswer], error: ErrorCode = ErrorCode.NONE
    ) -> Reply:
        read_committed = request.isolation_level == READ_COMMITTED
        topics = call.amended(topics)
        return fetch_reply(call.version, call.correlation_id, topics, read_committed=read_committed, error=error)


def _limits(request: FetchRequest) -> FetchLimits:
    replica = fetching_replica(request)
    return FetchLimits(
        replica_id=replica.replica_id,
        replica_epoch=replica.replica_epoch,
        max_wait=min(max(request.max_wait_ms, 0) / 1000, LONGEST_WAIT),
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, MOST_BYTES),
    )


def _positions(version: int, request: FetchRequest, names: Sequence[str | None]) -> list[FetchPosition]:
    """The partitions of all known topics, in the order of the request."""
    return [
        FetchPosition(
            topic=name,
            partition=partition.partition,
            fetch_offset=partition.fetch_offset,
            max_bytes=partition.partition_max_bytes,
            current_leader_epoch=partition.current_leader_epoch,
            last_fetched_epoch=partition.last_fetched_epoch,
            log_start_offset=partition.log_start_offset,
            topic_id=topic.topic_id if version >= FIRST_WITH_TOPIC_IDS else None,
        )
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None
        for partition in topic.partitions
    ]


def _answers(request: FetchRequest, names: Sequence[str | None], reads: Sequence[PartitionRead]) -> list[TopicAnswer]:
    """The reads (in the order of `_positions`) by topic, with an error for each unknown topic."""
    remaining: Iterator[PartitionRead] = iter(reads)
    unknown = PartitionRead("", 0, ErrorCode.UNKNOWN_TOPIC_ID)
    return [
        TopicAnswer(
            name or "",
            [
                next(remaining) if name is not None else replace(unknown, partition=partition.partition)
                for partition in topic.partitions
            ],
            topic.topic_id,
        )
        for name, topic in zip(names, request.topics, strict=True)
    ]
