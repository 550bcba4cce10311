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
from functools import partial
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
from simulator.oracles.controller_rules import is_reachable
from simulator.oracles.findings import BAD_ELECTION, Expectation, OracleFindings, first_difference, first_flaw
from simulator.oracles.settings import MIN_INSYNC

NEW, UNKNOWN = "supposed-by-an-oracle", "unknown-to-the-controller"
"""Names that no topic of a run has."""
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
        if form in self._asked_forms or not any(map(partial(is_reachable, image), image.brokers)):
            return
        self._asked_forms.add(form)
        self._findings.compared(BAD_ELECTION, METADATA_TOPIC)
        if flaw := first_flaw(administration_flaws(rules, image)):
            witness = {"metadata_offset": image.offset}
            self._findings.report(BAD_ELECTION, METADATA_TOPIC, PARTITION, f"the controller {flaw}", witness)


def _form(image: MetadataImage) -> tuple[object, ...]:
    """What makes metadata a different case for the questions."""
    states = [state for _, topic in _topics(image) for state in topic.partitions.values()]
    available = [is_reachable(image, broker) for broker in image.brokers]
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
    controller = SupposedController(rules, image)
    for questions in (_creates, _deletes, _grows, _elects, _reassigns, _configures, _gives_ids, _hears, _registers):
        yield from first_difference(questions(controller))


def _topics(image: MetadataImage) -> list[tuple[str, TopicImage]]:
    """The topics of clients."""
    return [(name, topic) for name, topic in image.topics.items() if not name.startswith("__")]


def _topics_code(answer: Any) -> int:
    return int(answer.topics[0].error_code)


def _creates(controller: SupposedController) -> Iterator[Expectation]:
    """A topic is created as it was requested, on brokers that differ, and its first replica that is available leads."""
    image = controller.image
    live_brokers, brokers = sorted(filter(partial(is_reachable, image), image.brokers)), sorted(image.brokers)
    valid_topic = CreatableTopic(NEW, 2, min(2, len(live_brokers)), configs=[CreatableTopicConfig(MIN_INSYNC, "1")])
    assigned_topic = structs.replace(valid_topic, num_partitions=-1, replication_factor=-1)
    invalid_topics: dict[str, tuple[CreatableTopic, ErrorCode]] = {
        "the name a/b": (structs.replace(valid_topic, name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "the name ..": (structs.replace(valid_topic, name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "a name of 250 letters": (structs.replace(valid_topic, name="a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "no partition": (structs.replace(valid_topic, num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        "no replica": (structs.replace(valid_topic, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        "more replicas than brokers": (
            structs.replace(valid_topic, replication_factor=len(brokers) + 1),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
        "a wrong value": (_configured(valid_topic, (MIN_INSYNC, "-1")), ErrorCode.INVALID_CONFIG),
        "a key twice": (_configured(valid_topic, (MIN_INSYNC, "1"), (MIN_INSYNC, "2")), ErrorCode.INVALID_CONFIG),
        "a broker twice": (
            _assigned(assigned_topic, [live_brokers[0], live_brokers[0]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        "an unknown broker": (_assigned(assigned_topic, [max(brokers) + 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "assignment and count": (_assigned(valid_topic, live_brokers), ErrorCode.INVALID_REQUEST),
    }
    for name, _ in _topics(image)[:1]:
        invalid_topics["the name of another topic"] = (
            structs.replace(valid_topic, name=name),
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )
        if "_" in name or "." in name:
            colliding_name = name.translate(str.maketrans("._", "_."))
            invalid_topics["a colliding name"] = (
                structs.replace(valid_topic, name=colliding_name),
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
    for what, (topic_request, code) in invalid_topics.items():
        request = CreateTopicsRequest([topic_request])
        yield f"a CreateTopics with {what}", controller.refusal("create_topics", request, _topics_code), code
    repeated_request = CreateTopicsRequest([valid_topic, valid_topic])
    yield (
        "a CreateTopics with a topic twice",
        controller.refusal("create_topics", repeated_request, _topics_code),
        ErrorCode.INVALID_REQUEST,
    )
    trial_request = CreateTopicsRequest([valid_topic], validate_only=True)
    yield "a CreateTopics that validates", controller.refusal("create_topics", trial_request, _topics_code), OK

    answer, after = controller.decide("create_topics", CreateTopicsRequest([valid_topic]))
    new_topic = after.topics.get(NEW)
    yield "a CreateTopics", (_topics_code(answer), new_topic is not None), (OK, True)
    assert new_topic is not None
    yield "a CreateTopics", (answer.topics[0].topic_id, answer.topics[0].num_partitions), (new_topic.id, 2)
    yield "a CreateTopics", new_topic.configs, {MIN_INSYNC: "1"}
    states = [new_topic.partitions.get(number) for number in range(2)]
    for state in states:
        yield "a CreateTopics", state, None if state is None else _fresh(image, state.replicas)
        assert state is not None
        yield "a CreateTopics", len({*state.replicas} & {*live_brokers}), valid_topic.replication_factor
    leaders = {state.leader for state in states if state is not None}
    yield "a CreateTopics of two partitions", len(leaders), min(2, len(live_brokers))
    yield "a CreateTopics", {*image.topics} <= {*after.topics}, True
    _, after = controller.decide("create_topics", CreateTopicsRequest([_assigned(assigned_topic, brokers[::-1])]))
    state = None if NEW not in after.topics else after.topics[NEW].partitions.get(0)
    yield "a CreateTopics with an assignment", state, _fresh(image, tuple(brokers[::-1]))


def _configured(topic: CreatableTopic, *pairs: tuple[str, str]) -> CreatableTopic:
    return structs.replace(topic, configs=[CreatableTopicConfig(*pair) for pair in pairs])


def _assigned(topic: CreatableTopic, brokers: Sequence[int]) -> CreatableTopic:
    return structs.replace(topic, assignments=[CreatableReplicaAssignment(0, list(brokers))])


def _fresh(image: MetadataImage, replicas: tuple[int, ...]) -> PartitionImage:
    """A new partition: all of its available replicas are in sync."""
    isr = tuple(filter(partial(is_reachable, image), replicas))
    return PartitionImage(isr[0], 0, 0, isr, replicas)


def _deletes(controller: SupposedController) -> Iterator[Expectation]:
    """A topic is deleted by its name or by its id, and no other one."""
    image = controller.image

    def code(answer: Any) -> int:
        return int(answer.responses[0].error_code)

    unknown_topic = DeleteTopicsRequest([DeleteTopicState(UNKNOWN)])
    yield (
        "the deletion of an unknown topic",
        controller.refusal("delete_topics", unknown_topic, code),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    unknown_topic = DeleteTopicsRequest([DeleteTopicState(None, OTHER_ID)])
    yield (
        "the deletion of an unknown id",
        controller.refusal("delete_topics", unknown_topic, code),
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    for name, topic in _topics(image)[:1]:
        double_request = DeleteTopicsRequest([DeleteTopicState(name, topic.id)])
        yield (
            "a deletion by name and id",
            controller.refusal("delete_topics", double_request, code),
            ErrorCode.INVALID_REQUEST,
        )
        for state in (DeleteTopicState(name), DeleteTopicState(None, topic.id)):
            answer, after = controller.decide("delete_topics", DeleteTopicsRequest([state]))
            yield "a deletion", (code(answer), {*after.topics}), (OK, {*image.topics} - {name})
            yield "a deletion", (topic.id in after.removed_topics, after.topic_by_id(topic.id)), (True, None)


def _grows(controller: SupposedController) -> Iterator[Expectation]:
    """New partitions have as many replicas as the first one; the others stay as they are."""
    image = controller.image

    def code(answer: Any) -> int:
        return int(answer.results[0].error_code)

    unknown_topic = CreatePartitionsRequest([CreatePartitionsTopic(UNKNOWN, 2)])
    yield (
        "a CreatePartitions of an unknown topic",
        controller.refusal("create_partitions", unknown_topic, code),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    for name, topic in _topics(image)[:1]:
        count, first_partition = len(topic.partitions), topic.partitions[0]
        for target_count in (count, count - 1):
            request = CreatePartitionsRequest([CreatePartitionsTopic(name, target_count)])
            refusal = controller.refusal("create_partitions", request, code)
            yield f"a CreatePartitions of {target_count}, with {count} there", refusal, ErrorCode.INVALID_PARTITIONS
        larger_topic = CreatePartitionsTopic(name, count + 1)
        trial_request = CreatePartitionsRequest([larger_topic], validate_only=True)
        yield "a CreatePartitions that validates", controller.refusal("create_partitions", trial_request, code), OK
        answer, after = controller.decide("create_partitions", CreatePartitionsRequest([larger_topic]))
        yield "a CreatePartitions", code(answer), OK
        new_partition = after.topics[name].partitions.get(count)
        yield (
            "a CreatePartitions",
            new_partition,
            None if new_partition is None else _fresh(image, new_partition.replicas),
        )
        assert new_partition is not None
        factor = len({*first_partition.replicas} - {*first_partition.adding})
        yield "a CreatePartitions", (len(new_partition.replicas), len({*new_partition.replicas})), (factor, factor)
        other_partitions = {number: state for number, state in after.topics[name].partitions.items() if number != count}
        yield "a CreatePartitions, for the others,", other_partitions, topic.partitions


def _elects(controller: SupposedController) -> Iterator[Expectation]:
    """The preferred replica leads if it is in sync and available; an unclean election needs a partition without a
    leader (KIP-460)."""
    image = controller.image

    def elect(name: str, index: int, kind: int) -> ElectLeadersRequest:
        return ElectLeadersRequest(kind, [ElectLeadersTopicPartitions(name, [index])])

    def code(answer: Any) -> int:
        return int(answer.replica_election_results[0].partition_result[0].error_code)

    unknown_code = controller.refusal("elect_leaders", elect(UNKNOWN, 0, PREFERRED), code)
    yield "an election in an unknown topic", unknown_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    kind_code = controller.refusal("elect_leaders", elect(UNKNOWN, 0, 7), code)
    yield "an election of an unknown kind", kind_code, ErrorCode.INVALID_REQUEST
    for name, topic in _topics(image):
        for index, state in topic.partitions.items():
            preferred_broker, place = state.replicas[0], f"{name}-{index}"
            if state.leader != NO_LEADER:
                refusal = controller.refusal("elect_leaders", elect(name, index, UNCLEAN), code)
                yield f"an unclean election in {place}, which has a leader,", refusal, ErrorCode.ELECTION_NOT_NEEDED
            if state.leader == preferred_broker:
                refusal = controller.refusal("elect_leaders", elect(name, index, PREFERRED), code)
                yield f"a preferred election in {place}", refusal, ErrorCode.ELECTION_NOT_NEEDED
            elif preferred_broker not in state.isr or not is_reachable(image, preferred_broker):
                refusal = controller.refusal("elect_leaders", elect(name, index, PREFERRED), code)
                yield f"a preferred election in {place}", refusal, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            else:
                _, after = controller.decide("elect_leaders", elect(name, index, PREFERRED))
                next_state = after.topics[name].partitions[index]
                # A lease or remote segments may delay it.
                possible_leaders = {state.leader, preferred_broker, NO_LEADER}
                yield f"a preferred election in {place}", next_state.leader in possible_leaders, True
                yield (
                    f"a preferred election in {place}, for its replicas,",
                    (next_state.isr, next_state.replicas),
                    (
                        state.isr,
                        state.replicas,
                    ),
                )


def _reassigns(controller: SupposedController) -> Iterator[Expectation]:
    """A reassignment adds replicas, and changes neither leader nor ISR until they are in sync; it can be cancelled
    (KIP-455)."""
    image = controller.image

    def move(name: str, replicas: Sequence[int] | None, may_change: bool = True) -> AlterPartitionReassignmentsRequest:
        place = ReassignablePartition(0, None if replicas is None else list(replicas))
        return AlterPartitionReassignmentsRequest(60_000, may_change, [Topic(name, [place])])

    def code(answer: Any) -> int:
        return int(answer.responses[0].partitions[0].error_code)

    def refused(name: str, replicas: Sequence[int] | None, may_change: bool = True) -> object:
        return controller.refusal("alter_reassignments", move(name, replicas, may_change), code)

    yield "a reassignment of an unknown topic", refused(UNKNOWN, [1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, topic in _topics(image)[:1]:
        state = topic.partitions[0]
        if state.adding or state.removing or state.leader == NO_LEADER:
            continue
        old_replicas = state.replicas
        for invalid_target in ([], [old_replicas[0], old_replicas[0]], [max(image.brokers) + 1]):
            yield (
                f"a reassignment to {invalid_target}",
                refused(name, invalid_target),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        yield "a cancelled reassignment", refused(name, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        yield "a reassignment to the same brokers", refused(name, old_replicas), OK
        spare_brokers = [broker for broker in image.brokers if broker not in old_replicas]
        for broker in spare_brokers[:1]:
            target = (*old_replicas, broker)
            factor_code = refused(name, target, may_change=False)
            yield "a reassignment to more brokers", factor_code, ErrorCode.INVALID_REPLICATION_FACTOR
            _, after = controller.decide("alter_reassignments", move(name, target))
            moving_state = after.topics[name].partitions[0]
            expected_state = replace(
                state, partition_epoch=state.partition_epoch + 1, replicas=target, adding=(broker,), removing=()
            )
            yield f"a reassignment from {old_replicas} to {target}", moving_state, expected_state
            _, restored_image = controller.with_image(after).decide("alter_reassignments", move(name, None))
            restored_state = restored_image.topics[name].partitions[0]
            yield (
                "a cancelled reassignment",
                (restored_state.replicas, restored_state.adding, restored_state.isr),
                (old_replicas, (), state.isr),
            )


def _configures(controller: SupposedController) -> Iterator[Expectation]:
    """A key is set or removed, and the others stay."""
    image = controller.image

    def alter(name: str, *changes: IncrementalAlterableConfig) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, name, list(changes))])

    def code(answer: Any) -> int:
        return int(answer.responses[0].error_code)

    value = IncrementalAlterableConfig(MIN_INSYNC, SET, "1")
    unknown_code = controller.refusal("alter_configs", alter(UNKNOWN, value), code)
    yield "a setting of an unknown topic", unknown_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name, topic in _topics(image)[:1]:
        value_code = controller.refusal("alter_configs", alter(name, structs.replace(value, value="0")), code)
        yield "a wrong value", value_code, ErrorCode.INVALID_CONFIG
        other_configs = {key: text for key, text in topic.configs.items() if key != MIN_INSYNC}
        answer, after = controller.decide("alter_configs", alter(name, value))
        yield "a setting", (code(answer), after.topics[name].configs), (OK, {**other_configs, MIN_INSYNC: "1"})
        removal = IncrementalAlterableConfig(MIN_INSYNC, DELETE, None)
        _, after = controller.with_image(after).decide("alter_configs", alter(name, removal))
        yield "a removed setting", after.topics[name].configs, other_configs


def _gives_ids(controller: SupposedController) -> Iterator[Expectation]:
    """A block of producer ids is given once, to a broker that is registered (K98-1)."""
    image = controller.image
    broker = _any_broker(image)
    request = AllocateProducerIdsRequest(broker.id, broker.epoch)
    stale_request = structs.replace(request, broker_epoch=broker.epoch - 1)
    first_block, after = controller.decide("allocate_producer_ids", request)
    second_block, _ = controller.with_image(after).decide("allocate_producer_ids", request)
    yield "a block of producer ids", first_block.producer_id_start >= image.next_producer_id, True
    yield (
        "the next block",
        second_block.producer_id_start >= first_block.producer_id_start + first_block.producer_id_len,
        True,
    )
    refusal = controller.refusal("allocate_producer_ids", stale_request, lambda answer: answer.error_code)
    yield "a block for an earlier process", refusal, ErrorCode.STALE_BROKER_EPOCH


def _any_broker(image: MetadataImage) -> BrokerImage:
    return next(broker for broker in image.brokers.values() if not broker.fenced)


def _hears(controller: SupposedController) -> Iterator[Expectation]:
    """A heartbeat of another epoch is refused. A broker that leaves is fenced; a fenced one returns only when it has
    applied its own fencing (KIP-631)."""
    broker = _any_broker(controller.image)
    beat = BrokerHeartbeatRequest(broker.id, broker.epoch, controller.image.offset)
    for epoch in (broker.epoch - 1, broker.epoch + 1):
        epoch_code, _ = controller.decide("heartbeat", structs.replace(beat, broker_epoch=epoch))
        yield "a heartbeat of another epoch", epoch_code, ErrorCode.STALE_BROKER_EPOCH
    _, same_image = controller.decide("heartbeat", beat)
    yield "a heartbeat", same_image.offset, controller.image.offset
    for farewell in (structs.replace(beat, want_fence=True), structs.replace(beat, want_shut_down=True)):
        _, after = controller.decide("heartbeat", farewell)
        yield "a heartbeat of a broker that leaves", after.brokers[broker.id].fenced, True
        fencing_controller = controller.with_image(after)
        early_beat = structs.replace(beat, current_metadata_offset=controller.image.offset)
        _, fenced_image = fencing_controller.decide("heartbeat", early_beat)
        yield "a heartbeat of a broker that does not know its fencing", fenced_image.brokers[broker.id].fenced, True
        _, returned_image = fencing_controller.decide(
            "heartbeat", structs.replace(beat, current_metadata_offset=after.offset)
        )
        yield "a heartbeat of a broker that returns", returned_image.brokers[broker.id].fenced, False


def _registers(controller: SupposedController) -> Iterator[Expectation]:
    """A broker of another cluster, without a listener, or beside a live one on another disk is refused. A repeated
    registration keeps its epoch (K595-49, K595-53)."""
    image = controller.image
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
    second_disk = structs.replace(request, incarnation_id=OTHER_ID, log_dirs=[OTHER_ID])
    for what, invalid_request, code in (
        ("of another cluster", structs.replace(request, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("without a listener", structs.replace(request, listeners=[]), ErrorCode.INVALID_REQUEST),
        ("of a second disk", second_disk, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ):
        yield f"a registration {what}", controller.decide("register", invalid_request)[0], code
    answer, after = controller.decide("register", request)
    yield "a repeated registration", (answer.broker_epoch, after.brokers[broker.id].fenced), (broker.epoch, False)
