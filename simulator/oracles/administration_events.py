"""The oracle of supposed requests of administrators and brokers to the controller.

Theory of operation: the controller decides by pure functions of the metadata: a request becomes records and an answer.
A copy of it gets requests that clients of a run rarely send, in the kinds of metadata that a run reaches. The records
are applied to a copy of the metadata, and the result is compared with what was requested. Nothing else may change.

The references are the metadata before the request, and the rules: KIP-455 (reassignments), KIP-460 (elections), K595-49
(cluster ids), and the error codes of Kafka's protocol.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from broker.controller.controller import Controller, ControllerDecision
from broker.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest, BrokerRegistrationRequest, Listener
from broker.protocol.messages.config_apis import (
    DELETE,
    SET,
    TOPIC,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    UNCLEAN,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ReassignablePartition,
)
from broker.protocol.messages.producer_apis import AllocateProducerIdsRequest
from broker.protocol.messages.topic_apis import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.protocol.schema import Topic
from broker.quorum.wire import METADATA_TOPIC, PARTITION
from simulator.oracles.findings import BAD_ELECTION, Expectation, OracleFindings, first_difference, first_flaw
from simulator.oracles.settings import MIN_INSYNC

NEW, UNKNOWN = "supposed", "unknown"
OTHER_ID: Final = bytes(15) + b"\xfe"
"""The id of no topic, no process and no disk."""
OK: Final = ErrorCode.NONE


class SupposedController:
    """A copy of the controller, with the metadata that it decides by."""

    def __init__(self, rules: Controller, image: MetadataImage) -> None:
        self._rules = rules.twin()
        self.image = image

    def with_image(self, image: MetadataImage) -> "SupposedController":
        return SupposedController(self._rules, image)

    def decide(self, name: str, request: object) -> tuple[Any, MetadataImage]:
        """The answer to a request, or its error code, and the metadata afterwards; `name`: of the rule."""
        decide: Callable[..., ControllerDecision[Any]] = getattr(self._rules, name)
        try:
            decision = decide(self.image, request)
        except ProtocolError as error:
            return error.code, self.image
        after = deepcopy(self.image) if decision.records else self.image
        for record in decision.records:
            after.apply(record, after.offset + 1)
        return decision.answer(after), after

    def refusal(self, name: str, request: object, code: Callable[[Any], int]) -> object:
        """The error code of an answer; a text if anything has changed. `code`: gets it from the answer."""
        answer, after = self.decide(name, request)
        if after.offset != self.image.offset:
            return "a change"
        return answer if isinstance(answer, ErrorCode) else ErrorCode(code(answer))


class AdministrationRules:
    """Asks the active controller, once for each kind of metadata."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._asked_forms: set[tuple[object, ...]] = set()

    def look(self, rules: Controller, image: MetadataImage) -> None:
        """Ask a controller with these rules."""
        form = _form(image)
        if form in self._asked_forms or not any(map(image.is_available, image.brokers)):
            return
        self._asked_forms.add(form)
        self._findings.compared(BAD_ELECTION, METADATA_TOPIC)
        if flaw := first_flaw(administration_flaws(rules, image)):
            witness = {"metadata_offset": image.offset}
            self._findings.report(BAD_ELECTION, METADATA_TOPIC, PARTITION, f"the controller {flaw}", witness)


def _form(image: MetadataImage) -> tuple[object, ...]:
    """What makes metadata a different case for the questions."""
    states = [state for _, topic in _topics(image) for state in topic.partitions.values()]
    available = [image.is_available(broker) for broker in image.brokers]
    return (
        sum(available),
        len(available),
        bool(_topics(image)),
        any(state.leader == NO_LEADER for state in states),
        any(state.leader != state.replicas[0] for state in states),
        any(state.adding or state.removing for state in states),
    )


def administration_flaws(rules: Controller, image: MetadataImage) -> Iterator[str]:
    """What is wrong with what a controller would decide, each as the end of a sentence about it. The metadata have a
    broker that is not fenced."""
    asked = SupposedController(rules, image)
    for questions in (_creates, _deletes, _grows, _elects, _reassigns, _configures, _gives_ids, _hears, _registers):
        yield from first_difference(questions(asked))


def _topics(image: MetadataImage) -> list[tuple[str, TopicImage]]:
    """The topics of clients."""
    return [(name, topic) for name, topic in image.topics.items() if not name.startswith("__")]


def _topics_code(answer: Any) -> int:
    return int(answer.topics[0].error_code)


def _creates(asked: SupposedController) -> Iterator[Expectation]:
    """A topic is created as it was requested, on brokers that differ, and its first replica that is available leads."""
    image = asked.image
    live, brokers = sorted(filter(image.is_available, image.brokers)), sorted(image.brokers)
    fine = CreatableTopic(NEW, 2, min(2, len(live)), configs=[CreatableTopicConfig(MIN_INSYNC, "1")])
    explicit = structs.replace(fine, num_partitions=-1, replication_factor=-1)
    wrong: dict[str, tuple[CreatableTopic, ErrorCode]] = {
        "the name a/b": (structs.replace(fine, name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "the name ..": (structs.replace(fine, name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "a name of 250 letters": (structs.replace(fine, name="a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "no partition": (structs.replace(fine, num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        "no replica": (structs.replace(fine, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        "more replicas than brokers": (
            structs.replace(fine, replication_factor=len(brokers) + 1),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
        "a wrong value": (_configured(fine, (MIN_INSYNC, "-1")), ErrorCode.INVALID_CONFIG),
        "a key twice": (_configured(fine, (MIN_INSYNC, "1"), (MIN_INSYNC, "2")), ErrorCode.INVALID_CONFIG),
        "a broker twice": (_assigned(explicit, [live[0], live[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "an unknown broker": (_assigned(explicit, [max(brokers) + 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "assignment and count": (_assigned(fine, live), ErrorCode.INVALID_REQUEST),
    }
    for name, topic in _topics(image)[:1]:
        wrong["the name of another topic"] = (structs.replace(fine, name=name), ErrorCode.TOPIC_ALREADY_EXISTS)
        if "_" in name or "." in name:
            twin = name.translate(str.maketrans("._", "_."))
            wrong["a colliding name"] = (structs.replace(fine, name=twin), ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert topic.partitions
    for what, (topic_request, code) in wrong.items():
        request = CreateTopicsRequest([topic_request])
        yield f"a CreateTopics with {what}", asked.refusal("create_topics", request, _topics_code), code
    twice = CreateTopicsRequest([fine, fine])
    yield (
        "a CreateTopics with a topic twice",
        asked.refusal("create_topics", twice, _topics_code),
        ErrorCode.INVALID_REQUEST,
    )
    trial = CreateTopicsRequest([fine], validate_only=True)
    yield "a CreateTopics that validates", asked.refusal("create_topics", trial, _topics_code), OK

    answer, after = asked.decide("create_topics", CreateTopicsRequest([fine]))
    created = after.topics.get(NEW)
    yield "a CreateTopics", (_topics_code(answer), created is not None), (OK, True)
    assert created is not None
    yield "a CreateTopics", (answer.topics[0].topic_id, answer.topics[0].num_partitions), (created.id, 2)
    yield "a CreateTopics", created.configs, {MIN_INSYNC: "1"}
    states = [created.partitions.get(number) for number in range(2)]
    for state in states:
        yield "a CreateTopics", state, None if state is None else _fresh(image, state.replicas)
        assert state is not None
        yield "a CreateTopics", len({*state.replicas} & {*live}), fine.replication_factor
    leaders = {state.leader for state in states if state is not None}
    yield "a CreateTopics of two partitions", len(leaders), min(2, len(live))
    yield "a CreateTopics", {*image.topics} <= {*after.topics}, True
    _, after = asked.decide("create_topics", CreateTopicsRequest([_assigned(explicit, brokers[::-1])]))
    state = None if NEW not in after.topics else after.topics[NEW].partitions.get(0)
    yield "a CreateTopics with an assignment", state, _fresh(image, tuple(brokers[::-1]))


def _configured(topic: CreatableTopic, *pairs: tuple[str, str]) -> CreatableTopic:
    return structs.replace(topic, configs=[CreatableTopicConfig(*pair) for pair in pairs])


def _assigned(topic: CreatableTopic, brokers: Sequence[int]) -> CreatableTopic:
    return structs.replace(topic, assignments=[CreatableReplicaAssignment(0, list(brokers))])


def _fresh(image: MetadataImage, replicas: tuple[int, ...]) -> PartitionImage:
    """A new partition: all of its available replicas are in sync."""
    isr = tuple(filter(image.is_available, replicas))
    return PartitionImage(isr[0], 0, 0, isr, replicas)


def _deletes(asked: SupposedController) -> Iterator[Expectation]:
    image = asked.image

    def code(answer: Any) -> int:
        return int(answer.responses[0].error_code)

    unknown = DeleteTopicsRequest([DeleteTopicState(UNKNOWN)])
    yield (
        "the deletion of an unknown topic",
        asked.refusal("delete_topics", unknown, code),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    unknown = DeleteTopicsRequest([DeleteTopicState(None, OTHER_ID)])
    yield "the deletion of an unknown id", asked.refusal("delete_topics", unknown, code), ErrorCode.UNKNOWN_TOPIC_ID
    for name, topic in _topics(image)[:1]:
        both = DeleteTopicsRequest([DeleteTopicState(name, topic.id)])
        yield "a deletion by name and id", asked.refusal("delete_topics", both, code), ErrorCode.INVALID_REQUEST
        for state in (DeleteTopicState(name), DeleteTopicState(None, topic.id)):
            answer, after = asked.decide("delete_topics", DeleteTopicsRequest([state]))
            yield "a deletion", (code(answer), {*after.topics}), (OK, {*image.topics} - {name})
            yield "a deletion", (topic.id in after.removed_topics, after.topic_by_id(topic.id)), (True, None)


def _grows(asked: SupposedController) -> Iterator[Expectation]:
    """New partitions have as many replicas as the first one; the others stay as they are."""
    image = asked.image

    def code(answer: Any) -> int:
        return int(answer.results[0].error_code)

    unknown = CreatePartitionsRequest([CreatePartitionsTopic(UNKNOWN, 2)])
    yield (
        "a CreatePartitions of an unknown topic",
        asked.refusal("create_partitions", unknown, code),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    for name, topic in _topics(image)[:1]:
        count, first = len(topic.partitions), topic.partitions[0]
        for fewer in (count, count - 1):
            request = CreatePartitionsRequest([CreatePartitionsTopic(name, fewer)])
            refusal = asked.refusal("create_partitions", request, code)
            yield f"a CreatePartitions of {fewer}, with {count} there", refusal, ErrorCode.INVALID_PARTITIONS
        grown = CreatePartitionsTopic(name, count + 1)
        trial = CreatePartitionsRequest([grown], validate_only=True)
        yield "a CreatePartitions that validates", asked.refusal("create_partitions", trial, code), OK
        answer, after = asked.decide("create_partitions", CreatePartitionsRequest([grown]))
        yield "a CreatePartitions", code(answer), OK
        new = after.topics[name].partitions.get(count)
        yield "a CreatePartitions", new, None if new is None else _fresh(image, new.replicas)
        assert new is not None
        factor = len({*first.replicas} - {*first.adding})
        yield "a CreatePartitions", (len(new.replicas), len({*new.replicas})), (factor, factor)
        others = {number: state for number, state in after.topics[name].partitions.items() if number != count}
        yield "a CreatePartitions, for the others,", others, topic.partitions


def _elects(asked: SupposedController) -> Iterator[Expectation]:
    """The preferred replica leads if it is in sync and available; an unclean election needs a partition without a
    leader (KIP-460)."""
    image = asked.image

    def elect(name: str, index: int, kind: int) -> ElectLeadersRequest:
        return ElectLeadersRequest(kind, [ElectLeadersTopicPartitions(name, [index])])

    def code(answer: Any) -> int:
        return int(answer.replica_election_results[0].partition_result[0].error_code)

    unknown = asked.refusal("elect_leaders", elect(UNKNOWN, 0, PREFERRED), code)
    yield "an election in an unknown topic", unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other_kind = asked.refusal("elect_leaders", elect(UNKNOWN, 0, 7), code)
    yield "an election of an unknown kind", other_kind, ErrorCode.INVALID_REQUEST
    for name, topic in _topics(image):
        for index, state in topic.partitions.items():
            preferred, place = state.replicas[0], f"{name}-{index}"
            if state.leader != NO_LEADER:
                refusal = asked.refusal("elect_leaders", elect(name, index, UNCLEAN), code)
                yield f"an unclean election in {place}, which has a leader,", refusal, ErrorCode.ELECTION_NOT_NEEDED
            if state.leader == preferred:
                refusal = asked.refusal("elect_leaders", elect(name, index, PREFERRED), code)
                yield f"a preferred election in {place}", refusal, ErrorCode.ELECTION_NOT_NEEDED
            elif preferred not in state.isr or not image.is_available(preferred):
                refusal = asked.refusal("elect_leaders", elect(name, index, PREFERRED), code)
                yield f"a preferred election in {place}", refusal, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            else:
                _, after = asked.decide("elect_leaders", elect(name, index, PREFERRED))
                led = after.topics[name].partitions[index]
                expected = {state.leader, preferred, NO_LEADER}  # a lease or remote segments may delay it
                yield f"a preferred election in {place}", led.leader in expected, True
                yield (
                    f"a preferred election in {place}, for its replicas,",
                    (led.isr, led.replicas),
                    (
                        state.isr,
                        state.replicas,
                    ),
                )


def _reassigns(asked: SupposedController) -> Iterator[Expectation]:
    """A reassignment adds replicas, and changes neither leader nor ISR until they are in sync; it can be cancelled
    (KIP-455)."""
    image = asked.image

    def move(name: str, replicas: Sequence[int] | None, may_change: bool = True) -> AlterPartitionReassignmentsRequest:
        place = ReassignablePartition(0, None if replicas is None else list(replicas))
        return AlterPartitionReassignmentsRequest(60_000, may_change, [Topic(name, [place])])

    def code(answer: Any) -> int:
        return int(answer.responses[0].partitions[0].error_code)

    def refused(name: str, replicas: Sequence[int] | None, may_change: bool = True) -> object:
        return asked.refusal("alter_reassignments", move(name, replicas, may_change), code)

    yield "a reassignment of an unknown topic", refused(UNKNOWN, [1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, topic in _topics(image)[:1]:
        state = topic.partitions[0]
        if state.adding or state.removing or state.leader == NO_LEADER:
            continue
        old = state.replicas
        for wrong in ([], [old[0], old[0]], [max(image.brokers) + 1]):
            yield f"a reassignment to {wrong}", refused(name, wrong), ErrorCode.INVALID_REPLICA_ASSIGNMENT
        yield "a cancelled reassignment", refused(name, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        yield "a reassignment to the same brokers", refused(name, old), OK
        spare = [broker for broker in image.brokers if broker not in old]
        for broker in spare[:1]:
            target = (*old, broker)
            factor = refused(name, target, may_change=False)
            yield "a reassignment to more brokers", factor, ErrorCode.INVALID_REPLICATION_FACTOR
            _, after = asked.decide("alter_reassignments", move(name, target))
            moving = after.topics[name].partitions[0]
            expected = replace(
                state, partition_epoch=state.partition_epoch + 1, replicas=target, adding=(broker,), removing=()
            )
            yield f"a reassignment from {old} to {target}", moving, expected
            _, cancelled = asked.with_image(after).decide("alter_reassignments", move(name, None))
            back = cancelled.topics[name].partitions[0]
            yield "a cancelled reassignment", (back.replicas, back.adding, back.isr), (old, (), state.isr)


def _configures(asked: SupposedController) -> Iterator[Expectation]:
    """A key is set or removed, and the others stay."""
    image = asked.image

    def alter(name: str, *changes: IncrementalAlterableConfig) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, name, list(changes))])

    def code(answer: Any) -> int:
        return int(answer.responses[0].error_code)

    value = IncrementalAlterableConfig(MIN_INSYNC, SET, "1")
    unknown = asked.refusal("alter_configs", alter(UNKNOWN, value), code)
    yield "a setting of an unknown topic", unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, topic in _topics(image)[:1]:
        wrong = asked.refusal("alter_configs", alter(name, structs.replace(value, value="0")), code)
        yield "a wrong value", wrong, ErrorCode.INVALID_CONFIG
        others = {key: text for key, text in topic.configs.items() if key != MIN_INSYNC}
        answer, after = asked.decide("alter_configs", alter(name, value))
        yield "a setting", (code(answer), after.topics[name].configs), (OK, {**others, MIN_INSYNC: "1"})
        removal = IncrementalAlterableConfig(MIN_INSYNC, DELETE, None)
        _, after = asked.with_image(after).decide("alter_configs", alter(name, removal))
        yield "a removed setting", after.topics[name].configs, others


def _gives_ids(asked: SupposedController) -> Iterator[Expectation]:
    """A block of producer ids is given once, to a broker that is registered (K98-1)."""
    image = asked.image
    broker = _any_broker(image)
    request = AllocateProducerIdsRequest(broker.id, broker.epoch)
    stale = structs.replace(request, broker_epoch=broker.epoch - 1)
    first, after = asked.decide("allocate_producer_ids", request)
    second, _ = asked.with_image(after).decide("allocate_producer_ids", request)
    yield "a block of producer ids", first.producer_id_start >= image.next_producer_id, True
    yield "the next block", second.producer_id_start >= first.producer_id_start + first.producer_id_len, True
    refusal = asked.refusal("allocate_producer_ids", stale, lambda answer: answer.error_code)
    yield "a block for an earlier process", refusal, ErrorCode.STALE_BROKER_EPOCH


def _any_broker(image: MetadataImage) -> BrokerImage:
    return next(broker for broker in image.brokers.values() if not broker.fenced)


def _hears(asked: SupposedController) -> Iterator[Expectation]:
    """A heartbeat of another epoch is refused. A broker that leaves is fenced; a fenced one returns only when it has
    applied its own fencing (KIP-631)."""
    broker = _any_broker(asked.image)
    beat = BrokerHeartbeatRequest(broker.id, broker.epoch, asked.image.offset)
    for epoch in (broker.epoch - 1, broker.epoch + 1):
        other, _ = asked.decide("heartbeat", structs.replace(beat, broker_epoch=epoch))
        yield "a heartbeat of another epoch", other, ErrorCode.STALE_BROKER_EPOCH
    _, same = asked.decide("heartbeat", beat)
    yield "a heartbeat", same.offset, asked.image.offset
    for leaves in (structs.replace(beat, want_fence=True), structs.replace(beat, want_shut_down=True)):
        _, after = asked.decide("heartbeat", leaves)
        yield "a heartbeat of a broker that leaves", after.brokers[broker.id].fenced, True
        fenced = asked.with_image(after)
        early = structs.replace(beat, current_metadata_offset=asked.image.offset)
        _, still = fenced.decide("heartbeat", early)
        yield "a heartbeat of a broker that does not know its fencing", still.brokers[broker.id].fenced, True
        _, again = fenced.decide("heartbeat", structs.replace(beat, current_metadata_offset=after.offset))
        yield "a heartbeat of a broker that returns", again.brokers[broker.id].fenced, False


def _registers(asked: SupposedController) -> Iterator[Expectation]:
    """A broker of another cluster, without a listener, or beside a live one on another disk is refused. A repeated
    registration keeps its epoch (K595-49, K595-53)."""
    image = asked.image
    broker = _any_broker(image)
    listeners = [Listener(point.name, point.host, point.port, point.protocol) for point in broker.endpoints]
    request = BrokerRegistrationRequest(
        broker_id=broker.id,
        cluster_id=image.cluster_id or "",
        incarnation_id=broker.incarnation,
        listeners=listeners,
        log_dirs=list(broker.directories),
        previous_broker_epoch=broker.epoch,
    )
    twin = structs.replace(request, incarnation_id=OTHER_ID, log_dirs=[OTHER_ID])
    for what, wrong, code in (
        ("of another cluster", structs.replace(request, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("without a listener", structs.replace(request, listeners=[]), ErrorCode.INVALID_REQUEST),
        ("of a second disk", twin, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ):
        yield f"a registration {what}", asked.decide("register", wrong)[0], code
    answer, after = asked.decide("register", request)
    yield "a repeated registration", (answer.broker_epoch, after.brokers[broker.id].fenced), (broker.epoch, False)
