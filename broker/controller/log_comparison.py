"""Finds the most complete log of partitions without a certain holder (KIP-966, balanced unclean recovery).

Every member of the last known ELR has shut down uncleanly. Some have lost their page cache, others only their process;
only their logs show which. The controller waits until all of them are back, asks each for the end of its log, and
elects the most complete one. The logs do not change meanwhile, because the partition has no leader. A member that
restarts gets another broker epoch, and the answer of its earlier process no longer counts.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from broker.controller.controller import Controller, ControllerDecision, LogsFound
from broker.controller.image import MetadataImage
from broker.controller.partition_elections import LogEnd, waits_for_logs
from broker.errors import ErrorCode, ProtocolError
from broker.peers import Peers
from broker.protocol.messages.partition_apis import GetReplicaLogInfoRequest, GetReplicaLogInfoTopicPartitions
from broker.trace import Tracer

REQUEST_TIMEOUT_S = 1.0
RETRY_S = 0.2
MAX_AT_ONCE = 500  # partitions; their requests and records are far below the limits

Key = tuple[str, int]
Submit = Callable[[Callable[[MetadataImage], ControllerDecision[None]]], asyncio.Future[None]]


class LogComparison:
    """Lasts one term of the controller. `submit` queues a decision among its operations."""

    def __init__(
        self, *, node_id: int, image: MetadataImage, rules: Controller, submit: Submit, peers: Peers, tracer: Tracer
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._rules = rules
        self._submit = submit
        self._peers = peers
        self._tracer = tracer
        self._waiting: dict[Key, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look_at(self, partitions: Iterable[Key]) -> None:
        """Check partitions after a change of them or of one of their brokers."""
        for key in sorted(partitions):  # the same order in every process: a set of names has no stable order
            partition = self._image.partition(*key)
            if partition is not None and waits_for_logs(partition):
                self._waiting[key] = None
            else:
                self._waiting.pop(key, None)
        if self._waiting:
            self._wake.set()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run(), name="comparison of logs")

    def end(self) -> None:
        """The term is over."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            ready = self._ready()
            if not ready:
                continue
            # The former leader may still act. The loop below checks repeatedly whether its lease is over.
            compared_logs = await self._compare([key for key in ready if not self._rules.handovers.holds(key)])
            if compared_logs:
                try:
                    await self._submit(partial(self._rules.elect_most_complete, compared_logs=compared_logs))
                except ProtocolError:
                    pass  # the term is over, or the log was too full: waiting partitions are checked again
                else:
                    self._tracer.emit("logs_compared", partitions=len(compared_logs))
            if self._ready():
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    def _ready(self) -> list[Key]:
        """The partitions whose last known members are all available."""
        ready = []
        for key in self._waiting:
            partition = self._image.partition(*key)
            if partition is None or not waits_for_logs(partition) or not partition.last_known_elr:
                continue
            if all(self._image.is_available(broker) for broker in partition.last_known_elr):
                ready.append(key)
                if len(ready) == MAX_AT_ONCE:
                    break
        return ready

    async def _compare(self, ready: list[Key]) -> list[LogsFound]:
        """The answers of all members of each partition; a partition without all answers is left out."""
        partitions_of: dict[int, list[tuple[bytes, int]]] = {}
        states = []
        for name, index in ready:
            topic = self._image.topics[name]
            partition = topic.partitions[index]
            states.append((topic.id, index, partition))
            for broker in partition.last_known_elr:
                partitions_of.setdefault(broker, []).append((topic.id, index))
        answers = await asyncio.gather(*(self._ask(broker, partitions) for broker, partitions in partitions_of.items()))
        answers_of = dict(zip(partitions_of, answers, strict=True))
        logs = []
        for topic_id, index, partition in states:
            ends = {}
            for broker in partition.last_known_elr:
                answer = answers_of[broker].get((topic_id, index))
                if answer is not None and answer[1] == partition.leader_epoch:
                    ends[broker] = (answer[0], answer[2])
            if len(ends) == len(partition.last_known_elr):
                logs.append(LogsFound(topic_id, index, partition.partition_epoch, ends))
        return logs

    async def _ask(self, broker: int, partitions: list[tuple[bytes, int]]) -> dict[tuple[bytes, int], Any]:
        """By partition: the broker's epoch, its replica's leader epoch, and its log end."""
        topics: dict[bytes, GetReplicaLogInfoTopicPartitions] = {}
        for topic_id, index in partitions:
            topics.setdefault(topic_id, GetReplicaLogInfoTopicPartitions(topic_id, [])).partitions.append(index)
        request = GetReplicaLogInfoRequest(self._node_id, list(topics.values()))
        try:
            response = await self._peers.request(broker, request, REQUEST_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            return {}
        return {
            (topic.topic_id, info.partition): (
                response.broker_epoch,
                info.current_leader_epoch,
                LogEnd(info.last_written_leader_epoch, info.log_end_offset),
            )
            for topic in response.topic_partition_log_info_list
            for info in topic.partition_log_info
            if info.error_code == ErrorCode.NONE
        }
