"""A forwarded request names its user, and the controller decides by its own rules."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import encode_request
from broker.protocol.codec import DecodeError
from broker.protocol.messages.acl_apis import AclCreation, CreateAclsRequest
from broker.protocol.messages.broker_apis import EnvelopeRequest
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic
from broker.protocol.messages.partition_apis import ElectLeadersRequest
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.security.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from broker.security.authorizer import Caller
from broker.server.forwarding import address_bytes, caller_of, principal_bytes
from broker.server.security import AUTHORIZER
from simulator.cluster import SimulatedCluster
from tests.broker.clients.secured import write_private
from tests.broker.server.test_sasl_gate import as_user, client, started
from tests.stories import played_by

BROKERS, ALICES = "password-of-the-brokers", "password-of-alice"

STORIES = played_by(lambda cluster, story: cluster.run(story(cluster)), "cluster")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    users = f"broker={BROKERS}\nalice={ALICES}\n"
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.users.file": str(write_private(tmp_path / "users", users)),
        "sasl.inter.broker.credentials.file": str(write_private(tmp_path / "own", f"broker={BROKERS}\n")),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:broker",
        "auto.create.topics.enable": "true",
    }
    with SimulatedCluster(1, properties=properties) as made:
        yield made


def elsewhere(cluster: SimulatedCluster) -> int:
    """A broker that is not the controller."""
    return min(it.node_id for it in cluster.machines.values() if it.name != cluster.controller())


def believe(cluster: SimulatedCluster, broker: int, *rules: tuple[ResourceType, str, AclOperation]) -> None:
    """One broker has rules that the others do not have: it lags behind, or it is faulty."""
    authorizer = cluster.node(f"n{broker}")._security.authorizer
    assert authorizer is not None
    acls = (
        Acl(kind, name, PatternType.LITERAL, "User:alice", "*", what, Permission.ALLOW) for kind, name, what in rules
    )
    authorizer.learn(acls)


@pytest.mark.conforms("SEC-8")
async def test_the_controller_may_refuse_a_request_that_the_forwarding_broker_allowed(
    cluster: SimulatedCluster, /
) -> None:
    await started(cluster)
    root, alice = client(cluster, as_user("broker", BROKERS)), client(cluster, as_user("alice", ALICES))
    asked = elsewhere(cluster)
    creation = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in ("mine", "theirs")], timeout_ms=5_000)
    created = await root.request(asked, creation, 10.0)
    assert [it.error_code for it in created.topics] == [ErrorCode.NONE] * 2
    kind = ResourceType.TOPIC
    rule = AclCreation(kind, "mine", PatternType.LITERAL, "User:alice", "*", AclOperation.DELETE, Permission.ALLOW)
    await root.request(asked, CreateAclsRequest([rule]), 10.0)
    await cluster.until(lambda: all(len(cluster.node(name).image.acls) == 1 for name in cluster.machines))
    await cluster.until(lambda: "theirs" in cluster.node(f"n{asked}").image.topics)
    believe(cluster, asked, (kind, "*", AclOperation.ALL), (ResourceType.CLUSTER, "kafka-cluster", AclOperation.ALL))
    deletion = DeleteTopicsRequest([DeleteTopicState(name) for name in ("theirs", "mine")], timeout_ms=5_000)
    deleted = await alice.request(asked, deletion, 10.0)
    codes = {it.name: it.error_code for it in deleted.responses}
    assert codes == {"mine": ErrorCode.NONE, "theirs": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert "theirs" in cluster.node(str(cluster.controller())).image.topics
    elected = await alice.request(asked, ElectLeadersRequest(timeout_ms=5_000), 10.0)
    assert elected.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.conforms("SEC-8")
async def test_the_controller_checks_the_user_behind_an_automatic_topic_creation(cluster: SimulatedCluster, /) -> None:
    await started(cluster)
    alice = client(cluster, as_user("alice", ALICES))
    asked = elsewhere(cluster)
    believe(cluster, asked, (ResourceType.TOPIC, "*", AclOperation.ALL))
    request = MetadataRequest([MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    answer = await alice.request(asked, request, 10.0, 12)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await asyncio.sleep(1.0)
    assert "new" not in cluster.node(str(cluster.controller())).image.topics
    await client(cluster, as_user("broker", BROKERS)).request(asked, request, 10.0, 12)
    await cluster.until(lambda: "new" in cluster.node(str(cluster.controller())).image.topics)


@pytest.mark.conforms("SEC-8")
async def test_an_envelope_without_a_principal_uses_its_sender_and_an_unreadable_one_is_refused(
    cluster: SimulatedCluster, /
) -> None:
    await started(cluster)
    controller = cluster.machines[str(cluster.controller())].node_id
    addresses = {node: (host, 9093) for node, (host, _) in cluster.addresses.items()}
    broker = client(cluster, as_user("broker", BROKERS))
    broker.learn(addresses)
    creation = CreateTopicsRequest([CreatableTopic("t", 1, 1)], timeout_ms=5_000)
    data = bytes(encode_request(creation, 7, 0, None)[4:])
    for principal, code in (
        (None, ErrorCode.NONE),
        (b"", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (b"\0\7", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (principal_bytes(Caller("User:alice", "")) + b"!", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ):
        answer = await broker.request(controller, EnvelopeRequest(data, principal), 10.0)
        assert answer.error_code == code
    await cluster.until(lambda: "t" in cluster.node(str(cluster.controller())).image.topics)


@pytest.mark.conforms("SEC-8")
@pytest.mark.parametrize("principal", ["User:alice", "User:CN=a:b,O=House", "User:ANONYMOUS"])
@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1", ""])
def test_a_caller_is_the_same_on_the_other_side(principal: str, host: str) -> None:
    caller = Caller(principal, host)
    assert caller_of(principal_bytes(caller), address_bytes(caller)) == caller


@pytest.mark.conforms("SEC-8")
def test_principals_are_written_as_kafka_writes_them() -> None:
    """Version 0 of DefaultPrincipalData: two compact strings, a boolean, no tags."""
    assert principal_bytes(Caller("User:alice", "10.0.0.1")) == b"\0\0\x05User\x06alice\0\0"
    assert address_bytes(Caller("User:alice", "10.0.0.1")) == b"\x0a\0\0\x01"


def test_invalid_principal_bytes_are_refused() -> None:
    good = principal_bytes(Caller("User:alice", "10.0.0.1"))
    rng = random.Random(1)
    for principal, address in ((good, b"\0\0\0"), (good[:-1], b""), (b"\0\1" + good[2:], b""), (b"\0", b"")):
        with pytest.raises(DecodeError):
            caller_of(principal, address)
    for _ in range(300):
        try:
            caller_of(bytes(2) + rng.randbytes(rng.randrange(20)), rng.randbytes(rng.choice([0, 4, 16])))
        except DecodeError:
            continue
