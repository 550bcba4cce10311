"""Every API under rules: refusals, their messages, and the remaining part of a request."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from broker.controller.image import MetadataImage, TopicImage
from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey
from broker.protocol.codec import decode_exactly, encoded
from broker.protocol.messages.cluster_apis import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from broker.protocol.messages.config_apis import DescribeConfigsRequest, DescribeConfigsResource
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from broker.protocol.messages.group_apis import (
    TRANSACTION_KEY,
    FindCoordinatorRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
)
from broker.protocol.messages.producer_apis import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from broker.protocol.schema import NO_ID, Message, Topic
from broker.security.acls import CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from broker.security.authorizer import Authorizer, Caller
from broker.server.authorization.acl_guard import GROUP_RULES, OPEN_TO_ALL, RULES, TOPIC_RULES, AclGuard
from broker.server.connection import Rejected
from broker.server.dispatch import Permit, RefusedRequest
from tests.broker.protocol.samples import sample

TOPIC_ID = b"t" * 16
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


ALICE = Caller("User:alice", "10.0.0.1")


def check(request: Message, version: int, *rules: tuple[ResourceType, str, AclOperation]) -> Permit:
    image = MetadataImage()
    for name, topic_id in (("mine", TOPIC_ID), ("theirs", b"u" * 16)):
        image.topics[name] = TopicImage(name, topic_id)
        image._names[topic_id] = name
    authorizer = Authorizer(frozenset(), allow_if_no_acl=False)
    authorizer.learn(
        Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
        for kind, name, operation in rules
    )
    return AclGuard(authorizer, lambda: image).check(request, version, ALICE)


def topic(name: str, operation: AclOperation) -> tuple[ResourceType, str, AclOperation]:
    return ResourceType.TOPIC, name, operation


def group(name: str, operation: AclOperation) -> tuple[ResourceType, str, AclOperation]:
    return ResourceType.GROUP, name, operation


def on_cluster(operation: AclOperation) -> tuple[ResourceType, str, AclOperation]:
    return ResourceType.CLUSTER, CLUSTER_NAME, operation


def codes(part: object) -> set[int]:
    """All error codes of a response."""
    if isinstance(part, list):
        return {code for element in part for code in codes(element)}
    if not isinstance(part, Message):
        return set()
    found: set[int] = set()
    for name in part.__struct_fields__:
        value = getattr(part, name)
        found |= {value} if name == "error_code" else codes(value)
    return found


@pytest.mark.conforms("SEC-5")
def test_every_api_has_a_rule_or_is_open_to_all_on_purpose() -> None:
    assert RULES.keys() | OPEN_TO_ALL == APIS.keys()
    assert not RULES.keys() & OPEN_TO_ALL


@pytest.mark.conforms("SEC-5")
def test_an_api_declares_an_operation_or_has_a_check_of_its_own() -> None:
    declared = {key for key, api in APIS.items() if api.operation}
    assert not declared & (TOPIC_RULES.keys() | GROUP_RULES.keys() | {ApiKey.INIT_PRODUCER_ID})
    assert {key for key, api in APIS.items() if api.operation == "CLUSTER_ACTION"} == {
        key for key, api in APIS.items() if not api.advertised
    }


@pytest.mark.conforms("SEC-5")
def test_an_api_without_an_operation_or_a_check_stops_the_program(tmp_path: Path) -> None:
    (tmp_path / "push_telemetry.py").write_text(
        "from broker.protocol.schema import Message, ServedApi, v\n"
        "class PushTelemetryRequest(Message):\n    API = ServedApi(72, v('0'))\n"
        "class PushTelemetryResponse(Message):\n    pass\n"
    )
    program = (
        f"from broker.protocol import messages; messages.__path__.append({str(tmp_path)!r}); "
        "import broker.server.authorization.acl_guard"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "DeclarationError: PUSH_TELEMETRY: neither an operation nor a check" in done.stderr


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize("key", sorted(RULES), ids=lambda key: key.name)
def test_every_api_refuses_a_user_without_rights(key: ApiKey) -> None:
    """At every version: what is left of the request names no topic, group or resource, and the answer can be sent."""
    rng = random.Random(int(key))
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        for _ in range(20):
            request = sample(api.request, version, rng)
            if isinstance(request, FindCoordinatorRequest) and request.key_type == TRANSACTION_KEY:
                continue  # the answer names a broker that has no transactions, whatever the key is
            try:
                permit = check(request, version)
            except RefusedRequest as refused:
                answer = refused.response
                assert codes(answer) <= DENIED | {ErrorCode.NONE}
            except Rejected:
                assert key is ApiKey.PRODUCE
                continue
            else:
                if permit.amend is None:
                    assert not any(_named(request)), request
                    continue
                left = permit.request
                if key not in (ApiKey.METADATA, ApiKey.LIST_GROUPS):
                    assert not any(_named(left)), left
                if key is ApiKey.FETCH:
                    continue  # amends what is not a message yet: below
                answer = permit.amend(api.response())
            assert isinstance(answer, api.response)
            decode_exactly(api.response, version, encoded(answer, version))


def _named(request: Message) -> list[str]:
    """What a request still names. Topics that it gives the ids of are not known here: the handler says so."""
    lists = ("topics", "topic_data", "groups", "groups_names", "coordinator_keys", "resources", "topic_names")
    found = [element for name in lists for element in getattr(request, name, None) or []]
    keys = ("name", "topic", "resource_name", "group_id")
    by_name = [it for it in found if getattr(it, "topic_id", NO_ID) == NO_ID]
    return [it if isinstance(it, str) else next(getattr(it, key) for key in keys if hasattr(it, key)) for it in by_name]


@pytest.mark.conforms("SEC-5")
def test_produce_appends_only_to_writable_topics() -> None:
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0)]) for name in ("mine", "theirs")
        ],
    )
    permit = check(request, 9, topic("mine", AclOperation.WRITE))
    assert [it.name for it in permit.request.topic_data] == ["mine"]  # type: ignore[attr-defined]
    assert permit.amend is not None
    (refused,) = permit.amend(APIS[ApiKey.PRODUCE].response()).responses
    assert (refused.name, refused.partition_responses[0].error_code) == ("theirs", 29)
    with pytest.raises(Rejected, match="theirs"):
        check(ProduceRequest(acks=0, topic_data=request.topic_data), 9, topic("mine", AclOperation.WRITE))


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize("version", [12, 15])
def test_fetch_serves_readers_and_replica_fetches_serve_brokers(version: int) -> None:
    by_name = version < 13
    topics = [
        FetchTopic("mine" if by_name else "", TOPIC_ID if not by_name else bytes(16), [FetchPartition(0)]),
        FetchTopic("theirs" if by_name else "", b"u" * 16 if not by_name else bytes(16), [FetchPartition(1)]),
    ]
    permit = check(FetchRequest(max_wait_ms=500, topics=topics), version, topic("mine", AclOperation.READ))
    assert permit.request.topics == topics[:1]  # type: ignore[attr-defined]
    assert permit.amend is not None
    (answer,) = permit.amend([])
    assert [(it.partition, it.error) for it in answer.partitions] == [(1, 29)]
    replica = (
        FetchRequest(topics=topics, replica_id=2)
        if by_name
        else FetchRequest(topics=topics, replica_state=ReplicaState(2, 7))
    )
    assert check(replica, version, on_cluster(AclOperation.CLUSTER_ACTION)).amend is None
    forged = check(replica, version, topic("mine", AclOperation.READ), topic("theirs", AclOperation.READ))
    assert forged.request.topics == []  # type: ignore[attr-defined]


@pytest.mark.conforms("SEC-5", "SEC-6")
def test_the_metadata_log_is_not_read_as_a_topic() -> None:
    request = FetchRequest(topics=[FetchTopic("__cluster_metadata", partitions=[FetchPartition(0)])])
    assert check(request, 12, topic("*", AclOperation.ALL)).request.topics == []  # type: ignore[attr-defined]
    assert check(request, 12, on_cluster(AclOperation.CLUSTER_ACTION)).amend is None


@pytest.mark.conforms("SEC-5")
@pytest.mark.parametrize("version", [0, 1, 12])
def test_metadata_hides_topics_without_the_describe_right(version: int) -> None:
    known = [MetadataResponseTopic(name=name) for name in ("mine", "theirs")]
    everything = MetadataRequest(topics=[] if version == 0 else None)
    permit = check(everything, version, topic("mine", AclOperation.READ))
    assert permit.amend is not None
    assert [it.name for it in permit.amend(MetadataResponse(topics=list(known))).topics] == ["mine"]
    named = MetadataRequest(topics=[MetadataRequestTopic(name="theirs")])
    permit = check(named, version, topic("mine", AclOperation.READ))
    assert permit.amend is not None
    # A request of version 0 without topics asks for all topics.
    answered = permit.amend(MetadataResponse(topics=list(known) if version == 0 else [])).topics
    assert [(it.name, it.error_code) for it in answered] == [("theirs", 29)]


@pytest.mark.conforms("SEC-5")
def test_automatic_topic_creation_needs_the_create_right() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new"), MetadataRequestTopic(name="mine")])
    rules = topic("*", AclOperation.DESCRIBE)
    assert [it.name for it in check(request, 12, rules).request.topics] == ["mine"]  # type: ignore[attr-defined]
    assert check(request, 12, rules, topic("new", AclOperation.CREATE)).amend is None
    request.allow_auto_topic_creation = False
    assert check(request, 12, rules).amend is None


@pytest.mark.conforms("SEC-5")
def test_topics_are_created_and_deleted_one_by_one() -> None:
    creation = CreateTopicsRequest([CreatableTopic("new", 1, 1), CreatableTopic("other", 1, 1)])
    permit = check(creation, 7, topic("new", AclOperation.CREATE))
    assert [it.name for it in permit.request.topics] == ["new"]  # type: ignore[attr-defined]
    assert permit.amend is not None
    assert [(it.name, it.error_code) for it in permit.amend(CreateTopicsResponse()).topics] == [("other", 29)]
    permit = check(creation, 7, on_cluster(AclOperation.CREATE), topic("new", AclOperation.DESCRIBE_CONFIGS))
    assert permit.amend is not None
    created = [CreatableTopicResult(it.name, num_partitions=1, replication_factor=1) for it in creation.topics]
    shown = permit.amend(CreateTopicsResponse(topics=created)).topics
    assert [(it.name, it.num_partitions, it.configs, it.topic_config_error_code) for it in shown] == [
        ("new", 1, [], 0),
        ("other", -1, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    for request, version in (
        (DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=TOPIC_ID), DeleteTopicState("theirs")]), 6),
        (DeleteTopicsRequest(topic_names=["mine", "theirs"]), 5),
    ):
        permit = check(request, version, topic("mine", AclOperation.DELETE))
        assert permit.amend is not None
        (refused,) = permit.amend(DeleteTopicsResponse()).responses
        assert (refused.name, refused.error_code) == ("theirs", 29)


@pytest.mark.conforms("SEC-5")
def test_a_topic_with_an_unknown_id_is_not_deleted_without_the_right() -> None:
    """The controller may know it already: what the broker hands on, it hands on in its own name."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=b"n" * 16), DeleteTopicState(topic_id=TOPIC_ID)])
    for rules, left in (((), []), ((topic("mine", AclOperation.DELETE),), [TOPIC_ID])):
        permit = check(request, 6, *rules)
        assert [it.topic_id for it in permit.request.topics] == left  # type: ignore[attr-defined]
        assert permit.amend is not None
        refused = permit.amend(DeleteTopicsResponse()).responses
        answered = {it.topic_id: (it.name, it.error_code) for it in refused}
        assert answered.pop(b"n" * 16) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
        assert answered == ({} if left else {TOPIC_ID: (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)})


@pytest.mark.conforms("SEC-5")
def test_configurations_of_brokers_are_the_clusters() -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "mine"), DescribeConfigsResource(4, "1")])
    permit = check(request, 4, topic("mine", AclOperation.ALTER_CONFIGS))
    assert permit.amend is not None
    assert codes(permit.amend(APIS[ApiKey.DESCRIBE_CONFIGS].response())) == {31}
    permit = check(request, 4, on_cluster(AclOperation.DESCRIBE_CONFIGS))
    assert permit.amend is not None
    assert codes(permit.amend(APIS[ApiKey.DESCRIBE_CONFIGS].response())) == {29}


@pytest.mark.conforms("SEC-5")
def test_offsets_need_rights_on_the_group_and_on_the_topics() -> None:
    topics = [Topic(name, [OffsetCommitRequestPartition(0)]) for name in ("mine", "theirs")]
    commit = OffsetCommitRequest("g", topics=topics)
    permit = check(commit, 8, group("g", AclOperation.READ), topic("mine", AclOperation.READ))
    assert permit.amend is not None
    assert [it.name for it in permit.amend(OffsetCommitResponse()).topics] == ["theirs"]
    with pytest.raises(RefusedRequest) as refused:
        check(commit, 8, topic("*", AclOperation.ALL))
    assert codes(refused.value.response) == {30}


@pytest.mark.conforms("SEC-5")
def test_offsets_of_several_groups() -> None:
    def asked(name: str, *topics: str) -> OffsetFetchRequestGroup:
        return OffsetFetchRequestGroup(name, topics=[OffsetFetchRequestTopic(it, [0]) for it in topics] or None)

    request = OffsetFetchRequest(groups=[asked("g", "mine", "theirs"), asked("other", "mine"), asked("all")])
    rules = group("g", AclOperation.READ), group("all", AclOperation.DESCRIBE), topic("mine", AclOperation.READ)
    permit = check(request, 8, *rules)
    left = [(it.group_id, it.topics and [its.name for its in it.topics]) for it in permit.request.groups]  # type: ignore[attr-defined]
    assert left == [("g", ["mine"]), ("all", None)]
    offsets = [Topic[OffsetFetchResponsePartition](name) for name in ("mine", "theirs")]
    assert permit.amend is not None
    answer = permit.amend(
        OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup("g", offsets[:1]), OffsetFetchResponseGroup("all", offsets)]
        )
    )
    answered = [(it.group_id, it.error_code, [its.name for its in it.topics]) for it in answer.groups]
    assert answered == [("g", 0, ["mine", "theirs"]), ("all", 0, ["mine"]), ("other", 30, [])]
    assert codes(answer.groups[0].topics[1]) == {29}


@pytest.mark.conforms("SEC-5")
def test_groups_that_may_not_be_described_are_not_listed() -> None:
    permit = check(ListGroupsRequest(), 4, group("g", AclOperation.DESCRIBE))
    assert permit.amend is not None
    response = ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in ("g", "other")])
    assert [it.group_id for it in permit.amend(response).groups] == ["g"]
    assert check(ListGroupsRequest(), 4, on_cluster(AclOperation.DESCRIBE)).amend is None
