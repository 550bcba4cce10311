"""FetchSnapshot (59): a piece of a snapshot of the metadata log (KIP-630)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker.protocol.messages.fetch import LeaderIdAndEpoch
from broker.protocol.schema import NO_ID, Int16, Int32, Int64, Message, Records, ServedApi, String, Tag, UInt16, Uuid, v


class SnapshotId(Message):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class PartitionSnapshot(Message):
    """`position`: of the first requested byte."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = msgspec.field(default_factory=SnapshotId)
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, v("1+"), Tag(0)] = NO_ID


class TopicSnapshot(Message):
    name: String = ""
    partitions: list[PartitionSnapshot] = []


class FetchSnapshotRequest(Message):
    API = ServedApi(59, v("0-1"), advertised=v("none"), operation="CLUSTER_ACTION")
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    cluster_id: Annotated[String | None, Tag(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[TopicSnapshot] = []


class PartitionSnapshotResult(Message):
    """`size`: of the whole snapshot; `unaligned_records`: bytes of it, which may start and end inside a batch."""

    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = msgspec.field(default_factory=SnapshotId)
    current_leader: Annotated[LeaderIdAndEpoch | None, Tag(0)] = None
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = b""


class TopicSnapshotResult(Message):
    name: String = ""
    partitions: list[PartitionSnapshotResult] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: UInt16 = 0


class FetchSnapshotResponse(Message):
    VERSIONS = v("0-1")
    FLEXIBLE = v("0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicSnapshotResult] = []
    node_endpoints: Annotated[list[NodeEndpoint], v("1+"), Tag(0)] = []
