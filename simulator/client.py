"""Small clients of the broker's protocol: one for records and topics, and a member of a consumer group, which joins,
heartbeats, commits and leaves. Both distinguish refused from uncertain outcomes."""

import asyncio
import contextlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from broker.errors import ErrorCode
from broker.producers.producer_ids import Identity
from broker.protocol.compression import NAMES, compress_records, open_records
from broker.protocol.messages.cluster_apis import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.group_apis import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from broker.protocol.messages.offset_apis import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from broker.protocol.messages.producer_apis import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from broker.protocol.messages.topic_apis import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    Record,
    build_batch,
    iter_batches,
    parse_header,
    read_records,
)
from broker.protocol.request import Request, Response
from broker.protocol.schema import Topic
from broker.server.client import Address, PeerConnector

# ---- Compresses and opens batches, as a client does.

CODECS: Final = {name: codec for codec, name in NAMES.items()}
"""By the name in a client's configuration; `none` is not among them."""

# The positions of a batch's length, checksum and attributes; the checksum covers everything from the attributes on.
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 17, 21
_LENGTH_BEHIND: Final = 12


def compressed(batch: bytes, name: str) -> bytes:
    """The batch with its records compressed; unchanged for "none". Raises KeyError for an unknown codec."""
    if name == "none":
        return batch
    return _with_records(batch, CODECS[name], compress_records(CODECS[name], batch[BATCH_HEADER_SIZE:]))


def opened(batch: bytes) -> bytes:
    """The batch with its records decompressed. Raises `CorruptBatch` and what `open_records` raises."""
    codec = parse_header(batch).compression
    return _with_records(batch, 0, open_records(codec, batch[BATCH_HEADER_SIZE:])) if codec else batch


def _with_records(batch: bytes, codec: int, records: bytes) -> bytes:
    new_batch = bytearray(batch[:BATCH_HEADER_SIZE]) + records
    attributes = parse_header(batch).attributes & ~COMPRESSION_MASK | codec
    struct.pack_into(">i", new_batch, _LENGTH_AT, len(new_batch) - _LENGTH_BEHIND)
    struct.pack_into(">h", new_batch, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">I", new_batch, _CRC_AT, crc32c(bytes(new_batch[_ATTRIBUTES_AT:])))
    return bytes(new_batch)


CLIENT_ID = -1
RESPONSE_MAX_BYTES = 16 << 20
FETCH_BYTES = 1 << 20
RETRY_PAUSE_S = 0.05
REFRESH_S = 1.0  # how often a client library requests metadata
VERSIONS: Final[Mapping[type[Request[Any]], int]] = {FetchRequest: 12}
"""Of requests that are not sent in their newest version: later ones of Fetch do not name topics."""
NEW: Final = Identity(-1, -1)
"""The identity of a producer that has none yet."""

# Error codes of a produce response that guarantee that nothing was appended.
NOTHING_HAPPENED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class NoResultError(Exception):
    """A request without its result. `code`: the error code of the answer; None without an answer."""

    def __init__(self, reason: ErrorCode | str) -> None:
        super().__init__(reason.name if isinstance(reason, ErrorCode) else reason)
        self.code = reason if isinstance(reason, ErrorCode) else None


class RefusedError(NoResultError):
    """The request was certainly not executed."""

    code: ErrorCode


class UncertainError(NoResultError):
    """The request may have been executed, or may still be."""


class BrokerConnections:
    """The connections of one client to the brokers."""

    def __init__(self, brokers: Mapping[int, Address]) -> None:
        self._connector = PeerConnector(CLIENT_ID, brokers, response_max_bytes=RESPONSE_MAX_BYTES)

    async def ask(self, node: int, request: Request[Response], timeout: float) -> Response:
        """The answer of a broker. Raises `UncertainError` without one."""
        try:
            return await self._connector.request(node, request, timeout, VERSIONS.get(type(request)))
        except OSError as error:
            raise UncertainError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Drop every connection."""
        self._connector.close()


class FetchResult(NamedTuple):
    """The result of a fetch: data records from the requested offset on, and the high watermark."""

    records: list[Record]
    next_offset: int
    high_watermark: int


class SimulatedClient:
    """Uses a cluster from the host in whose context it runs. Timeouts are in seconds.

    Responses arrive in the order of the requests. A request that times out closes its connection, with all pending
    requests on it. Client libraries prevent a metadata request from ending an append's wait: Java's uses the broker
    with the fewest pending requests, librdkafka waits for it as long as for any other. Here metadata requests use
    separate connections.
    """

    def __init__(self, brokers: Mapping[int, Address], *, first: int = 0) -> None:
        """`first`: the place of the broker that is asked first, modulo the number of brokers."""
        self._brokers = sorted(brokers)
        self._connections = BrokerConnections(brokers)
        self._for_metadata = BrokerConnections(brokers)
        self._leaders: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}  # the newest known leader epoch, by partition
        self._turn = first

    async def metadata(self, topics: Sequence[str] = (), timeout: float = 1.0) -> MetadataResponse:
        """Metadata from one broker: the same broker as before until a request fails. Raises `UncertainError`."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        for _ in self._brokers:
            node = self._brokers[self._turn % len(self._brokers)]
            try:
                return await self._for_metadata.ask(node, request, timeout)
            except UncertainError:
                self._turn += 1
        raise UncertainError("no broker answers")

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 3,
        timeout: float = 30.0,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and return once the leaders of its partitions serve it. Raises `TimeoutError`."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(*config) for config in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        async with asyncio.timeout(timeout):
            while True:
                with contextlib.suppress(UncertainError):
                    controller = (await self.metadata()).controller_id
                    if controller in self._brokers:
                        answer = await self._connections.ask(controller, request, 6.0)
                        if answer.topics[0].error_code in done:
                            break
                await asyncio.sleep(RETRY_PAUSE_S)
            for partition in range(partitions):
                await self.read_all(name, partition)

    async def leader_of(self, topic: str, partition: int, *, unlike: int = -1) -> int:
        """The leader of a partition as soon as there is one, other than `unlike`."""
        while True:
            try:
                (topic_metadata,) = (await self.metadata([topic])).topics
            except UncertainError:
                topic_metadata = None
            if topic_metadata is not None:
                for state in topic_metadata.partitions:
                    if state.partition_index == partition and state.leader_id not in (-1, unlike):
                        if self._learn(topic, state):
                            return state.leader_id
                        self._turn += 1  # this broker has old metadata
            await asyncio.sleep(RETRY_PAUSE_S)

    async def find_leader(self, topic: str, partition: int, timeout: float) -> int:
        """The known leader, else the leader as soon as a broker names one. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            leader = self._leaders.get((topic, partition))
            return await self.leader_of(topic, partition) if leader is None else leader

    async def keep_up(self, topic: str) -> None:
        """Refresh the metadata periodically, as client libraries do in the background; never returns."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh(topic)

    async def refresh(self, topic: str) -> None:
        """Request metadata, and replace the known leaders unless they are newer or no broker answers."""
        try:
            (topic_metadata,) = (await self.metadata([topic])).topics
        except UncertainError:
            return
        for state in topic_metadata.partitions:
            if state.leader_id >= 0:
                self._learn(topic, state)

    def _learn(self, topic: str, state: MetadataResponsePartition) -> bool:
        """Store a partition's leader unless a newer one is known; returns whether it was stored."""
        key = topic, state.partition_index
        if state.leader_epoch < self._epochs.get(key, -1):
            return False
        self._epochs[key], self._leaders[key] = state.leader_epoch, state.leader_id
        return True

    async def init_producer_id(self, timeout: float = 30.0, last: Identity = NEW) -> Identity:
        """The id and epoch of an idempotent producer, as soon as a broker assigns them: of a new one, or of the one
        that was `last`, in its next epoch (KIP-360). Raises `TimeoutError`."""
        request = InitProducerIdRequest(None, producer_id=last.producer_id, producer_epoch=last.epoch)
        async with asyncio.timeout(timeout):
            while True:
                self._turn += 1
                node = self._brokers[self._turn % len(self._brokers)]
                with contextlib.suppress(UncertainError):
                    answer = await self._connections.ask(node, request, 5.0)
                    if answer.error_code == ErrorCode.NONE:
                        return Identity(answer.producer_id, answer.producer_epoch)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        *,
        acks: int = -1,
        timeout: float = 5.0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        sequence: int = -1,
        key: bytes | None = None,
        compression: str = "none",
        timestamp: int = 0,
    ) -> int:
        """Send one batch, once; the offset of its first record. Raises `RefusedError`, `UncertainError`, and
        `ValueError` for acks=0, which has no answer.

        `producer_id`, `producer_epoch` and `sequence`: an idempotent producer's. `key`, `timestamp` (ms): of all
        records.
        """
        if acks == 0:
            raise ValueError("an append with acks=0 has no answer")
        records = build_batch(
            [Record(0, timestamp, key, value) for value in values],
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        batch = PartitionProduceData(index=partition, records=compressed(records, compression))
        data = TopicProduceData(name=topic, partition_data=[batch])
        request = ProduceRequest(acks=acks, timeout_ms=int(timeout * 1000), topic_data=[data])
        answer = await self._ask_leader(topic, partition, request, timeout + 1)
        response = answer.responses[0].partition_responses[0]
        self._check(topic, partition, response.error_code, is_certain=response.error_code in NOTHING_HAPPENED)
        return response.base_offset

    async def end(self, topic: str, partition: int, *, timeout: float, broker: int | None = None) -> int:
        """The high watermark of the leader, or of `broker`, whether or not it leads. Raises as `offset`."""
        return await self.offset(topic, partition, LATEST_TIMESTAMP, timeout=timeout, broker=broker)

    async def start(self, topic: str, partition: int, *, timeout: float) -> int:
        """The start of the leader's log. Raises as `offset`."""
        return await self.offset(topic, partition, EARLIEST_TIMESTAMP, timeout=timeout)

    async def offset(
        self, topic: str, partition: int, timestamp: int, *, timeout: float, broker: int | None = None
    ) -> int:
        """The offset of the first record that is not earlier than a timestamp in ms, or for a special timestamp; -1
        without one. Raises `RefusedError`, and `UncertainError` without an answer."""
        query = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[Topic(name=topic, partitions=[query])])
        answer = await self._ask_leader(topic, partition, request, timeout, broker)
        state = answer.topics[0].partitions[0]
        self._check(topic, partition, state.error_code)
        return state.offset

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_wait: float = 0.5, timeout: float = 5.0
    ) -> FetchResult:
        """Read once from the leader. Raises `RefusedError` for an error code, `UncertainError` without an answer."""
        query = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=int(max_wait * 1000), min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[query])]
        )
        answer = await self._ask_leader(topic, partition, request, timeout)
        state = answer.responses[0].partitions[0]
        self._check(topic, partition, state.error_code)
        data = bytes(state.records or b"")
        records: list[Record] = []
        next_offset = offset
        for position, header in iter_batches(data):
            next_offset = header.next_offset
            if not header.is_control:
                batch = opened(data[position : position + header.size])
                records += [record for record in read_records(batch) if record.offset >= offset]
        return FetchResult(records, next_offset, state.high_watermark)

    async def delete_records(self, topic: str, partition: int, offset: int, *, timeout: float = 5.0) -> int:
        """Delete the records below an offset, -1: below the high watermark; the low watermark. Raises `RefusedError`,
        and `UncertainError` if the deletion may have happened."""
        query = Topic(topic, [DeleteRecordsPartition(partition, offset)])
        request = DeleteRecordsRequest([query], int(timeout * 1000))
        answer = await self._ask_leader(topic, partition, request, timeout + 1)
        state = answer.topics[0].partitions[0]
        self._check(topic, partition, state.error_code, is_certain=state.error_code != ErrorCode.REQUEST_TIMED_OUT)
        return state.low_watermark

    async def read_all(self, topic: str, partition: int, timeout: float = 30.0, *, first: int = 0) -> list[Record]:
        """Every record from `first` to the high watermark, as soon as there is a leader that answers. Raises
        `TimeoutError`."""
        records: list[Record] = []
        offset, end = first, -1
        async with asyncio.timeout(timeout):
            while offset != end:
                try:
                    # Not a fetch's high watermark: a new leader's may be below acknowledged offsets.
                    end = max(end, await self.end(topic, partition, timeout=timeout))
                    if offset < end:
                        fetched = await self.fetch(topic, partition, offset, max_wait=0.0)
                        records += fetched.records
                        offset = fetched.next_offset
                except NoResultError:
                    await asyncio.sleep(RETRY_PAUSE_S)
        return records

    def close(self) -> None:
        """Drop every connection."""
        self._connections.close()
        self._for_metadata.close()

    def _forget(self, topic: str, partition: int) -> None:
        """Forget the leader, which is unreachable or does not lead; another broker may have newer metadata."""
        self._turn += self._leaders.pop((topic, partition), None) is not None

    def _check(self, topic: str, partition: int, code: int, *, is_certain: bool = True) -> None:
        """Raise `RefusedError` for an error code, or `UncertainError` if it is not certain that nothing happened."""
        if code != ErrorCode.NONE:
            self._forget(topic, partition)
            raise (RefusedError if is_certain else UncertainError)(ErrorCode(code))

    async def _ask_leader(
        self, topic: str, partition: int, request: Request[Response], timeout: float, broker: int | None = None
    ) -> Response:
        """The answer of the leader, or of `broker`."""
        try:
            async with asyncio.timeout(timeout):
                leader = self._leaders.get((topic, partition)) if broker is None else broker
                if leader is None:
                    leader = await self.leader_of(topic, partition)
                return await self._connections.ask(leader, request, timeout)
        except (TimeoutError, UncertainError) as error:
            self._forget(topic, partition)
            raise UncertainError(str(error) or type(error).__name__) from error


# ---- A member of a consumer group.

FIND_TIMEOUT_S, LEAVE_TIMEOUT_S = 1.0, 2.0
TYPE, BY_TURNS = "consumer", "by-turns"

# Errors after which another broker may be the coordinator.
_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)

_REPLACED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
LEFT: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}) | _REPLACED
"""Errors after which a member must rejoin; after others it stays in its generation."""


class GroupClient:
    """One member, or a client that only fetches offsets. Timeouts are in seconds.

    Every method raises `RefusedError`, and `UncertainError` without an answer; if the coordinator may have moved, the
    next call looks it up again.
    """

    def __init__(
        self, group: str, brokers: Mapping[int, Address], *, session_ms: int = 6_000, instance: str | None = None
    ) -> None:
        """`session_ms`: the time without a heartbeat after which the group removes this member. `instance`: its
        instance id, if it is a static member."""
        self.generation = -1
        self._group = group
        self._session_ms = session_ms
        self._instance = instance
        self._brokers = sorted(brokers)
        self._connections = BrokerConnections(brokers)
        self._member = ""
        self._coordinator: int | None = None

    async def join(self, partitions: int) -> list[int]:
        """This member's share of `partitions` partitions in a new generation: round-robin, in the order of members."""
        protocols = [JoinGroupRequestProtocol(BY_TURNS, b"")]
        patience_s = 2.0 * self._session_ms / 1000  # the others have a session's time to rejoin as well
        while True:
            request = JoinGroupRequest(
                self._group, self._session_ms, self._session_ms, self._member, self._instance, TYPE, protocols
            )
            joined = await self._ask(request, patience_s)
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._member = joined.member_id
        self._check(joined.error_code)
        self._member, self.generation = joined.member_id, joined.generation_id
        names = sorted(member.member_id for member in joined.members)
        shares = [
            SyncGroupRequestAssignment(name, _as_bytes(range(number, partitions, len(names))))
            for number, name in enumerate(names)
        ]
        sync = SyncGroupRequest(self._group, self.generation, self._member, self._instance, assignments=shares)
        assigned = await self._ask(sync, patience_s)
        self._check(assigned.error_code)
        return [int(text) for text in assigned.assignment.split()]

    async def heartbeat(self, timeout: float = 2.0) -> None:
        """Send a heartbeat."""
        beat = HeartbeatRequest(self._group, self.generation, self._member, self._instance)
        self._check((await self._ask(beat, timeout)).error_code)

    async def commit(self, topic: str, offsets: Mapping[int, int], timeout: float = 6.0) -> dict[int, ErrorCode]:
        """Commit offsets, once: the answer for each partition."""
        places = [OffsetCommitRequestPartition(partition, offset, -1, "") for partition, offset in offsets.items()]
        request = OffsetCommitRequest(
            self._group, self.generation, self._member, self._instance, topics=[Topic(topic, places)]
        )
        answer = await self._ask(request, timeout)
        codes = {state.partition_index: ErrorCode(state.error_code) for state in answer.topics[0].partitions}
        for code in codes.values():
            self._learn(code)
        return codes

    async def committed(self, topic: str, partitions: Sequence[int], timeout: float = 2.0) -> dict[int, int]:
        """The committed offsets of these partitions; -1 without one."""
        query = OffsetFetchRequestGroup(self._group, topics=[OffsetFetchRequestTopic(topic, list(partitions))])
        answer = await self._ask(OffsetFetchRequest(groups=[query]), timeout)
        (group,) = answer.groups
        self._check(group.error_code)
        return {
            state.partition_index: state.committed_offset
            for state in group.topics[0].partitions
            if state.error_code == ErrorCode.NONE
        }

    async def delete(self, timeout: float = 6.0) -> ErrorCode:
        """Delete the group with its offsets, once: the answer."""
        answer = await self._ask(DeleteGroupsRequest([self._group]), timeout)
        code = ErrorCode(answer.results[0].error_code)
        self._learn(code)
        return code

    def restart(self) -> None:
        """Forget this member, as a process that starts again: a static one returns by its instance id, and the group
        waits for the session of another one."""
        self._member, self.generation = "", -1

    async def leave(self) -> None:
        """Send a LeaveGroup request without requiring an answer, and close every connection."""
        if self._member:
            request = LeaveGroupRequest(self._group, members=[MemberIdentity(self._member, self._instance)])
            with contextlib.suppress(NoResultError):
                await self._ask(request, LEAVE_TIMEOUT_S)
        self._connections.close()

    # --- the coordinator

    async def _ask(self, request: Request[Response], timeout: float) -> Response:
        if self._coordinator is None:
            self._coordinator = await self._find()
        try:
            return await self._connections.ask(self._coordinator, request, timeout)
        except UncertainError:
            self._coordinator = None
            raise

    async def _find(self) -> int:
        self._brokers.append(self._brokers.pop(0))  # a broker that is cut off keeps naming the old coordinator
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        for node in tuple(self._brokers):
            with contextlib.suppress(UncertainError):
                (coordinator,) = (await self._connections.ask(node, request, FIND_TIMEOUT_S)).coordinators
                if coordinator.error_code == ErrorCode.NONE:
                    return coordinator.node_id
        raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _check(self, code: int) -> None:
        if code != ErrorCode.NONE:
            self._learn(ErrorCode(code))
            raise RefusedError(ErrorCode(code))

    def _learn(self, code: ErrorCode) -> None:
        if code in _MOVED:
            self._coordinator = None
        elif code in _REPLACED:
            self._member = ""


def _as_bytes(partitions: range) -> bytes:
    return " ".join(str(partition) for partition in partitions).encode()
