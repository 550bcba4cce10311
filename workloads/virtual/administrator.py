"""The administrator of a simulated cluster: changes topics, settings, replicas and groups while others use the cluster.

Theory of operation. One operation follows another, each drawn from what exists. Topics of its own, *side topics*, are
created, enlarged, configured, written to, shortened and deleted. Partitions of the workload's topic get other replicas,
so that empty nodes join and the old replicas go. Each request goes to a drawn broker, once, and is reported with its
outcome.

A request without a certain outcome may take effect at any later time. So nothing else is done with what it names, with
one exception: the analysis must know the replicas of the workload's topic, so a reassignment is repeated until it is
answered, and its partition gets no other one. It is given up some time after the load, when all faults are healed; the
run is unknown then.

At the end of the run, when the cluster is whole, each broker is asked what it knows of all that the administrator has
named. The leaders are asked for the records of the side topics. `analysis/checkers/administration.py` compares the
answers with the outcomes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from broker.errors import ErrorCode
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic
from broker.protocol.messages.config_apis import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from broker.protocol.messages.metadata_records import TOPIC_RESOURCE
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ReassignablePartition,
)
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.protocol.request import Request, Response
from broker.protocol.schema import Topic
from simulator.client import (
    BrokerConnections,
    GroupClient,
    NoResultError,
    RefusedError,
    SimulatedClient,
    UncertainError,
)
from workloads.control import Administered, ClusterSeen, Command, StartLoad, StopLoad, Stopped
from workloads.pacing import Pacer
from workloads.virtual.log import EPOCH_MS, POLL_S, addresses
from workloads.virtual.pipe import ClientParts, VirtualClient

SIDE: Final = "__side-"
"""How the names of side topics start: as those of internal topics, so that the checkers of the workload's topic leave
their files alone. The oracles look at all topics."""
REQUEST_S: Final = 2.0
QUERY_S: Final = 1.0
SEEING_S: Final = 8.0
"""How long the cluster may take at the end until all brokers know the same, leaders answer and a reassignment does."""
MOST_TOPICS: Final = 4
MOST_PARTITIONS: Final = 8
MOST_RECORDS: Final = 4
"""The most records of one write."""
FLOOR: Final = "min.insync.replicas"
POLICY: Final = "cleanup.policy"
COMPACTED: Final[Mapping[str, str]] = {POLICY: "compact", "segment.ms": "1000"}
COMPACTED_SHARE: Final = 0.25
"""The share of side topics that keep the latest record of each key only."""
TOMBSTONES_SHARE: Final = 0.3
"""The share of writes to such a topic that end with a record without a value."""
MOST_KEYS: Final = 4
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "segment.bytes": ("4096", "16384", "1048576"),
    "max.message.bytes": ("100000", "1000000", "2000000"),
    "index.interval.bytes": ("256", "4096", "65536"),
    "segment.ms": ("1000", "10000", "600000"),
    "retention.ms": ("-1", "1500", "20000"),
    "retention.bytes": ("-1", "1000", "1000000000"),
}
"""Values of a side topic's settings. Some let records expire within a run."""
WEIGHTS: Final = {
    "create": 4,
    "write": 4,
    "configure": 4,
    "grow": 5,
    "reassign": 3,
    "delete": 2,
    "delete-records": 2,
    "elect": 4,
    "raise-floor": 1,
    "commit": 2,
    "delete-group": 2,
}
"""How often each operation is drawn, relative to the others that are possible."""
_CERTAIN: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)
"""Errors after which the request certainly has no effect."""
T = TypeVar("T")


@dataclass
class _SideTopic:
    """A topic whose requests all have a certain outcome. `ends`: by partition, the offset after the last acknowledged
    record."""

    partitions: int
    ends: dict[int, int] = field(default_factory=dict)
    is_compacted: bool = False


class VirtualAdministrator(VirtualClient):
    """Administers at its pace between `start` and `stop`; looks at the whole cluster when it is closed."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts)
        settings = parts.settings
        self._rng = Random(f"{settings.seed}/administrator")
        self._brokers = addresses(settings)
        self._connections = BrokerConnections(self._brokers)
        self._client = SimulatedClient(self._brokers, first=settings.seed)
        self._topics: dict[str, _SideTopic] = {}
        self._groups: dict[str, GroupClient] = {}
        self._living_groups: dict[str, None] = {}
        self._named: dict[str, None] = {settings.topic: None}
        self._replicas: dict[int, list[int]] = {}
        self._floor = 0
        self._values = 0
        self._anchor = ""
        """The first side topic, which is never deleted: groups commit offsets of it."""
        self._load: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def obey(self, command: Command) -> None:
        match command:
            case StartLoad():
                self._load = self._control.run(self._work())
            case StopLoad():
                self._stopping.set()
                if self._load is not None:
                    await self._load
                self._control.tell(Stopped(0))
            case _:
                self._control.decline("administrator", command)

    async def close(self) -> None:
        await self._look()
        for group in self._groups.values():
            await group.leave()
        self._client.close()
        self._connections.close()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        pacer = Pacer(1 / self._settings.parameters["administers_every_s"], self._rng, start_s=loop.time())
        while not self._stopping.is_set():
            await asyncio.sleep(min(POLL_S, pacer.wait_s(loop.time())))
            if pacer.take(loop.time()):
                if not self._floor:
                    await self._learn()
                possible = self._possible()
                (drawn,) = self._rng.choices([*possible], [WEIGHTS[name] for name in possible])
                await possible[drawn]()

    def _possible(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The operations that are possible now, by name."""
        side = bool(self._topics)
        operations = {
            "create": (len(self._topics) < MOST_TOPICS, self._create),
            "write": (side, self._write),
            "configure": (side, self._configure),
            "grow": (any(topic.partitions < MOST_PARTITIONS for topic in self._topics.values()), self._grow),
            "delete": (any(name != self._anchor for name in self._topics), self._delete),
            "delete-records": (bool(self._shortened()), self._delete_records),
            "reassign": (bool(self._replicas), self._reassign),
            "raise-floor": (bool(self._replicas and self._floor), self._raise_floor),
            "commit": (bool(self._anchor) and "members" in self._settings.parameters, self._commit),
            "delete-group": (bool(self._living_groups), self._delete_group),
            "elect": (True, self._elect),
        }
        return {name: operation for name, (is_possible, operation) in operations.items() if is_possible}

    # --- topics

    async def _create(self) -> None:
        name, partitions = f"{SIDE}{len(self._named)}", self._rng.randint(1, 3)
        keys = self._rng.sample([*SETTINGS], self._rng.randint(0, 3))
        settings = {key: self._rng.choice(SETTINGS[key]) for key in keys}
        if is_compacted := self._rng.random() < COMPACTED_SHARE:
            settings |= COMPACTED
        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        factor = min(map(len, self._replicas.values()), default=1)
        topic = CreatableTopic(name, partitions, factor, configs=configs)
        request = CreateTopicsRequest([topic], _ms(REQUEST_S))
        self._named[name] = None
        answer = await self._ask(request)
        code = None if answer is None else answer.topics[0].error_code
        if self._report("create", name, code, partitions=partitions, settings=settings):
            self._topics[name] = _SideTopic(partitions, is_compacted=is_compacted)
            self._anchor = self._anchor or name

    async def _grow(self) -> None:
        name = self._rng.choice([name for name, topic in self._topics.items() if topic.partitions < MOST_PARTITIONS])
        count = self._topics[name].partitions + self._rng.randint(1, 2)
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], _ms(REQUEST_S))
        answer = await self._ask(request)
        if self._report("grow", name, None if answer is None else answer.results[0].error_code, partitions=count):
            self._topics[name].partitions = count

    async def _delete(self) -> None:
        name = self._rng.choice([name for name in self._topics if name != self._anchor])
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=_ms(REQUEST_S))
        answer = await self._ask(request)
        if self._report("delete", name, None if answer is None else answer.responses[0].error_code):
            self._topics.pop(name, None)

    async def _configure(self) -> None:
        name, key = self._rng.choice([*self._topics]), self._rng.choice([*SETTINGS])
        await self._set("configure", name, key, self._rng.choice(SETTINGS[key]))

    async def _raise_floor(self) -> None:
        highest = max(self._floor, min(map(len, self._replicas.values())) - 1)
        await self._set("raise-floor", self._settings.topic, FLOOR, str(self._rng.randint(self._floor, highest)))

    async def _set(self, operation: str, name: str, key: str, value: str) -> None:
        change = IncrementalAlterConfigsResource(TOPIC_RESOURCE, name, [IncrementalAlterableConfig(key, value=value)])
        answer = await self._ask(IncrementalAlterConfigsRequest([change]))
        self._report(operation, name, None if answer is None else answer.responses[0].error_code, settings={key: value})

    # --- records of side topics

    async def _write(self) -> None:
        name = self._rng.choice([*self._topics])
        topic = self._topics[name]
        partition, count = self._rng.randrange(topic.partitions), self._rng.randint(1, MOST_RECORDS)
        values = [f"{self._values + number}" for number in range(count)]
        self._values += count
        key = f"key-{self._rng.randrange(MOST_KEYS)}" if topic.is_compacted else ""
        if key and self._rng.random() < TOMBSTONES_SHARE:
            values[-1] = ""  # removes the key
        code, offset = await self._outcome(
            self._client.produce(
                name,
                partition,
                [value.encode() or None for value in values],
                key=key.encode() or None,
                timeout=REQUEST_S,
                timestamp=EPOCH_MS + self._clock() // 1_000_000,
            )
        )
        # Another append may have the same place later, so an uncertain one leaves the topic as it is.
        place = {"partition": partition, "offset": offset}
        if self._report("write", name, code, keeps=True, values=values, **place, **({"key": key} if key else {})):
            self._topics[name].ends[partition] = offset + count

    def _shortened(self) -> list[str]:
        """The topics whose records may be deleted."""
        return [name for name, topic in self._topics.items() if topic.ends and not topic.is_compacted]

    async def _delete_records(self) -> None:
        name = self._rng.choice(self._shortened())
        partition = self._rng.choice([*self._topics[name].ends])
        offset = self._rng.randint(1, self._topics[name].ends[partition])
        code, start = await self._outcome(self._client.delete_records(name, partition, offset, timeout=REQUEST_S))
        code = code if code == ErrorCode.NONE else None  # a leader that is deposed may have moved its start
        self._report("delete-records", name, code, keeps=True, partition=partition, offset=offset, start=start)

    async def _outcome(self, request: Any) -> tuple[int | None, int]:
        """The error code of a request about records, None for an uncertain outcome, and its answer, else -1."""
        try:
            return ErrorCode.NONE, await request
        except RefusedError:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        except UncertainError:
            return None, -1

    # --- the workload's topic

    async def _learn(self) -> None:
        """The replicas and the floor of the workload's topic, from one broker."""
        state = await self._state(self._rng.choice([*self._brokers]))
        topic = (state or {}).get(self._settings.topic)
        if topic is not None:
            self._replicas = dict(enumerate(topic["replicas"]))
            self._floor = int(topic["settings"].get(FLOOR, 0))

    async def _reassign(self) -> None:
        """Ask until it is answered, if the outcome of an attempt is uncertain, and for `SEEING_S` after the load."""
        partition = self._rng.choice([*self._replicas])
        old = self._replicas[partition]
        replicas = self._rng.sample([*self._brokers], len(old))
        entry = Topic(self._settings.topic, [ReassignablePartition(partition, replicas)])
        request, uncertain = AlterPartitionReassignmentsRequest(_ms(REQUEST_S), topics=[entry]), False
        give_up, loop = float("inf"), asyncio.get_running_loop()
        while True:
            answer = await self._ask(request)
            code = None if answer is None else answer.error_code or answer.responses[0].partitions[0].error_code
            if code == ErrorCode.NONE or (code in _CERTAIN and not uncertain):
                break
            uncertain = uncertain or code not in _CERTAIN
            if self._stopping.is_set():
                give_up = min(give_up, loop.time() + SEEING_S)
            if loop.time() > give_up:
                code = None
                break
            await asyncio.sleep(POLL_S)
        added = sorted(set(replicas) - set(old))
        if self._report("reassign", self._settings.topic, code, partition=partition, replicas=replicas, added=added):
            self._replicas[partition] = replicas
        if uncertain:
            del self._replicas[partition]

    async def _elect(self) -> None:
        partitions = [*range(self._settings.partitions)]
        topics = [ElectLeadersTopicPartitions(self._settings.topic, partitions)]
        answer = await self._ask(ElectLeadersRequest(PREFERRED, topics, _ms(REQUEST_S)))
        self._report("elect", self._settings.topic, None if answer is None else answer.error_code)

    # --- groups

    async def _commit(self) -> None:
        name = f"side-group-{len(self._groups) + 1}"
        group = self._groups[name] = GroupClient(name, self._brokers)
        code: int | None
        try:
            code = (await group.commit(self._anchor, {0: 1}))[0]
        except NoResultError as error:
            code = error.code
        if self._report("commit", name, code, offset=1):
            self._living_groups[name] = None

    async def _delete_group(self) -> None:
        name = self._rng.choice([*self._living_groups])
        code: int | None
        try:
            code = await self._groups[name].delete()
        except NoResultError as error:
            code = error.code
        self._report("delete-group", name, code)
        del self._living_groups[name]

    # --- the end

    async def _look(self) -> None:
        """Report what the brokers know, as soon as all know the same."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + SEEING_S
        while True:
            states = {node: await self._state(node) for node in self._brokers}
            first = states[next(iter(states))]
            if first is not None and all(state == first for state in states.values()):
                break
            if loop.time() > give_up:
                break
            await asyncio.sleep(POLL_S)
        answers = {node: state for node, state in states.items() if state is not None}
        for state in [
            state for number, state in enumerate(answers.values()) if state not in [*answers.values()][:number]
        ]:
            nodes = [node for node, other in answers.items() if other == state]
            records = await self._records(state, give_up) if state == first else {}
            groups = await self._offsets(give_up) if state == first else {}
            self._control.tell(ClusterSeen(nodes, state, records, groups))

    async def _records(self, state: Mapping[str, Any], give_up: float) -> dict[str, list[Any]]:
        """By partition of a side topic: the start of its log, and its records as offsets and values."""
        records: dict[str, list[Any]] = {}
        for name in [name for name in state if name != self._settings.topic]:
            for partition in range(len(state[name]["replicas"])):
                read = await _until(give_up, lambda at=(name, partition): self._read(*at))  # type: ignore[misc]
                if read is not None:
                    records[f"{name}-{partition}"] = read
        return records

    async def _read(self, name: str, partition: int) -> list[Any]:
        start = await self._client.start(name, partition, timeout=QUERY_S)
        log = await self._client.read_all(name, partition, QUERY_S, first=start)
        return [start, [[record.offset, (record.value or b"").decode(errors="replace")] for record in log]]

    async def _offsets(self, give_up: float) -> dict[str, int]:
        """The committed offset of each group in the topic that stays; -1 without one."""
        questions = {name: partial(group.committed, self._anchor, [0]) for name, group in self._groups.items()}
        answers = {name: await _until(give_up, question) for name, question in questions.items()}
        return {name: offsets[0] for name, offsets in answers.items() if offsets}

    async def _state(self, node: int) -> dict[str, Any] | None:
        """What a broker knows of the named topics that exist: the replicas of each partition, and settings. None
        without an answer."""
        names = [MetadataRequestTopic(name=name) for name in self._named]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        metadata = await self._ask(request, node)
        if metadata is None:
            return None
        existing = {
            str(topic.name): [list(state.replica_nodes) for state in _in_order(topic.partitions)]
            for topic in metadata.topics
            if topic.error_code == ErrorCode.NONE
        }
        keys = [*SETTINGS, FLOOR, POLICY]
        resources = [DescribeConfigsResource(TOPIC_RESOURCE, name, keys) for name in existing]
        described = await self._ask(DescribeConfigsRequest(resources), node)
        if described is None:
            return None
        settings = {
            result.resource_name: {entry.name: str(entry.value) for entry in result.configs}
            for result in described.results
        }
        return {name: {"replicas": replicas, "settings": settings[name]} for name, replicas in existing.items()}

    async def _ask(self, request: Request[Response], node: int | None = None) -> Response | None:
        """The answer of a broker, of a drawn one for None; None without an answer."""
        recipient = self._rng.choice([*self._brokers]) if node is None else node
        try:
            return await self._connections.ask(recipient, request, REQUEST_S + 0.5)
        except UncertainError:
            return None

    def _report(self, operation: str, target: str, code: int | None, *, keeps: bool = False, **arguments: Any) -> bool:
        """Report an operation; returns whether it took effect. If that is uncertain, its topic is not used again; an
        operation that `keeps` it is an exception."""
        outcome = "ok" if code == ErrorCode.NONE else "fail" if code in _CERTAIN else "info"
        error = "no answer" if code is None else "" if outcome == "ok" else ErrorCode(code).name
        self._control.tell(Administered(operation, target, outcome, error, arguments))
        if outcome == "info" and not keeps:
            self._topics.pop(target, None)
        return outcome == "ok"


async def _until(give_up: float, question: Callable[[], Awaitable[T]]) -> T | None:
    """The answer, as soon as there is one; None after `give_up`, in seconds of the loop's clock."""
    while True:
        try:
            return await question()
        except (NoResultError, OSError):
            if asyncio.get_running_loop().time() > give_up:
                return None
            await asyncio.sleep(POLL_S)


def _in_order(partitions: Any) -> list[Any]:
    return sorted(partitions, key=lambda state: state.partition_index)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
