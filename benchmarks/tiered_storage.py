"""Tiered storage: how an empty follower joins, what producers pay, and how fast consumers read remote segments.

    python -m benchmarks.tiered_storage [--only CASE] [--megabytes 2048] [--rounds 3] [--seconds 5] [--directory DIR]

Each case compares two things in alternation, so only the shares mean something on a busy machine:

- `join`: an empty follower joins a partition of `--megabytes`, 90 % of them in remote storage and 97 % in the leader's
  own files, without and with KIP-1023. (A leader that has all records itself serves all of them: KIP-1023 then changes
  nothing.) Bytes are those of the follower's own log; the time ends when the follower is in the ISR.
- `produce`: acks=all to three replicas, 1 KB records in 1 MB batches, to a topic without and with tiered storage.
- `read`: a consumer reads a quarter of `--megabytes` in sequence, from a topic in the broker's own files and from one
  in remote storage.
- `digests`: a consumer reads the same remote segments of a broker that has just started, which compares objects with
  their digests in the metadata, or which does not (mutant `digest_unchecked`).

The store is a directory, and the brokers, the client and the store share one machine.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.load_client import CLIENT, LoadClient, ask, create_topic, leader_address, produce_frame, wait_for_topic
from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.protocol.messages.config_apis import (
    SET,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from broker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.protocol.messages.offset_apis import (
    EARLIEST_LOCAL_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
)
from broker.protocol.schema import Topic
from tests.broker.clients.harness import Cluster, cluster

MEGABYTE = 1_000_000
RECORD_BYTES, RECORDS = 1_000, 1_000
IN_FLIGHT = 8
SEGMENT_BYTES = 16 << 20
TIERED_SHARE, LOCAL_SHARE = 0.9, 0.97
FETCH_BYTES = 4 << 20
FETCH_VERSION, LIST_VERSION = 12, 9
PATIENCE_S, LOOK_S = 900.0, 0.02
FEATURE = "follower.fetch.last.tiered.offset.enable"
BROKERS = {
    "remote_log_storage_system_enable": "true",
    "remote_log_manager_task_interval_ms": 500,
    "log_retention_check_interval_ms": 500,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 1,
    # A broker that gets no processor time for some seconds keeps its leadership.
    "broker_session_timeout_ms": 60_000,
    "broker_lease_ms": 40_000,
}
RESTARTED = {"broker_session_timeout_ms": 3_000, "broker_lease_ms": 2_000}
"""A broker that starts again leads when the session of its earlier process is over."""
KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(SEGMENT_BYTES)}
PLAIN = KEPT
TIERED = {**KEPT, "remote.storage.enable": "true", "local.retention.ms": "-1", "local.retention.bytes": "-1"}
REMOTE = {**TIERED, "local.retention.bytes": "1"}


async def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s: {what}"
        await asyncio.sleep(LOOK_S)


async def metadata(port: int, topic: str) -> MetadataResponse:
    answer = await ask(port, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), ApiKey.METADATA, 9)
    assert isinstance(answer, MetadataResponse)
    return answer


async def controller(port: int) -> int:
    """The port of the controller."""
    found = await metadata(port, "__remote_log_metadata")
    return next((each.port for each in found.brokers if each.node_id == found.controller_id), port)


async def alter(port: int, kind: int, name: str, settings: Mapping[str, str]) -> None:
    entries = [IncrementalAlterableConfig(key, SET, value) for key, value in settings.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, entries)])
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = await ask(await controller(port), request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        if answer.responses[0].error_code == ErrorCode.NONE:
            return
        assert time.monotonic() < end, answer.responses[0].error_message
        await asyncio.sleep(LOOK_S)


async def assign(port: int, topic: str, replicas: list[int]) -> None:
    reassigned_topic = Topic(topic, [ReassignablePartition(0, replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[reassigned_topic])
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = await ask(await controller(port), request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
        assert isinstance(answer, AlterPartitionReassignmentsResponse)
        if answer.error_code == ErrorCode.NONE and answer.responses[0].partitions[0].error_code == ErrorCode.NONE:
            return
        assert time.monotonic() < end, answer.error_message
        await asyncio.sleep(LOOK_S)


async def wait_for_isr(port: int, topic: str, nodes: list[int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while sorted((await metadata(port, topic)).topics[0].partitions[0].isr_nodes) != nodes:
        assert time.monotonic() < end, f"the ISR is not {nodes}"
        await asyncio.sleep(LOOK_S)


async def offset(port: int, topic: str, timestamp: int) -> int:
    """What ListOffsets answers for the partition."""
    listed_topic = Topic(topic, [ListOffsetsPartition(timestamp=timestamp)])
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = await ask(
            port, ListOffsetsRequest(replica_id=-1, topics=[listed_topic]), ApiKey.LIST_OFFSETS, LIST_VERSION
        )
        assert isinstance(answer, ListOffsetsResponse)
        partition = answer.topics[0].partitions[0]
        if partition.error_code == ErrorCode.NONE:
            return partition.offset
        assert time.monotonic() < end, ErrorCode(partition.error_code).name
        await asyncio.sleep(LOOK_S)


async def wait_for_uploads(port: int, topic: str) -> None:
    """Until all records are in remote segments, except for those of the last segments."""
    end = time.monotonic() + PATIENCE_S
    while True:
        last = await offset(port, topic, LATEST_TIMESTAMP)
        if (last - await offset(port, topic, LATEST_TIERED_TIMESTAMP)) * RECORD_BYTES < 1.2 * SEGMENT_BYTES:
            return
        assert time.monotonic() < end, "the uploads do not end"
        await asyncio.sleep(LOOK_S)


async def wait_for_deletions(port: int, topic: str) -> None:
    """Until the leader's own files do not have the whole log."""
    end = time.monotonic() + PATIENCE_S
    while True:
        if await offset(port, topic, EARLIEST_LOCAL_TIMESTAMP) > 0:
            return
        assert time.monotonic() < end, "the leader deletes no local segment"
        await asyncio.sleep(LOOK_S)


async def load(port: int, topic: str, acks: int, *, seconds: float = 0.5, total_bytes: float = 0) -> float:
    """Append for `seconds`, repeated until `total_bytes` are appended. Returns the rate in bytes per second."""
    frame = produce_frame(topic, acks, RECORD_BYTES, RECORDS)
    await wait_for_topic(port, topic, produce_frame(topic, acks, 100, 1))
    client = LoadClient(topic, frame, IN_FLIGHT)
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    started = time.perf_counter()
    await client.send_for(seconds)
    while client.answered * RECORDS * RECORD_BYTES < total_bytes:
        await client.send_for(seconds)
    rate = client.answered * RECORDS * RECORD_BYTES / (time.perf_counter() - started)
    client.close()
    return rate


def size_of(directory: Path) -> int:
    """Bytes of a log. The broker may remove a segment at any moment."""
    size = 0
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


async def join(nodes: Cluster, megabytes: int, rounds: int) -> dict[str, object]:
    port, topic = nodes.brokers[1].port, "log"
    keeps = {"local.retention.bytes": str(round(LOCAL_SHARE * megabytes * MEGABYTE))}
    await create_topic(port, topic, 1, settings={**TIERED, **keeps}, assignment=[1])
    await load(port, topic, 1, total_bytes=TIERED_SHARE * megabytes * MEGABYTE)
    await wait_for_uploads(port, topic)
    # All that follows is in the open segment, which is not uploaded.
    await alter(port, TOPIC_RESOURCE, topic, {"segment.bytes": str(1 << 30)})
    await load(port, topic, 1, seconds=0.1, total_bytes=(1 - TIERED_SHARE) * megabytes * MEGABYTE)
    await wait_for_deletions(port, topic)
    # Before any reassignment: a leader does not know the last tiered offset for a moment after its partition changes.
    end, tiered = await offset(port, topic, LATEST_TIMESTAMP), await offset(port, topic, LATEST_TIERED_TIMESTAMP)
    found: dict[str, list[tuple[float, int]]] = {"false": [], "true": []}
    for number in range(rounds):
        for value in ("false", "true") if number % 2 == 0 else ("true", "false"):
            await alter(port, BROKER_RESOURCE, "", {FEATURE: value})
            log = nodes.brokers[2].log_dir / f"{topic}-0"
            await until(lambda log=log: not log.exists(), "the follower has no replica")  # type: ignore[misc]
            began = time.monotonic()
            await assign(port, topic, [1, 2])
            await wait_for_isr(port, topic, [1, 2])
            found[value].append((time.monotonic() - began, size_of(log)))
            await assign(port, topic, [1])
            await wait_for_isr(port, topic, [1])
    (s, moved), (s_with, moved_with) = (
        tuple(statistics.median(values) for values in zip(*found[value], strict=True)) for value in ("false", "true")
    )
    return {
        "partition_MB": round(end * RECORD_BYTES / MEGABYTE),
        "tiered_percent": round(100 * (tiered + 1) / end, 1),
        "seconds": [round(s, 2), round(s_with, 2)],
        "MB": [round(moved / MEGABYTE, 1), round(moved_with / MEGABYTE, 1)],
        "seconds_percent": round(100 * s_with / s, 1),
        "MB_percent": round(100 * moved_with / moved, 1),
    }


async def produce(nodes: Cluster, seconds: float, rounds: int) -> dict[str, object]:
    any_port = nodes.brokers[1].port
    rates: dict[str, list[float]] = {"plain": [], "tiered": []}
    for number in range(rounds):
        for name in ("plain", "tiered") if number % 2 == 0 else ("tiered", "plain"):
            topic = f"{name}-{number}"
            await create_topic(any_port, topic, 3, settings=TIERED if name == "tiered" else PLAIN)
            port = await leader_address([broker.port for broker in nodes.brokers.values()], topic)
            rates[name].append(await load(port, topic, -1, seconds=seconds))
            if name == "tiered":
                await wait_for_uploads(port, topic)
    return compared(rates["plain"], rates["tiered"])


async def read(nodes: Cluster, megabytes: int, rounds: int) -> dict[str, object]:
    port = nodes.brokers[1].port
    for topic, settings in (("local", PLAIN), ("remote", REMOTE)):
        await create_topic(port, topic, 1, settings=settings)
        await load(port, topic, 1, total_bytes=megabytes * MEGABYTE / 4)
    await wait_for_uploads(port, "remote")
    log = nodes.brokers[1].log_dir / "remote-0"
    await until(lambda: size_of(log) <= SEGMENT_BYTES, "the local copies are deleted")
    end = await offset(port, "remote", LATEST_TIERED_TIMESTAMP)
    rates: dict[str, list[float]] = {"local": [], "remote": []}
    for number in range(rounds):
        for topic in ("local", "remote") if number % 2 == 0 else ("remote", "local"):
            rates[topic].append(await consume(port, topic, min(end, await offset(port, "local", LATEST_TIMESTAMP))))
    return compared(rates["local"], rates["remote"])


async def read_digests(nodes: Cluster, megabytes: int, rounds: int) -> dict[str, object]:
    broker, topic = nodes.brokers[1], "remote"
    await create_topic(broker.port, topic, 1, settings=REMOTE)
    await load(broker.port, topic, 1, total_bytes=megabytes * MEGABYTE / 4)
    await wait_for_uploads(broker.port, topic)
    await until(lambda: size_of(broker.log_dir / f"{topic}-0") <= SEGMENT_BYTES, "the local copies are deleted")
    end = await offset(broker.port, topic, LATEST_TIERED_TIMESTAMP)
    rates: dict[str, list[float]] = {"unchecked": [], "checked": []}
    for number in range(rounds):
        for name in ("unchecked", "checked") if number % 2 == 0 else ("checked", "unchecked"):
            broker.terminate()
            broker.start(*(("--mutant", "digest_unchecked") if name == "unchecked" else ()))
            broker.wait_ready()
            await wait_for_uploads(broker.port, topic)
            rates[name].append(await consume(broker.port, topic, end))
    return compared(rates["unchecked"], rates["checked"])


async def consume(port: int, topic: str, end: int) -> float:
    """Fetch the records up to `end` in sequence; returns the bytes per second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * FETCH_BYTES)
    at = total = 0
    started = time.perf_counter()
    while at < end:
        fetched_topic = FetchTopic(topic, partitions=[FetchPartition(fetch_offset=at, partition_max_bytes=FETCH_BYTES)])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=[fetched_topic])
        writer.write(encode_request(request, FETCH_VERSION, 1, CLIENT))
        frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        _, position = decode_response_header(APIS[ApiKey.FETCH], FETCH_VERSION, frame)
        answer = decode(FetchResponse, FETCH_VERSION, frame, position)[0]
        assert isinstance(answer, FetchResponse)
        records = bytes(answer.responses[0].partitions[0].records or b"")
        total += len(records)
        at = next_offset(records, at)
    rate = total / (time.perf_counter() - started)
    writer.close()
    return rate


def next_offset(batches: bytes, otherwise: int) -> int:
    """The offset after the last whole batch."""
    position, behind = 0, otherwise
    while position + 27 <= len(batches):
        base, length = struct.unpack_from(">qi", batches, position)
        position += 12 + length
        if position <= len(batches):
            behind = base + 1 + struct.unpack_from(">i", batches, position - length + 11)[0]
    return behind


def compared(one: list[float], other: list[float]) -> dict[str, object]:
    """Medians of bytes per second, and the share of the second in the first."""
    rates = [round(statistics.median(each) / MEGABYTE, 1) for each in (one, other)]
    return {"MB_per_s": rates, "percent": round(100 * rates[1] / rates[0], 1)}


async def measure(case: str, nodes: Cluster, options: argparse.Namespace) -> dict[str, object]:
    match case:
        case "join":
            return await join(nodes, options.megabytes, options.rounds)
        case "produce":
            return await produce(nodes, options.seconds, options.rounds)
        case "digests":
            return await read_digests(nodes, options.megabytes, options.rounds)
        case _:
            return await read(nodes, options.megabytes, options.rounds)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiered_storage", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("join", "produce", "read", "digests"), help="one case (default: all)")
    parser.add_argument("--megabytes", type=int, default=2_048, help="size of the partition (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds per case; the result is their median (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="load of `produce` (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the data is kept (default: a temporary one)")
    options = parser.parse_args(arguments)
    for case, nodes, least in (("join", 2, 1), ("produce", 3, 2), ("read", 1, 1), ("digests", 1, 1)):
        if options.only not in (None, case):
            continue
        directory = Path(tempfile.mkdtemp(prefix="brownout-bench-", dir=options.directory))
        store = directory / "store"
        store.mkdir()
        replicas = {"rlmm_config_remote_log_metadata_topic_replication_factor": 1, "min_insync_replicas": least}
        settings = {**BROKERS, **replicas, **(RESTARTED if case == "digests" else {})}
        try:
            with cluster(directory / "brokers", nodes, **settings, rsm_config_url=f"file://{store}") as running:
                print(case, json.dumps(asyncio.run(measure(case, running, options))), flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
